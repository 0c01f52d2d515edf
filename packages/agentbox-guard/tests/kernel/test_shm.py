"""The run's own /dev/shm: semaphores and shared memory work without a rule, and the machine's is another place."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap

import pytest
from confined_child import ORDINARY
from kit.waiting import PATIENCE
from scenes import scenes, source_folders

from agentbox.guard.kernel import landlock, netns, seccomp, shm
from agentbox.policy import parse

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}"),
    pytest.mark.skipif(not shm.is_free(parse("read: /usr\n"), ()), reason="there is no /dev/shm"),
]


class Scene:
    """A workspace, and a file of the host in /dev/shm that everybody may change; runs Python as a user."""

    def __init__(self, user):
        self.user = user
        self.python = sys.executable if user is None else "/usr/bin/python3"
        self.runs = 0
        self.folder = tempfile.mkdtemp(prefix="agentbox-shm-", dir="/tmp")
        self.host = f"{shm.PLACE}/host-{os.path.basename(self.folder)}"
        with open(self.host, "w") as file:
            file.write("host")
        os.chmod(self.host, 0o666)
        os.chmod(self.folder, 0o777)

    def write(self, code):
        with open(f"{self.folder}/agent.py", "w") as file:
            file.write(textwrap.dedent(code))

    def start(self, code, *words, rules="", flags=(), boxed=True, options=(), before="", stdin=subprocess.DEVNULL):
        self.write(code)
        with open(f"{self.folder}/policy", "w") as file:
            file.write(f"read: .\nexec: {self.python}\n{rules}")
        self.runs += 1
        command = [self.python, *flags, "agent.py", *words]
        if boxed:
            head = ["-q", *options, "-p", "policy", "-t", f"{self.folder}/{self.runs}.jsonl"]
            main = f"{before}\nfrom agentbox.cli.__main__ import main\nimport sys\nsys.exit(main())"
            command = [self.python, "-c", main, "run", *head, "--", *command]
        ids = {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}
        environ = {"PATH": os.environ["PATH"], "HOME": self.folder, "PYTHONPATH": ":".join(source_folders())}
        return subprocess.Popen(
            command, cwd=self.folder, env=environ, text=True, stdin=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, **ids,
        )  # fmt: skip

    def run(self, code, *words, **options):
        """What it has said; its status must be 0."""
        process = self.start(code, *words, **options)
        said, error = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said + error
        return said

    def entries(self):
        with open(f"{self.folder}/{self.runs}.jsonl") as lines:
            return [json.loads(line) for line in lines]

    def content(self):
        with open(self.host) as file:
            return file.read()

    def close(self):
        os.unlink(self.host)
        shutil.rmtree(self.folder, ignore_errors=True)


scene = scenes(Scene, ORDINARY)


MULTIPROCESSING = """
    import multiprocessing, sys
    from multiprocessing import shared_memory

    def square(number):
        return number * number

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        with context.Lock():
            queue = context.Queue()
            queue.put(3)
            said = [queue.get(timeout=30)]
        with context.Pool(2) as pool:
            said += pool.map(square, [4, 5])
        memory = shared_memory.SharedMemory(create=True, size=8)
        memory.buf[0] = 6
        again = shared_memory.SharedMemory(memory.name)
        said.append(again.buf[0])
        again.close()
        memory.close()
        memory.unlink()
        print(said)
