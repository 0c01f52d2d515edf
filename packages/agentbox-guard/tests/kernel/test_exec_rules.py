"""What `exec:` rules hold, against an agent in C: who counts as the agent, what a program is called, its variables, its
content, and the ways around a rule; each with its control.
"""

import collections
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from compiled import Box
from kit.waiting import won

from agentbox.guard.kernel.inherited import UNKNOWN

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler"),
]

CAT, ECHO, ID, SH, TRUE = (os.path.realpath(f"/usr/bin/{name}") for name in ("cat", "echo", "id", "sh", "true"))
GIT = os.path.realpath(shutil.which("git") or "/usr/bin/git")


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def reasons(box):
    return [entry["reason"] for entry in box.trace() if entry["kind"] == "deny"]


DESCENT = f"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
static void try(void) {{
    if (!fork()) {{
        char *i[] = {{"id", "-u", 0}}; execv("{ID}", i); puts("refused"); fflush(stdout); _exit(0);
    }}
    wait(0);
}}
/* Until somebody has become another program or ended, he holds the end of a pipe that somebody else reads. */
static int became[2], over[2];
static void pipes(void) {{ pipe2(became, O_CLOEXEC); pipe(over); }}
static void wait_for(int *ends) {{ char byte; close(ends[1]); read(ends[0], &byte, 1); }}
static void after(void) {{ if (!fork()) {{ wait_for(became); try(); _exit(0); }} }}
static void become(void) {{ char *a[] = {{"cat", 0}}; dup2(over[0], 0); close(over[1]); execv("{CAT}", a); _exit(9); }}
static void *late(void *main) {{ pthread_join(*(pthread_t *)main, 0); try(); _exit(0); }}
int main(int c, char **v) {{
    pipes();
    if (!strcmp(v[1], "parent")) {{ after(); become(); }}
    if (!strcmp(v[1], "middle")) {{ if (!fork()) {{ after(); become(); }} close(became[1]); close(over[1]); wait(0); }}
    if (!strcmp(v[1], "orphan")) {{ if (!fork()) {{ after(); _exit(0); }} close(became[1]); wait(0); wait_for(over); }}
    if (!strcmp(v[1], "thread")) {{
        static pthread_t t, main; main = pthread_self(); pthread_create(&t, 0, late, &main); pthread_exit(0);
    }}
    if (!strcmp(v[1], "hidden")) {{
        char *e[] = {{"cat", 0}};
        if (!fork()) {{
            prctl(PR_SET_DUMPABLE, 0); execve("{CAT}", e, (char **)8); prctl(PR_SET_DUMPABLE, 1); try(); _exit(0);
        }}
        wait(0);
    }}
    return 0;
}}
"""


@pytest.mark.parametrize("way", ["parent", "middle", "orphan", "thread", "hidden"])
def test_the_agents_code_is_the_agent_wherever_it_runs(box, way):
    """In a child of what has become an allowed program, in an orphan, in what is left of a process, hidden from /proc:
    what no rule names is refused.
    """
    box.compile(DESCENT)
    assert box.plain(way).stdout == f"{os.getuid()}\n"
    done = box.boxed(f"exec: {CAT}\n", way)
    assert done.stdout == "refused\n", done.stderr
    # An ordinary user's supervisor cannot see what a hidden caller keeps over exec (proc_pid_personality(5)).
    unseen = [UNKNOWN] if way == "hidden" and os.geteuid() != 0 else []
    assert reasons(box) == [*unseen, "no exec rule names this program"]


AGAIN = f"""
#include <unistd.h>
int main(int c, char **v) {{
    char *a[] = {{v[0], "again", 0}}, *i[] = {{"id", "-u", 0}};
    if (c == 1) execv(v[0], a); else execv("{ID}", i);
    return 9;
}}
"""


def test_an_agent_that_a_rule_starts_anew_is_an_allowed_program(box):
    """Under a rule that names the agent's own program, and only then: what it starts is its own matter."""
    box.compile(AGAIN)
    assert box.plain().stdout == f"{os.getuid()}\n"
    assert box.boxed("exec: sleep\n").returncode == 9
    assert box.boxed(f"exec: {box.folder}/agent\n").stdout == f"{os.getuid()}\n"
    assert box.boxed(f"exec: {box.folder}/agent\n", "at once").returncode == 9


