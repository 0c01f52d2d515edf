"""Hostile starts of programs, with the agent in C: failed ones, rewritten ones, long ones; each with its control."""

import hashlib
import os
import shutil
import subprocess
import sys

import pytest
from compiled import Box

from agentbox.guard.arguments import MOST_BYTES

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler"),
]

ECHO, ID = os.path.realpath("/usr/bin/echo"), os.path.realpath("/usr/bin/id")


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


FAILS = f"""
#include <stdio.h>
#include <unistd.h>
#include <sys/wait.h>
int main(int c, char **v) {{
    char *e[] = {{"{ECHO}", "x", 0}}, *i[] = {{"{ID}", "-u", 0}};
    if (execve("{ECHO}", e, (char **)8) == 0) return 1;
    if (!fork()) {{ execv("{ID}", i); _exit(9); }}
    int s; wait(&s);
    printf("%s\\n", WEXITSTATUS(s) == 9 ? "refused" : "ran");
    return 0;
}}
"""


def test_an_exec_that_fails_after_the_decision_lets_nobody_in(box):
    """A bad environment makes an allowed exec fail in the kernel: the agent stays the agent, and its children too."""
    box.compile(FAILS)
    assert box.plain().stdout.endswith("ran\n")
    done = box.boxed(f"exec: {ECHO}\n")
    assert done.stdout == "refused\n", done.stderr


GIVES_UP = f"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {{
    char *words[] = {{"./tool", 0}};
    int fd = open("tool", O_CREAT | O_WRONLY, 0755);
    if (ftruncate(fd, 1LL << 40)) return 1;
    close(fd);
    pid_t child = fork();
    if (!child) {{ execv("./tool", words); _exit(9); }}
    usleep(200000);
    kill(child, SIGKILL);
    wait(0);
    execv("{ECHO}", words);
    return 2;
}}
"""


def test_a_large_program_is_hashed_only_while_somebody_waits_for_it(box):
    """Nothing is started when it has gone, and the run does not wait for the hash of a terabyte."""
    box.compile(GIVES_UP)
    done = box.boxed(f"write: .\nexec: ./tool\nexec: {ECHO}\n")
    assert done.returncode == 0, done.stderr
    (started,) = (one for one in box.trace() if (one["op"], one["kind"]) == ("proc.exec", "observe"))
    assert started["args"]["file"] == ECHO
    assert box.trace()[-1]["ts"] - started["ts"] < 4, "the patience for work that is under way"


REWRITES = f"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
static char path[256]; static char *av[] = {{path, "-u", 0}};
static void *swap(void *a) {{
    for (;;) {{
        strcpy(path, "{ID}"); for (volatile int i = 0; i < 2000; i++);
        strcpy(path, "{ECHO}"); for (volatile int i = 0; i < 2000; i++);
    }}
}}
static void *call(void *a) {{ for (;;) {{ int f = open("/usr/lib/os-release", O_RDONLY); if (f >= 0) close(f); }} }}
int main(int c, char **v) {{
    int ran = 0, killed = 0;
    for (int i = 0; i < atoi(v[1]); i++) {{
        int p[2]; pipe(p);
        if (!fork()) {{
            dup2(p[1], 1); strcpy(path, "{ECHO}"); pthread_t t;
            pthread_create(&t, 0, swap, 0); pthread_create(&t, 0, call, 0);
            usleep(50); execv(path, av); _exit(99);
        }}
        close(p[1]); char b[100]; int k = read(p[0], b, 99); close(p[0]);
        int s; wait(&s);
        if (WIFSIGNALED(s)) killed++; else if (k > 0 && b[0] >= '0' && b[0] <= '9') ran++;
    }}
    printf("%d %d\\n", ran, killed);
    return 0;
}}
"""


