"""Crashes and full disks: what is in the file stays a chain that verifies."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentbox.trace import TraceError, TraceWriter, verify

WRITER = """
import sys
from agentbox.trace import TraceWriter
writer = TraceWriter.create(sys.argv[1])
writer.append("meta", "run.start")
writer.flush()
print("ready", flush=True)
for number in range(10**9):
    writer.append("observe", "fs.read", args={"path": "/data/" + "x" * (number % 300)})
    if number % 7 == 0:
        writer.flush()
    if number % 500 == 0:
        writer.append("effect", "http.request", result={"body": writer.body("y" * (5000 + number))})
"""


@pytest.mark.parametrize("seed", range(6))
def test_kill(tmp_path: Path, seed: int) -> None:
    """A writer that is killed at any moment leaves a prefix that verifies as unsealed, its blobs included.

    The kernel looks for a fatal signal before each page of a write(2), so the last line may be cut off there.
    """
    path = tmp_path / "run.jsonl"
    process = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    wanted = random.Random(seed).randrange(1, 400_000)
    while path.stat().st_size < wanted:
        assert process.poll() is None
    process.kill()
    process.wait()
    process.stdout.close()
    size = path.stat().st_size
    assert size >= wanted
    whole = path.read_bytes().rfind(b"\n") + 1
    if whole != size:
        torn = verify(path, allow_unsealed=True)
        assert (torn.ok, torn.status, torn.offset) == (False, "torn", whole), torn.message
        os.truncate(path, whole)
    report = verify(path, allow_unsealed=True)
    assert (report.ok, report.status, report.offset) == (True, "unsealed", whole), report.message


def limited(path: Path, limit: int) -> tuple[TraceWriter, TraceError]:
    """Write to `path` until a file size limit stops that."""
    writer = TraceWriter.create(path)
    writer.append("meta", "run.start")

    def fill() -> None:
        for _ in range(100_000):
            writer.append("observe", "fs.read", args={"path": "/data"})

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(TraceError) as caught:
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    return writer, caught.value


@pytest.mark.parametrize("limit", [100, 65_536, 100_001, 131_072])
def test_full_disk(tmp_path: Path, limit: int) -> None:
    """When the disk is full the writer says so, cuts the torn line off, and refuses to go on."""
    path = tmp_path / "run.jsonl"
    writer, error = limited(path, limit)
    assert str(error) == f"{path}: the trace cannot be written: file too large"
    assert (error.code, error.hint) == ("full", "free some space and run again")
    with pytest.raises(TraceError, match="file too large"):
        writer.append("observe", "fs.read")
    with pytest.raises(TraceError, match="file too large"):
        writer.seal(0, duration=0)
    writer.close()
    if limit < 200:
        assert path.read_bytes() == b""
        return
    report = verify(path, allow_unsealed=True)
    assert report.ok and report.offset == path.stat().st_size <= limit
    assert (report.entries, report.head, report.counts) == (writer.count, writer.head, writer.counts)


def test_no_space(tmp_path: Path) -> None:
    """A device without space (/dev/full) is reported the same way."""
    writer = TraceWriter(os.open("/dev/full", os.O_WRONLY), str(tmp_path / "run.jsonl"))
    writer.append("meta", "run.start")
    with pytest.raises(TraceError, match="cannot be written: no space left on device") as caught:
        writer.flush()
    assert caught.value.code == "full"
    writer.close()


def test_blob_without_space(tmp_path: Path) -> None:
    """A blob for which there is no space is an error before any line names it, and leaves nothing behind."""
    writer = TraceWriter.create(tmp_path / "run.jsonl")
    writer.append("meta", "run.start")
    writer.flush()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(TraceError, match="the blob cannot be written: file too large"):
            writer.body(b"x" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "blobs").iterdir()) == []
    writer.append("effect", "http.request", result={"body": writer.body(b"x" * 20_000)})
    writer.seal(0, duration=0)
    assert verify(writer.path).ok
