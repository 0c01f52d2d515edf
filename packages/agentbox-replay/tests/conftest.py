"""Hand-made traces for the tests of replay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentbox.trace import TraceWriter

HEADER = {"argv": ["agent"], "cwd": "/work", "policy": "read: .\n", "policy_sha256": "1"}


class Tape:
    """Writes a trace entry by entry, as a recording would."""

    def __init__(self, path: Path, **header: Any) -> None:
        self.path = path
        self.writer = TraceWriter.create(path)
        self.writer.append("meta", "run.start", args={**HEADER, **header})

    def effect(self, op: str, args: dict[str, Any], result: dict[str, Any], *, lane: str = "0.0") -> Tape:
        """An SDK call; bytes become bodies."""
        self.writer.append("effect", op, args=self._bodies(args), result=self._bodies(result), lane=lane)
        return self

    def observe(self, op: str, args: dict[str, Any], *, lane: str = "0.0") -> Tape:
        """A direct action."""
        self.writer.append("observe", op, args=args, lane=lane)
        return self

    def meta(self, op: str, /, **args: Any) -> Tape:
        """A line that is no step."""
        self.writer.append("meta", op, args=args)
        return self

    def deny(self, op: str, args: dict[str, Any]) -> Tape:
        """A denial."""
        self.writer.append("deny", op, args=args, extra={"reason": "no rule", "target": str(args.get("path", ""))})
        return self

    def seal(self, status: int = 0) -> Path:
        """The last line; returns the path."""
        self.writer.seal(status, duration=0.1)
        self.writer.close()
        return self.path

    def _bodies(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: self.writer.body(value) if isinstance(value, bytes) else value for name, value in values.items()}


@pytest.fixture
def tape(tmp_path: Path) -> Callable[..., Tape]:
    """Begin a trace, in a folder of the given name; keyword arguments go into its header."""

    def begin(folder: str = ".", **header: Any) -> Tape:
        (tmp_path / folder).mkdir(exist_ok=True)
        return Tape(tmp_path / folder / "trace.jsonl", **header)

    return begin