@pytest.mark.attempt("P3")
def test_a_path_rewritten_after_the_decision_ends_the_process(box):
    """Though another thread makes calls all the time: what appears is not what was decided, and never runs on."""
    box.compile(REWRITES)
    ran, _ = map(int, box.plain("40").stdout.split())
    assert ran > 0
    done = box.boxed(f"exec: {ECHO}\n", "150")
    ran, killed = map(int, done.stdout.split())
    assert ran == 0, done.stderr
    said = [e for e in box.trace() if e["kind"] == "deny" and "was under way" in e.get("reason", "")]
    assert len(said) == killed


SCRIPTS = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
int main(int c, char **v) {
    for (int i = 1; i < c; i++) {
        if (!fork()) { char *a[] = {"x", "one", "two", 0}; execv(v[i], a); _exit(9); }
        int s; wait(&s);
        printf("%d\\n", WIFSIGNALED(s) ? -WTERMSIG(s) : WEXITSTATUS(s)); fflush(stdout);
    }
    return 0;
}
"""


ASKS = f"""
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {{
    char *words[] = {{"git", "push", 0}}, *none[] = {{0}};
    for (int flag = 0x10000; flag <= 0x20000; flag *= 2)  /* AT_EXECVE_CHECK, and one that there is not */
        printf("%d ", syscall(SYS_execveat, AT_FDCWD, "{ECHO}", words, none, flag) ? errno == EINVAL : 0);
    return 0;
}}
"""


def test_a_question_whether_a_program_could_start_is_no_start(box):
    """execveat(2) with AT_EXECVE_CHECK (Linux 6.14) starts nothing: it fails as on an older kernel."""
    box.compile(ASKS)
    assert box.plain().stdout in ("0 1 ", "1 1 ")
    done = box.boxed(f"exec: {ECHO}\n")
    assert done.stdout == "1 1 ", done.stderr
    assert not [entry for entry in box.trace() if entry["op"] == "proc.exec" and entry["kind"] == "observe"]


def test_scripts_run_under_the_interpreter_of_their_first_line(box):
    """Directly, with an option, by env, and by another script: what was decided on is what appears."""
    box.compile(SCRIPTS)
    names = []
    for name, line in (("a", "#!/bin/sh"), ("b", "#! /bin/sh -e"), ("c", "#!/usr/bin/env sh"), ("d", "#!../a")):
        path = box.folder / name
        path.write_text(f"{line}\necho {name} $#\n")
        path.chmod(0o755)
        names.append(f"../{name}")
    plain = box.plain(*names)
    done = box.boxed(f"exec: *\nread: {box.folder}\n", *names)
    assert done.stdout == plain.stdout, done.stderr
    assert plain.stdout.splitlines()[:6] == ["a 2", "0", "b 2", "0", "c 2", "0"]


LONG = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
int main(int c, char **v) {
    char *big = malloc(120000); memset(big, 'a', 119999); big[119999] = 0;
    char *av[11] = {0};
    for (int k = 0; k < 10; k++) av[k] = big;
    int found = 0;
    for (int k = 0; k < 20; k++) {
        int s; if (!fork()) { execv(v[1], av); _exit(99); }
        wait(&s); found = WEXITSTATUS(s);
    }
    return found;
}
"""


@pytest.mark.parametrize("policy", [f"exec: {ECHO}\n", "exec: *\n"])
def test_long_arguments_are_cut_in_the_record(box, policy):
    """Refused or not: the start of them is recorded, how many there are, and a hash of the whole."""
    box.compile(LONG)
    assert box.plain(ID).returncode == 1  # id complains about its arguments
    done = box.boxed(policy, ID)
    assert done.returncode == (99 if "echo" in policy else 1), done.stderr
    entries = [e["args"] for e in box.trace() if e["op"] == "proc.exec" and e["kind"] != "meta"]
    assert len(entries) == 20
    word = "a" * 119999
    whole = hashlib.sha256(b"\0".join([word.encode()] * 10) + b"\0").hexdigest()
    for args in entries:
        assert args["cut"] is True and args["argv_sha256"] == whole and args["argc"] == 10
        assert "".join(args["argv"]) == word[: len("".join(args["argv"]))]
        assert sum(map(len, args["argv"])) <= MOST_BYTES
    assert (box.folder / "state" / "trace.jsonl").stat().st_size < 20 * 3 * MOST_BYTES


