"""Programs that wait for the supervisor, in C: signals and time limits reach them as they do without agentbox."""

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress

import pytest
from bench import Bench
from kit.waiting import PATIENCE

from agentbox.guard.kernel import waits

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler"),
]

SOURCE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int handled;
static void handler(int s) { if (++handled == 3) write(2, "third\n", 6); }
static void alarm_in(int milliseconds) { /* and again, as one may come before there is a wait */
    struct itimerval t = {{0, milliseconds * 1000}, {0, milliseconds * 1000}};
    setitimer(ITIMER_REAL, &t, 0);
}
static void handle(int flags) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = handler;
    a.sa_flags = flags;
    sigaction(SIGALRM, &a, 0);
}
static void told(const char *what, long result) {
    printf("%s %s %d\n", what, result < 0 ? strerrorname_np(errno) : "ok", handled > 0);
    fflush(stdout);
}
static int writer(int milliseconds) {
    int child = fork();
    if (child) return child;
    usleep(milliseconds * 1000);
    close(open("pipe", O_WRONLY));
    _exit(0);
}
static void *opens(void *unused) { return (void *)(long)open("pipe", O_RDONLY); }
static int full_pair(void) {
    int pair[2], small = 4096;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, 4);
    return pair[0];
}
static long fill(int fd) {
    static char data[60000];
    struct iovec part = {data, sizeof data};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    while (sendmsg(fd, &message, MSG_DONTWAIT) > 0);
    return sendmsg(fd, &message, 0);
}
static long crowd(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, "\0crowd", 6);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(server, (void *)&name, 8);
    listen(server, 0);
    long done;
    do done = connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, 8); while (!done);
    return done;
}
static int out(void) { return socket(AF_INET, SOCK_STREAM, 0); }
static long to(int fd, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    return connect(fd, (void *)&a, sizeof a);
}
int main(int count, char **words) {
    const char *what = words[1];
    int port = count > 2 ? atoi(words[2]) : 0;
    mkfifo("pipe", 0600);
    if (!strcmp(what, "open")) {
        handle(0);
        alarm_in(200);
        told("open", open("pipe", O_RDONLY));
    } else if (!strcmp(what, "restart")) {
        handle(SA_RESTART);
        alarm_in(200);
        int child = writer(600);
        told("open", open("pipe", O_RDONLY));
        waitpid(child, 0, 0);
    } else if (!strcmp(what, "blocked")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGALRM);
        sigprocmask(SIG_BLOCK, &set, 0);
        handle(0);
        alarm_in(100);
        int child = writer(500);
        told("open", open("pipe", O_RDONLY));
        waitpid(child, 0, 0);
    } else if (!strcmp(what, "thread")) {
        pthread_t thread;
        void *result;
        handle(0);
        pthread_create(&thread, 0, opens, 0);
        alarm_in(200);
        pause();
        told("main", -1);
        int child = writer(300);
        pthread_join(thread, &result);
        told("thread", (long)result);
        waitpid(child, 0, 0);
    } else if (!strcmp(what, "stop")) {
        int child = fork(), status;
        if (!child) {
            told("child", open("pipe", O_RDONLY));
            _exit(0);
        }
        usleep(200000);
        kill(child, SIGSTOP);
        waitpid(child, &status, WUNTRACED);
        printf("stopped %d\n", WIFSTOPPED(status));
        fflush(stdout);
        kill(child, SIGCONT);
        int other = writer(200);
        waitpid(child, &status, 0);
        waitpid(other, 0, 0);
        printf("ended %d\n", WIFEXITED(status));
    } else if (!strcmp(what, "send")) {
        handle(0);
        alarm_in(200);
        told("send", fill(full_pair()));
    } else if (!strcmp(what, "send-limit")) {
        int fd = full_pair();
        struct timeval limit = {0, 300000};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        told("send", fill(fd));
    } else if (!strcmp(what, "local")) {
        handle(0);
        alarm_in(200);
        told("connect", crowd());
    } else if (!strcmp(what, "connect")) {
        int fd = out();
        handle(0);
        alarm_in(300);
        told("connect", to(fd, port));
        alarm_in(300);
        told("again", to(fd, port));
    } else if (!strcmp(what, "connect-limit")) {
        int fd = out();
        struct timeval limit = {0, 300000};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        told("connect", to(fd, port));
        told("again", to(fd, port));
    } else if (!strcmp(what, "connect-later")) {
        int fd = out();
        handle(SA_RESTART);
        alarm_in(300);
        told("connect", to(fd, port));
        char byte;
        told("read", read(fd, &byte, 1) == 1 && byte == 'x' ? 0 : -1);
    }
    return 0;
}
"""

LOCAL = {
    "open": ["open EINTR 1"],
    "restart": ["open ok 1"],
    "blocked": ["open ok 0"],
    "thread": ["main EINTR 1", "thread ok 1"],
    "stop": ["stopped 1", "child ok 0", "ended 1"],
    "send": ["send EINTR 1"],
    "send-limit": ["send EAGAIN 0"],
    "local": ["connect EINTR 1"],
}
OUTSIDE = {
    "connect": ["connect EINTR 1", "again EINTR 1"],
    "connect-limit": ["connect EINPROGRESS 0", "again EALREADY 0"],
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("waits")
    (folder / "agent.c").write_text(SOURCE)
    subprocess.run(["gcc", "-w", "-pthread", "-o", folder / "agent", folder / "agent.c"], check=True)
    return str(folder / "agent")


@pytest.fixture
def bench(tmp_path, program):
    return Bench(tmp_path, policy=f"read: {program}\nwrite: .\n")


class Crowded:
    """A server of this machine whose queue is full until `serve`."""

    def __init__(self):
        self.server = socket.socket()
        self.server.bind(("127.0.0.1", 0))
        self.server.listen(0)
        self.port = self.server.getsockname()[1]
        self.kept = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", self.port))
            self.kept.append(one)

    def serve(self):
        with ExitStack() as accepted:  # by this thread, which may be in the middle of it when the others are closed
            while True:
                try:
                    one = accepted.enter_context(self.server.accept()[0])
                except OSError:  # the server is closed
                    return
                with suppress(OSError):
                    one.sendall(b"x")

    def close(self):
        self.server.shutdown(socket.SHUT_RDWR)
        for one in (self.server, *self.kept):
            one.close()


@pytest.fixture
def crowded():
    made = Crowded()
    yield made
    made.close()


def lines(bench, command):
    done = bench.run(command, timeout=PATIENCE)
    return [line for line in done.stdout.splitlines() if line], done.stderr


@pytest.mark.parametrize("what", LOCAL)
def test_a_signal_reaches_who_waits_here(bench, program, what):
    """A pipe's other end, a full socket, a full queue: EINTR, again, or not at all, as the handler was set up."""
    expected = LOCAL[what]
    assert lines(bench, [program, what])[0] == expected
    os.unlink(bench.ws / "pipe")
    said, why = lines(bench, bench.boxed(command=[program, what]))
    assert said == expected, why


