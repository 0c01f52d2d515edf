"""What the Python guard does beyond refusing: arm early or not at all, load little, hash what is read, survive what
programs do.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from kit.waiting import PATIENCE, has_ended, holds, wait_until

from agentbox.guard import python as guard_python
from agentbox.guard.kernel import landlock, netns, seccomp
from agentbox.trace import verify

SHIM = str(pathlib.Path(guard_python.__file__).parent / "shim")
AGENTBOX = [sys.executable, "-m", "agentbox.cli", "run", "--layers", "guard"]
POLICY = f"read: ./data\nread: ./agent.py\nwrite: ./out/\nexec: {sys.executable}\nexec: echo\nenv: WANTED\n"
ADDED_MODULES = {
    "sitecustomize", "errno", "_json", "_sha2", "_sha256", "_socket", "_posixsubprocess", "__future__",
}  # fmt: skip
"""All that a guarded interpreter holds beyond a bare one (docs/reference/architecture.md, "Start-up budget")."""


class Box:
    """A workspace to run agents in."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        (path / "data").mkdir()
        (path / "out").mkdir()
        (path / "data/notes.txt").write_text("notes\n")
        (path / "agentbox.policy").write_text(POLICY)

    def script(self, code: str) -> str:
        (self.path / "agent.py").write_text(textwrap.dedent(code))
        return "agent.py"

    def start(self, code: str, *options: str, **environ: str) -> subprocess.Popen[str]:
        command = [*AGENTBOX, *options, "--", sys.executable, self.script(code)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.path, env={**os.environ, **environ}, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, code: str, *options: str, status: int = 0, **environ: str) -> str:
        process = self.start(code, *options, **environ)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == status, err
        self.err = err
        return out

    def entries(self, op: str | None = None) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (self.path / "trace.jsonl").read_text().splitlines()]
        return [line for line in lines if op is None or line["op"] == op]


@pytest.fixture
def box(tmp_path: pathlib.Path) -> Box:
    return Box(tmp_path)


def test_a_folder_that_is_there_is_no_missing_rule(box: Box) -> None:
    """`makedirs(..., exist_ok=True)` makes nothing then, and a rule for it would open all that is in the folder."""
    code = """
        import os
        for path in ("data", ".", "/etc"):
            os.makedirs(path, exist_ok=True)
            try:
                os.mkdir(path)
            except FileExistsError as error:
                print(error.strerror)
        try:
            os.mkdir("other")
        except PermissionError:
            print("refused")
    """
    assert box.run(code).split("\n")[:-1] == ["File exists"] * 3 + ["refused"]
    assert [(line["op"], line["target"]) for line in box.entries() if line["kind"] == "deny"] == [
        ("fs.mkdir", f"{box.path}/other")
    ]


def test_a_child_may_be_told_not_to_ask(box: Box) -> None:
    """As IPython does when it is imported; a pager of another kind is nothing to a program that asks for none."""
    code = """
        import os, subprocess
        os.environ.update(GIT_PAGER="cat", GIT_EDITOR="true", PAGER="cat")
        print(subprocess.check_output(["echo", "told"], text=True), end="")
        print(subprocess.check_output(["echo", "told"], env=dict(os.environ), text=True), end="")
        os.environ.update(GIT_PAGER="./cat", GIT_EDITOR="true; id", GIT_SSH="cat")
        print(subprocess.check_output(["echo", "told"], text=True), end="")
    """
    assert box.run(code).split() == ["told", "told", "told"]


@pytest.mark.parametrize("layers", [(), ("--layers", "kernel")], ids=["guard", "kernel"])
def test_a_folder_is_not_written_to_by_opening_it(box: Box, layers: tuple[str, ...]) -> None:
    """tempfile opens the folder with an opener that makes another file, whose own rule and entry it is."""
    if layers and (landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe() or netns.NETNS.probe()):
        pytest.skip("no kernel layers")
    code = """
        import os, tempfile
        with tempfile.NamedTemporaryFile("w", dir="out", suffix=".txt", delete=False) as file:
            file.write("x")
        for name in "out", "/etc":
            try:
                open(name, "w")
            except IsADirectoryError:
                print("folder")
        os.close(os.open(os.environ["TMPDIR"], os.O_TMPFILE | os.O_WRONLY))
    """
    (box.path / "agentbox.policy").write_text("write: ./out/*.txt\n")
    assert box.run(code, *layers) == "folder\n" * 2
    made, unnamed = (entry["args"] for entry in box.entries("fs.write"))
    assert made["path"].startswith(f"{box.path}/out/") and made["absent"]
    assert unnamed["path"] == "$TMPDIR" and "size" not in unnamed
    assert not [entry for entry in box.entries() if entry["kind"] == "deny"]


