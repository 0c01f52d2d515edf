"""Attempts of a hostile Python program, one function each; the test starts this file in a scene, bare and boxed.

An attempt returns when it got what it wanted and raises when it was refused. Every effect stays inside the scene.
"""

from __future__ import annotations

import io
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import traceback
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


def net_netlink() -> str:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()
    return "opened"


def tamper_ctypes() -> str:
    import ctypes

    return str(ctypes.CDLL(None).getpid())


def tamper_gc() -> str:
    import gc

    return str(len(gc.get_objects()))


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
