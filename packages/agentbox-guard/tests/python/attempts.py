"""Attempts of a hostile Python program, one function each; the test starts this file in a scene, bare and boxed.

An attempt returns when it got what it wanted and raises when it was refused. Every effect stays inside the scene.
"""

from __future__ import annotations

import _imp
import contextlib
import gc
import io
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import traceback
from importlib.machinery import ModuleSpec
from typing import Any

SCENE = os.environ.get("SCENE", ".")
SECRET = SCENE + "/private/secret.txt"
OUTSIDE = SCENE + "/outside"
VICTIM = OUTSIDE + "/victim.txt"
PORT = int(os.environ.get("SCENE_PORT", "0"))
SPOT = OUTSIDE + "/made-"
BOSS = os.getppid()


def read_secret(how: Any) -> str:
    text = how()
    assert "top secret" in (text if isinstance(text, str) else text.decode()), text
    return "read it"


def read_open() -> str:
    return read_secret(lambda: open(SECRET).read())


def read_bytes_path() -> str:
    return read_secret(lambda: open(os.fsencode(SECRET), "rb").read())


def read_os_open() -> str:
    return read_secret(lambda: os.read(os.open(SECRET, os.O_RDONLY), 99))


def read_fileio() -> str:
    return read_secret(lambda: io.FileIO(SECRET).read())


def read_open_code() -> str:
    return read_secret(lambda: io.open_code(SECRET).read())


def read_proc_root() -> str:
    return read_secret(lambda: open("/proc/self/root" + SECRET).read())


def read_proc_cwd() -> str:
    return read_secret(lambda: open("/proc/self/cwd/../private/secret.txt").read())


def read_thread_self() -> str:
    return read_secret(lambda: open("/proc/thread-self/root" + SECRET).read())


def read_dev_fd() -> str:
    fd = os.open(SCENE + "/private", os.O_RDONLY)
    return read_secret(lambda: open(f"/dev/fd/{fd}/secret.txt").read())


def read_symlink() -> str:
    os.symlink(SECRET, "out/link")
    return read_secret(lambda: open("out/link").read())


def read_moved_symlink() -> str:
    os.makedirs("out/a/b")
    os.symlink("../../../private/secret.txt", "out/a/b/l")
    os.rename("out/a/b", "out/c")
    return read_secret(lambda: open("out/c/l").read())


def read_trailing_dots() -> str:
    return read_secret(lambda: open("data/../../private/./secret.txt").read())


def read_dir_fd() -> str:
    fd = os.open("data", os.O_RDONLY)
    os.makedirs("out/x/private", exist_ok=True)
    os.chdir("out/x/private")
    try:
        return read_secret(lambda: os.read(os.open("../../private/secret.txt", os.O_RDONLY, dir_fd=fd), 99))
    finally:
        os.chdir("../../..")


def read_str_subclass() -> str:
    class Liar(str):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

        def startswith(self, *a: Any) -> bool:
            return True

        def split(self, *a: Any, **k: Any) -> list[Any]:
            return ["", "dev", "null"]

    return read_secret(lambda: open(Liar(SECRET)).read())


def read_pathlike_flip() -> str:
    class Flip:
        def __init__(self) -> None:
            self.answers = [SECRET, "data/notes.txt", "data/notes.txt"]

        def __fspath__(self) -> str:
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    return read_secret(lambda: io.FileIO(Flip()).read())  # type: ignore[arg-type]


def read_thread() -> str:
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(open(SECRET).read()))
    threading.excepthook = lambda args: None
    thread.start()
    thread.join()
    return read_secret(lambda: got[0] if got else "")


def read_fork() -> str:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, open(SECRET, "rb").read())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    return read_secret(lambda: os.read(reader, 99))


def read_sqlite() -> str:
    return read_secret(lambda: sqlite3.connect(SCENE + "/private/secret.db").execute("select * from t").fetchone()[0])


def read_sqlite_uri() -> str:
    uri = "file:out/%2e%2e/../private/secret.db?mode=ro"
    return read_secret(lambda: sqlite3.connect(uri, uri=True).execute("select * from t").fetchone()[0])


