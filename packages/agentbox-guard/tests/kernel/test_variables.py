"""Variables that the agent sets for itself and for what it starts: one verdict for a guarded Python, a guarded Node and
a program without a guard, with the kernel layers and with the guard alone.
"""

import ast
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from test_confined import Box

import agentbox.guard
from agentbox.guard.decisions._harmless import is_harmless
from agentbox.guard.decisions._variables import Injected, interpreters, unguarded
from agentbox.policy import parse
from agentbox.policy.rules.env import CODE_NAMES, CODE_PREFIXES, LOADED, OWN

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's"),
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git"),
]
PYTHON = """
import os, subprocess, sys
name, value, *argv = sys.argv[1:]
os.environ[name] = value
for env in (None, dict(os.environ)):
    try:
        sys.stdout.write(subprocess.run(argv, env=env, capture_output=True, text=True).stdout)
    except OSError as error:
        print("refused", error)
sys.stdout.flush()
"""
NODE = """
const [name, value, file, ...args] = process.argv.slice(1);
process.env[name] = value;
for (const env of [undefined, { ...process.env }]) {
  const { stdout, error } = require('child_process').spawnSync(file, args, { env, encoding: 'utf8' });
  process.stdout.write(error ? `refused ${error.message}\\n` : stdout);
}
"""
SHELL = 'export "$0=$1"; shift; for n in 1 2; do "$@" 2>/dev/null || echo refused; done'
ASKERS = {
    "python": [sys.executable, "-c", PYTHON],
    "node": ["node", "-e", NODE],
    "sh": ["sh", "-c", SHELL],
}
WAYS = [(name, layers) for name in ASKERS for layers in ("auto", "guard") if (name, layers) != ("sh", "guard")]
EVERYDAY = [
    *(("GIT_PAGER", "less"), ("GIT_EDITOR", "vi"), ("GIT_CONFIG_GLOBAL", "/nowhere"), ("GIT_SSH_COMMAND", "ssh -v")),
    *(("SSH_ASKPASS", "/bin/x"), ("LESSOPEN", "|x %s"), ("JAVA_TOOL_OPTIONS", "-Dx=y"), ("MAKEFLAGS", "e")),
    *(("LD_LIBRARY_PATH", "/nowhere"), ("BASH_ENV", "/nowhere"), ("PERL5OPT", "-w")),
]


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(way))
def start(request, box):
    """Run one asker under one set of layers: `start(rules, name, value, *argv)`."""
    name, layers = request.param
    if not shutil.which(ASKERS[name][0]):
        pytest.skip(f"there is no {name}")

    def run(rules, *words, **more):
        return box.run(rules, *ASKERS[name], *words, options=("--layers", layers), **more)

    run.bare = lambda *words: box.bare(*ASKERS[name], *words).stdout
    return run


@pytest.mark.parametrize(("name", "value"), EVERYDAY, ids=[name for name, _ in EVERYDAY])
def test_nothing_is_judged_where_every_program_may_start(start, name, value):
    """Under `exec: *`, whoever sets it, by assignment to its own variables or for the one program."""
    assert start.bare(name, value, "git", "version").count("git version") == 2
    done = start("exec: *\n", name, value, "git", "version")
    assert done.out.count("git version") == 2, (done.out, done.err)
    assert not done.of("proc.exec", "deny")


@pytest.mark.parametrize(
    ("rules", "name", "value", "fix"),
    [
        ("exec: git version\n", "GIT_PAGER", "less", "exec: git"),
        ("exec: git version\n", "GIT_CONFIG_COUNT", "1", "exec: git"),
        ("exec: git\n", "LD_LIBRARY_PATH", "/nowhere", "env: LD_LIBRARY_PATH"),
        ("exec: git version\n", "LD_LIBRARY_PATH", "/nowhere", "exec: git, env: LD_LIBRARY_PATH"),
    ],
)
def test_a_refusal_has_the_line_that_allows_it(start, rules, name, value, fix):
    """The same line for all that ask; pasted, it lets the program start. So does an env: rule alone."""
    words = (name, value, "git", "version")
    if name != "GIT_CONFIG_COUNT":  # which wants a second variable
        assert "git version" in start.bare(*words)
    done = start(rules, *words)
    assert done.out.count("refused") == 2, (done.out, done.err)
    for denied in done.of("proc.exec", "deny"):
        assert denied["fix"] == fix and f"the variable {name} " in denied["reason"]
    for line in (fix, f"env: {name}"):
        done = start(f"{rules}{line}\n", *words)
        assert not done.of("proc.exec", "deny") and "agentbox" not in done.out, done.out


def test_a_program_that_starts_no_other_is_told_anything_but_by_the_loader(start):
    """A variable of git's is nothing to `cat`, of which a rule says the arguments too."""
    rules = "read: .\nexec: cat /dev/null\n"
    assert "refused" not in start(rules, "GIT_PAGER", "less", "cat", "/dev/null").out
    assert start(rules, "LD_LIBRARY_PATH", "/nowhere", "cat", "/dev/null").out.count("refused") == 2