def test_the_guard_loads_a_pinned_list_of_modules(box: Box) -> None:
    """What runs in the agent at start-up costs every process of the run."""
    code = "import sys; print(*sorted(sys.modules))"
    boxed = set(box.run(code).split())
    bare = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert boxed - bare <= ADDED_MODULES


def test_no_user_code_runs_without_a_supervisor(tmp_path: pathlib.Path) -> None:
    """The shim without a channel, and with one that nobody answers, ends the interpreter with 70 before user code."""
    for channel in ({}, {"AGENTBOX_CHANNEL": str(tmp_path / "nobody")}):
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": SHIM, **channel}
        done = subprocess.run([sys.executable, "-c", "print('user code')"], env=environ, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (70, "")
        assert done.stderr.startswith("agentbox: the guard ")
        assert "Traceback" not in done.stderr


def test_a_supervisor_that_speaks_garbage_is_no_supervisor(tmp_path: pathlib.Path) -> None:
    """A welcome that does not parse ends the interpreter like none."""
    server = textwrap.dedent("""
        import socket, sys
        s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print("up", flush=True)
        c, _ = s.accept(); c.recv(4096); c.sendall(b'{"t":"wel\\x00come\\n')
        c.recv(1)
    """)
    path = str(tmp_path / "channel")
    with subprocess.Popen([sys.executable, "-c", server, path], stdout=subprocess.PIPE) as peer:
        assert peer.stdout is not None
        peer.stdout.readline()
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": SHIM, "AGENTBOX_CHANNEL": path}
        done = subprocess.run([sys.executable, "-c", "print('user code')"], env=environ, capture_output=True, text=True)
        peer.kill()
    assert (done.returncode, done.stdout) == (70, "")
    assert "could not arm" in done.stderr


@pytest.mark.parametrize("stderr", ["closed", "full"])
def test_the_interpreter_ends_where_nothing_can_be_said(tmp_path: pathlib.Path, stderr: str) -> None:
    """With 70 as well: before its guard is live, and when that loses its supervisor. Then the agent would meet an
    error that it can catch.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while stderr == "full":
        try:
            os.write(writer, b"x" * 4096)
        except BlockingIOError:
            break
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": SHIM, "AGENTBOX_CHANNEL": str(tmp_path / "nobody")}
    ready = (lambda: os.close(2)) if stderr == "closed" else None
    command = [sys.executable, "-c", "print('user code')"]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=writer, preexec_fn=ready)
    assert (done.returncode, done.stdout) == (70, b"")
    lost = f"""
        import os, sys
        sys.path.insert(0, {str(pathlib.Path(SHIM).parent)!r})
        import wire
        if {stderr == "closed"}:
            os.close(2)
        try:
            wire.gone("it closed the channel")
        except OSError:
            print("went on")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(lost)], stdout=subprocess.PIPE, stderr=writer)
    assert (done.returncode, done.stdout) == (70, b"")
    os.close(reader)
    os.close(writer)


def test_an_interrupt_while_the_guard_comes_up_ends_by_it(tmp_path: pathlib.Path) -> None:
    """As Ctrl-C ends a program without a guard; it is no failure of ours."""
    path = str(tmp_path / "channel")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": SHIM, "AGENTBOX_CHANNEL": path}
        command = [sys.executable, "-c", "print('user code')"]
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as agent:
            peer, _ = listener.accept()
            peer.recv(4096)  # its hello: it waits for an answer now
            for _ in range(20):  # one that comes right before the system call for the answer does not end its wait
                agent.send_signal(signal.SIGINT)
                if not holds(lambda: agent.poll() is None, 3):
                    break
            peer.close()
            assert agent.communicate(timeout=PATIENCE) == (b"", b"")
    assert agent.returncode == -signal.SIGINT


def test_the_users_own_sitecustomize_runs_guarded(box: Box, tmp_path: pathlib.Path) -> None:
    """It is found behind the shim on the import path, and sees denials like all user code."""
    code = """
        import sys
        sys.path.append("data")
        import importlib.machinery as m
        print(m.PathFinder.find_spec("sitecustomize", [p for p in sys.path if "shim" not in p]) is not None)
    """
    (box.path / "data/sitecustomize.py").write_text("")
    assert box.run(code) == "True\n"


