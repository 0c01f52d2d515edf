"""What survives exec: what would steer a program that a rule allows is refused, what would not is let be."""

import shutil
import sys

import pytest
from compiled import Box

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler"),
]

SEEN = r"""
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>
/* What the program has of its caller, one word each. */
int main(void) {
    struct utsname u = {0}; struct sigaction s, p; struct rlimit l; sigset_t m;
    close(open("/dev/null", O_RDONLY)); /* which the supervisor sees */
    uname(&u); sigaction(SIGCHLD, 0, &s); sigaction(SIGPIPE, 0, &p); getrlimit(RLIMIT_NOFILE, &l);
    sigprocmask(0, 0, &m);
    dprintf(1, "%s", u.sysname[0] ? "uname" : "nothing");
    if (personality(-1) & ADDR_NO_RANDOMIZE) dprintf(1, " fixed");
    if (personality(-1) & ADDR_COMPAT_LAYOUT) dprintf(1, " compatible");
    if ((personality(-1) & 0xff) == PER_LINUX32) dprintf(1, " linux32");
    if (s.sa_handler == SIG_IGN) dprintf(1, " childless");
    if (p.sa_handler == SIG_IGN) dprintf(1, " pipeless");
    if (sigismember(&m, SIGTERM)) dprintf(1, " masked");
    if (l.rlim_cur == 17) dprintf(1, " limited");
    if (dup(9) < 0 && fcntl(0, 1) < 0) dprintf(1, " closed");
    if (getpriority(PRIO_PROCESS, 0) == 7) dprintf(1, " nice");
    dprintf(1, "\n"); return 0;
}
"""

STARTS = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
/* uname(2) says that it is done, and does nothing; exec itself is let be. */
static int filter(int flags) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_uname, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog program = { 4, code };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}
static int pause_us;
static void *later(void *a) { usleep(pause_us); filter(SECCOMP_FILTER_FLAG_TSYNC); for (;;) pause(); }
/* WAYS FILE ARGUMENT: keeps something, or several things (joined by +), and starts FILE */
int main(int c, char **v) {
    char *w = v[1]; struct rlimit l = {17, 17}; sigset_t m; pthread_t t;
    if (strstr(w, "filter") && filter(0)) return 3;
    if (strstr(w, "fixed")) personality(ADDR_NO_RANDOMIZE);
    if (strstr(w, "compatible")) personality(ADDR_COMPAT_LAYOUT);
    if (strstr(w, "linux32")) personality(PER_LINUX32);
    if (strstr(w, "childless")) signal(SIGCHLD, SIG_IGN);
    if (strstr(w, "pipeless")) signal(SIGPIPE, SIG_IGN);
    if (strstr(w, "masked")) { sigemptyset(&m); sigaddset(&m, SIGTERM); sigprocmask(SIG_BLOCK, &m, 0); }
    if (strstr(w, "nice")) setpriority(PRIO_PROCESS, 0, 7);
    if (strstr(w, "limited")) setrlimit(RLIMIT_NOFILE, &l);
    if (strstr(w, "closed")) { close(0); close(2); }
    if (strstr(w, "late")) { pause_us = atoi(w + 4); pthread_create(&t, 0, later, 0); }
    char *a[] = {"seen", v[3], 0}, *e[] = {0};
    execve(v[2], a, e);
    puts("refused"); return 9;
}
"""


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path)
    made.compile(STARTS)
    made.compile(SEEN, "-static", name="seen")
    return made


def reasons(box):
    return [entry["reason"] for entry in box.trace() if entry["kind"] == "deny"]


STEERING = {
    "filter": ("nothing", "seccomp filters"),
    "fixed": ("uname fixed", "personality(2) flags"),
    "compatible": ("uname compatible", "personality(2) flags"),
    "childless": ("uname childless", "ignores SIGCHLD"),
}


@pytest.mark.attempt("P14")
@pytest.mark.parametrize("arguments", ["", " told"])
@pytest.mark.parametrize("way", STEERING)
def test_what_would_steer_a_program_of_a_rule_does_not_survive_its_start(box, way, arguments):
    """Filters that forge results, another layout of memory and an ignored SIGCHLD are refused, with and without
    arguments in the rule; where every program may be started, they gain nothing.
    """
    seen = str(box.folder / "seen")
    without, reason = STEERING[way]
    assert box.plain(way, seen, "told").stdout == f"{without}\n"
    done = box.boxed(f"exec: {seen}{arguments}\n", way, seen, "told")
    assert done.stdout == "refused\n", done.stderr
    assert [reason in one for one in reasons(box)] == [True]
    assert box.boxed(f"exec: *\nread: {box.folder}\n", way, seen, "told").stdout == f"{without}\n"


@pytest.mark.parametrize("way", ["linux32", "pipeless", "masked", "limited", "closed", "nice"])
def test_what_steers_nothing_survives_as_it_does_elsewhere(box, way):
    """Limits, signal masks, other ignored signals, closed descriptors and priorities make a program fail or wait at
    most: shells and build tools set them for what they start.
    """
    seen = str(box.folder / "seen")
    without = box.plain(way, seen, "told").stdout
    assert without == f"uname {way}\n"
    assert box.boxed(f"exec: {seen} told\n", way, seen, "told").stdout == without


BIG = 96 << 20
TRIES = 30


@pytest.mark.attempt("P14")
def test_another_thread_gives_no_filter_to_a_start_that_was_decided(box):
    """SECCOMP_FILTER_FLAG_TSYNC reaches a thread that waits in its exec; what it has become is looked at again. A
    program of this size is hashed for long enough that a filter comes in between.
    """
    seen = box.folder / "seen"
    with open(seen, "r+b") as file:
        file.truncate(BIG)
    assert box.plain("late0", str(seen), "told").stdout in ("nothing\n", "uname\n")
    for number in range(TRIES):
        done = box.boxed(f"exec: {seen} told\n", f"late{number * 2000}", str(seen), "told")
        assert "nothing" not in done.stdout, done.stderr
        if any("thread changed an exec" in reason and "seccomp filters" in reason for reason in reasons(box)):
            return
    pytest.skip(f"no filter came between decision and start in {TRIES} tries")