def test_variables_of_yours_go_on_by_their_name(box):
    """By `env: NAME` and no wildcard; a PYTHONPATH takes its place behind the guard's."""
    (box.ws / "mods").mkdir()
    (box.ws / "mods/mine.py").write_text("NAME = 'mine'\n")
    code = "import os; print([os.environ.get(n) for n in ('GIT_PAGER', 'LESSOPEN')]); import mine; print(mine.NAME)"
    environ = {**os.environ, "GIT_PAGER": "more", "LESSOPEN": "x", "PYTHONPATH": f"{box.ws}/mods"}
    argv = [sys.executable, "-c", code]
    assert box.bare(*argv, env=environ).stdout.split("\n")[1] == "mine"
    done = box.run("read: ./mods\nenv: GIT_PAGER\nenv: PYTHONPATH\nenv: *\n", *argv, env=environ)
    assert done.out == "['more', None]\nmine\n", done.err


LIBRARY = """
#include <unistd.h>
__attribute__((constructor)) static void run(void) { write(1, "injected\\n", 9); }
"""


@pytest.fixture
def library(box):
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc")
    (box.folder / "evil.c").write_text(LIBRARY)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", box.ws / "evil.so", box.folder / "evil.c"], check=True)
    return f"{box.ws}/evil.so"


def test_no_code_comes_into_a_guarded_program_before_its_guard(box, library):
    """With the guard alone no rule allows it, and the way out is named; kernel layers hold the program all the same."""
    code = f"""
import os, subprocess, sys
os.environ["LD_PRELOAD"] = {library!r}
try:
    print(subprocess.run([sys.executable, "-c", "print('ran')"], capture_output=True, text=True).stdout)
except OSError as error:
    print(error)
"""
    argv = [sys.executable, "-c", code]
    assert box.bare(*argv).stdout == "injected\nran\n\n"
    rules = f"read: .\nexec: *\nexec: {sys.executable}\nenv: LD_PRELOAD\n"
    done = box.run(rules, *argv, options=("--layers", "guard"))
    assert "injected" not in done.out and "without --layers guard" in done.out, done.out
    assert box.run(rules, *argv).out == "injected\nran\n\n"


def test_the_guard_alone_takes_no_library_that_the_agent_could_have_made(box, library):
    """A variable of the caller's that an env: rule hands on, with a value where the run may write."""
    argv = [sys.executable, "-c", "print('ran')"]
    environ = {**os.environ, "LD_PRELOAD": library}
    assert box.bare(*argv, env=environ).stdout == "injected\nran\n"
    (box.folder / "state/trace.jsonl").touch()
    done = box.bare(
        *box.command("write: .\nenv: LD_PRELOAD\n", argv, ("--layers", "guard")),
        env={**os.environ, "LD_PRELOAD": library},
    )
    assert done.returncode == 69 and "ran" not in done.stdout and "variable LD_PRELOAD" in done.stderr, done.stderr


@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_a_shell_of_os_system_gets_what_python_set(box, layers):
    """With its status, and an interrupt that comes meanwhile is the shell's."""
    code = """
import os, signal
os.environ["GIT_PAGER"] = "less"
print(os.waitstatus_to_exitcode(os.system('echo "$GIT_PAGER"; exit 7')))
print(os.waitstatus_to_exitcode(os.system('kill -TERM $$')))
os.system(f"kill -INT {os.getpid()}")
print("lives", signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""
    argv = [sys.executable, "-u", "-c", code]
    told = "less\n7\n-15\nlives False\n"
    assert box.bare(*argv).stdout == told
    done = box.run("exec: *\n", *argv, options=("--layers", layers))
    assert done.out == told, done.err


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("GIT_CONFIG_COUNT=0", True), ("GIT_CONFIG_COUNT=1", False), ("GIT_CONFIG_GLOBAL=/dev/null", True),
        ("GIT_CONFIG_GLOBAL=/x", False), ("LESSOPEN=", True), ("LESSOPEN=|x", False), ("GIT_SSH_COMMAND=ssh", True),
        ("GIT_SSH_COMMAND=ssh -oProxyCommand=x", False), ("JAVA_TOOL_OPTIONS=-Xmx64m -Dfile.encoding=UTF-8", True),
        ("JAVA_TOOL_OPTIONS=-javaagent:x", False), ("JAVA_TOOL_OPTIONS=-Xmx64m -Djava.library.path=x", False),
        ("PYTHONWARNINGS=ignore,error::DeprecationWarning", True), ("PYTHONWARNINGS=ignore::out.evil", False),
        ("LD_LIBRARY_PATH=", True), ("LD_LIBRARY_PATH=/usr/lib/x:/lib", True), ("LD_LIBRARY_PATH=/usr/lib:", False),
        ("LD_LIBRARY_PATH=/usr/lib/../../x", False), ("LD_LIBRARY_PATH=/usr/lib;/x", False),
        ("LD_LIBRARY_PATH=/usr/lib/w", False),
    ],
)  # fmt: skip
def test_values_that_run_nothing(pair, expected):
    """What tools set every day; anything that is not known is not harmless."""
    name, _, value = pair.partition("=")
    assert is_harmless(name, value, None, lambda path: path == os.path.realpath("/usr/lib/w")) is expected


@pytest.mark.parametrize(
    ("runtime", "pair", "refused"),
    [
        ("python", "LD_PRELOAD=/x", True), ("python", "PYTHONHOME=/x", True), ("python", "OPENSSL_CONF=/x", True),
        ("python", "PYTHONUNBUFFERED=1", False), ("python", "NODE_REPL_EXTERNAL_MODULE=/x", False),
        ("python", "GIT_PAGER=less", False), ("python", "PYTHONUSERBASE=/own", False),
        ("python", "PYTHONUSERBASE=/w", True), ("python", "AGENTBOX_CHANNEL=/w/c", False),
        ("node", "PYTHONHOME=/x", False), ("node", "NODE_REPL_EXTERNAL_MODULE=/x", True), ("node", "LD_AUDIT=x", True),
        ("node", "NODE_EXTRA_CA_CERTS=/x", True), ("node", "NODE_PATH=/x", False),
    ],
)  # fmt: skip
def test_what_the_guard_alone_keeps_from_its_programs(runtime, pair, refused):
    """What is loaded before a guard is live; the run's own value goes on, but not one of a place that it may write."""
    own = {"PYTHONUSERBASE": "/w" if pair.endswith("/w") else "/own", "AGENTBOX_CHANNEL": "/w/c"}
    assert bool(unguarded(runtime, [pair.encode()], own, lambda path: path.startswith("/w"))) is refused