@pytest.mark.parametrize("size", [0, 7, 4 * 1024 * 1024 + 3])
def test_reads_carry_the_hash_of_the_content(box: Box, size: int) -> None:
    """Small files by the built-in SHA-256, large ones by OpenSSL's: the same value as hashlib's."""
    content = os.urandom(size)
    (box.path / "data/blob").write_bytes(content)
    box.run("print(len(open('data/blob', 'rb').read()))")
    (read,) = [entry for entry in box.entries("fs.read") if entry["args"]["path"].endswith("/blob")]
    assert read["args"]["sha256"] == hashlib.sha256(content).hexdigest()
    assert read["args"]["size"] == size


def test_a_missing_file_is_recorded_as_absent_and_fails_as_without_a_guard(box: Box) -> None:
    """FileNotFoundError, not a denial."""
    code = """
        try:
            open("data/none")
        except FileNotFoundError as error:
            print(error)
    """
    assert box.run(code) == "[Errno 2] No such file or directory: 'data/none'\n"
    (read,) = box.entries("fs.read")
    assert read["args"]["absent"] is True


def test_a_fifo_is_not_read_for_its_hash(box: Box) -> None:
    """Hashing would block, or eat what the agent is to read."""
    os.mkfifo(box.path / "data/fifo")
    code = """
        import os, threading
        t = threading.Thread(target=lambda: open("data/fifo").read())
        fd = os.open("data/fifo", os.O_RDONLY | os.O_NONBLOCK)
        print(os.read(fd, 9))
    """
    assert box.run(code) == "b''\n"


def test_a_program_that_closes_all_descriptors_stays_recorded(box: Box) -> None:
    """Daemons do so: the guard sees that its own is gone and dials anew."""
    code = """
        import os
        os.closerange(3, 256)
        other = os.open("data/notes.txt", os.O_RDONLY)
        open("out/after", "w").close()
        print(os.read(other, 9))
    """
    assert box.run(code) == "b'notes\\n'\n"
    assert [entry["args"]["path"] for entry in box.entries("fs.write")] == [str(box.path / "out/after")]
    assert verify(str(box.path / "trace.jsonl")).ok


def test_forks_threads_and_children_write_one_chain(box: Box) -> None:
    """Four threads, a fork and three child processes: one intact chain with every act once."""
    code = """
        import os, subprocess, sys, threading
        if len(sys.argv) > 1:
            open("out/" + sys.argv[1], "w").close()
            sys.exit()
        def work(n):
            for i in range(25):
                open(f"out/t{n}-{i}", "w").close()
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        [t.start() for t in threads]
        if os.fork() == 0:
            open("out/forked", "w").close()
            os._exit(0)
        os.wait()
        children = [subprocess.Popen([sys.executable, "agent.py", f"c{n}"], env={}) for n in range(3)]
        print([c.wait() for c in children])
        [t.join() for t in threads]
    """
    assert box.run(code) == "[0, 0, 0]\n"
    written = sorted(pathlib.Path(entry["args"]["path"]).name for entry in box.entries("fs.write"))
    assert written == sorted([f"t{n}-{i}" for n in range(4) for i in range(25)] + ["forked", "c0", "c1", "c2"])
    assert len({entry["lane"] for entry in box.entries("fs.write")}) >= 5
    assert verify(str(box.path / "trace.jsonl")).ok


def test_children_are_guarded_though_their_environment_is_empty(box: Box) -> None:
    """The guard completes a child's environment, so honest code with env={} goes on, contained."""
    code = """
        import subprocess, sys
        out = subprocess.run([sys.executable, "-c", "open('/etc/passwd')"], env={}, capture_output=True, text=True)
        print(out.returncode, out.stderr.splitlines()[-1][:60])
    """
    assert box.run(code).startswith("1 PermissionError: [Errno 13] agentbox: fs.read denied: /etc/p")


def test_multiprocessing_spawn_works_guarded(box: Box) -> None:
    """It starts Python by a call that no audit event tells of."""
    code = """
        import multiprocessing, sys
        def work(q):
            try:
                open("/etc/passwd")
            except PermissionError:
                q.put("refused")
        if __name__ == "__main__":
            c = multiprocessing.get_context("spawn")
            q = c.SimpleQueue()
            p = c.Process(target=work, args=(q,))
            p.start(); print(q.get()); p.join()
    """
    assert box.run(code) == "refused\n"


