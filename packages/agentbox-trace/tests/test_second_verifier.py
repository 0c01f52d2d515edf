"""The specification alone is enough: a verifier written from it comes to the same status and the same place."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from forgeries import FORGED
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from make_vectors import chained
from second_verifier import verdict

from agentbox.trace import verify

ROOT = Path(__file__).parent.parent / "vectors"
SMALL = ROOT / "valid" / "small" / "run.jsonl"
CASES = sorted(path.parent for path in ROOT.glob("*/*/expect.json"))
LINES = SMALL.read_bytes().splitlines(keepends=True)
relaxed = settings(
    max_examples=1000, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, database=None
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file to write forged and damaged traces to."""
    return tmp_path_factory.mktemp("second") / "run.jsonl"


def agree(path: Path, data: bytes, head: str | None = None) -> tuple[str, int]:
    """Assert that both verifiers say the same of `data`, and return it."""
    path.write_bytes(data)
    reports = [verify(path, head=head, processes=processes) for processes in (1, 2)]
    expected = verdict(path, head)
    assert [(report.status, report.line) for report in reports] == [expected] * 2, reports[0].message
    return expected


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_vectors(folder: Path) -> None:
    """Every vector has the status and the place that stand beside it."""
    wanted = json.loads((folder / "expect.json").read_text())
    options = wanted.get("options", {})
    got = verdict(folder / "run.jsonl", options.get("head"), blobs=options.get("blobs", True))
    assert got == (wanted["status"], wanted["line"])


@pytest.mark.parametrize("name", FORGED)
def test_forged(path: Path, name: str) -> None:
    """Both verifiers judge a forged trace alike."""
    agree(path, b"".join(FORGED[name](LINES)))


def test_there_are_enough_forged_ones() -> None:
    """At least fifty forged traces, and nearly all of them fail."""
    assert len(FORGED) >= 50


@seed(1)
@relaxed
@given(place=st.integers(0, SMALL.stat().st_size - 1), mask=st.integers(1, 255))
def test_any_byte(path: Path, place: int, mask: int) -> None:
    """A changed byte of a line that another one follows, or of the seal but its LF, is called `edited`, in that line or
    the next."""
    data = b"".join(LINES)
    splits = data[place] ^ mask == ord("\n")  # a first line in two pieces begins no trace, and no line vouches for it
    status, line = agree(path, data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :])
    if place == len(data) - 1:
        assert (status, line) == ("torn", len(LINES))
    else:
        hurt = data[:place].count(b"\n") + 1
        assert (status == "edited" and line in (hurt, hurt + 1)) or (hurt == 1 and splits and status == "not-a-trace")


@seed(2)
@relaxed
@given(start=st.integers(0, SMALL.stat().st_size), length=st.integers(0, 300), new=st.binary(max_size=40))
def test_any_splice(path: Path, start: int, length: int, new: bytes) -> None:
    """Any stretch replaced by any other is judged alike."""
    data = b"".join(LINES)
    agree(path, data[:start] + new + data[start + length :])


@seed(3)
@relaxed
@given(order=st.lists(st.integers(0, len(LINES) - 1), max_size=12), anew=st.booleans(), cut=st.integers(0, 90))
def test_any_order(path: Path, order: list[int], anew: bool, cut: int) -> None:
    """Any choice and order of the lines is judged alike: as it is, chained anew, and with its end cut off."""
    lines = [LINES[number] for number in order]
    data = b"".join(chained(lines) if anew else lines)
    agree(path, data[: len(data) - cut] if cut < 45 else data)


@seed(4)
@relaxed
@given(seeds=st.integers(0, 1 << 32), anew=st.booleans())
def test_several_damages(path: Path, seeds: int, anew: bool) -> None:
    """Lines deleted, doubled, moved, renumbered and edited together are judged alike, also chained anew."""
    choice = random.Random(seeds)
    lines = list(LINES)
    for _ in range(choice.randint(1, 4)):
        at, to = choice.randrange(len(lines)), choice.randrange(len(lines))
        act = choice.randrange(5)
        if act == 0 and len(lines) > 1:
            del lines[at]
        elif act == 1:
            lines.insert(to, lines[at])
        elif act == 2:
            lines.insert(to, lines.pop(at))
        elif act == 3:
            lines[at] = lines[at].replace(b'"seq":%d,' % at, b'"seq":%d,' % to)
        else:
            place = choice.randrange(110, len(lines[at]) - 1)
            lines[at] = lines[at][:place] + choice.choice([b"}", b'"', b"x", b"7", b"\xff"]) + lines[at][place + 1 :]
    agree(path, b"".join(chained(lines) if anew and all(line.count(b",") > 1 for line in lines) else lines))


@pytest.mark.parametrize("number", range(len(LINES)))
def test_any_head(path: Path, number: int) -> None:
    """A head of any line, and one of none, is placed alike."""
    heads = [*(line[9:73].decode() for line in LINES), "f" * 64]
    agree(path, b"".join(LINES), heads[number])
    agree(path, b"".join(LINES[:-1]), heads[number])


def test_blobs_beside_a_link(tmp_path: Path) -> None:
    """Bodies lie beside the file that a name leads to; what the link's own folder holds does not count."""
    shutil.copytree(ROOT / "valid" / "bodies", tmp_path / "real")
    link = tmp_path / "trace.jsonl"
    link.symlink_to("real/run.jsonl")
    assert verdict(link) == ("sealed", 0) and verify(link).ok
    (tmp_path / "real" / "blobs").rename(tmp_path / "blobs")
    assert verdict(link) == ("blob-missing", 4) and verify(link).status == "blob-missing"


def test_a_blob_that_is_no_file(tmp_path: Path) -> None:
    """A folder and a link in a blob's place are no blob."""
    for make in (Path.mkdir, lambda blob: blob.symlink_to("/etc/hostname")):
        shutil.copytree(ROOT / "valid" / "bodies", tmp_path / "case")
        blob = next((tmp_path / "case" / "blobs").iterdir())
        blob.unlink()
        make(blob)
        path = tmp_path / "case" / "run.jsonl"
        assert verdict(path)[0] == "blob-missing"
        assert (verify(path).status, verify(path).line) == verdict(path)
        shutil.rmtree(tmp_path / "case")