def test_a_rule_that_reaches_a_variable_by_chance_does_not_leave_it_to_the_agent():
    """`env: *` hands on none of those that run code, and allows none."""
    for rule, allowed in (("env: *", False), ("env: GIT_*", False), ("env: GIT_PAGER", True), ("env: GIT_P*", False)):
        policy = parse(f"exec: /x/git status\n{rule}\n", cwd="/", home="/h", search="")
        found = Injected(policy, "/x/git", ["git", "status"], {}).refusal([b"GIT_PAGER=less"])
        assert (found is None) is allowed, rule


def test_the_interpreters_of_a_script_are_found(tmp_path):
    """Over scripts that are interpreters; a pipe of the run's making is not waited for."""
    (tmp_path / "outer").write_text(f"#!{tmp_path}/inner -x\n")
    (tmp_path / "inner").write_text("#! /bin/sh\n")
    os.mkfifo(tmp_path / "pipe")
    assert interpreters(f"{tmp_path}/outer") == [f"{tmp_path}/inner", os.path.realpath("/bin/sh")]
    assert interpreters(f"{tmp_path}/pipe") == interpreters(sys.executable) == []


def test_the_guard_keeps_from_its_process_what_the_spec_says_libraries_load_code_by():
    """Sealed code can neither ask the policy nor be imported, so the names stand twice."""
    tree = ast.parse((pathlib.Path(agentbox.guard.__file__).parent / "python/events/process.py").read_text())
    (value,) = [
        one.value for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "LOADS"
    ]
    names, prefixes = eval(ast.unparse(value), {"frozenset": frozenset})
    whys = LOADED - {OWN}
    assert names == {name for why in whys for name in CODE_NAMES.get(why, ())}
    assert set(prefixes) == {prefix for prefix, why in CODE_PREFIXES.items() if why in whys}


@pytest.mark.attempt("P8")
@pytest.mark.parametrize("layers", ["auto", "guard"])
@pytest.mark.parametrize("name", ["PYTHONPATH", "AGENTBOX_PYTHONPATH"])
def test_a_module_path_of_the_agents_is_no_way_into_a_limited_python(box, name, layers):
    """Its guard adds the path when it is live, by another name: that is judged like PYTHONPATH itself."""
    (box.ws / "out/json").mkdir(parents=True)
    (box.ws / "out/json/__init__.py").write_text("")
    (box.ws / "out/json/tool.py").write_text("print('EVIL')\n")
    code = f"""
import os, subprocess, sys
try:
    done = subprocess.run([sys.executable, "-m", "json.tool", "--help"],
                          env=dict(os.environ, {name}=os.getcwd() + "/out"), capture_output=True, text=True)
    print(done.stdout)
except OSError as error:
    print("refused", error)
"""
    argv = [sys.executable, "-c", code]
    assert ("EVIL" in box.bare(*argv).stdout) is (name == "PYTHONPATH")
    rules = f"read: .\nwrite: ./out/\nexec: {sys.executable} -m json.tool\n"
    done = box.run(rules, *argv, options=("--layers", layers))
    assert "refused" in done.out and "the variable PYTHONPATH would make it run something else" in done.out, done.out
    assert "EVIL" in box.run(rules + "env: PYTHONPATH\n", *argv, options=("--layers", layers)).out