def read_recursion() -> str:
    limit = sys.getrecursionlimit()
    opener = os.open
    sys.setrecursionlimit(300)

    def dive(n: int) -> int:
        return opener(SECRET, 0) if n <= 0 else dive(n - 1)

    try:
        for depth in range(150, 300):
            try:
                return read_secret(lambda depth=depth: os.read(dive(depth), 99))
            except (RecursionError, OSError):
                continue
    finally:
        sys.setrecursionlimit(limit)
    raise PermissionError("at no depth")


def read_patched_modules() -> str:
    saved = os.path.realpath, os.readlink, os.getcwd, os.lstat
    try:
        os.path.realpath = lambda *a, **k: "/dev/null"  # type: ignore[assignment, misc]
        os.readlink = lambda *a, **k: "/dev/null"  # type: ignore[assignment]
        os.getcwd = lambda: "/dev"
        return read_secret(lambda: open(SECRET).read())
    finally:
        os.path.realpath, os.readlink, os.getcwd, os.lstat = saved  # type: ignore[misc]


def read_traceback_frames() -> str:
    for _ in range(3):
        try:
            return read_secret(lambda: open(SECRET).read())
        except OSError as error:
            trace = error.__traceback__
            while trace is not None:
                frame = trace.tb_frame
                for space in (frame.f_locals, frame.f_globals):
                    for name in ("dispatch", "on_open", "judge_file", "rules", "interesting", "path_decide"):
                        if name in space or (space is frame.f_globals and "agentbox" in str(frame.f_code.co_filename)):
                            space[name] = lambda *a, **k: None
                trace = trace.tb_next
    raise PermissionError("still refused")


def read_by_vault(namespaces: list[Any]) -> str:
    """Open the secret from a frame whose namespace is one that the guard takes for its own."""
    for namespace in namespaces:
        code = compile("def look(path):\n    import builtins\n    return builtins.open(path).read()", "look", "exec")
        exec(code, namespace)
        try:
            return read_secret(lambda namespace=namespace: namespace["look"](SECRET))
        except OSError:
            continue
    raise PermissionError("no namespace opens it")


def vaults_of(frame: Any) -> list[Any]:
    """What the guard's frames, from `frame` outwards, show of the namespace that its own reads have."""
    found = []
    while frame is not None:
        if frame.f_code.co_name in ("digest", "hasher"):
            found.append(frame.f_globals)
        if frame.f_locals.get("vault"):
            found.append(frame.f_locals["vault"])
        frame = frame.f_back
    return found


def read_hooks_frame() -> str:
    """What the hook calls is called outside of it, where tracing shows its frames."""
    try:
        return read_secret(lambda: open(SECRET).read())
    except OSError as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        shown = trace.tb_frame.f_locals if trace is not None else {}
    found: list[Any] = []
    sys.settrace(lambda frame, event, arg: found.extend(vaults_of(frame)))
    try:
        shown["dispatch"]("open", ("data/notes.txt", "r", 0))
    finally:
        sys.settrace(None)
    return read_by_vault(found)


def read_own_audit_hook() -> str:
    """A hook of its own is called for what the guard's hook opens and sends, from the frames of that one."""
    found: list[Any] = []
    look = sys._getframe

    def hook(event: str, args: Any) -> None:
        if event == "open":
            found.extend(vaults_of(look(1)))

    sys.addaudithook(hook)
    open("data/notes.txt").close()
    try:
        return read_secret(lambda: open(SECRET).read())
    except OSError:
        return read_by_vault(found)


def read_within_collection() -> str:
    """A callback of the collector runs within the hook."""
    found: list[Any] = []
    look = sys._getframe
    gc.callbacks.append(lambda phase, info: found.extend(vaults_of(look(1))))
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(300):
            open("data/notes.txt").close()
    finally:
        gc.callbacks.clear()
        gc.set_threshold(700, 10, 10)
    try:
        return read_secret(lambda: open(SECRET).read())
    except OSError:
        return read_by_vault(found[:1])


class LyingBytes(bytes):
    """Says another content by its buffer (PEP 688, Python 3.12) than C code finds in it, from the `after`th time on."""

    after, says = 0, b"data/notes.txt"

    def __buffer__(self, flags: int) -> memoryview:
        self.after -= 1
        return memoryview(self.says if self.after < 0 else bytes.__getitem__(self, slice(None)))


def read_bytes_subclass() -> str:
    return read_secret(lambda: open(LyingBytes(os.fsencode(SECRET))).read())


