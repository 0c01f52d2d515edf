"""Property: no damage to a sealed trace goes unseen."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentbox.trace import TraceError, load_body, read, verify
from agentbox.trace.report import STATUSES

SMALL = (Path(__file__).parent.parent / "vectors" / "valid" / "small" / "run.jsonl").read_bytes()
LINES = SMALL.splitlines(keepends=True)
relaxed = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def check(path: Path, data: bytes) -> None:
    """Assert that `data`, which is not the trace that was written, does not pass, and that readers survive it."""
    path.write_bytes(data)
    report = verify(path)
    assert not report.ok
    assert report.status in STATUSES and report.status != "sealed"
    assert "\n" not in report.message
    try:
        for _ in read(path):
            pass
    except TraceError as error:
        assert "\n" not in str(error)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file to write damaged traces to."""
    return tmp_path_factory.mktemp("damage") / "run.jsonl"


@relaxed
@given(place=st.integers(0, len(SMALL) - 1), mask=st.integers(1, 255))
def test_any_byte(path: Path, place: int, mask: int) -> None:
    """Changing any byte in any way is seen."""
    check(path, SMALL[:place] + bytes([SMALL[place] ^ mask]) + SMALL[place + 1 :])


@pytest.mark.parametrize("mask", [1, 0x20, 0x80])
def test_every_byte_of_the_seal(path: Path, mask: int) -> None:
    """Not one byte of the last line, which no line follows, can be changed unseen."""
    for place in range(len(SMALL) - len(LINES[-1]), len(SMALL)):
        path.write_bytes(SMALL[:place] + bytes([SMALL[place] ^ mask]) + SMALL[place + 1 :])
        assert not verify(path).ok, place


@relaxed
@given(start=st.integers(0, len(SMALL)), length=st.integers(0, 60), new=st.binary(max_size=60))
def test_any_splice(path: Path, start: int, length: int, new: bytes) -> None:
    """Replacing any stretch by anything else is seen: cuts, insertions, doubled parts."""
    data = SMALL[:start] + new + SMALL[start + length :]
    if data != SMALL:
        check(path, data)


@relaxed
@given(order=st.lists(st.integers(0, len(LINES) - 1), max_size=14))
def test_any_order(path: Path, order: list[int]) -> None:
    """Any other choice and order of the lines is seen."""
    if order != list(range(len(LINES))):
        check(path, b"".join(LINES[number] for number in order))


@relaxed
@given(data=st.binary(max_size=300))
def test_any_bytes(path: Path, data: bytes) -> None:
    """Any bytes at all are judged without a crash."""
    check(path, data)


json_like = st.recursive(
    st.none() | st.text(max_size=8) | st.integers() | st.binary(max_size=4), lambda x: st.lists(x, max_size=2)
)


@relaxed
@given(doc=st.dictionaries(st.sampled_from(["text", "base64", "blob", "sha256", "size"]), json_like))
def test_any_body(path: Path, doc: dict[str, object]) -> None:
    """Any object is judged as a body without a crash."""
    try:
        load_body(doc, path)
    except TraceError as error:
        assert "\n" not in str(error)
