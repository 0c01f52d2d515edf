"""What hostile C programs made of descriptors by name, threads, terminals and pipes; each works without the sandbox."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from kit.waiting import PATIENCE, holds

from agentbox.guard.kernel import landlock, netns, seccomp
from agentbox.guard.kernel.process import Askers
from agentbox.guard.kernel.syscalls import unshare
from agentbox.guard.kernel.walk import Tree

MISSING = sys.platform != "linux" or netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()
GCC = shutil.which("gcc")
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")
needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc: not installed")

HEAD = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void say(const char *what, int result) { printf("%s %s\\n", what, result < 0 ? strerror(errno) : "ok");
                                                fflush(stdout); }
static void show(const char *what, int fd) { char text[100]; int n = fd < 0 ? -1 : pread(fd, text, 99, 0);
    if (n >= 0) { text[n] = 0; printf("%s: %s\\n", what, text); } else say(what, -1); fflush(stdout); }
"""


def built(folder: Path, source: str) -> str:
    """The program made of C source."""
    assert GCC is not None
    (folder / "p.c").write_text(HEAD + source)
    subprocess.run([GCC, "-w", "-pthread", "-o", folder / "program", folder / "p.c"], check=True)
    return str(folder / "program")


def box(folder: Path, policy: str = "exec: *\nwrite: ./ws\n") -> list[str]:
    """The command line in front of a program that is to run in the sandbox, in `folder`."""
    (folder / "ws").mkdir(exist_ok=True)
    (folder / "agentbox.policy").write_text(policy)
    return [sys.executable, "-m", "agentbox.cli", "run", "--"]


def output(command: list[str], folder: Path) -> tuple[str, str]:
    """What a command says and complains of."""
    (folder / "ws").mkdir(exist_ok=True)
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout, done.stderr


@pytest.fixture
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("outside") / "secret"
    made.write_text("TOP SECRET")
    return made


FULL = """
#include <sys/resource.h>
int main(void) {
    struct rlimit few = { 40, 40 };
    setrlimit(RLIMIT_NOFILE, &few);
    while (dup(1) >= 0) ;
    say("empty", open("ws/keep", O_WRONLY | O_TRUNC)); say("make", open("ws/new", O_WRONLY | O_CREAT, 0600));
    close(30);
    say("with room", open("ws/new", O_WRONLY | O_CREAT, 0600));
    return 0;
}
"""