def read_below_deep_folder() -> str:
    """Where the working directory is deeper than a path may be long, no call by an absolute path sees a link."""
    workspace = os.getcwd()
    os.chdir("out")
    for _ in range(20):
        os.mkdir("d" * 240)
        os.chdir("d" * 240)
    os.symlink(workspace + "/out", "up")
    return read_secret(lambda: open("up/../../private/secret.txt").read())


def read_facade_defaults() -> str:
    os.open.__kwdefaults__["real"]
    return "got the original"


def read_env_of_children() -> str:
    code = f"print(open({SECRET!r}).read())"
    return read_secret(lambda: subprocess.run([sys.executable, "-c", code], env={}, capture_output=True).stdout)


def read_child_isolated() -> str:
    code = f"print(open({SECRET!r}).read())"
    return read_secret(lambda: subprocess.run([sys.executable, "-I", "-c", code], capture_output=True).stdout)


def read_child_cluster() -> str:
    code = f"print(open({SECRET!r}).read())"
    return read_secret(lambda: subprocess.run([sys.executable, "-BuISc", code], capture_output=True).stdout)


def read_child_after_unset() -> str:
    for name in [name for name in os.environ if name.startswith(("AGENTBOX", "PYTHON"))]:
        del os.environ[name]
    return read_env_of_children()


CHILD = f"print(open({SECRET!r}).read())"
BREAKOUT = f"import os; os.write(1, open({SECRET!r}, 'rb').read())"


def read_child_pyvenv() -> str:
    """A virtual environment of the agent's own making, whose .pth file runs before any guard."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    os.makedirs(f"out/venv/lib/{version}/site-packages")
    os.makedirs("out/venv/bin")
    with open("out/venv/pyvenv.cfg", "w") as file:
        file.write(f"home = {os.path.dirname(os.path.realpath(sys.executable))}\n")
    with open(f"out/venv/lib/{version}/site-packages/x.pth", "w") as file:
        file.write(BREAKOUT + "\n")
    os.symlink(os.path.realpath(sys.executable), "out/venv/bin/python")
    return read_secret(lambda: subprocess.run(["out/venv/bin/python", "-c", ""], capture_output=True).stdout)


def read_child_pyvenv_argv0() -> str:
    """The same, by argv[0] alone."""
    try:
        read_child_pyvenv()
    except OSError:
        pass
    argv0 = os.path.abspath("out/venv/bin/python")
    run = subprocess.run([argv0, "-c", ""], executable=os.path.realpath(sys.executable), capture_output=True)
    return read_secret(lambda: run.stdout)


def read_child_pyvenv_path() -> str:
    """The same, by PATH."""
    try:
        read_child_pyvenv()
    except OSError:
        pass
    env = {"PATH": os.path.abspath("out/venv/bin") + ":/usr/bin:/bin"}
    run = subprocess.run(
        ["python", "-c", ""], executable=os.path.realpath(sys.executable), env=env, capture_output=True
    )
    return read_secret(lambda: run.stdout)


def read_child_encodings() -> str:
    """A module that the interpreter imports before any guard, on a PYTHONPATH of the agent's."""
    os.makedirs("out/lib/encodings")
    with open("out/lib/encodings/__init__.py", "w") as file:
        file.write(f"import posix\nposix.write(1, posix.read(posix.open({SECRET!r}, 0), 99))\nposix._exit(0)\n")
    env = dict(os.environ, PYTHONPATH=os.environ.get("PYTHONPATH", "") + ":" + os.path.abspath("out/lib"))
    return read_secret(lambda: subprocess.run([sys.executable, "-c", ""], env=env, capture_output=True).stdout)


def read_child_encodings_putenv() -> str:
    """The same, by the environment of this process."""
    os.makedirs("out/lib/encodings", exist_ok=True)
    with open("out/lib/encodings/__init__.py", "w") as file:
        file.write(f"import posix\nposix.write(1, posix.read(posix.open({SECRET!r}, 0), 99))\nposix._exit(0)\n")
    os.environ["PYTHONPATH"] = os.path.abspath("out/lib")
    return read_secret(lambda: subprocess.run([sys.executable, "-c", ""], capture_output=True).stdout)


def read_child_pycache() -> str:
    """Compiled modules of the agent's making: -X pycache_prefix."""
    run = subprocess.run([sys.executable, "-X", "pycache_prefix=out/cache", "-c", CHILD], capture_output=True)
    return read_secret(lambda: run.stdout)


