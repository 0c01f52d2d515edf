"""Programs in the run's private folders: the denial suggests no line, since the next run has other folders."""

import shutil
import sys

import pytest
from test_confined import Box

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's"),
    pytest.mark.skipif(shutil.which("make") is None, reason="there is no make"),
]
OUT = "put the program into a folder that an exec: rule can name"
STARTS = """
import os, shutil, subprocess
for place in (os.environ["TMPDIR"], os.environ["HOME"], "."):
    file = f"{place}/tool"
    with open(file, "w") as made:
        made.write("#!/bin/sh\\necho ran $1\\n")
    os.chmod(file, 0o755)
    try:
        print(subprocess.run([file, "direct"], capture_output=True, text=True).stdout, end="")
    except OSError:
        pass
print(subprocess.run(["make", "-sk"], capture_output=True, text=True).stdout, end="")
for name in (".gitconfig", "../beside"):
    try:
        open(os.environ["HOME"] + "/" + name, "w").close()
    except OSError:
        pass
"""


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def test_no_line_names_a_folder_that_is_gone_with_the_run(box, tmp_path, monkeypatch):
    """Neither for the agent's start nor for an allowed program's, for other files neither, nor in `show --rules`."""
    (box.ws / "Makefile").write_text("all: one two\none:\n\t$$TMPDIR/tool made\ntwo:\n\t$$HOME/tool made\n")
    for variable in ("TMPDIR", "HOME"):
        (tmp_path / variable).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / variable))
    argv = [sys.executable, "-c", STARTS]
    bare = box.bare(*argv)
    assert bare.stdout == "ran direct\n" * 3 + "ran made\n" * 2, bare.stderr
    done = box.run("write: .\nexec: make\nexec: git status\n", *argv)
    assert "ran" not in done.out
    denied = done.of("proc.exec", "deny")
    reasons = [(entry["fix"], OUT in entry["reason"]) for entry in denied]
    assert reasons == [(None, True), (None, True), ("exec: ./tool direct", False), (None, True), (None, True)], denied
    others = [entry for entry in done.trace if entry["kind"] == "deny" and entry["op"] != "proc.exec"]
    assert len(others) == 2 and all(entry["fix"] is None for entry in others), others
    shown = box.bare(sys.executable, "-m", "agentbox.cli", "show", "--rules", f"{box.folder}/state/trace.jsonl").stdout
    assert [line for line in shown.splitlines() if not line.startswith("#")] == ["exec: ./tool direct"]
