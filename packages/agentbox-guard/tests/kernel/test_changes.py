"""Names and what files are: each attempt works without the layers, and is refused and recorded with them."""

from __future__ import annotations

import os
import resource
import shutil
import stat

import pytest
from kit.waiting import PATIENCE
from test_confined import Box

from agentbox.guard.kernel import landlock, netns, seccomp

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may do it without the layers")
TRY = """
import errno, os, stat
def attempt(name, work, *arguments, **more):
    try:
        work(*arguments, **more)
        print(name, "ok", flush=True)
    except OSError as error:
        print(name, errno.errorcode[error.errno], flush=True)
def renameat2(old, new, flags):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags):
        raise OSError(ctypes.get_errno(), "renameat2")
"""


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def outcomes(text):
    return dict(line.rsplit(" ", 1) for line in text.splitlines())


def fresh(box, prepare):
    shutil.rmtree(box.ws)
    box.ws.mkdir()
    prepare()


def both(box, code, prepare=lambda: None, policy="write: .\n"):
    """What each attempt of `code` came to without the layers and with them, in a fresh workspace; and the run."""
    argv = box.python(TRY + code)
    fresh(box, prepare)
    bare = box.bare(*argv)
    assert bare.returncode == 0, bare.stderr
    fresh(box, prepare)
    done = box.run(f"{policy}read: ../program.py\n", *argv)
    assert done.status == 0, done.err
    return outcomes(bare.stdout), outcomes(done.out), done


DEVICES = """
for name in ("null", "zero", "full", "tty"):
    path = "/dev/" + name
    attempt("open " + name, lambda: name == "tty" or os.close(os.open(path, os.O_WRONLY)))
    attempt("times " + name, os.utime, path)
    attempt("chmod " + name, os.chmod, path, 0o600)
    attempt("chown " + name, os.chown, path, 0, 0)
    attempt("rename " + name, os.rename, path, path + "2")
    attempt("link " + name, os.link, path + "2" if os.path.exists(path + "2") else path, path + "3")
    attempt("unlink " + name, os.unlink, path + "2" if os.path.exists(path + "2") else path)
    def create(path):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    for what, make in (("mkdir", os.mkdir), ("mkfifo", os.mkfifo), ("create", create)):
        attempt(what + " " + name, make, path + "4")
        if os.path.lexists(path + "4"):
            (os.rmdir if what == "mkdir" else os.unlink)(path + "4")
"""
OWN_DEV = """
set -e
mkdir "$1" && mount -t tmpfs none "$1" && cd "$1"
for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 ptmx:5:2; do
    old=$IFS; IFS=:; set -- "$1" $node "$@"; IFS=$old
    mknod -m 666 $2 c $3 $4; top=$1; shift 5; set -- "$top" "$@"
done
mkdir pts shm; ln -s /proc/self/fd fd; mount --bind /dev/pts pts
here=$(stat -c %d .)
cd /; mount --bind "$1" /dev
[ "$(stat -c %d /dev/zero)" = "$here" ] || { echo "still the machine's /dev" >&2; exit 99; }
shift; cd "$1"; shift
exec "$@"
"""
"""Runs a command with a /dev that is nobody else's, in a mount namespace of its own: $1 a folder to make for it, $2
where the command starts.
"""


@only_root
@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_devices_are_for_opening_only(box, layers):
    """No program of the run changes what the machine's devices are called, their modes, owners or times; root could.

    The interpreter's guard alone says the same.
    """
    if shutil.which("unshare") is None:
        pytest.skip("unshare: not installed")

    def with_own_dev(folder, argv):
        head = ["unshare", "-m", "--propagation", "private", "sh", "-c", OWN_DEV, "sh"]
        return box.bare(*head, str(box.folder / folder), str(box.ws), *argv)

    argv = box.python(TRY + DEVICES)
    bare = with_own_dev("dev1", argv)
    assert bare.returncode == 0, bare.stderr
    assert set(outcomes(bare.stdout).values()) == {"ok"}
    if layers == "guard":
        argv = [argv[0], argv[-1]]
    command = box.command("write: .\nread: ../program.py\n", argv, ("--layers", layers))
    done = with_own_dev("dev2", command)
    assert done.returncode == 0, done.stderr
    found = outcomes(done.stdout)
    assert {name for name, outcome in found.items() if outcome == "ok"} == {
        f"open {name}" for name in ("null", "zero", "full", "tty")
    }
    with open(box.folder / "state/trace.jsonl") as file:
        denied = file.read().count('"kind":"deny"')
    assert denied >= len(found) - 4


NEVER = """
open("f", "w").close(); open("g", "w").close()
attempt("device", os.mknod, "d", stat.S_IFCHR | 0o600, os.makedev(1, 5))
attempt("chown", os.chown, "f", 1, 1)
attempt("trusted", os.setxattr, "f", "trusted.x", b"v")
attempt("security", os.setxattr, "f", "security.x", b"v")
attempt("remove", os.removexattr, "f", "security.x")
attempt("whiteout", renameat2, "f", "h", 4)
"""