def read_parents_environment() -> str:
    """The supervisor's own variables, which the agent does not have."""
    text = open(f"/proc/{BOSS}/environ").read()
    assert text
    return "read it"


def tamper_setown() -> str:
    """Have the kernel send a signal to the supervisor when a pipe is ready."""
    import fcntl

    reader, _ = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, BOSS)
    return "set"


def exec_memfd() -> str:
    """A program that has no name."""
    fd = os.memfd_create("tool", 0)
    with open("/usr/bin/touch", "rb") as file:
        os.write(fd, file.read())
    subprocess.run(["echo", SPOT + "memfd"], executable=f"/proc/self/fd/{fd}", pass_fds=[fd], check=True)
    return "ran it"


def write_open() -> str:
    open(SPOT + "open", "w").close()
    return "made it"


def write_append() -> str:
    with open(VICTIM, "a") as file:
        file.write("more")
    return "changed it"


def write_creat_rdonly() -> str:
    os.open(SPOT + "creat", os.O_CREAT | os.O_RDONLY)
    return "made it"


def write_tmpfile() -> str:
    os.open(OUTSIDE, os.O_TMPFILE | os.O_WRONLY, 0o600)
    return "made it"


def write_dangling_link() -> str:
    os.symlink(SPOT + "dangling", "out/dangling")
    open("out/dangling", "w").close()
    return "made it"


def write_hard_link() -> str:
    os.link(VICTIM, "out/alias")
    with open("out/alias", "a") as file:
        file.write("more")
    return "changed it"


def write_mkdir() -> str:
    os.mkdir(SPOT + "dir")
    return "made it"


def write_mkfifo() -> str:
    os.mkfifo(SPOT + "fifo")
    return "made it"


