"""Fixtures of the trace tests: a small trace, written for each test anew."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentbox.trace import TraceWriter

sys.path.insert(0, str(Path(__file__).parent))  # for the makers of vectors and forged traces beside this file


def write(path: Path, entries: int = 5, *, seal: bool = True) -> Path:
    """Write a trace of `entries` observations, sealed by default."""
    writer = TraceWriter.create(path)
    writer.append("meta", "run.start", args={"run": "test"}, src="supervisor")
    for number in range(entries):
        writer.append("observe", "fs.read", args={"path": f"/data/{number}"}, pid=7)
    if seal:
        writer.seal(0, duration=0.5)
    writer.close()
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A sealed trace of seven lines."""
    return write(tmp_path / "run.jsonl")


@pytest.fixture
def write_trace() -> object:
    """The function that writes a trace."""
    return write