def test_observe_lets_pass_and_says_so(box: Box) -> None:
    """--observe: the denial is recorded as not enforced, and the summary says it loudly."""
    out = box.run("print(len(open('/etc/passwd').read()) > 0)", "--observe")
    assert out == "True\n"
    (denial,) = [entry for entry in box.entries() if entry["kind"] == "deny"]
    assert denial["enforced"] is False
    assert "OBSERVE MODE: nothing is enforced" in box.err


def test_the_environment_holds_what_is_ruled_and_no_more(box: Box) -> None:
    """Private HOME and TMPDIR, what env: names, and none of the caller's other variables."""
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    seen = json.loads(box.run(code, WANTED="1", UNWANTED="2", LD_PRELOAD="", PYTHONSTARTUP="x"))
    assert seen["WANTED"] == "1"
    assert not {"UNWANTED", "LD_PRELOAD", "PYTHONSTARTUP"} & set(seen)
    assert seen["HOME"] != os.environ.get("HOME")
    assert not os.path.exists(seen["TMPDIR"])


def test_kill_9_of_the_supervisor_ends_the_agent_and_leaves_a_verifiable_prefix(box: Box) -> None:
    """No orphan goes on unrecorded; what was written verifies as unsealed."""
    code = """
        import os
        print(os.getpid(), flush=True)
        while True:
            open("out/x", "w").close()
    """
    process = box.start(code)
    assert process.stdout is not None
    agent = int(process.stdout.readline())
    trace = box.path / "trace.jsonl"
    wait_until(lambda: trace.read_bytes().count(b"fs.write") >= 20, "twenty entries")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    wait_until(lambda: has_ended(agent), "the end of the agent")
    report = verify(str(trace))
    assert not report.ok
    assert report.status == "unsealed"
    assert verify(str(trace), allow_unsealed=True).ok


def test_kill_9_of_the_agent_is_its_status_and_seals_the_trace(box: Box) -> None:
    """128+9, and a trace that is complete."""
    box.run("import os; open('data/notes.txt'); os.kill(os.getpid(), 9)", status=137)
    assert verify(str(box.path / "trace.jsonl")).ok


@pytest.mark.parametrize("flags", [["-I"], ["-S"], ["-E"], ["-sBuIS"], ["-X", "utf8", "-I"]])
def test_flags_that_disarm_the_guard_are_refused_before_user_code(box: Box, flags: list[str]) -> None:
    """One line says why; nothing ran."""
    command = [*AGENTBOX, "--", sys.executable, *flags, "-c", "print('user code')"]
    done = subprocess.run(command, cwd=box.path, capture_output=True, text=True)
    assert done.returncode not in (0, 1)
    assert done.stdout == ""
    assert done.stderr.startswith("agentbox: ")
    assert "Traceback" not in done.stderr


def test_tracebacks_and_logging_work_with_a_denial(box: Box) -> None:
    """Printing a traceback looks at the guard's frames; that must not be denied itself."""
    code = """
        import logging, traceback
        try:
            open("/etc/passwd")
        except PermissionError:
            traceback.print_exc()
            logging.exception("denied")
        try:
            import subprocess
            subprocess.run(["touch", "x"])
        except PermissionError:
            logging.exception("denied")
    """
    box.run(code)
    assert len([entry for entry in box.entries() if entry["kind"] == "deny"]) == 2
    assert box.err.count("PermissionError: [Errno 13]") == 3


@pytest.mark.skipif(not shutil.which("localedef"), reason="needs localedef, which makes a locale with another encoding")
def test_names_in_another_encoding_than_the_supervisors_are_not_guarded(box: Box) -> None:
    """A name would mean one file to the kernel and another to who judges it: no such interpreter gets to user code."""
    command = ["localedef", "-i", "en_US", "-f", "ISO-8859-1", str(box.path / "out/xx")]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("localedef has no sources here")
    code = """
        import os, subprocess, sys
        words = [sys.executable, "-X", "utf8=0", "-c", "import sys; print(sys.getfilesystemencoding())"]
        for locale in ("C", "xx"):
            env = dict(os.environ, LOCPATH=os.path.abspath("out"), LC_ALL=locale)
            done = subprocess.run(words, env=env, capture_output=True, text=True)
            print(done.returncode, done.stdout.strip(), "could not arm" in done.stderr)
    """
    assert box.run(code).splitlines() == ["0 ascii False", "70  True"]