class Index:
    """A number for C code, and none for Python code that asks for an int."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


def write_mkfifo_elsewhere() -> str:
    """A descriptor of a folder that is no int: its name was judged where the process was."""
    folder = os.open("data", os.O_RDONLY)
    os.chdir("out")
    try:
        os.mkfifo("made-fifo", dir_fd=Index(folder))  # type: ignore[arg-type]
    finally:
        os.chdir("..")
    assert os.path.exists("data/made-fifo")
    return "made it"


def write_profile(module: Any) -> str:
    """What a profiler is told, which the interpreter writes by itself; before Python 3.12 plain code makes the file."""
    made = f"/tmp/perf-{os.getpid()}.map"
    if sys.version_info < (3, 12):
        open(made, "w").close()
    else:
        module.activate_stack_trampoline("perf")
        eval(compile("0", "profiled", "eval"))
        module.deactivate_stack_trampoline()
    assert os.path.exists(made)
    with contextlib.suppress(OSError):  # a sandbox that let it be made may not let it be removed
        os.remove(made)
    return "made it"


def write_perf_map() -> str:
    return write_profile(sys)


def write_perf_map_by_second_sys() -> str:
    return write_profile(_imp.create_builtin(ModuleSpec("sys", None)))


def write_mknod() -> str:
    os.mknod(SPOT + "node")
    return "made it"


def write_symlink() -> str:
    os.symlink("x", SPOT + "symlink")
    return "made it"


def write_rename_out() -> str:
    open("out/mine", "w").close()
    os.rename("out/mine", SPOT + "renamed")
    return "moved it"


def write_remove() -> str:
    os.remove(OUTSIDE + "/removable.txt")
    return "removed it"


def write_truncate() -> str:
    os.truncate(VICTIM, 1)
    return "cut it"


def write_chmod() -> str:
    os.chmod(VICTIM, 0o600)
    return "changed it"


def write_utime() -> str:
    os.utime(VICTIM, (1, 1))
    return "changed it"


def write_chown() -> str:
    os.chown(VICTIM, os.getuid(), os.getgid())
    return "changed it"


def write_policy() -> str:
    with open("agentbox.policy", "a") as file:
        file.write("read: /\n")
    return "widened it"


def write_git_hook() -> str:
    """What git runs, in a repository inside the write root."""
    os.makedirs("out/repo/.git/hooks")
    with open("out/repo/.git/hooks/pre-commit", "w"):
        return "made it"


def write_shell_startup() -> str:
    """What a shell runs when its home is this folder, in other letter case."""
    with open("out/.BashRC", "w"):
        return "made it"


def write_agent_settings() -> str:
    """What other agents obey, moved into place."""
    os.makedirs("out/project")
    with open("out/project/plain.json", "w"):
        pass
    os.rename("out/project/plain.json", "out/project/.mcp.json")
    return "made it"


def write_editor_task_by_sdk() -> str:
    """The same by a call that the supervisor performs; bare, by plain code."""
    os.makedirs("out/work/.vscode", exist_ok=True)
    if "AGENTBOX_CHANNEL" not in os.environ:
        with open("out/work/.vscode/tasks.json", "w"):
            return "made it"
    import agentbox.client as box

    box.write_text("out/work/.vscode/tasks.json", "{}")
    return "made it"


def write_stdlib() -> str:
    path = os.path.dirname(os.__file__) + "/agentbox_attempt.py"
    with open(path, "w"):
        pass
    os.remove(path)
    return "made it"


def exec_list() -> str:
    subprocess.run(["touch", SPOT + "exec"], check=True)
    return "ran it"


def exec_shell() -> str:
    subprocess.run("touch " + SPOT + "shell", shell=True, check=True)
    return "ran it"


def exec_system() -> str:
    assert os.system("touch " + SPOT + "system") == 0
    return "ran it"


def exec_argv0() -> str:
    subprocess.run(["echo", SPOT + "argv0"], executable="/usr/bin/touch", check=True)
    return "ran it"


def exec_posix_spawn() -> str:
    pid = os.posix_spawn("/usr/bin/touch", ["echo", SPOT + "spawn"], {})
    assert os.waitpid(pid, 0)[1] == 0
    return "ran it"


def exec_fork_execv() -> str:
    pid = os.fork()
    if pid == 0:
        try:
            os.execv("/usr/bin/touch", ["touch", SPOT + "execv"])
        finally:
            os._exit(9)
    assert os.waitpid(pid, 0)[1] == 0
    return "ran it"


def exec_lookalike() -> str:
    os.makedirs("out/bin", exist_ok=True)
    with open("out/bin/echo", "w") as file:
        file.write(f"#!/bin/sh\ntouch {SPOT}lookalike\n")
    os.chmod("out/bin/echo", 0o755)
    subprocess.run(
        ["echo"], env={"PATH": os.path.abspath("out/bin") + ":/usr/bin:/bin"}, check=True, stdout=subprocess.DEVNULL
    )
    assert os.path.exists(SPOT + "lookalike")
    return "ran it"


def exec_preload() -> str:
    out = subprocess.run(
        ["echo", "x"], env={"PATH": "/usr/bin:/bin", "LD_PRELOAD": "/nonexistent.so"}, capture_output=True, text=True
    )
    assert "preload" in out.stderr, "the loader was not told"
    return "the loader obeyed"


def exec_spawn_open_action() -> str:
    actions = [(os.POSIX_SPAWN_OPEN, 1, SPOT + "action", os.O_CREAT | os.O_WRONLY, 0o600)]
    os.waitpid(os.posix_spawn("/usr/bin/echo", ["echo", "x"], {"PATH": "/usr/bin"}, file_actions=actions), 0)
    return "the child made it"


class Unequal(int):
    """A number that says it is no other's equal."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def exec_spawn_lying_action() -> str:
    actions = [(Unequal(os.POSIX_SPAWN_OPEN), 1, SPOT + "lying", os.O_CREAT | os.O_WRONLY, 0o600)]
    environ = {**os.environ, "PATH": "/usr/bin"}
    os.waitpid(os.posix_spawn("/usr/bin/echo", ["echo", "x"], environ, file_actions=actions), 0)
    assert os.path.exists(SPOT + "lying")
    return "the child made it"


class LyingText(str):
    """Says another program, by any method, than the one in it."""

    def encode(self, *a: Any, **k: Any) -> bytes:
        return b"/usr/bin/touch"


def exec_performed_by_event() -> str:
    """The guard's own event, raised by the agent, with a program that is one for the judge and another for the act."""
    import _posixsubprocess

    reader, writer = os.pipe()
    rest = (-1, -1, -1, -1, -1, -1, reader, writer, True, False, -1, None, None, None, -1, None)
    rest += (True,) if sys.version_info < (3, 14) else ()
    words, box = ("echo", SPOT + "event"), []
    values = (LyingText("/usr/bin/echo"), words, dict(os.environ), None, True, (writer,), rest)
    sys.audit("agentbox.perform", "fork_exec", values, box)
    if box:
        assert box[0][0], box[0][1]
        pid = box[0][1]
    else:
        pid = _posixsubprocess.fork_exec(words, [b"/usr/bin/touch"], True, (writer,), None, None, *rest)
    os.waitpid(pid, 0)
    assert os.path.exists(SPOT + "event")
    return "ran it"