@needs_gcc
@pytest.mark.skipif(os.stat("/proc/self/fd").st_size == 0, reason="Linux before 6.2: no count of descriptors")
@pytest.mark.parametrize("boxed", [False, True])
def test_an_open_without_room_for_its_descriptor_changes_nothing(tmp_path: Path, boxed: bool) -> None:
    """As the kernel does it: EMFILE comes before the file is emptied or made."""
    before = box(tmp_path) if boxed else []
    (tmp_path / "ws").mkdir(exist_ok=True)
    (tmp_path / "ws/keep").write_text("kept")
    command = [*before, built(tmp_path, FULL)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    full = os.strerror(24)  # EMFILE, <asm-generic/errno-base.h>
    assert done.stdout == f"empty {full}\nmake {full}\nwith room ok\n", done.stderr
    assert (tmp_path / "ws/keep").read_text() == "kept"


TWO_TABLES = """
static const char *secret;
static void *other(void *way) {
    if (*(char *)way == 'u') say("own table", unshare(CLONE_FILES));
    else say("own table", syscall(SYS_close_range, 5000, 5001, 2));
    dup2(open("ws/own", O_RDWR | O_CREAT, 0600), 50);
    char path[64];
    sprintf(path, "/proc/%d/fd/50", getpid());
    show("process", open(path, O_RDWR));
    show("self", open("/proc/self/fd/50", O_RDWR));
    sprintf(path, "/proc/self/task/%d/fd/50", getpid());
    show("task", open(path, O_RDWR));
    return 0;
}
int main(int n, char **word) {
    secret = word[1];
    dup2(open(secret, O_PATH), 50);
    show("reference", open("/proc/self/fd/50", O_RDWR));
    pthread_t thread;
    pthread_create(&thread, 0, other, word[2]);
    pthread_join(thread, 0);
}
"""


@pytest.mark.attempt("F5", "F9")
@needs_gcc
@pytest.mark.parametrize("way", ["unshare", "close_range"])
def test_a_reference_in_another_table_of_descriptors_opens_nothing(tmp_path: Path, secret: Path, way: str) -> None:
    """The object and the right to it are asked of one descriptor, that of the thread which asks."""
    program = built(tmp_path, TWO_TABLES)
    control, _ = output([program, str(secret), way], tmp_path)
    for line in ("own table ok", "reference: TOP SECRET", "process: TOP SECRET", "task: TOP SECRET"):
        assert line in control
    out, errors = output([*box(tmp_path), program, str(secret), way], tmp_path)
    assert "reference Permission denied" in out, errors
    assert "TOP SECRET" not in out
    assert ("own table ok" in out) == (way == "close_range")
    assert "process: \n" in out and "self: \n" in out, "the thread's own file opens"
    assert ("task Permission denied" in out) == (way == "close_range"), "the leader's does not"


SWAPS = """
static volatile int stop;
static int reference, own;
static void *swap(void *_) {
    while (!stop) {
        dup2(reference, 60); for (volatile int i = 0; i < 300; i++);
        dup2(own, 60); for (volatile int i = 0; i < 300; i++);
    }
    return 0;
}
int main(int n, char **word) {
    reference = open(word[1], O_PATH);
    own = open("ws/own", O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(own, 60);
    pthread_t thread;
    pthread_create(&thread, 0, swap, 0);
    int secrets = 0, owns = 0;
    for (int i = 0; i < atoi(word[2]) && !(secrets && owns); i++) {
        int fd = open("/proc/self/fd/60", O_RDONLY);
        if (fd < 0) continue;
        char text[8];
        if (pread(fd, text, 3, 0) > 0) secrets++; else owns++;
        close(fd);
    }
    stop = 1;
    pthread_join(thread, 0);
    printf("%s %s\\n", secrets ? "secret" : "-", owns ? "own" : "-");
}
"""


@needs_gcc
def test_a_number_that_means_two_files_in_turn_opens_one(tmp_path: Path, secret: Path) -> None:
    """dup2 in another thread while the open is decided wins nothing."""
    program = built(tmp_path, SWAPS)
    assert output([program, str(secret), "5000000"], tmp_path)[0] == "secret own\n"
    out, errors = output([*box(tmp_path), program, str(secret), "2000"], tmp_path)
    assert out == "- own\n", errors


ORPHANS = """
#include <netinet/in.h>
#include <sys/socket.h>
static void *rest(void *_) {
    usleep(100000);
    struct sockaddr_in place = {AF_INET, htons(0)};
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    say("bind", bind(server, (void *)&place, sizeof place));
    socklen_t size = sizeof place;
    listen(server, 4);
    getsockname(server, (void *)&place, &size);
    say("connect", connect(client, (void *)&place, size));
    int fd = open("ws/own", O_RDWR | O_CREAT, 0600);
    say("open", fd);
    char path[50];
    sprintf(path, "/proc/thread-self/fd/%d", fd);
    say("reopen", open(path, O_RDWR));
    say("chmod", fchmod(fd, 0640));
    exit(0);
}
int main() { pthread_t thread; pthread_create(&thread, 0, rest, 0); pthread_exit(0); }
"""


@needs_gcc
def test_threads_go_on_when_the_main_one_has_ended(tmp_path: Path) -> None:
    """Their descriptors are taken from themselves: the group's leader has none any more."""
    program = built(tmp_path, ORPHANS)
    control, _ = output([program], tmp_path)
    assert control == "bind ok\nconnect ok\nopen ok\nreopen ok\nchmod ok\n"
    out, errors = output([*box(tmp_path), program], tmp_path)
    assert out == control, errors


TERMINALS = """
int main() {
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    grantpt(master);
    unlockpt(master);
    char path[64];
    strcpy(path, ptsname(master));
    int slave = open(path, O_RDWR | O_NOCTTY);
    say("own", slave);
    say("chmod", fchmod(slave, 0620));
    say("again", open(path, O_RDWR | O_NOCTTY));
    for (int fd = 3; fd < 20; fd++) close(fd);
    printf("%s\\n", path);
    fflush(stdout);
    getchar();
    say("later", open(path, O_RDWR | O_NOCTTY));
}
"""


@needs_gcc
@pytest.mark.parametrize("boxed", [False, True], ids=["control", "boxed"])
def test_a_terminal_is_the_runs_own_until_its_master_is_closed(tmp_path: Path, boxed: bool) -> None:
    """A later one of another session, which gets the same number, is not opened."""
    program = built(tmp_path, TERMINALS)
    command = [*box(tmp_path), program] if boxed else [program]
    running = subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert running.stdin is not None and running.stdout is not None
    lines = [running.stdout.readline() for _ in range(4)]
    assert lines[:3] == ["own ok\n", "chmod ok\n", "again ok\n"]
    opened: tuple[int, ...] = ()
    for _ in range(100):  # the kernel gives the number back a little later, in a thread of its own
        opened = os.openpty()
        if os.ttyname(opened[1]) == lines[3].strip():
            break
        for one in opened:
            os.close(one)
        holds(lambda: True, 0.05)
    else:
        running.kill()
        pytest.skip("terminal: others have the number")
    out, _ = running.communicate("\n", timeout=PATIENCE)
    for one in opened:
        os.close(one)
    assert out == ("later Permission denied\n" if boxed else "later ok\n")


NAMES = """
int main() {
    symlink("/proc", "ws/p");
    symlink("/proc/self", "ws/me");
    show("link", open("ws/p/self/comm", O_RDONLY));
    show("own link", open("ws/me/comm", O_RDONLY));
    show("dots", open("/usr/../proc/./self/comm", O_RDONLY));
    show("slashes", open("//proc//self/comm", O_RDONLY));
    chdir("/");
    show("relative", open("proc/self/comm", O_RDONLY));
    show("thread", open("proc/thread-self/comm", O_RDONLY));
    show("missing", open("proc/self/none", O_RDONLY));
    show("missing", open("//none/none", O_RDONLY));
}
"""


@needs_gcc
def test_own_entries_of_proc_are_found_however_they_are_spelled(tmp_path: Path) -> None:
    """Relative, with more slashes, with dots and through links."""
    program = built(tmp_path, NAMES)
    control, _ = output([program], tmp_path)
    assert control.count("program\n") == 6 and control.count("missing No such file or directory") == 2
    shutil.rmtree(tmp_path / "ws")
    out, errors = output([*box(tmp_path), program], tmp_path)
    assert out == control, errors


SIGHT = """
import os, sys
number = sys.argv[1]
for folder in ("/proc", "/proc/", "/usr", "/", "/lib"):
    for _ in range(3):
        fd = os.open(folder, os.O_RDONLY)
        if folder.startswith("/proc"):
            print(number in os.listdir(fd))
        else:
            try:
                os.stat(f"../../proc/{number}", dir_fd=fd)
                print(True)
            except OSError:
                print(False)
        os.close(fd)
"""


@pytest.mark.attempt("F9", "F12")
def test_a_folder_that_is_opened_again_shows_no_process_of_the_machine(tmp_path: Path) -> None:
    """Neither /proc itself, where a rule opens it, nor any other folder as a way to it."""
    program = [sys.executable, "-I", "-c", SIGHT, str(os.getpid())]
    control, _ = output(program, tmp_path)
    assert set(control.split()) == {"True"}
    out, errors = output([*box(tmp_path, "exec: *\nread: /\n"), *program], tmp_path)
    assert out.split() == ["False"] * 15, (out, errors)


PIPES = """
int main() {
    mkfifo("ws/pipe", 0600);
    for (int i = 0; i < 8; i++) {
        int child = fork();
        if (!child) { alarm(100); open("ws/pipe", i & 1 ? O_RDONLY : O_RDONLY | O_CLOEXEC); _exit(0); }
        usleep(20000 * (i & 1));
        if (i & 1) kill(child, SIGKILL);
        else { usleep(5000); close(open("ws/pipe", O_WRONLY)); }
        waitpid(child, 0, 0);
    }
    usleep(700000);
    puts("done");
}
"""


@needs_gcc
@needs_gcc
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root's supervisor has capabilities")
@pytest.mark.attempt("P6")
def test_the_supervisors_capabilities_open_nothing_of_the_kernels(tmp_path: Path) -> None:
    """Its log and its addresses ask for one at their opening, whatever mode they have and whatever a rule says of their
    names; the first opening and the second are alike, and so is what the SDK is asked for.
    """
    program = built(
        tmp_path,
        """
int main() {
    for (int round = 0; round < 2; round++) {
        say("log", open("/proc/kmsg", O_RDONLY | O_NONBLOCK));
        char text[9] = "", zeros[9] = "00000000";
        int fd = open("/proc/kallsyms", O_RDONLY);
        say("names", fd);
        read(fd, text, 8);
        printf("addresses %s\\n", strcmp(text, zeros) ? "told" : "hidden");
        say("own", open("/proc/self/maps", O_RDONLY)); say("null", open("/dev/null", O_RDWR));
    }
}
""",
    )
    bare = subprocess.run([program], capture_output=True, text=True, timeout=PATIENCE).stdout
    if "log ok" not in bare or "addresses told" not in bare:
        pytest.skip("the machine keeps them from root as well")
    argv = [*box(tmp_path, "exec: *\nread: /proc\n"), program]
    inside = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    expected = bare.replace("log ok", "log Operation not permitted").replace("told", "hidden")
    assert inside.stdout == expected, inside.stderr
    code = "from agentbox import client; print(client.read_text('/proc/kallsyms')[:8])"
    told = subprocess.run([*argv[:-1], sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=PATIENCE)
    assert told.stdout == b"00000000\n", told.stderr


def test_opens_of_pipes_end_without_a_word(tmp_path: Path) -> None:
    """Whether the other end comes or the asker is killed while it waits."""
    program = built(tmp_path, PIPES)
    assert output([program], tmp_path)[0] == "done\n"
    shutil.rmtree(tmp_path / "ws")
    out, errors = output([*box(tmp_path), program], tmp_path)
    assert out == "done\n"
    assert "Traceback" not in errors and "Error" not in errors


# --- the same of the parts ---


def in_thread(work: Any) -> Any:
    """What `work` gives in a thread of its own."""
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(work()))
    thread.start()
    thread.join()
    return got[0]


def test_a_descriptor_is_looked_for_in_the_asking_threads_table(tmp_path: Path) -> None:
    """A thread with a table of its own, where a number means another file than for its leader."""
    for name in ("leader", "thread"):
        (tmp_path / name).write_text(name)
    number = os.open(tmp_path / "leader", os.O_PATH)
    tree = Tree(os.open("/", os.O_PATH | os.O_DIRECTORY), Askers(False))

    ready, done = threading.Event(), threading.Event()

    def work() -> None:
        unshare(0x400)  # CLONE_FILES, <linux/sched.h>
        os.dup2(os.open(tmp_path / "thread", os.O_RDWR), number)
        ready.set()
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(PATIENCE)
    found = tree.find(thread.native_id or 0, b"/proc/self/fd/%d" % number)
    assert (found.text, found.held, found.own) == (str(tmp_path / "thread"), os.O_RDWR, number)
    found.close()
    done.set()
    thread.join()
    found = tree.find(os.getpid(), b"/proc/self/fd/%d" % number)
    assert (found.text, found.held, found.own) == (str(tmp_path / "leader"), None, number)
    found.close()
    tree.close()
    os.close(number)


def test_without_pidfds_of_threads_the_leaders_table_serves_if_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on kernels before Linux 6.9; a thread with a table of its own is refused there."""
    real = os.pidfd_open

    def before(pid: int, flags: int = 0) -> int:
        if flags:
            raise OSError(22, "Invalid argument")
        return real(pid)

    monkeypatch.setattr(os, "pidfd_open", before)
    askers = Askers(False)
    number = os.open(tmp_path, os.O_RDONLY)

    def copied() -> bool:
        copy = askers.duplicate(threading.get_native_id(), number)
        same = os.path.samestat(os.fstat(copy), os.stat(tmp_path))
        os.close(copy)
        return same

    def apart() -> int | None:
        unshare(0x400)
        try:
            copied()
        except OSError as error:
            return error.errno
        return None

    assert copied() and in_thread(copied)
    assert in_thread(apart) == 9  # EBADF
    os.close(number)


def test_ended_threads_are_forgotten() -> None:
    """Nothing is known of a number once nobody has it, whatever was known before."""
    askers = Askers(False)
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    assert askers.ids(pid).process == pid
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    with pytest.raises(ProcessLookupError):
        askers.ids(pid)


@pytest.mark.skipif(os.getuid() != 0, reason="user: only root can have a number given out again")
def test_a_number_that_is_given_out_again_is_another_thread() -> None:
    """The process of a new thread is its own, not that of the one that had the number before."""
    askers = Askers(False)
    for _ in range(50):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        assert askers.ids(pid).process == pid
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        except OSError as error:
            pytest.skip(f"ns_last_pid: {error.strerror}")

        def work(pid: int = pid) -> int:
            return askers.ids(pid).process if threading.get_native_id() == pid else 0

        process = in_thread(work)
        if process:
            assert process == os.getpid()
            return
    pytest.skip("the number went to others each time")
