"""What a trace tells of the tree before the recorded run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentbox.replay.prestate import PreState


def state(root: Path, *steps: tuple[str, str, dict[str, Any]]) -> list[str]:
    """The paths below `root` that were absent, for steps whose paths are relative to it."""
    found = PreState()
    for kind, op, args in steps:
        found.add(
            kind, op, {name: str(root / value) if name in ("path", "to") else value for name, value in args.items()}
        )
    return [str(Path(path).relative_to(root)) for path in found.absent()]


def test_a_missing_cache_that_was_written_later(tmp_path: Path) -> None:
    """A file that the agent did not find at first was absent, whoever wrote it later."""
    (tmp_path / "cache").touch()
    steps = [
        ("observe", "fs.read", {"path": "cache", "absent": True}),
        ("observe", "fs.write", {"path": "cache", "flags": "w"}),
    ]
    assert state(tmp_path, *steps) == ["cache"]
    assert state(tmp_path, steps[1], steps[0]) == []


@pytest.mark.parametrize(
    ("flags", "absent"), [("x", True), ("xb", True), ("0o301", True), ("w", False), ("0o1101", False)]
)
def test_exclusive_creation(tmp_path: Path, flags: str, absent: bool) -> None:
    """A file that was opened to be made was absent; one that was opened to be written may have been there."""
    (tmp_path / "f").touch()
    assert state(tmp_path, ("observe", "fs.write", {"path": "f", "flags": flags})) == (["f"] if absent else [])


def test_folder_that_the_run_made(tmp_path: Path) -> None:
    """A folder that holds only what the run made was made by it; one with anything else in it may have been there."""
    (tmp_path / "out" / "sub").mkdir(parents=True)
    (tmp_path / "out" / "sub" / "f").touch()
    steps = [
        ("observe", "fs.mkdir", {"path": "out"}),
        ("observe", "fs.mkdir", {"path": "out/sub"}),
        ("effect", "fs.write", {"path": "out/sub/f", "sha256": "0", "size": 0}),
    ]
    assert state(tmp_path, *steps) == ["out", "out/sub"]
    (tmp_path / "out" / "older").touch()
    assert state(tmp_path, *steps) == ["out/sub"]


def test_links(tmp_path: Path) -> None:
    """The name of a new link was free; where a symbolic link leads is not touched by it."""
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to("target")
    assert state(tmp_path, ("observe", "fs.symlink", {"path": "target", "to": "link"})) == ["link"]


def test_what_the_run_removed(tmp_path: Path) -> None:
    """Removed are missing paths that were there before: not what the run itself had made, nor what is there again."""
    found = PreState()
    for name in ("gone", "moved", "there"):
        found.add("observe", "fs.read", {"path": str(tmp_path / name), "sha256": "0"})
    found.add("observe", "fs.remove", {"path": str(tmp_path / "gone")})
    found.add("observe", "fs.rename", {"path": str(tmp_path / "moved"), "to": str(tmp_path / "new")})
    found.add("observe", "fs.remove", {"path": str(tmp_path / "there")})
    found.add("observe", "fs.write", {"path": str(tmp_path / "own"), "flags": "w", "absent": True})
    found.add("observe", "fs.remove", {"path": str(tmp_path / "own")})
    found.add("observe", "fs.remove", {"path": str(tmp_path / "again")})
    found.add("effect", "fs.write", {"path": str(tmp_path / "again"), "sha256": "0", "size": 0})
    (tmp_path / "there").touch()
    assert found.removed() == [str(tmp_path / "gone"), str(tmp_path / "moved")]


def test_what_is_collected(tmp_path: Path) -> None:
    """Changes are told apart by who made them, private folders do not count, and renames are kept as pairs."""
    found = PreState()
    found.add("observe", "fs.write", {"path": "/w/direct", "flags": "w"})
    found.add("observe", "fs.write", {"path": "$TMPDIR/x", "flags": "w"})
    found.add("effect", "fs.write", {"path": "/w/sdk", "sha256": "0", "size": 0})
    found.add("observe", "fs.rename", {"path": "/w/a", "to": "/w/b"})
    found.add("observe", "fs.read", {"path": "/w/read", "sha256": "0", "size": 0})
    assert found.direct == {"/w/direct", "/w/a", "/w/b"}
    assert found.sdk == {"/w/sdk"}
    assert found.pairs == {("/w/a", "/w/b")}
    assert "/w/read" not in found.changed


def test_what_was_there_before_a_write(tmp_path: Path) -> None:
    """The guard's word on what a write found: a free name, or a file of some size that was appended to."""
    (tmp_path / "new").touch()
    assert state(tmp_path, ("observe", "fs.write", {"path": "new", "flags": "w", "absent": True})) == ["new"]
    found = PreState()
    found.add("observe", "fs.write", {"path": "/w/log", "flags": "a", "size": 7})
    found.add("observe", "fs.write", {"path": "/w/log", "flags": "a", "size": 9})
    found.add("observe", "fs.write", {"path": "/w/raw", "flags": "0o2001", "size": 3})
    found.add("observe", "fs.write", {"path": "/w/out", "flags": "w", "size": 5})
    assert found.appended == {"/w/log": 7, "/w/raw": 3}