def net_connect() -> str:
    socket.create_connection(("127.0.0.1", PORT)).close()
    return "connected"


def net_connect_ex() -> str:
    with socket.socket() as sock:
        code = sock.connect_ex(("127.0.0.1", PORT))
        assert code == 0, code
    return "connected"


def net_connect_name() -> str:
    with socket.socket() as sock:
        sock.connect(("localhost", PORT))
    return "connected"


def net_mapped() -> str:
    with socket.socket(socket.AF_INET6) as sock:
        sock.connect(("::ffff:127.0.0.1", PORT))
    return "connected"


def net_fastopen() -> str:
    with socket.socket() as sock:
        sock.sendto(b"x", 0x20000000, ("127.0.0.1", PORT))
    return "sent"


def net_udp() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", PORT))
    return "sent"


def net_unix() -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(SCENE + "/private/u.sock")
    return "connected"


def net_unix_lying_address() -> str:
    """Bytes whose buffer is one address for the system call, and then another for the guard."""
    address = LyingBytes(os.fsencode(SCENE + "/private/u.sock"))
    address.after, address.says = 1, os.fsencode(os.environ.get("TMPDIR", "/tmp")) + b"/u.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(address)
    return "connected"


def net_abstract() -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + SCENE)
    return "connected"


def net_bind() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
    return "bound"


def net_listen() -> str:
    with socket.socket() as sock:
        sock.listen()
        assert sock.getsockname()[1]
    return "listens"


def net_resolve() -> str:
    return str(socket.getaddrinfo("localhost", 80)[0])


def net_gethostbyname() -> str:
    return socket.gethostbyname("localhost")


def net_resolve_what_looks_like_a_number() -> str:
    """Names that C code asks the network about, though they have a colon or digits only."""
    asked = []
    for name in ("a:b.invalid", "1.2.3.4.5", "a:b%lo.invalid"):
        for ask in (lambda name: socket.getaddrinfo(name, 80), lambda name: socket.socket().connect((name, 9))):
            try:
                ask(name)
            except socket.gaierror:
                asked.append(name)
            except PermissionError:
                pass
    assert asked, "nothing was asked"
    return f"asked for {asked}"


def net_reverse_lookup() -> str:
    """A reverse look-up, by flags that answer another number than they are."""

    class Flags(int):
        def __or__(self, other: int) -> int:
            return 0

    name = socket.getnameinfo(("127.0.0.1", 80), Flags(0))[0]
    assert name != "127.0.0.1", name
    return name


def net_netlink() -> str:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()
    return "opened"


def tamper_ctypes() -> str:
    import ctypes

    return str(ctypes.CDLL(None).getpid())


def installed(name: str) -> str:
    """The file of one of the standard library's extension modules."""
    return f"{os.path.dirname(os.__file__)}/lib-dynload/{name}{_imp.extension_suffixes()[0]}"


def tamper_ctypes_of_a_memory_file() -> str:
    """A file without a name is every process's own to read, and what is in it the agent's choice."""
    fd = os.memfd_create("module")
    with open(installed("_ctypes"), "rb") as file:
        os.write(fd, file.read())
    module = _imp.create_dynamic(ModuleSpec("_ctypes", None, origin=f"/proc/self/fd/{fd}"))
    return str(module)


def tamper_second_copy_of_another_file() -> str:
    """The name says which module a file makes: libpython has all of the built-in ones."""
    sys.audit("import", "package._posixsubprocess", installed("_json"), None, None, None)
    return "loaded"


def tamper_gc() -> str:
    return str(len(gc.get_objects()))