"""


@pytest.mark.parametrize("flags", [(), ("-I", "-S")], ids=["guarded", "isolated"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_works_without_a_rule_for_it(scene, method, flags):
    before = set(os.listdir(shm.PLACE))
    assert scene.run(MULTIPROCESSING, method, flags=flags) == "[3, 16, 25, 6]\n"
    entries = scene.entries()
    assert [entry for entry in entries if entry["kind"] == "deny"] == []
    told = [str(entry["args"].get("path", "")) for entry in entries if entry["kind"] == "observe"]
    assert any(path.startswith("$SHM/") for path in told) and not any(path.startswith(shm.PLACE) for path in told)
    assert not {name for name in set(os.listdir(shm.PLACE)) - before if any(name in path for path in told)}


HOST = """
    import json, os, sys
    host = sys.argv[1]
    found = {"listed": os.path.basename(host) in os.listdir("/dev/shm"), "there": os.path.exists(host)}
    calls = {
        "read": lambda: open(host).read(),
        "write": lambda: open(host, "r+").write("changed"),
        "time": lambda: os.utime(host),
        "of standard input": lambda: open("/proc/self/fd/0", "r+").write("changed"),
        "length of standard input": lambda: os.truncate("/proc/self/fd/0", 0),
    }
    for name, call in calls.items():
        try:
            call()
            found[name] = True
        except OSError:
            found[name] = False
    print(json.dumps(found))
    if sys.argv[2:]:
        open(host, "w").write("inside")
        os.rename(host, host + "-moved")
        os.unlink(host + "-moved")
