"""The traces of earlier runs: each keeps its bytes and gets a name of its own, and none is written over."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentbox.trace import TraceError, TraceWriter, older, rotate, verify

NAME = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[A-Za-z0-9_-]+\.jsonl")


def record(path: Path, run: str, ts: float = 1_796_088_982.0) -> bytes:
    """Write a sealed trace with a body beside it, and return its bytes."""
    writer = TraceWriter.create(path)
    writer.append("meta", "run.start", args={"run": run}, ts=ts)
    writer.append("observe", "fs.read", args={"body": writer.body(run.encode() * 5000)}, ts=ts)
    writer.seal(0, duration=1.0, ts=ts + 1)
    writer.close()
    return path.read_bytes()


def test_every_run_keeps_its_trace(tmp_path: Path) -> None:
    """Three runs leave three traces, each whole with its bodies, named by its time and its run."""
    path = tmp_path / "trace.jsonl"
    written = []
    for number in range(3):
        rotate(path)
        written.append(record(path, f"run{number}", 1_796_088_982.0 + number))
    kept = older(path)
    assert [os.path.basename(name) for name in kept] == [
        "20261201T013622.000Z-run0.jsonl",
        "20261201T013623.000Z-run1.jsonl",
    ]
    assert [Path(name).read_bytes() for name in [*kept, path]] == written
    assert all(verify(name).ok for name in [*kept, path])
    assert os.stat(tmp_path / "traces").st_mode & 0o777 == 0o700


def test_the_same_name_twice(tmp_path: Path) -> None:
    """Two traces that would get one name both stay, also where something else has that name."""
    path = tmp_path / "trace.jsonl"
    for _ in range(3):
        record(path, "../same run")
        name = rotate(path)
        assert name is not None and NAME.fullmatch(os.path.basename(name))
    assert len(older(path)) == 3 and rotate(path) is None


def test_a_first_line_that_names_nothing(tmp_path: Path) -> None:
    """A torn trace is kept under the time of the file."""
    path = tmp_path / "trace.jsonl"
    path.write_bytes(record(path, "x")[:90])
    os.utime(path, (0, 0))
    assert os.path.basename(str(rotate(path))) == "19700101T000000.000Z-unnamed.jsonl"


def test_an_empty_file_is_no_trace(tmp_path: Path) -> None:
    """It is written to, and not kept."""
    (tmp_path / "trace.jsonl").touch()
    assert rotate(tmp_path / "trace.jsonl") is None and not (tmp_path / "traces").exists()


def test_what_earlier_versions_left(tmp_path: Path) -> None:
    """`trace.prev.jsonl` is kept with the others; a file of the user's with that name is left alone."""
    path = tmp_path / "trace.jsonl"
    first = record(tmp_path / "trace.prev.jsonl", "first")
    record(path, "second", 1_796_088_999.0)
    rotate(path)
    assert Path(older(path)[0]).read_bytes() == first and len(older(path)) == 2
    assert not (tmp_path / "trace.prev.jsonl").exists() and all(verify(name).ok for name in older(path))
    (tmp_path / "trace.prev.jsonl").write_text("mine\n")
    record(path, "third")
    rotate(path)
    assert (tmp_path / "trace.prev.jsonl").read_text() == "mine\n" and len(older(path)) == 3


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """A file that is no trace is neither moved nor written over, and a link is not followed."""
    path = tmp_path / "notes.jsonl"
    path.write_text("mine\n")
    with pytest.raises(TraceError, match="is not an agentbox trace") as caught:
        rotate(path)
    assert caught.value.code == "not-a-trace" and path.read_text() == "mine\n"
    record(tmp_path / "trace.jsonl", "x")
    (tmp_path / "link.jsonl").symlink_to("trace.jsonl")
    with pytest.raises(TraceError, match="symbolic link"):
        rotate(tmp_path / "link.jsonl")


def test_a_folder_that_leads_elsewhere(tmp_path: Path) -> None:
    """A link in place of the folder, or a file, is an error that moves nothing."""
    path = tmp_path / "trace.jsonl"
    written = record(path, "x")
    (tmp_path / "away").mkdir()
    for make in (lambda at: at.symlink_to("away"), Path.touch):
        make(tmp_path / "traces")
        with pytest.raises(TraceError, match="cannot be moved to"):
            rotate(path)
        assert path.read_bytes() == written and not os.listdir(tmp_path / "away")
        (tmp_path / "traces").unlink()


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace is kept all the same; its bodies stay in the folder beside the last one."""

    def refuse(*args: object, **more: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", refuse)
    record(tmp_path / "trace.jsonl", "x")
    assert verify(str(rotate(tmp_path / "trace.jsonl")), blobs=False).ok


KILLED = """
import os, signal, sys
from agentbox.trace import rotate
number, path = int(sys.argv[1]), sys.argv[2]
def count(name, left=[number]):
    call = getattr(os, name)
    def counted(*args, **more):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **more)
    setattr(os, name, counted)
for name in ("mkdir", "symlink", "open", "rename", "fsync"):
    count(name)
rotate(path)
"""


def test_killed_at_any_step(tmp_path: Path) -> None:
    """Wherever a run is killed while it moves a trace, the trace is whole under one of its names."""
    for number in range(40):
        path = tmp_path / str(number) / "trace.jsonl"
        path.parent.mkdir()
        written = record(path, "x")
        done = subprocess.run([sys.executable, "-c", KILLED, str(number), str(path)], check=False)
        places = [Path(name) for name in [*older(path), path] if os.path.exists(name)]
        assert [place.read_bytes() for place in places if place.stat().st_size] == [written]
        rotate(path)
        assert [verify(name).ok for name in older(path) if os.path.getsize(name)] == [True]
        if done.returncode == 0:
            return
        assert done.returncode == -signal.SIGKILL
    pytest.fail("moving a trace takes more than 40 steps")
