"""Hostile starts of programs, with the agent in C: failed ones, rewritten ones, long ones; each with its control."""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest

from agentbox.guard.arguments import MOST_BYTES

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler"),
]

ECHO, ID = os.path.realpath("/usr/bin/echo"), os.path.realpath("/usr/bin/id")


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


class Box:
    """Compiles an agent, and runs it with and without the sandbox."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "ws").mkdir()
        (folder / "state").mkdir()

    def compile(self, source, *options):
        path = self.folder / "agent.c"
        path.write_text(source)
        subprocess.run(
            ["gcc", "-w", "-O1", "-pthread", *options, "-o", str(self.folder / "agent"), str(path)], check=True
        )

    def plain(self, *words):
        command = [str(self.folder / "agent"), *words]
        return subprocess.run(command, cwd=self.folder / "ws", capture_output=True, text=True, timeout=60)

    def boxed(self, policy, *words, command=()):
        state = self.folder / "state"
        (state / "agentbox.policy").write_text(policy)
        command = [
            sys.executable, "-m", "agentbox.cli", "run", "-p", f"{state}/agentbox.policy", "-t", f"{state}/trace.jsonl",
            "--", *(command or (str(self.folder / "agent"), *words)),
        ]  # fmt: skip
        environ = {**os.environ, "TMPDIR": str(state)}
        return subprocess.run(command, cwd=self.folder / "ws", env=environ, capture_output=True, text=True, timeout=60)

    def trace(self):
        text = (self.folder / "state" / "trace.jsonl").read_bytes()
        return [json.loads(line) for line in text.splitlines()]


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
    entries = [e["args"] for e in box.trace() if e["op"] == "proc.exec"]
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
    entries = [e["args"] for e in box.trace() if e["op"] == "proc.exec"]
    assert [(args["cut"], args["argc"], len(args["argv"])) for args in entries] == [(True, 3001, 64)]
