"""Bodies: inline and beside the trace, there and back, and what happens to damaged ones."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentbox.trace import TraceError, TraceWriter, describe_body, load_body, read, verify
from agentbox.trace.chain import line_hash


@pytest.fixture
def writer(tmp_path: Path) -> TraceWriter:
    """A writer whose trace has been begun."""
    writer = TraceWriter.create(tmp_path / "run.jsonl")
    writer.append("meta", "run.start")
    return writer


def test_forms(writer: TraceWriter) -> None:
    """Text stays text, bytes become base64, and over 4 KiB only hash and size remain in the line."""
    assert writer.body("é") == {"text": "é", "sha256": line_hash("é".encode()), "size": 2}
    assert writer.body(b"text") == {"text": "text", "sha256": line_hash(b"text"), "size": 4}
    assert writer.body(b"\xff") == {"base64": "/w==", "sha256": line_hash(b"\xff"), "size": 1}
    assert "text" in writer.body("x" * 4096)
    assert writer.body("x" * 4097) == {"blob": line_hash(b"x" * 4097), "size": 4097}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(data=st.binary(max_size=50) | st.text(st.characters(), max_size=50), times=st.sampled_from([1, 1, 1000]))
def test_round_trip(tmp_path: Path, data: bytes | str, times: int) -> None:
    """What `load_body` returns is what was given to `body`, whatever its size."""
    path = tmp_path / "run.jsonl"
    path.unlink(missing_ok=True)
    writer = TraceWriter.create(path)
    doc = writer.body(data * times)
    writer.close()
    got = load_body(doc, path)
    assert describe_body(got)[0] == doc
    if isinstance(data, bytes):
        assert got == data * times


def test_files(writer: TraceWriter, tmp_path: Path) -> None:
    """A blob is a file that only its owner may read, written once, and nothing else is left in the folder."""
    for _ in range(3):
        writer.body("x" * 5000)
    (blob,) = (tmp_path / "blobs").iterdir()
    assert (blob.name, blob.read_bytes()) == (line_hash(b"x" * 5000), b"x" * 5000)
    assert stat.S_IMODE(blob.stat().st_mode) == 0o600
    assert stat.S_IMODE(blob.parent.stat().st_mode) == 0o700


def test_damaged_blob_of_an_earlier_run(writer: TraceWriter, tmp_path: Path) -> None:
    """A blob that is there but damaged is replaced; a sound one is kept."""
    name = line_hash(b"x" * 5000)
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / name).write_bytes(b"y" * 5000)
    assert load_body(writer.body("x" * 5000), writer.path) == b"x" * 5000


def test_no_link_is_followed(writer: TraceWriter, tmp_path: Path) -> None:
    """A `blobs` folder or a blob that is a link is refused."""
    (tmp_path / "other").mkdir()
    (tmp_path / "blobs").symlink_to(tmp_path / "other")
    with pytest.raises(TraceError, match="the blob cannot be written"):
        writer.body("x" * 5000)
    assert list((tmp_path / "other").iterdir()) == []


def test_a_link_for_a_blob_is_not_the_blob(writer: TraceWriter, tmp_path: Path) -> None:
    """verify and load_body do not follow a link in the place of a blob."""
    doc = writer.body("x" * 5000)
    writer.append("effect", "http.request", result=doc)
    writer.seal(0, duration=0)
    blob = tmp_path / "blobs" / doc["blob"]
    blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(tmp_path / "elsewhere")
    assert verify(writer.path).status == "blob-missing"
    with pytest.raises(TraceError, match="the blob cannot be read"):
        load_body(doc, writer.path)


@pytest.mark.parametrize(
    ("doc", "text"),
    [
        ({}, "holds no usable `text`, `base64` or `blob`"),
        ({"base64": "%%"}, "holds no usable"),
        ({"blob": "../../etc/passwd"}, "`blob` is '../../etc/passwd', expected 64 hex digits"),
        ({"blob": "A" * 64}, "expected 64 hex digits"),
        ({"blob": "a" * 64}, "the blob cannot be read: no such file or directory"),
        ({"text": "a", "size": 2}, "has 1 bytes, expected 2"),
        ({"text": "a", "sha256": "b" * 64}, "has the sha256 ca978112"),
    ],
)
def test_bodies_that_are_none(trace: Path, doc: dict[str, object], text: str) -> None:
    """A body that is missing, damaged or none is an error with one line."""
    with pytest.raises(TraceError) as caught:
        load_body(doc, trace)
    assert text in str(caught.value) and caught.value.code == "blob"


def test_an_agent_cannot_name_a_blob(writer: TraceWriter) -> None:
    """What only looks like the name of a blob is spelled so that `verify` does not look for it, and reads as it was."""
    args = {"blob": "a" * 64, "x": [{"blob": "b" * 64}], 'y"blob': "c" * 64, "blob2": {"blob": "short"}}
    writer.append("observe", "fs.read", args=args)
    real = writer.body("x" * 5000)
    writer.append("effect", "http.request", result=real)
    writer.seal(0, duration=0)
    report = verify(writer.path)
    assert report.ok, report.message
    assert "all bodies beside the trace, 1, have the hashes that name them" in report.proved
    entries = list(read(writer.path))
    assert entries[1].args == args and entries[2].result == real