@pytest.mark.parametrize("what", OUTSIDE)
def test_a_signal_reaches_who_connects_outside(bench, program, crowded, what):
    """A server that does not answer: the attempt goes on, and a second connect(2) waits for it."""
    bench.policy += f"net: 127.0.0.1:{crowded.port}\n"
    expected = OUTSIDE[what]
    assert lines(bench, [program, what, str(crowded.port)])[0] == expected
    said, why = lines(bench, bench.boxed(command=[program, what, str(crowded.port)]))
    assert said == expected, why


@pytest.mark.parametrize("how", ["bare", "boxed"])
def test_a_connection_that_was_interrupted_is_the_one_that_is_made(bench, program, how):
    """The kernel makes the call again after a handler with SA_RESTART, and that waits for what was begun."""
    for _ in range(8):  # a server that is full may forget a connection that the client thinks is made (listen(2))
        crowded = Crowded()
        bench.policy = f"read: {program}\nwrite: .\nnet: 127.0.0.1:{crowded.port}\n"
        command = [program, "connect-later", str(crowded.port)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        run = bench.start(bench.boxed(command=command) if how == "boxed" else command, **pipes)
        for line in run.stderr:
            if line == "third\n":  # the connect has begun by then, and was interrupted
                break
        threading.Thread(target=crowded.serve).start()
        try:
            said = run.communicate(timeout=20)[0].splitlines()
        except subprocess.TimeoutExpired:
            run.terminate()
            said = run.communicate()[0].splitlines()
        crowded.close()
        if said == ["connect ok 1", "read ok 1"]:
            return
    pytest.fail(f"got {said}")


STATUS = b"SigPnd:\t%016x\nShdPnd:\t%016x\nSigBlk:\t%016x\nSigIgn:\t%016x\nSigCgt:\t%016x\n"
ONE, TERM, STOP = (1 << number - 1 for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTSTP))


@pytest.mark.parametrize(
    ("main", "other", "for_main", "for_other"),
    [
        ((0, 0, 0, 0, ONE), (0, 0, 0, 0, ONE), 0, 0),
        ((0, ONE, 0, 0, ONE), (0, ONE, 0, 0, ONE), waits.RESTART, 0),  # the main thread's
        ((0, ONE, ONE, 0, ONE), (0, ONE, 0, 0, ONE), 0, errno.EINTR),  # any of those that do not block it
        ((0, 0, 0, 0, ONE), (ONE, 0, 0, 0, ONE), 0, waits.RESTART),  # sent to the thread
        ((0, 0, 0, 0, ONE), (ONE, 0, ONE, 0, ONE), 0, 0),  # and blocked
        ((0, TERM, 0, TERM, ONE), (0, TERM, 0, TERM, ONE), 0, 0),  # ignored
        ((0, STOP, 0, 0, 0), (0, STOP, 0, 0, 0), waits.RESTART, 0),  # stops
        ((0, STOP, 0, STOP, 0), (0, STOP, 0, STOP, 0), 0, 0),  # ignored
    ],
)
def test_a_signal_is_for_the_thread_that_the_kernel_has_chosen(monkeypatch, main, other, for_main, for_other):
    """One for the process is the main thread's, if that does not block it (complete_signal() of kernel/signal.c)."""
    masks = {"/proc/7/status": STATUS % main, "/proc/8/status": STATUS % other}
    monkeypatch.setattr(waits, "read_entry", lambda path: b"Name:\tx\n" + masks[path])
    assert (waits.signalled(7, 7), waits.signalled(8, 7)) == (for_main, for_other)


def test_a_process_that_is_gone_has_no_signal():
    """Whoever waits for it ends by another way."""
    assert waits.signalled(2**22 + 1, 2**22 + 1) == 0
