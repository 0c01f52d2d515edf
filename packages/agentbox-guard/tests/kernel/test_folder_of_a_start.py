"""A rule with arguments is not met from a folder that the agent has filled, and is from every other."""

import os
import shutil
import sys

import pytest
from compiled import Box

from agentbox.guard.meant import folder_problem
from agentbox.policy import parse


@pytest.fixture
def place(tmp_path):
    for name in ("out/deep", "src", "lib", "private", "bin"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("make", "git", "ls"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "ws").mkdir()
    for name in ("out", "src", "lib"):
        shutil.move(tmp_path / name, tmp_path / "ws" / name)
    return tmp_path


def refused(place, rules, program, folder):
    policy = parse(rules, cwd=f"{place}/ws", search=f"{place}/bin", home=str(place))
    argv = [program, "test"]
    denial = folder_problem(policy, f"{place}/bin/{program}", argv, f"{place}/{folder}", [f"{place}/private"])
    return denial is not None


MAKE = "read: .\nexec: make test\n"


@pytest.mark.parametrize(
    ("rules", "program", "folder", "wanted"),
    [
        (MAKE + "write: ./out\n", "make", "ws", False),
        (MAKE + "write: ./out\n", "make", "ws/src", False),
        (MAKE + "write: ./out\n", "make", "ws/out", True),
        (MAKE + "write: ./out\n", "make", "ws/out/deep", True),
        (MAKE + "write: ./out\n", "make", "private", True),
        (MAKE + "write: ./out/**/*.txt\n", "make", "ws/out/deep", True),
        (MAKE + "write: ./src/Makefile\n", "make", "ws/src", True),
        (MAKE + "write: ./src/Makefile\n", "make", "ws/lib", False),
        (MAKE + "write: .\n", "make", "ws/out", False),
        (MAKE + "write: ./out\nexec: make\n", "make", "ws/out", False),
        ("exec: git test\nwrite: ./out\n", "git", "ws/out", False),
        ("exec: ls test\nwrite: ./out\n", "ls", "private", False),
        ("exec: *\nwrite: ./out\n", "make", "ws/out", False),
    ],
)
def test_where_a_rule_with_arguments_holds(place, rules, program, folder, wanted):
    """In the policy's folder and where the run cannot write; anywhere for programs that run nothing of what lies there,
    without arguments in the rule, and where the run may fill the policy's folder itself.
    """
    assert refused(place, rules, program, folder) is wanted


def test_a_tool_of_the_projects_is_not_known_by_its_name(place):
    """`./tools/ls` may do anything: only a program of the system's is what it is called."""
    (place / "ws" / "ls").write_text("#!/bin/sh\n")
    (place / "ws" / "ls").chmod(0o755)
    policy = parse("exec: ./ls test\nwrite: ./out\n", cwd=f"{place}/ws", search="/usr/bin", home=str(place))
    denial = folder_problem(policy, f"{place}/ws/ls", ["ls", "test"], f"{place}/ws/out")
    assert denial is not None and f"start it in {place}/ws" in denial.reason


MOVES = r"""
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
/* FOLDER FILE ARGV0 ... : makes a module there that speaks for itself, and starts FILE */
int main(int c, char **v) {
    if (chdir(v[1])) return 1;
    mkdir("out/json", 0755); mkdir("json", 0755);
    FILE *f = fopen("json/__init__.py", "w"); if (f) fclose(f);
    f = fopen("json/tool.py", "w"); if (f) { fputs("print('evil')\n", f); fclose(f); }
    execv(v[2], v + 3);
    return 9;
}
"""
ASKS = "from agentbox import client; print(client.run([{!r}, '-m', 'json.tool', '--help'], cwd='out').stdout)"
STARTS = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'json.tool', '--help'], cwd='out')"


@pytest.mark.attempt("P7")
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
def test_a_module_of_the_agents_is_not_run_in_place_of_the_one_that_a_rule_names(tmp_path):
    """By an agent in C, through the SDK and in a guarded Python; in the policy's folder the rule holds."""
    python = os.path.realpath("/usr/bin/python3")
    box = Box(tmp_path)
    box.compile(MOVES)
    (tmp_path / "ws" / "out").mkdir()
    words = [python, python, "-m", "json.tool", "--help"]  # by its path: a name would be looked for on PATH
    assert "evil" in box.plain("out", *words).stdout
    policy = f"read: .\nwrite: ./out\nexec: {python} -m json.tool\n"
    done = box.boxed(policy, "out", *words)
    assert (done.returncode, done.stdout) == (9, ""), done.stderr
    assert "a folder that the run may fill" in [e["reason"] for e in box.trace() if e["kind"] == "deny"][-1]
    assert "usage" in box.boxed(policy, ".", *words).stdout
    mine = f"read: .\nwrite: ./out\nexec: {sys.executable} -m json.tool\n"
    for code in (ASKS.format(sys.executable), STARTS):
        for layers in ((), ("--layers", "guard")):
            done = box.boxed(mine, command=(sys.executable, "-c", code), options=layers)
            assert "evil" not in done.stdout and "a folder that the run may fill" in done.stderr, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
@pytest.mark.skipif(shutil.which("git") is None, reason="git: not installed")
def test_git_goes_on_working_in_subfolders(tmp_path):
    """Its directories are protected wherever the run may write, so a folder of the run's is as good as any."""
    box = Box(tmp_path)
    (tmp_path / "ws" / "out").mkdir()
    command = ("sh", "-c", "cd out && git init -q . && git status --short . && echo done")
    done = box.boxed("read: .\nwrite: ./out\nexec: git init\nexec: git status\n", command=command)
    assert done.stdout == "done\n", done.stderr