@only_root
def test_what_takes_rights_that_no_program_has_is_recorded(box):
    """Refused as the kernel would, and one entry for each."""
    bare, boxed, done = both(box, NEVER)
    kept = {name for name, outcome in bare.items() if outcome == "ok"}
    assert {"device", "chown", "trusted", "security"} <= kept  # whiteouts are not known to every file system
    assert set(boxed.values()) == {"EPERM"}
    ops = [entry["op"] for entry in done.trace if entry["kind"] == "deny"]
    assert ops == ["fs.mknod", "fs.chown", "fs.xattr", "fs.xattr", "fs.xattr", "fs.rename"]


NAMELESS = """
fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o700)
attempt("set-user", os.fchmod, fd, 0o4755)
attempt("plain", os.fchmod, fd, 0o755)
attempt("link", os.link, f"/proc/self/fd/{fd}", "program", src_dir_fd=fd, follow_symlinks=True)
"""


def test_a_file_without_a_name_gets_no_set_user_bit(box):
    """It could be given a name afterwards."""
    bare, boxed, _ = both(box, NAMELESS)
    assert set(bare.values()) == {"ok"}
    assert boxed == {"set-user": "EACCES", "plain": "ok", "link": "ok"}
    assert not stat.S_IMODE(os.stat(box.ws / "program").st_mode) & stat.S_ISUID


ACROSS = """
with open("one", "w") as file:
    attempt("reference", os.link, f"/proc/self/fd/{file.fileno()}", "two", follow_symlinks=False)
    attempt("file", os.link, f"/proc/self/fd/{file.fileno()}", "three", src_dir_fd=file.fileno(), follow_symlinks=True)
attempt("there", os.link, "/proc/self/fd/0", "one")
attempt("memory", os.link, f"/proc/self/fd/{os.memfd_create('m')}", "four", src_dir_fd=0, follow_symlinks=True)
attempt("device", os.link, "/dev/null", "five")
attempt("outside", os.link, "../program.py", "six")
"""


def test_a_link_across_mounts_is_what_the_kernel_says(box):
    """There is nothing to be decided on: no rule would make it, and programs copy instead. One within the mount is."""
    bare, boxed, done = both(box, ACROSS)
    refused = {"outside": "EACCES"}
    assert bare == {
        "reference": "EXDEV", "file": "ok", "there": "EEXIST", "memory": "EXDEV", "device": "EXDEV", "outside": "ok",
    }  # fmt: skip
    assert boxed == {**bare, **refused}
    assert [entry["target"] for entry in done.trace if entry["kind"] == "deny"] == [str(box.folder / "program.py")]


DELETED = """
fd = os.open("one", os.O_RDONLY)
print("ready", flush=True)
input()
attempt("chmod", os.fchmod, fd, 0o777)
"""