STARTS = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* [NAME=VALUE ...] FILE ARGV0 ... */
int main(int c, char **v) {
    char *e[20] = {"PATH=/usr/bin:/bin", 0}; int n = 1, at = 1;
    while (strchr(v[at], '=')) e[n++] = v[at++];
    e[n] = 0;
    execve(v[at], v + at + 1, e);
    perror("agent");
    return 9;
}
"""


@pytest.mark.attempt("P7")
@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_a_name_is_no_way_around_a_rules_arguments(box):
    """git takes its command from argv[0]; under a rule with arguments it is called by a name of its own."""
    box.compile(STARTS)
    subprocess.run([GIT, "init", "-q", "--bare", "status"], cwd=box.folder / "ws", check=True)
    words = [GIT, "git-clone", "status", "out", "--upload-pack", "id -u >ran;"]
    box.plain(*words)
    assert (box.folder / "ws/ran").read_text() == f"{os.getuid()}\n"
    (box.folder / "ws/ran").unlink()
    policy = "read: .\nwrite: .\nexec: git status\n"
    assert box.boxed(policy, *words).returncode == 9
    assert not (box.folder / "ws/ran").exists()
    assert "git-clone" in reasons(box)[0] and "means git" in reasons(box)[0]
    assert "not a git repository" in box.boxed(policy, GIT, "git", "status").stderr


INJECTED = """
#include <unistd.h>
__attribute__((constructor)) static void run(void) { write(1, "injected\\n", 9); }
unsigned la_version(unsigned v) { write(1, "injected\\n", 9); return v; }
"""
MARK = "echo injected"


@pytest.mark.attempt("P8")
@pytest.mark.parametrize(
    ("name", "variable", "words"),
    [
        ("true", "LD_PRELOAD={ws}/evil.so", []),
        ("true", "LD_AUDIT={ws}/evil.so", []),
        ("bash", "BASH_ENV={ws}/evil.sh", ["-c", "true"]),
        ("bash", "BASH_FUNC_true%%=() { echo injected; }", ["-c", "true"]),
        ("python3", "PYTHONPATH={ws}", ["-c", "import evil"]),
        ("perl", "PERL5OPT=-I{ws} -Mevil", ["-e", "1"]),
        ("ruby", "RUBYOPT=-r{ws}/evil.rb", ["-e", "1"]),
        ("node", "NODE_OPTIONS=--require={ws}/evil.cjs", ["-e", "1"]),
        ("git", "GIT_CONFIG_PARAMETERS='alias.x=!echo injected'", ["x"]),
        ("git", "GIT_EXTERNAL_DIFF=echo injected", ["diff", "--no-index", "--ext-diff", "evil.sh", "evil.py"]),
        ("make", "MAKEFLAGS=--eval=all:;@echo\\ injected", ["-f", "evil.mk"]),
    ],
)
def test_a_variable_is_no_way_around_a_rule(box, name, variable, words):
    """What loaders, interpreters and tools run because of a variable: the start is refused, and the variable named."""
    found = shutil.which(name, path="/usr/bin:/bin")
    if found is None:
        pytest.skip(f"there is no {name}")
    box.compile(STARTS)
    ws = box.folder / "ws"
    (box.folder / "evil.c").write_text(INJECTED)
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-o", ws / "evil.so", box.folder / "evil.c"], check=True)
    for file, text in (
        ("evil.sh", MARK), ("evil.py", "print('injected')"), ("evil.pm", "print qq(injected\n);"),
        ("evil.rb", "puts 'injected'"), ("evil.cjs", "console.log('injected')"), ("evil.mk", "all:\n"),
    ):  # fmt: skip
        (ws / file).write_text(text)
    file = os.path.realpath(found)
    command = [variable.replace("{ws}", str(ws)), file, name, *words]
    assert "injected" in box.plain(*command).stdout
    rule = " ".join(["exec:", found, *words[:1]])
    done = box.boxed(f"read: .\n{rule}\n", *command)
    assert done.returncode == 9 and "injected" not in done.stdout, done.stderr
    (reason,) = reasons(box)
    assert reason.startswith(f"the variable {variable.partition('=')[0]} would make it run something else")
    said = [entry["args"]["file"] for entry in box.trace() if entry["kind"] == "deny"]
    assert said == [file]


def test_variables_that_inject_nothing_are_passed_on(box):
    """What programs give each other every day, and the guard's own variables as they are."""
    box.compile(STARTS)
    given = ["FOO=1", "npm_config_loglevel=silent", "PYTHONUNBUFFERED=1", "MAKEFLAGS=w -j2", "GIT_CONFIG_NOSYSTEM=1"]
    words = [*given, ECHO, "echo", "ran"]
    assert box.plain(*words).stdout == box.boxed(f"exec: {ECHO}\n", *words).stdout == "ran\n"


