"""Programs that the rules allow and that Landlock's list of trees does not hold: the refusal says what helps."""

import shutil
import sys

import pytest
from test_confined import Box

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")


@pytest.fixture
def box(tmp_path):
    """With a program of its own in a folder that no rule names."""
    made = Box(tmp_path)
    shutil.copy(shutil.which("echo") or "/bin/echo", tmp_path / "outside" / "tool")
    script = made.ws / "script"
    script.write_text(f"#!{tmp_path}/outside/tool -\n")
    script.chmod(0o755)
    return made


WAYS = {
    "any program": ("exec: *\n", ["env", "{tool}", "hi"]),
    "what an allowed program starts": ("exec: sh\n", ["sh", "-c", "sh -c '{tool} hi'"]),
    "the interpreter of a script": ("exec: *\n", ["env", "./script"]),
    "from a guarded program": ("exec: *\n", [sys.executable, "-c", "import os; os.execv('{tool}', ['{tool}', 'hi'])"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_refusal_is_told_with_a_line_that_helps(box, way):
    """One denial for one start; with the line that it gives the program starts, and so it does without the sandbox."""
    tool = f"{box.folder}/outside/tool"
    rules, words = WAYS[way]
    argv = [word.replace("{tool}", tool) for word in words]
    assert box.bare(*argv).stdout
    done = box.run(f"read: .\n{rules}", *argv)
    denials = [entry for entry in done.of("proc.exec", "deny") if "Landlock" in entry["reason"]]
    assert not done.out and [entry["fix"] for entry in denials] == [f"exec: {tool}"], done.err
    allowed = [entry["args"]["file"] for entry in done.of("proc.exec")]
    assert tool not in allowed and f"{box.ws}/script" not in allowed
    done = box.run(f"read: .\n{rules}{denials[0]['fix']}\n", *argv)
    assert done.out and not done.of("proc.exec", "deny"), done.err


def test_a_folder_that_may_be_read_holds_programs_for_any(box):
    """Under `exec: *` a read: rule is enough, since the kernel reads what it starts."""
    tool = f"{box.folder}/outside/tool"
    done = box.run("exec: *\nread: ../outside\n", "env", tool, "hi")
    assert done.out == "hi\n" and not done.denied(), done.err


def test_observing_tells_what_would_be_refused(box):
    """Landlock is left out then, and its refusal is told all the same."""
    tool = f"{box.folder}/outside/tool"
    done = box.run("exec: *\n", "env", tool, "hi", options=["--observe"])
    (entry,) = done.of("proc.exec", "deny")
    assert done.out == "hi\n" and entry["fix"] == f"exec: {tool}" and entry["enforced"] is False
