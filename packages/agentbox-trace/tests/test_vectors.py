"""The vector files: what this package and a verifier in another language say about each."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kit.waiting import PATIENCE

from agentbox.trace import Entry, read, verify
from agentbox.trace.report import STATUSES

HERE = Path(__file__).parent
ROOT = HERE.parent / "vectors"
VALID = sorted(path.parent.name for path in ROOT.glob("valid/*/expect.json"))
BROKEN = sorted(path.parent.name for path in ROOT.glob("broken/*/expect.json"))
# What a verifier of the chain alone cannot see, each with the reason.
CHAIN_CANNOT_SEE = {
    "blob-edited", "blob-missing", "blob-other-size", "deleted-rechained", "first-op", "first-twice", "format",
    "malformed", "malformed-byte", "malformed-end", "malformed-op", "malformed-time", "rewritten", "seal-blobs-zero",
    "seal-kinds", "seal-number",
}  # fmt: skip


def expectation(folder: Path) -> dict[str, object]:
    return json.loads((folder / "expect.json").read_text())


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("name", VALID)
def test_valid(name: str, processes: int) -> None:
    """A valid vector is sealed, and its head, length and counts are those that were computed without the verifier."""
    expected = expectation(ROOT / "valid" / name)
    report = verify(ROOT / "valid" / name / "run.jsonl", processes=processes)
    assert report.ok, report.message
    got = {member: getattr(report, member) for member in ("status", "line", "entries", "head", "counts")}
    assert got == expected


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str, processes: int) -> None:
    """A broken vector fails the check that its damage must fail, at the line that was damaged."""
    folder = ROOT / "broken" / name
    expected = expectation(folder)
    report = verify(folder / "run.jsonl", processes=processes, **expected["options"])
    assert (report.status, report.line) == (expected["status"], expected["line"]), report.message
    assert not report.ok
    assert "\n" not in report.message


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_proved_ends_before_the_fault(name: str) -> None:
    """No sentence of what was proved speaks of the line that the verdict names, where the chain itself is at fault."""
    folder = ROOT / "broken" / name
    expected = expectation(folder)
    report = verify(folder / "run.jsonl", **expected["options"])
    lines = {"the first line begins a chain": 1}
    for sentence in report.proved:
        count = lines.get(sentence) or int(sentence.removeprefix("each of the first ").partition(" ")[0])
        chain_holds = report.status in ("unsealed", "seal-mismatch", "head-mismatch", "blob-missing", "blob-edited")
        assert count < report.line or chain_holds, report.message
        assert 0 < count <= report.entries


@pytest.mark.parametrize("name", VALID)
def test_read_valid(name: str) -> None:
    """Reading a valid vector gives one entry per line, each with the very bytes of its line."""
    path = ROOT / "valid" / name / "run.jsonl"
    entries: list[Entry] = list(read(path))
    assert b"".join(entry.raw for entry in entries) == path.read_bytes()
    assert [entry.seq for entry in entries] == list(range(len(entries)))


def test_every_failing_status_has_a_vector() -> None:
    """No status that a file of normal size can have is without a vector."""
    shown = {expectation(ROOT / "broken" / name)["status"] for name in BROKEN}
    assert shown == set(STATUSES) - {"sealed", "too-long"}


def test_vectors_are_fresh(tmp_path: Path) -> None:
    """The files in the checkout are what the generator makes."""
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(HERE)!r}); import pathlib, make_vectors as m; "
            f"m.make(pathlib.Path({str(tmp_path)!r}))",
        ],
        check=True,
    )
    made, kept = (
        {
            str(path.relative_to(root)): path.read_bytes()
            for kind in ("valid", "broken")
            for path in (root / kind).rglob("*")
            if path.is_file()
        }
        for root in (tmp_path, ROOT)
    )
    assert sorted(made) == sorted(kept), "run tests/make_vectors.py"
    assert made == kept, "run tests/make_vectors.py"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: the JavaScript verifier is not run")
@pytest.mark.parametrize("case", [*(f"valid/{name}" for name in VALID), *(f"broken/{name}" for name in BROKEN)])
def test_javascript(case: str) -> None:
    """Ten lines of JavaScript come to the same verdict and the same head."""
    folder = ROOT / case
    done = subprocess.run(
        ["node", HERE / "verify.js", folder / "run.jsonl"], capture_output=True, text=True, timeout=PATIENCE
    )
    if case.startswith("valid/"):
        assert (done.returncode, done.stdout.strip()) == (0, expectation(folder)["head"])
    else:
        assert done.returncode == (0 if Path(case).name in CHAIN_CANNOT_SEE else 1), done.stderr