def test_an_interpreter_that_may_be_told_anything_may_be_so_by_its_variables(box):
    """By a rule without arguments; the loader's are another matter."""
    if not os.path.exists("/usr/bin/python3"):
        pytest.skip("there is no python3 of the system")
    box.compile(STARTS)
    (box.folder / "ws/mine.py").write_text("print('mine')")
    python = os.path.realpath("/usr/bin/python3")
    words = [f"PYTHONPATH={box.folder}/ws", python, "python3", "-c", "import mine"]
    policy = f"read: .\nexec: {python}\n"
    assert box.plain(*words).stdout == box.boxed(policy, *words).stdout == "mine\n"
    assert box.boxed(policy, "LD_LIBRARY_PATH=/x", *words).returncode == 9


@pytest.mark.attempt("P7")
@pytest.mark.skipif(not os.path.exists("/usr/bin/bash"), reason="there is no bash")
def test_a_scripts_interpreter_is_not_the_agents_to_tell(box):
    """A rule for a script leaves its arguments free, not those of what reads it."""
    box.compile(STARTS)
    (box.folder / "ws/evil.sh").write_text(MARK)
    for name, line in (("tool", "#!/usr/bin/bash"), ("found", "#!/usr/bin/env bash")):
        script = box.folder / name
        script.write_text(f"{line}\necho ran\n")
        script.chmod(0o755)
        policy = f"read: .\nexec: {script}\n"
        words = [f"BASH_ENV={box.folder}/ws/evil.sh", str(script), name]
        assert box.plain(*words).stdout == "injected\nran\n"
        assert box.boxed(policy, *words).returncode == 9
        assert box.boxed(policy, "FOO=1", *words[1:]).stdout == "ran\n"
    assert (
        box.boxed(f"read: .\nexec: {box.folder}/tool\n", "PERL5OPT=-w", f"{box.folder}/tool", "tool").stdout == "ran\n"
    )


def test_what_a_rule_has_let_in_gives_variables_as_it_likes(box):
    """It is confined all the same, and its arguments could say what they say."""
    box.compile(STARTS)
    words = [SH, "sh", "-c", f"LD_BIND_NOW=1 PYTHONPATH=/x {ECHO} ran"]
    assert box.plain(*words).stdout == box.boxed("exec: sh -c\n", *words).stdout == "ran\n"


