"""Starts that the agent's variables stand in the way of: the line that the denial suggests is one that works."""

import os
import shutil
import sys

import pytest
from test_confined import Box

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's"),
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git"),
]
WITH = "GIT_EXEC_PATH=/usr/lib/git-core git version; true"


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


@pytest.mark.parametrize("rules", ["read: .\n", "exec: git version\n"])
def test_the_rule_without_arguments_is_suggested_where_variables_need_it(box, rules):
    """At once, and where the rule with arguments is there already; pasted, it lets the program start."""
    argv = ["bash", "-c", WITH]
    assert box.bare(*argv).stdout.startswith("git version")
    done = box.run(rules, *argv)
    (denied,) = done.of("proc.exec", "deny")
    assert not done.out and denied["fix"] == "exec: git", denied
    done = box.run(f"{rules}{denied['fix']}\n", *argv)
    assert done.out.startswith("git version") and not done.of("proc.exec", "deny"), done.err


def test_the_rule_with_arguments_is_suggested_without_such_variables(box):
    """As narrow as it can be."""
    done = box.run("read: .\n", "bash", "-c", "git version; true")
    (denied,) = done.of("proc.exec", "deny")
    assert denied["fix"] == "exec: git version"
    assert box.run(denied["fix"] + "\n", "bash", "-c", "git version").out.startswith("git version")


def test_a_loaders_variable_goes_with_a_rule_of_its_own(box):
    """No exec rule allows it; the reason names it, and the line that is suggested lets the program start."""
    argv = ["bash", "-c", "LD_PRELOAD=/nowhere.so git version; true"]
    assert box.bare(*argv).stdout.startswith("git version")
    for rules, reason, fix in (
        ("read: .\n", "no exec rule names this program; besides, ", "exec: git, env: LD_PRELOAD"),
        ("exec: git\n", "", "env: LD_PRELOAD"),
        ("exec: git status\n", "", "exec: git, env: LD_PRELOAD"),
    ):
        done = box.run(rules, *argv)
        (denied,) = done.of("proc.exec", "deny")
        assert denied["fix"] == fix and not done.out
        if "status" not in rules:
            assert denied["reason"] == f"{reason}the variable LD_PRELOAD would make it run something else"
        assert box.run(f"{rules}{fix}\n", *argv).out.startswith("git version")


def test_no_line_is_suggested_where_none_would_do(box):
    """A PATH of the agent's own decides which interpreter a script has."""
    script = box.ws / "tool"
    script.write_text("#!/usr/bin/env bash\necho ran\n")
    script.chmod(0o755)
    argv = ["bash", "-c", f"PATH={box.ws}/bin:$PATH ./tool; true"]
    assert box.bare(*argv).stdout == "ran\n"
    done = box.run("write: ./bin\nread: .\nexec: ./tool\n", *argv)
    (denied,) = done.of("proc.exec", "deny")
    assert denied["fix"] is None and not done.out and "variable PATH" in denied["reason"]


def test_git_starts_its_own_helpers(box):
    """`git commit` starts `git maintenance` with GIT_EXEC_PATH, of its own choice: two runs, and nothing is denied."""
    for words in (["init", "-q", "."], ["config", "user.name", "n"], ["config", "user.email", "n@example.test"]):
        box.bare("git", *words)
    rules = "write: .\n"
    argv = ["git", "commit", "-q", "--allow-empty", "-m", "x"]
    environ = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1"}
    first = box.run(rules, *argv, env=environ)
    fixes = [entry["fix"] for entry in first.of("proc.exec", "deny")]
    assert all(fix and " " not in fix.removeprefix("exec: ") for fix in fixes), fixes
    done = box.run(rules + "".join(f"{fix}\n" for fix in fixes), *argv, env=environ)
    assert done.status == 0 and not done.of("proc.exec", "deny"), done.err
