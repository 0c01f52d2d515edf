"""The line that a denial prints is pasted into the policy as it is: it parses and allows the act.

The same acts work without agentbox: each agent is run bare first.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentbox.policy import load

BOX = [sys.executable, "-P", "-m", "agentbox.cli"]
ODD = [
    b"plain",
    b"two words",
    b"a#b",
    b"a #b",
    b"a,b",
    b"a;b",
    b"[x]",
    b"st*r?",
    b'qu"ote',
    b"qu'ote",
    b"back\\slash",
    b"~",
    b"~tilde",
    b"$HOME",
    b"{a,b}",
    b"trailing  ",
    b" leading",
    b"new\nline",
    b"tab\there",
    b"\xff\xfe",
    "ü€𝄞".encode(),
    b"read: x",
    b"x ./y",
    b"-n",
    b"n" * 255,
    b"report.tmp.7e1d64b4b5d6",
]
ACTS = """
import os, sys
def write(path):
    with open(path, "wb") as file:
        file.write(b"x")
act = {
    "write": write,
    "read": lambda path: open(path, "rb").close(),
    "list": os.listdir,
    "mkdir": os.mkdir,
    "remove": os.unlink,
    "rename": lambda path: os.rename(path, path[:-200] + b"new"),
}[sys.argv[1]]
status = 0
for path in map(os.fsencode, sys.argv[2:]):
    try:
        act(path)
    except PermissionError as error:
        print(error)
        status = 1
sys.exit(status)
"""


def box(cwd: Path, *words: str | bytes, **more: object) -> subprocess.CompletedProcess[bytes]:
    """`agentbox` with these words, in a folder."""
    command = [*BOX, *words]
    done = subprocess.run(command, cwd=cwd, stdout=-1, stderr=-1, stdin=subprocess.DEVNULL, timeout=240, **more)  # type: ignore[call-overload]
    assert b"Traceback (most recent call last)" not in done.stderr or b"agentbox" in done.stderr
    return done


def advised(text: bytes) -> list[str]:
    """The lines that a denial printed, as somebody would copy them."""
    return re.findall(
        r"to allow it, add this line to \S+: (.*)$", text.decode("utf-8", "surrogateescape"), re.MULTILINE
    )


@pytest.mark.parametrize("act", ["write", "read", "list", "mkdir", "remove", "rename"])
def test_the_printed_line_allows_the_act(tmp_path: Path, act: str) -> None:
    """Whatever the name is: pasted, it parses, allows the act, and a second run has no denial of it."""
    paths = [os.fsencode(tmp_path / "in" / str(number)) + b"/" + name for number, name in enumerate(ODD)]

    def scene() -> None:
        shutil.rmtree(tmp_path / "in", ignore_errors=True)
        for path in paths:
            os.makedirs(path if act == "list" else os.path.dirname(path))
            if act in ("read", "remove", "rename"):
                open(path, "wb").close()

    scene()
    subprocess.run([sys.executable, "-c", ACTS, act, *paths], cwd=tmp_path, check=True, timeout=60)
    scene()
    (tmp_path / "agent.py").write_text(ACTS)
    rules = "read: ./agent.py\n"
    for _ in range(3):  # a rename is denied twice: for each of its names
        (tmp_path / "agentbox.policy").write_text(rules)
        done = box(tmp_path, "run", "-q", "--layers", "guard", "--", sys.executable, "agent.py", act, *paths)
        if done.returncode == 0:
            break
        found = advised(done.stdout)
        assert len(found) == done.stdout.count(b"\n") > 0, done
        rules += "".join(f"{line}\n" for line in found)
    assert done.returncode == 0 and done.stdout == b"", (rules, done)


def test_the_line_of_a_denied_program_stands_alone(tmp_path: Path) -> None:
    """Nothing is put behind it by the exception that shows it."""
    (tmp_path / "agent.py").write_text("import subprocess\nsubprocess.run(['/bin/sh', '-c', 'true'], check=True)\n")
    rules = "read: ./agent.py\n"
    for layers in ("guard", "auto"):
        (tmp_path / "agentbox.policy").write_text(rules)
        done = box(tmp_path, "run", "-q", "--layers", layers, "--", sys.executable, "agent.py")
        assert done.returncode == 1
        (line,) = set(advised(done.stderr))
        (tmp_path / "agentbox.policy").write_text(f"{rules}{line}\n")
        assert box(tmp_path, "run", "-q", "--layers", layers, "--", sys.executable, "agent.py").returncode == 0


RANDOM = """
import os, tempfile
os.makedirs("out", exist_ok=True)
for count in range(3):
    name = "out/report.md.tmp." + os.urandom(6).hex()
    with open(name, "w") as file:
        file.write("report")
    os.rename(name, "out/report.md")
