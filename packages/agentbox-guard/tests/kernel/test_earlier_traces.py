"""What a run may do to the traces of the runs before it, under a rule that opens the whole folder: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentbox.trace import older, verify

HOSTILE = """
import os, shutil
def attempt(what, act):
    try:
        act()
        print("did", what)
    except OSError:
        print("refused", what)
kept = KEPT
attempt("overwrite", lambda: open(kept, "w").close())
attempt("append", lambda: open(kept, "a").close())
attempt("truncate", lambda: os.truncate(kept, 0))
attempt("read", lambda: open(kept).close())
attempt("list", lambda: os.listdir("traces"))
attempt("make", lambda: open("traces/29990101T000000Z-x.jsonl", "w").close())
attempt("link", lambda: os.link(kept, "copy.jsonl"))
attempt("replace", lambda: os.replace("other", kept))
attempt("take", lambda: os.rename(kept, "mine.jsonl"))
attempt("swap", lambda: os.rename("traces", "gone"))
attempt("remove", lambda: os.unlink("traces/blobs"))
attempt("tree", lambda: shutil.rmtree("traces"))
attempt("old kind", lambda: open("trace.prev.jsonl", "w").close())
"""


def run(folder: Path, code: str, layers: str) -> subprocess.CompletedProcess[str]:
    """Run Python code under `write: .` in a folder."""
    (folder / "agentbox.policy").write_text("write: .\n")
    (folder / "agent.py").write_text(code)
    (folder / "other").write_text("x")
    line = [sys.executable, "-P", "-m", "agentbox.cli", "run", "--layers", layers, "--", sys.executable, "agent.py"]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_nothing_reaches_the_traces_of_earlier_runs(tmp_path: Path, layers: str) -> None:
    """Each attempt is refused, all traces stay whole, and each works where no sandbox is."""
    for _ in range(2):
        assert run(tmp_path, "print('ran')", layers).stdout == "ran\n"
    (kept,) = older(tmp_path / "trace.jsonl")
    before = Path(kept).read_bytes()
    done = run(tmp_path, HOSTILE.replace("KEPT", repr(os.path.relpath(kept, tmp_path))), layers)
    acts = done.stdout.splitlines()
    assert len(acts) == 13 and all(act.startswith("refused ") for act in acts), done.stdout + done.stderr
    traces = [*older(tmp_path / "trace.jsonl"), tmp_path / "trace.jsonl"]
    assert len(traces) == 3 and all(verify(path).ok for path in traces) and Path(kept).read_bytes() == before
    assert done.stderr.splitlines()[-2] == "agentbox: 2 older traces are kept in traces/"


def test_each_attempt_works_without_a_sandbox(tmp_path: Path) -> None:
    """The control: nothing but the sandbox stands against them."""
    for act in [line for line in HOSTILE.splitlines() if line.startswith("attempt(")]:
        folder = tmp_path / act.split('"')[1].replace(" ", "")
        (folder / "traces").mkdir(parents=True)
        (folder / "traces" / "kept.jsonl").write_text("x")
        (folder / "traces" / "blobs").symlink_to("../blobs")
        (folder / "other").write_text("x")
        head = HOSTILE.partition('attempt("overwrite')[0].replace("KEPT", "'traces/kept.jsonl'")
        done = subprocess.run(
            [sys.executable, "-c", head + act], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.stdout.startswith("did "), act + done.stderr


def test_what_is_shown_is_the_last_run(tmp_path: Path) -> None:
    """show, verify and replay take the last trace, and say on standard error where the older ones are."""
    for number in range(3):
        run(tmp_path, f"open('made-{number}.txt', 'w').close()", "guard")
    for command, holds in (("show", "made-2.txt"), ("verify", "verify ok")):
        line = [sys.executable, "-P", "-m", "agentbox.cli", command]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and holds in done.stdout and "made-1.txt" not in done.stdout
        assert done.stderr == "agentbox: trace.jsonl: the last run; 2 older ones are kept in traces/\n"
    line = [sys.executable, "-P", "-m", "agentbox.cli", "replay", "--", sys.executable, "agent.py"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "2 older ones are kept in traces/" in done.stderr, done.stderr