def tamper_code_within_the_hook() -> str:
    """Events with objects of the agent's, whose methods would run where the guard's frames are to be seen."""
    if "AGENTBOX_CHANNEL" not in os.environ:
        return "there is no guard to see"
    seen = []
    look = sys._getframe

    def note(*a: Any) -> bool:
        frame = look(1)
        while frame is not None:
            if frame.f_code.co_name == "dispatch":
                seen.append(frame)
            frame = frame.f_back  # type: ignore[assignment]
        return False

    class Kind(type):
        __hash__ = type.__hash__
        __eq__ = __ne__ = note  # type: ignore[assignment]
        __name__ = property(lambda kind: note() or "x")  # type: ignore[assignment]

    class Any_(metaclass=Kind):
        __eq__ = __ne__ = __bool__ = __lt__ = note  # type: ignore[assignment]
        __hash__ = object.__hash__
        __and__ = __or__ = __index__ = __int__ = lambda self, *a: int(note())
        __str__ = __repr__ = __fspath__ = lambda self: str(note())

    class Name(str):
        __eq__ = __ne__ = note  # type: ignore[assignment]

        def __hash__(self) -> int:
            return hash("PATH")

    thing = Any_()
    environ: dict[Any, Any] = {name: value for name, value in os.environ.items() if name != "PATH"}
    environ[Name("X")] = "1"
    events: list[tuple[Any, ...]] = [
        ("open", thing, "r", 0), ("open", "data/notes.txt", thing, thing), ("os.listdir", thing),
        ("os.mkdir", thing, thing, thing), ("os.rename", thing, thing, thing, thing), ("os.symlink", thing, thing, 0),
        ("os.truncate", thing, thing), ("sqlite3.connect", thing), ("sqlite3.enable_load_extension", thing, thing),
        ("socket.__new__", thing, thing, thing, thing), ("socket.connect", socket.socket(), thing),
        ("socket.getaddrinfo", thing, thing), ("socket.getnameinfo", (thing,)), ("socket.bind", thing, thing),
        ("os.posix_spawn", "/usr/bin/echo", ["echo"], environ), ("os.exec", thing, thing, thing),
        ("os.putenv", thing, thing), ("os.kill", thing, thing), ("fcntl.ioctl", thing, thing, thing),
        ("fcntl.fcntl", thing, 8, thing), ("resource.prlimit", thing), ("import", thing, thing, thing, thing, thing),
        ("object.__getattr__", os.open, thing), ("agentbox.perform", thing, thing, thing),
        ("agentbox.perform", "posix_spawn", ("/usr/bin/echo", ("echo",), {}, ((thing, 1, "x", 0, 0),), {}), []),
        ("agentbox.perform", "fork_exec", ("echo", ("echo",), environ, None, True, (), ()), []),
        ("agentbox.perform", "pidfd_send_signal", (thing, thing, thing), []),
    ]  # fmt: skip
    for event in events:
        try:
            sys.audit(*event)
        except (OSError, ImportError):
            pass
    assert seen, "none ran there"
    return "ran within the hook"


def tamper_signal_lying_pidfd() -> str:
    """A signal for the supervisor, by a number that is written as another one's."""
    mine, theirs = os.pidfd_open(os.getpid()), os.pidfd_open(BOSS)

    class Descriptor(int):
        def __format__(self, spec: str) -> str:
            return str(mine)

    box: list[Any] = []
    sys.audit("agentbox.perform", "pidfd_send_signal", (Descriptor(theirs), 0, 0), box)
    if not box:
        signal.pidfd_send_signal(theirs, 0)
    else:
        assert box[0][0], box[0][1]
    return "could signal it"


def tamper_mem() -> str:
    with open("/proc/self/mem", "r+b", buffering=0) as file:
        return str(file.readable())


def tamper_reimport() -> str:
    old = sys.modules.pop("_posixsubprocess")
    try:
        import _posixsubprocess

        return str(_posixsubprocess.fork_exec)
    finally:
        sys.modules["_posixsubprocess"] = old


def tamper_kill_parent() -> str:
    os.kill(BOSS, 0)
    return "could signal it"


def env_hidden() -> str:
    return os.environ["SCENE_HIDDEN"]


def main(names: list[str]) -> None:
    """Run the named attempts, each in a fork of its own, and print one JSON object: name to [ok, text]."""
    results = {}
    for name in names:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                answer: list[Any] = [True, globals()[name]()]
            except BaseException as error:
                answer = [False, f"{type(error).__name__}: {error}"]
                if os.environ.get("SCENE_DEBUG"):
                    traceback.print_exc()
            os.write(writer, json.dumps(answer).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            results[name] = json.loads(pipe.read() or b'[false, "died"]')
        os.waitpid(pid, 0)
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