SWAPS = f"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
static char one[300], bad[300]; static char *volatile env[2];
static void *swap(void *a) {{
    for (;;) {{
        env[0] = bad; for (volatile int i = 0; i < 3000; i++);
        env[0] = one; for (volatile int i = 0; i < 3000; i++);
    }}
}}
int main(int c, char **v) {{
    int ran = 0, killed = 0;
    strcpy(one, "FOO=1"); strcpy(bad, v[2]);
    for (int i = 0; i < atoi(v[1]); i++) {{
        int p[2]; pipe(p);
        if (!fork()) {{
            dup2(p[1], 1); env[0] = one; pthread_t t; pthread_create(&t, 0, swap, 0);
            char *a[] = {{"true", 0}}; usleep(50); execve("{TRUE}", a, (char **)env); _exit(99);
        }}
        close(p[1]); char b[100]; int k = read(p[0], b, 99); close(p[0]);
        int s; wait(&s);
        if (WIFSIGNALED(s)) killed++; else if (k > 0) ran++;
    }}
    printf("%d %d\\n", ran, killed);
    return 0;
}}
"""


def test_a_variable_that_is_given_after_the_decision_ends_the_process(box):
    """The kernel reads the variables once more, as it does the arguments: what it has read is looked at again."""
    box.compile(SWAPS)
    (box.folder / "evil.c").write_text(INJECTED)
    subprocess.run(
        ["gcc", "-w", "-shared", "-fPIC", "-o", box.folder / "ws/evil.so", box.folder / "evil.c"], check=True
    )
    variable = f"LD_PRELOAD={box.folder}/ws/evil.so"
    ran, _ = map(int, box.plain("60", variable).stdout.split())
    assert ran > 0
    done = box.boxed(f"read: .\nexec: {TRUE}\n", "150", variable)
    ran, killed = map(int, done.stdout.split())
    assert ran == 0, done.stderr
    said = [reason for reason in reasons(box) if "was under way" in reason]
    assert len(said) == killed and all("LD_PRELOAD" in reason for reason in said)


SAYS = """
#include <unistd.h>
volatile char mark[16] = "MARKER=A\\n";
int main(int c, char **v) { write(1, (char *)mark + 7, 1); return 0; }
"""
CHANGES = """
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/wait.h>
static long now(void) {
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
/* WAY FILE OFFSET TRIES MOST_US: the child starts FILE, the parent changes one byte of it meanwhile */
int main(int c, char **v) {
    char *file = v[2]; long off = atol(v[3]); int tries = atoi(v[4]), most = atoi(v[5]);
    volatile long *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < tries; i++) {
        int f = open(file, O_RDWR); if (f < 0) return 1;
        pwrite(f, "A", 1, off);
        char *map = mmap(0, off + 1, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
        if (*v[1] == 'm') map[off] = 'A';
        if (*v[1] != 'w') { close(f); f = -1; }
        if (*v[1] != 'm') { munmap(map, off + 1); map = 0; }
        at[0] = 0;
        pid_t p = fork();
        if (!p) {
            if (f >= 0) close(f); if (map) munmap(map, off + 1);
            char n[20], m; sprintf(n, "%d", i);
            at[0] = now(); int r = open(file, O_RDONLY); pread(r, &m, 1, off); close(r);
            write(1, n, strlen(n)); write(1, " ", 1); write(1, &m, 1); write(1, " ", 1);
            execl(file, "says", n, (char *)0);
            write(1, "-\\n", 2); _exit(0);
        }
        while (!at[0]);
        long t = at[0] + (long)(i % 40) * most * 25;
        while (now() < t);
        if (*v[1] == 'o') f = open(file, O_WRONLY);
        if (map) { map[off] = 'B'; munmap(map, off + 1); }
        if (f >= 0) { pwrite(f, "B", 1, off); close(f); }
        wait(0);
        write(1, "\\n", 1);
    }
    return 0;
}
"""


@pytest.mark.parametrize("way", ["written", "mapped", "opened again"])
def test_what_is_recorded_of_a_program_is_what_ran(box, way):
    """Though it is changed while it is started, through a descriptor or a mapping: the start or the change fails."""
    box.compile(SAYS, "-static", name="says")
    box.compile(CHANGES)
    program = box.folder / "ws/says"
    shutil.move(box.folder / "says", program)
    content = program.read_bytes()
    at = content.index(b"MARKER=A") + 7
    digests = {
        hashlib.sha256(content[:at] + mark + content[at + 1 :]).hexdigest(): mark.decode() for mark in (b"A", b"B")
    }
    # Without the sandbox, too, what somebody has read just before is not what runs.

    def swapped():
        lines = box.plain(way, "says", str(at), "400", "200").stdout.splitlines()
        return ["A", "B"] in [line.split()[1:] for line in lines if line]

    won(swapped, 30, "a program that is changed between its check and its start")
    done = box.boxed("write: .\nexec: ./says\n", way, "says", str(at), "200", "2000")
    ran = {line.split()[0]: line.split()[-1] for line in done.stdout.splitlines() if line}
    told = {
        entry["args"]["argv"][1]: digests[entry["args"]["sha256"]]
        for entry in box.trace()
        if entry["op"] == "proc.exec" and entry["kind"] == "observe"
    }
    pairs = collections.Counter((told.get(number), mark) for number, mark in ran.items())
    assert all(mark == "-" or recorded == mark for recorded, mark in pairs), pairs


WAYS = f"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
static void copy(char *from, int to) {{
    char b[65536]; int f = open(from, O_RDONLY), n;
    while ((n = read(f, b, sizeof b)) > 0) write(to, b, n);
    close(f);
}}
int main(int c, char **v) {{
    char *w = v[1], *i[] = {{"echo", "-u", 0}}; extern char **environ;
    if (!strcmp(w, "copy")) {{
        int f = open("echo", O_CREAT | O_WRONLY, 0755); copy("{ID}", f); close(f); execv("./echo", i);
    }}
    if (!strcmp(w, "rename")) {{
        int f = open("x", O_CREAT | O_WRONLY, 0755); copy("{ID}", f); close(f); rename("x", "echo"); execv("./echo", i);
    }}
    if (!strcmp(w, "link")) {{ symlink("{ID}", "echo"); execv("./echo", i); }}
    if (!strcmp(w, "path")) {{ symlink("{ID}", "echo"); setenv("PATH", ".", 1); execvp("echo", i); }}
    if (!strcmp(w, "name")) execv("{ID}", i);
    if (!strcmp(w, "script")) {{
        int f = open("echo", O_CREAT | O_WRONLY, 0755); dprintf(f, "#!{SH}\\n{ID} -u\\n"); close(f);
        char *a[] = {{"echo", 0}}; execv("./echo", a);
    }}
    if (!strcmp(w, "env")) {{ char *a[] = {{"echo", "-S", "{ID} -u", 0}}; execv("/usr/bin/env", a); }}
    if (!strcmp(w, "shell")) {{ char *a[] = {{"echo", "-c", "{ID} -u", 0}}; execv("{SH}", a); }}
    if (!strcmp(w, "memory")) {{ int f = memfd_create("echo", 0); copy("{ID}", f); fexecve(f, i, environ); }}
    if (!strcmp(w, "descriptor")) {{
        int f = open("{ID}", O_PATH); syscall(SYS_execveat, f, "", i, environ, AT_EMPTY_PATH);
    }}
    if (!strcmp(w, "proc")) {{ char p[40]; sprintf(p, "/proc/self/fd/%d", open("{ID}", O_PATH)); execv(p, i); }}
    if (!strcmp(w, "loader")) {{ char *a[] = {{"echo", "{ID}", "-u", 0}}; execv(v[2], a); }}
    return 9;
}}
"""


@pytest.mark.attempt("P7")
@pytest.mark.parametrize(
    "way",
    ["copy", "rename", "link", "path", "name", "script", "env", "shell", "memory", "descriptor", "proc", "loader"],
)
def test_a_rule_is_not_gone_around(box, way):
    """By copies, names, scripts, other programs, descriptors and the loader: under `exec: echo` nothing else starts."""
    box.compile(WAYS)
    table = subprocess.run(["readelf", "-l", ID], capture_output=True, text=True).stdout
    loader = table.partition("program interpreter: ")[2].partition("]")[0] or "/lib64/ld-linux-x86-64.so.2"
    assert box.plain(way, loader).stdout == f"{os.getuid()}\n"
    for made in (box.folder / "ws").iterdir():
        made.unlink()
    done = box.boxed("read: .\nwrite: .\nexec: echo\n", way, loader)
    assert (done.returncode, done.stdout) == (9, ""), done.stderr
    denied = [entry for entry in box.trace() if entry["kind"] == "deny"]
    assert [entry["op"] for entry in denied] == ["proc.exec"], denied


@pytest.mark.skipif(shutil.which("ldd") is None, reason="there is no ldd")
@pytest.mark.parametrize("command", ["bash -c 'ldd {0}; :'", "ldd {0}"])
@pytest.mark.parametrize("rules", ["exec: *\n", "exec: bash\nexec: ldd\n"])
def test_the_rule_that_a_refusal_of_the_loader_names_allows_it(box, rules, command):
    """Below `exec: *` too, which does not mean the loader; ldd(1) gives it variables that inject nothing."""
    words = shlex.split(command.format(ECHO))
    names = re.findall("lib[^ ]+", subprocess.run(words, capture_output=True, text=True).stdout)
    assert names
    assert not re.findall("lib[^ ]+ =>", box.boxed(rules, command=words).stdout)
    fixes = {entry["fix"] for entry in box.trace() if entry["kind"] == "deny"}
    done = box.boxed(rules + "\n".join(fixes), command=words)
    assert re.findall("lib[^ ]+", done.stdout) == names, done.stderr


RELATIVE = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>
#include <sys/syscall.h>
int main(int c, char **v) {
    extern char **environ; char *a[] = {"tool", "ran", 0};
    symlink("real", "out/tool");
    int f = open("out", O_PATH); chdir("/");
    syscall(SYS_execveat, f, "tool", a, environ, 0);
    return 9;
}
"""


def test_a_built_program_is_named_from_the_folder_that_the_call_names(box):
    """A rule names the link, which the run makes; execveat(2) says by a descriptor where that is."""
    box.compile(RELATIVE)
    out = box.folder / "ws/out"
    out.mkdir()
    shutil.copy(ECHO, out / "real")
    assert box.plain().stdout == "ran\n"
    (out / "tool").unlink()
    done = box.boxed("read: .\nwrite: ./out/\nexec: ./out/tool\n")
    assert done.stdout == "ran\n", done.stderr


SCRIPTS = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static char stack[65536], *good, *way;
static void pause_(void) { for (volatile int i = 0; i < 200000; i++); }
static int turn(void *_) {
    if (strcmp(way, "threads")) alarm(strcmp(way, "link") ? 1 : 20);
    for (;;) {
        if (!strcmp(way, "link")) {
            symlink(good, "1"); rename("1", "tool"); pause_(); symlink("evil/tool", "2"); rename("2", "tool"); pause_();
        } else { chdir(good); pause_(); chdir(_); pause_(); }
    }
}
static void *thread(void *_) { turn(_); return 0; }
/* WAY TRIES FOLDER: the script is FOLDER/tool, ours evil/tool, and what is said is of the one that ran */
int main(int c, char **v) {
    extern char **environ; char evil[4096], path[4096], *a[] = {"tool", 0};
    way = v[1]; good = v[3];
    mkdir("evil", 0755); getcwd(evil, 4000); strcat(evil, "/evil");
    FILE *f = fopen("evil/tool", "w"); fputs("#!/bin/sh\necho evil\n", f); fclose(f); chmod("evil/tool", 0755);
    sprintf(path, "%s/tool", good);
    pid_t other = 0; int before;
    if (!strcmp(way, "link")) { good = path; symlink(good, "tool"); if (!(other = fork())) turn(0); }
    for (int i = 0; i < atoi(v[2]); i++) {
        pid_t child = fork();
        if (!child) {
            if (!strcmp(way, "link")) execve("./tool", a, environ);
            if (!strcmp(way, "descriptor")) {
                int d = open(good, O_PATH);
                syscall(SYS_execveat, d, "tool", a, environ, 0);
            }
            if (!strcmp(way, "straight")) { execve(path, a, environ); }
            if (!strcmp(way, "folder")) { chdir(good); execve("./tool", a, environ); }
            if (!strcmp(way, "threads")) {
                pthread_t t; chdir(good); pthread_create(&t, 0, thread, evil);
                for (int n = 0; n < 50; n++) execve("./tool", a, environ);
            }
            if (!strcmp(way, "shared")) {
                chdir(good);
                pid_t p = clone(turn, stack + 65000, CLONE_FS | SIGCHLD, evil);
                if (p > 0) { for (int n = 0; n < 50; n++) execve("./tool", a, environ); kill(p, 9); }
                else puts("not shared"), fflush(stdout);
            }
            _exit(9);
        }
        int s; waitpid(child, &s, 0);
    }
    if (other) kill(other, 9);
    return 0;
}
"""


@pytest.mark.attempt("P3", "P7")
@pytest.mark.parametrize("way", ["link", "threads", "shared", "descriptor", "folder", "straight"])
def test_a_rule_for_a_script_is_for_no_other_one(box, way):
    """Its interpreter opens it by name once more: by a link of the run's, a folder that threads or processes share, or
    a descriptor, that would be what the name has then.
    """
    box.compile(SCRIPTS)
    tools = box.folder / "tools"
    tools.mkdir()
    (tools / "real").write_text("#!/bin/sh\necho good\n")
    (tools / "real").chmod(0o755)
    (tools / "tool").symlink_to("../tools/real")  # such a link is nobody's to change, as that of npm
    tries = {"link": "150", "threads": "150", "shared": "40"}.get(way, "1")
    plain = [box.plain(way, tries, str(tools)).stdout]
    while tries != "1" and "evil" not in plain[-1] and len(plain) < 20:
        plain.append(box.plain(way, tries, str(tools)).stdout)
    assert ("evil" in plain[-1]) is (tries != "1"), plain
    done = box.boxed(f"read: ..\nwrite: .\nexec: {tools}/tool\n", way, tries, str(tools))
    said = set(done.stdout.splitlines())
    expected = {"link": (), "descriptor": (), "shared": ("not shared",), "threads": ("good",)}.get(way, ("good",))
    assert said <= set(expected), done.stderr
    assert tries != "1" or said == set(expected), done.stderr
    if way in ("link", "descriptor"):
        assert any(f"start it as {tools}/real" in reason for reason in reasons(box))


@pytest.mark.attempt("P7", "P8")
@pytest.mark.parametrize("name", ["pager", "link"])
def test_what_a_rule_has_let_in_takes_no_program_for_another(box, name):
    """It looks names up in the agent's PATH: a link there makes no pager of any program of the system."""
    box.compile(STARTS)
    ws = box.folder / "ws"
    (ws / "link").symlink_to(ID)
    (ws / "pager").symlink_to("link")
    words = ["/usr/bin/env", "env", f"PATH={ws}", name, "-u"]
    policy = "read: .\nwrite: .\nexec: /usr/bin/env\n"
    assert box.plain(*words).stdout == f"{os.getuid()}\n"
    done = box.boxed(policy, *words)
    assert done.stdout == "" and "the name of another" in reasons(box)[0], done.stderr
    assert box.boxed(f"{policy}exec: {ID}\n", *words).stdout == f"{os.getuid()}\n"


@pytest.mark.parametrize("name", ["id", "id-2.1", "folder/id"])
def test_links_of_the_runs_may_have_the_programs_own_name(box, name):
    """As an environment has them, with another version or none, in a linked folder too."""
    box.compile(STARTS)
    ws = box.folder / "ws"
    (ws / "folder").symlink_to(os.path.dirname(ID))
    if "/" not in name:
        (ws / name).symlink_to(ID)
    words = ["/usr/bin/env", "env", f"{ws}/{name}", "-u"]
    assert box.boxed("read: .\nwrite: .\nexec: /usr/bin/env\n", *words).stdout == f"{os.getuid()}\n"


PACKAGE = "import os; os.system('echo injected')"


@pytest.mark.attempt("P7", "P8")
@pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="the system has no python3")
@pytest.mark.parametrize("way", ["argv[0]", "PATH", "script"])
def test_a_program_finds_no_parts_of_its_own_where_the_run_may_write(box, way):
    """Python looks for its packages beside what argv[0] names, itself or in PATH: under a rule with arguments, and for
    a script, that is no folder of the run's.
    """
    python = os.path.realpath("/usr/bin/python3")
    box.compile(STARTS.replace('{"PATH=/usr/bin:/bin", 0}; int n = 1', "{0}; int n = 0"))
    ws = box.folder / "ws"
    packages = ws / "lib" / os.path.basename(python) / "site-packages"
    packages.mkdir(parents=True)
    (packages / "x.pth").write_text(PACKAGE)
    (ws / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (ws / "bin").mkdir()
    (ws / "bin" / "python3").symlink_to(python)
    script = box.folder / "tool"
    script.write_text("#!/usr/bin/env python3\nprint('ran')\n")
    script.chmod(0o755)
    path, words, rule = f"PATH={ws}/bin:/usr/bin", [python, "python3", "-c", "print('ran')"], "/usr/bin/python3 -c"
    good = ["PATH=/usr/local/none:/usr/bin", *words]
    if way == "argv[0]":
        path, words = "A=b", [python, f"{ws}/bin/python3", *words[2:]]
    if way == "script":
        words, rule = [str(script), "tool"], str(script)
        good = ["PATH=/usr/local/none:/usr/bin", *words]
    policy = f"read: .\nread: {box.folder}\nwrite: .\nexec: {rule}\n"
    assert "injected" in box.plain(path, *words).stdout
    done = box.boxed(policy, path, *words)
    assert (done.returncode, done.stdout) == (9, ""), done.stderr
    assert ("by a path" if way == "argv[0]" else "variable PATH") in reasons(box)[0]
    assert box.boxed(policy, *good).stdout == "ran\n"


ELSEWHERE = r"""
#include <stdio.h>
#include <unistd.h>
/* FOLDER FILE ARGV0 ... */
int main(int c, char **v) {
    FILE *f = fopen("out/tool.sh", "w"); fputs("echo evil\n", f); fclose(f);
    if (chdir(v[1])) return 1;
    execv(v[2], v + 3);
    return 9;
}
"""


@pytest.mark.attempt("P7")
def test_a_file_that_a_rule_names_is_that_of_the_policys_folder(box):
    """Among arguments too: in a folder of the agent's the program would take the agent's file for it, also when the SDK
    is asked to start it there.
    """
    box.compile(ELSEWHERE)
    ws = box.folder / "ws"
    (ws / "out").mkdir()
    (ws / "tool.sh").write_text("echo meant\n")
    words = [SH, "sh", "tool.sh", "more"]
    policy = "read: .\nwrite: ./out/\nexec: sh tool.sh\n"
    assert box.plain("out", *words).stdout == "evil\n"
    done = box.boxed(policy, "out", *words)
    assert (done.returncode, done.stdout) == (9, ""), done.stderr
    assert f"the rule means {ws}/tool.sh" in reasons(box)[0]
    assert box.boxed(policy, ".", *words).stdout == "meant\n"
    assert box.boxed(f"{policy}exec: sh\n", "out", *words).stdout == "evil\n"
    code = f"from agentbox import client; print(client.run([{SH!r}, 'tool.sh'], cwd='out').stdout)"
    for layers, means in ((), f"{policy}exec: sh\n"), ((), policy), (("--layers", "guard"), policy):
        done = box.boxed(means, command=(sys.executable, "-c", code), options=layers)
        assert ("evil" in done.stdout) is (means != policy), done.stderr
    assert "the rule means" in done.stderr