def test_a_python_agents_long_arguments_are_cut_once(box):
    """The guard's announcement and the kernel's notice are one entry, cut alike."""
    code = f"import subprocess; subprocess.run([{ECHO!r}, *['word'] * 3000], stdout=subprocess.DEVNULL)"
    done = box.boxed("exec: *\n", command=[sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    entries = [e["args"] for e in box.trace() if e["op"] == "proc.exec" and e["kind"] != "meta"]
    assert [(args["cut"], args["argc"], len(args["argv"])) for args in entries] == [(True, 3001, 64)]


READS = """
import os, sys
for name in sys.argv[1:]:
    try:
        with open(name, "rb", buffering=0) as file:
            print(b"SECRET" in file.read(65536))
    except OSError as error:
        print(error.strerror)
"""


def test_nobody_reads_the_environment_of_another_process(box, monkeypatch):
    """Under `read: /` either: the run's first process (1) and its starter (3) have the caller's. Numbers are open."""
    monkeypatch.setenv("SECRET", "x")
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    command = [shutil.which("env"), python, "-I", "-S", "-c", READS]
    other = subprocess.Popen(["sleep", "60"])
    names = [f"/proc/{pid}/{leaf}" for pid in (1, 3, other.pid) for leaf in ("environ", "task/1/environ", "maps")]
    names += ["/proc/1/stat", "/proc/self/environ", f"/proc/{other.pid}/environ"]
    plain = subprocess.run([*command, *names], capture_output=True, text=True).stdout.splitlines()
    other.kill()
    other.wait()
    assert plain[-3:] == ["False", "True", "True"]
    done = box.boxed("read: /\nexec: *\n", command=[*command, *names])
    said = done.stdout.splitlines()
    assert "True" not in said and said[-3:-1] == ["False", "False"], done.stderr
    assert said[0] == said[2] == said[3] == "Permission denied"


CHOWNS = """
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
int main(int c, char **v) {
    int own = geteuid(), group = getegid();
    close(open("made", O_CREAT | O_WRONLY, 0600));
    int kinds[][2] = {{own, group}, {-1, group}, {-1, -1}, {own + 1000, -1}, {-1, 54321}, {own + 1000, 54321}};
    for (int i = 0; i < 6; i++)
        printf("%s\\n", chown("made", kinds[i][0], kinds[i][1]) ? strerror(errno) : "done");
    return 0;
}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_is_not_given_to_somebody_else(box):
    """The agent has no capability, so neither has what is done in its name; its own ids it may give."""
    box.compile(CHOWNS)
    assert box.plain().stdout.split("\n")[:6] == ["done"] * 6
    (box.folder / "ws" / "made").unlink()
    done = box.boxed("write: .\n")
    assert done.stdout.split("\n")[:6] == ["done"] * 3 + ["Operation not permitted"] * 3, done.stderr
    assert (box.folder / "ws" / "made").stat().st_uid == 0


MAPPED = """
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void look(void) { char b[5]; int r = open("mm", O_RDONLY); read(r, b, 4); close(r); }
int main(void) {
    int f = open("mm", O_RDWR | O_CREAT | O_TRUNC, 0600); write(f, "AAAA", 4);
    char *p = mmap(0, 4096, 3, MAP_SHARED, f, 0);
    memcpy(p, "BBBB", 4); look(); usleep(50000);
    memcpy(p, "CCCC", 4); look();
    return 0;
}
"""


def test_a_mapped_file_is_hashed_anew(box):
    """A change through a mapping may come before the change of the file's times: each read is told with what it got."""
    box.compile(MAPPED)
    box.boxed("read: .\nwrite: .\n")
    told = [e["args"]["sha256"] for e in box.trace() if e["op"] == "fs.read" and e["args"]["path"].endswith("/mm")]
    assert told == [hashlib.sha256(text).hexdigest() for text in (b"BBBB", b"CCCC")]