"""
ATTEMPTS = ("listed", "there", "read", "write", "time", "of standard input", "length of standard input")


@pytest.mark.attempt("F12")
@pytest.mark.parametrize("rules", ["", "read: /\nwrite: /dev\n"], ids=["no rule", "rules for folders around it"])
@pytest.mark.parametrize("flags", [(), ("-I", "-S")], ids=["guarded", "isolated"])
def test_the_hosts_is_neither_seen_nor_changed(scene, flags, rules):
    """Neither by name nor by the descriptor that the run was started with, and a file of the same name is another."""
    with open(scene.host) as stdin:
        found = json.loads(scene.run(HOST, scene.host, "own", flags=flags, rules=rules, stdin=stdin))
    assert found == dict.fromkeys(ATTEMPTS, False)
    assert scene.content() == "host"
    with open(scene.host) as stdin:
        found = json.loads(scene.run(HOST, scene.host, flags=flags, boxed=False, stdin=stdin))
    assert {name: found[name] for name in ATTEMPTS} == dict.fromkeys(ATTEMPTS, True)


NATIVE = """
    import ctypes, os, sys
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.shm_open(b"/mine", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    assert fd >= 0 and libc.ftruncate(fd, 4096) == 0, ctypes.get_errno()
    libc.sem_open.restype = ctypes.c_void_p
    assert libc.sem_open(b"/mine", os.O_CREAT | os.O_EXCL, 0o600, 1)
    print(sorted(os.listdir("/dev/shm")), oct(os.stat("/dev/shm").st_mode))
"""


def test_the_c_library_makes_them(scene):
    assert scene.run(NATIVE, flags=("-I", "-S")) == "['mine', 'sem.mine'] 0o41777\n"


EXECUTABLE = """
    import mmap, os, shutil, subprocess, sys
    path = sys.argv[1]
    shutil.copy("/bin/true", path)
    os.chmod(path, 0o755)
    for call in (
        lambda: subprocess.run([path]),
        lambda: mmap.mmap(os.open(path, os.O_RDONLY), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC),
    ):
        try:
            call()
            print("done")
        except OSError as error:
            print(type(error).__name__)
    os.unlink(path)
"""


def test_nothing_is_executed_from_there(scene):
    """Whatever the rules say; from the private temporary folder the same is, under the same rules."""
    for flags in ((), ("-I", "-S")):
        said = scene.run(EXECUTABLE, f"{shm.PLACE}/program", flags=flags, rules="read: /\nexec: *\n")
        # A guard that asks first is told that there is no such program: nobody outside sees what lies there.
        assert len(said.split()) == 2 and set(said.split()) <= {"PermissionError", "FileNotFoundError"}
        assert scene.run(EXECUTABLE, f"{scene.folder}/program", flags=flags, boxed=False) == "done\ndone\n"


MEETING = """
    import os, sys
    open("/dev/shm/" + sys.argv[1], "w").close()
    print("made", flush=True)
    sys.stdin.readline()
    print(os.listdir("/dev/shm"))
"""


def test_two_runs_do_not_see_each_others(scene):
    processes = []
    for name in ("one", "two"):
        processes.append(scene.start(MEETING, name, stdin=subprocess.PIPE))
        assert processes[-1].stdout.readline() == "made\n"
    assert [process.communicate("\n", timeout=PATIENCE)[0] for process in processes] == ["['one']\n", "['two']\n"]


SDK = """
    import os, sys
    import agentbox.client as box
    os.symlink(sys.argv[1], "out/link")
    open(sys.argv[1], "w").write("inside")
    for path in (sys.argv[1], "out/link", "/dev/shm/new", "/proc/self/root" + sys.argv[1]):
        for call in (lambda: box.read_text(path), lambda: box.write_text(path, "changed")):
            try:
                print(call())
            except PermissionError as error:
                print("refused")
    print(open(sys.argv[1]).read(), os.path.exists("/dev/shm/new"))
    print(box.run([sys.executable, "-I", "-S", "-c", "import os; print(os.listdir())"], cwd="/dev/shm").stdout)
"""


@pytest.mark.parametrize("options", [(), ("--observe",)], ids=["record", "observe"])
def test_sdk_calls_do_not_reach_the_hosts(scene, options):
    """The supervisor makes them outside of the run: refused, also where nothing else is; programs start inside."""
    os.mkdir(f"{scene.folder}/out")
    os.chmod(f"{scene.folder}/out", 0o777)
    said = scene.run(SDK, scene.host, rules="read: /\nwrite: ./out/\nwrite: /dev\n", options=options)
    assert said.split("\n")[:9] == [*["refused"] * 8, "inside False"], said
    assert os.path.basename(scene.host) in said.split("\n")[9]
    assert scene.content() == "host" and not os.path.exists(f"{shm.PLACE}/new")


@pytest.mark.parametrize("rules", ["read: /dev/shm\n", "write: /dev/shm/shared-*\n"])
def test_a_rule_that_names_it_means_the_hosts(scene, rules):
    """Then nothing is covered, and the rules say all."""
    code = "import os, sys; print(os.path.exists(sys.argv[1]))"
    assert scene.run(code, scene.host, rules=rules, flags=("-I", "-S")) == "True\n"


DENIED = """
    import os, sys
    try:
        open("/dev/shm/new-" + str(os.getpid()), "x")
    except PermissionError:
        print("denied")
"""


@pytest.mark.parametrize(
    "options", [("--layers", "guard"), ("--allow-degraded", "seccomp,netns")], ids=["guard", "degraded"]
)
def test_without_the_mount_it_stays_denied(scene, options):
    """With fewer layers asked for, and on a machine that forbids the mount: for the guard and for the kernel."""
    without = "from agentbox.guard import kernel; kernel.load('netns').probe = lambda: 'not here'"
    assert scene.run(DENIED, options=options, before=without if "--allow-degraded" in options else "") == "denied\n"
    for flags in ((), ("-I", "-S")):
        assert scene.run(DENIED, flags=flags, before=FORBIDDEN) == "denied\n"
        assert [entry["target"][:13] for entry in scene.entries() if entry["kind"] == "deny"] == ["/dev/shm/new-"]


FORBIDDEN = """
from agentbox.guard.kernel import syscalls
mount = syscalls.mount
def forbidden(source, target, kind, *rest):
    if kind == "tmpfs":
        raise PermissionError(1, "Operation not permitted")
    mount(source, target, kind, *rest)
syscalls.mount = forbidden
"""
"""What a security module does that forbids mounts to containers."""


def test_what_a_run_uses_there_keeps_it_uncovered(tmp_path):
    """A working directory, a program or a private folder in /dev/shm must be found inside."""
    assert shm.is_free(parse("read: /\nwrite: /dev\n"), ["/", "/dev", "/dev/shmem", str(tmp_path)])
    assert not shm.is_free(parse("read: /usr\n"), [f"{shm.PLACE}/agentbox-0-1"])
    (tmp_path / "link").symlink_to(shm.PLACE)
    assert not shm.is_free(parse("read: /usr\n"), [str(tmp_path / "link" / "x")])