with tempfile.TemporaryDirectory(dir="out") as folder:
    open(folder + "/part", "w").close()
"""


@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_advice_for_random_names_comes_to_an_end(tmp_path: Path, layers: str) -> None:
    """An agent that writes by temporary files of random names runs after a few rounds of following."""
    subprocess.run([sys.executable, "-c", RANDOM], cwd=tmp_path, check=True, timeout=60)
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "agent.py").write_text(RANDOM)
    rules = "read: ./agent.py\n"
    for _ in range(8):
        (tmp_path / "agentbox.policy").write_text(rules)
        done = box(tmp_path, "run", "-q", "--layers", layers, "--", sys.executable, "agent.py")
        if done.returncode == 0:
            break
        rules += "".join(f"{line}\n" for line in advised(done.stderr)[-1:])
    assert done.returncode == 0 and (tmp_path / "out" / "report.md").exists(), rules
    policy = load(str(tmp_path / "agentbox.policy"), cwd=str(tmp_path))
    assert not policy.decide("write", f"{os.path.realpath(tmp_path)}/out/other").allowed


def test_the_lines_of_one_observed_run_are_few(tmp_path: Path) -> None:
    """Many names side by side become one line, which says how much it opens and opens nothing beside the folder."""
    code = "for i in range(30): open(f'out/part{chr(97 + i % 26)}{i // 26}.txt', 'w').close()\n"
    (tmp_path / "out").mkdir()
    (tmp_path / "agent.py").write_text(code)
    (tmp_path / "agentbox.policy").write_text("read: ./agent.py\n")
    assert box(tmp_path, "run", "-q", "--observe", "--", sys.executable, "agent.py").returncode == 0
    told = box(tmp_path, "show", "--rules").stdout.decode()
    assert told == "write: ./out/*.txt  # 30 names in this folder were asked for\n"
    (tmp_path / "agentbox.policy").write_text("read: ./agent.py\n" + told)
    assert box(tmp_path, "run", "-q", "--", sys.executable, "agent.py").returncode == 0


def test_the_agents_own_interpreter_is_python(tmp_path: Path) -> None:
    """`exec: python` covers the interpreter that runs the command, though PATH leads to another or to none."""
    (tmp_path / "agent.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', ''], check=True)\n"
    )
    nowhere = {**os.environ, "PATH": str(tmp_path / "none")}
    for rules, status in (("", 1), ("exec: python\n", 0), ("exec: python3\n", 0), ("exec: node\n", 1)):
        (tmp_path / "agentbox.policy").write_text("read: ./agent.py\n" + rules)
        done = box(tmp_path, "run", "-q", "--", sys.executable, "agent.py", env=nowhere)
        assert done.returncode == status, (rules, done.stderr)


def test_a_path_that_is_not_there_is_made_by_the_agent(tmp_path: Path) -> None:
    """Whatever it makes of it; nothing is made before, but what ends in a slash."""
    (tmp_path / "agent.py").write_text(
        "import os, socket\n"
        "print(os.path.exists('Makefile'), os.path.exists('sub'), oct(os.stat('deep/er').st_mode & 0o777))\n"
        "open('Makefile', 'w').close(); os.mkdir('sub'); open('sub/file', 'w').close()\n"
        "os.rename('sub/file', 'deep/er/file')\n"
    )
    for layers in ("auto", "guard"):
        (tmp_path / "agentbox.policy").write_text("read: ./agent.py\nwrite: ./Makefile, ./sub, ./deep/er/\n")
        done = box(tmp_path, "run", "--layers", layers, "--", sys.executable, "agent.py")
        assert done.returncode == 0 and done.stdout == b"False False 0o700\n", done.stderr
        assert b"agentbox: created ./deep/er/ (named by a write: rule, did not exist)\n" in done.stderr
        (tmp_path / "Makefile").unlink()
        shutil.rmtree(tmp_path / "sub")
        shutil.rmtree(tmp_path / "deep")


def test_a_denial_is_told_live_on_a_terminal(tmp_path: Path) -> None:
    """While the agent still waits, and on standard error only; elsewhere it is told at the end."""
    (tmp_path / "agentbox.policy").write_text("read: ./data\n")
    code = (
        "import os\n"
        "for _ in range(2):\n"
        "    try: open('/etc/passwd')\n"
        "    except OSError: pass\n"
        "print('waits', flush=True)\nos.read(0, 1)\n"
    )
    master, slave = pty.openpty()
    agent = [*BOX, "run", "--", sys.executable, "-c", code]
    with subprocess.Popen(agent, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=slave) as process:
        os.close(slave)
        said = b""
        while b"to allow it: read: /etc/passwd" not in said:  # the agent ends only when it is told to, below
            said += os.read(master, 4096)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"x")
        process.stdin.close()
        assert process.stdout.read() == b"waits\n"
        while True:
            try:
                more = os.read(master, 4096)
            except OSError:  # EIO: nobody has the other end any more
                break
            said += more
    os.close(master)
    assert process.returncode == 0
    assert said.count(b"to allow it: read: /etc/passwd") == 1 and b"denied read /etc/passwd: 2 times in all" in said


def test_a_command_that_a_signal_ends_says_so(tmp_path: Path) -> None:
    """One line with the signal's name; the status is 128 and its number."""
    (tmp_path / "agentbox.policy").write_text("read: ./data\n")
    done = box(tmp_path, "run", "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert done.returncode == 137
    assert f"agentbox: {sys.executable} was ended by signal 9 (SIGKILL)\n".encode() in done.stderr


def test_the_command_alone_prints_its_help(tmp_path: Path) -> None:
    """`agentbox` without words is no mistake."""
    done = box(tmp_path)
    assert done.returncode == 0 and done.stdout.startswith(b"usage: agentbox") and not done.stderr


CLONE = ["git", "clone", "-q", "--no-hardlinks", "origin", "out/copy"]
PACKER = """
const fs = require('fs'), path = require('path'), os = require('os');
const made = fs.mkdtempSync('stage-');
for (const name of ['a', 'b']) fs.writeFileSync(path.join(made, name), name);
fs.mkdirSync('modules/deep', { recursive: true });
for (const name of fs.readdirSync(made)) fs.renameSync(path.join(made, name), `modules/deep/${name}`);
fs.rmSync(made, { recursive: true });
require('child_process').execFileSync('git', ['--version']);
"""
PROGRAMS = {
    "python": ([sys.executable, "-c", RANDOM + "import subprocess; subprocess.run(['git', '--version'])\n"], "out"),
    "clone": (CLONE, "out"),
    "node": (["node", "-e", PACKER], "modules"),
    "make": (["make", "-s", "all"], "built"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with what the programs below work on: a repository and a makefile."""
    for program in ("git", "make", "node"):
        if not shutil.which(program):
            pytest.skip(f"there is no {program}")
    origin = tmp_path / "origin"
    origin.mkdir()
    (origin / "file").write_text("content")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "file"], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=origin, check=True, timeout=60)
    (tmp_path / "Makefile").write_text("all: built/x\nbuilt/x:\n\tmkdir -p built\n\tcp origin/file built/x\n")
    return tmp_path


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_observed_run_gives_the_policy_of_the_next(project: Path, program: str) -> None:
    """Without a policy file: the lines of `show --rules` make the same command run, and it is denied nothing."""
    command, made = PROGRAMS[program]

    def clean() -> None:
        for name in ("out", "modules", "built"):
            shutil.rmtree(project / name, ignore_errors=True)

    subprocess.run(command, cwd=project, check=True, timeout=60, stdout=subprocess.DEVNULL)
    clean()
    done = box(project, "run", "--observe", "--", *command)
    assert done.returncode == 0 and (project / made).exists(), done.stderr
    clean()
    rules = box(project, "show", "--rules").stdout
    (project / "agentbox.policy").write_bytes(rules)
    done = box(project, "run", "--", *command)
    assert done.returncode == 0 and (project / made).exists(), (rules, done.stderr)
    assert b" 0 denials" in done.stderr, (rules, done.stderr)


def test_the_advice_for_a_clone_leads_to_one(project: Path) -> None:
    """Each run's lines are pasted until it works, which a few runs are enough for."""
    rules = "read: ./none\n"
    for _ in range(8):
        (project / "agentbox.policy").write_text(rules)
        shutil.rmtree(project / "out", ignore_errors=True)
        done = box(project, "run", "--", *CLONE)
        if done.returncode == 0:
            break
        found = re.findall(r"; to allow it: (.*)$", done.stderr.decode(), re.MULTILINE)
        assert found, (rules, done.stderr)
        rules += "".join(f"{line}\n" for line in found)
    assert done.returncode == 0 and (project / "out" / "copy" / "file").exists(), rules