def test_a_file_that_was_removed_but_has_another_name_keeps_its_mode(box):
    """A descriptor to read with does not say which file it is any more, when somebody outside takes its name away."""
    import subprocess

    results = []
    for boxed in (False, True):
        for name in ("one", "ws/two"):
            (box.folder / name).unlink(missing_ok=True)
        (box.ws / "one").write_text("x")
        os.chmod(box.ws / "one", 0o600)
        os.link(box.ws / "one", box.folder / f"two-{boxed}")
        argv = box.python(TRY + DELETED)
        command = box.command("read: .\nread: ../program.py\n", argv) if boxed else argv
        running = subprocess.Popen(command, cwd=box.ws, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert running.stdout.readline() == "ready\n"
        os.unlink(box.ws / "one")
        out, _ = running.communicate("\n", timeout=PATIENCE)
        results.append((out, stat.S_IMODE(os.stat(box.folder / f"two-{boxed}").st_mode)))
    assert results == [("chmod ok\n", 0o777), ("chmod EACCES\n", 0o600)]


MOVES = """
os.makedirs("foo.git")
with open("c", "w") as file:
    file.write("[core]\\n bare = false\\n")
os.rename("c", "foo.git/config")
attempt("ssh", os.rename, "foo.git", ".ssh")
attempt("hooks", os.rename, ".git/hooks", "away")
attempt("settings", os.rename, ".vscode", "settings")
os.mkfifo("pipe"); open("n", "w").close()
os.mknod("sock", stat.S_IFSOCK | 0o600)
attempt("fifo", os.rename, "pipe", ".git/config")
attempt("exchange fifo", renameat2, ".git/config", "pipe" if os.path.exists("pipe") else "n", 2)
attempt("socket", os.rename, "sock", ".git/config")
os.mkdir("folder")
attempt("exchange folder", renameat2, "folder", ".git/config", 2)
attempt("folder", os.rename, "folder", ".profile")
os.symlink("n", "l")
attempt("link of link", os.link, "l", ".bashrc", follow_symlinks=False)
attempt("link of link of folder", os.link, "l", ".claude", follow_symlinks=False)
attempt("link for .aws", os.symlink, "n", ".aws")
attempt("link for .config", os.symlink, "n", ".config")
attempt("project", os.rename, "project", "project2")
attempt("project back", renameat2, "project2", "project", 0)
"""


@pytest.mark.attempt("F3")
def test_what_is_protected_neither_comes_nor_goes_by_renaming(box):
    """Whatever kind of file it is; a project as a whole moves with all that is in it."""

    def prepare():
        for name in (".git/hooks", ".git/objects", ".git/refs", ".vscode", "project/.git/hooks", "project/.idea"):
            (box.ws / name).mkdir(parents=True)
        for name in (".git/hooks/pre-commit", ".vscode/tasks.json", "project/.git/hooks/update", "project/.idea/x.xml"):
            (box.ws / name).touch()
        text = "[core]\n\thooksPath = mine\n"
        for name in (".git/config", "project/.git/config"):
            (box.ws / name).write_text(text)

    bare, boxed, done = both(box, MOVES, prepare)
    assert set(bare.values()) == {"ok"}
    assert {name for name, outcome in boxed.items() if outcome == "ok"} == {"project", "project back"}
    reasons = [entry["reason"] for entry in done.trace if entry["kind"] == "deny"]
    assert len(reasons) == len(boxed) - 2 and all("it is protected unless" in reason for reason in reasons)
    fixes = {entry["fix"] for entry in done.trace if entry["kind"] == "deny"}
    assert {"write: ./.ssh/config", "write: ./.vscode/tasks.json"} <= fixes


def test_the_line_that_a_denial_names_lifts_the_protection(box):
    """For a file that is not there, which no run shall make as a folder."""
    code = """
attempt("bashrc", lambda: open(".bashrc", "w").close())
attempt("config", os.rename, "n", ".git/config")
"""

    def prepare():
        for name in (".git/objects", ".git/refs"):
            (box.ws / name).mkdir(parents=True)
        (box.ws / "n").write_text("[core]\n\teditor = x\n")

    bare, boxed, done = both(box, code, prepare)
    assert set(bare.values()) == {"ok"} and set(boxed.values()) == {"EACCES"}
    fixes = [entry["fix"] for entry in done.trace if entry["kind"] == "deny"]
    assert len(fixes) == 2
    _, lifted, _ = both(box, code, prepare, "write: .\n" + "\n".join(fixes) + "\n")
    assert set(lifted.values()) == {"ok"}


def test_the_private_folders_stay_where_they_are(box):
    """Else what is in one could come to lie in the workspace without a look at it."""
    code = 'attempt("rename", os.rename, os.environ.get("TMPDIR") or os.mkdir("t") or "t", "x")\n'
    bare, boxed, _ = both(box, code)
    assert (bare["rename"], boxed["rename"]) == ("ok", "EACCES")


LEAKS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
bad, name = ctypes.c_void_p(1), b"user.x"
for _ in range(ROUNDS):
    for fails in (
        lambda: libc.setxattr(b".", bad, b"", 0, 0),
        lambda: libc.setxattr(b".", name, bad, 8, 0),
        lambda: libc.setxattr(b".", name, b"", 1 << 20, 0),
        lambda: libc.setxattr(b".", b"trusted.x", b"", 0, 0),
        lambda: libc.removexattr(b".", bad),
        lambda: libc.utimensat(-100, b".", bad, 0),
        *OLD,
    ):
        assert fails() == -1, ctypes.get_errno()
    for path in ("far/" + long + "/x", "/proc/self/fd/%d" % deep):
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.ENAMETOOLONG, error
attempt("open", lambda: os.close(os.open(".", os.O_RDONLY)))
"""
OLD_TIMES = {  # utime, utimes and futimesat, which the C library has by other calls
    "x86_64": 'lambda: libc.syscall(132, b".", bad), lambda: libc.syscall(235, b".", bad), '
    'lambda: libc.syscall(261, -100, b".", bad)'
}
DEEP = """
import os
long = "/".join(["d" * 250] * 10)
if not os.path.lexists("far"):
    os.makedirs(long)
    os.symlink(long, "far")
    os.makedirs("far/" + long)
deep = os.open("far/" + long, os.O_PATH)
"""


def test_calls_that_fail_leave_nothing_open_in_the_supervisor(box):
    """More of them than it has descriptors, with bad addresses and paths that are too long to be told."""
    assert box.bare(*box.python(DEEP)).returncode == 0
    code = DEEP + LEAKS.replace("ROUNDS", "100").replace("*OLD", OLD_TIMES.get(os.uname().machine, ""))
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))}
    done = box.run("write: .\nread: ../program.py\n", *box.python(TRY + code), **limit)
    assert (done.out, done.status) == ("open ok\n", 0), done.err
