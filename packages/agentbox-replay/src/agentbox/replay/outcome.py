"""Where the result of a replay goes: message lines for people, or one JSON object for programs.

It never decides what the result is, and writes to nothing but the `say` and `write` that it is given.
"""

from __future__ import annotations

import json
import sys

from agentbox.replay import report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.replay.report import Divergence


class TextOutcome:
    """Says everything in lines."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def warn(self, text: str) -> None:
        """Something that may explain a later divergence."""
        self._say(f"warning: {text}")

    def diverged(self, found: Divergence) -> str:
        """Say the report, line by line."""
        for line in report.lines(found):
            self._say(line)
        return ""

    def interrupted(self, done: int, total: int) -> None:
        """Say how far it came."""
        self._say(f"replay interrupted after {done} of {total} recorded steps")

    def same(self, total: int, denials: int, recorded_denials: int, status: int, *, guarded: bool) -> None:
        """Say that all is well."""
        if not guarded:
            self._say("replay ok — no file or exit status differs; there was no guard to tell of steps")
            return
        if denials != recorded_denials:
            self.warn(f"{denials} denials, recorded were {recorded_denials}")
        self._say(f"replay ok — {total}/{total} recorded steps matched")


class JsonOutcome:
    """Writes one JSON object for the result; warnings stay lines."""

    def __init__(self, say: Callable[[str], None], write: Callable[[str], None]) -> None:
        self._say = say
        self._write = write

    def warn(self, text: str) -> None:
        """Something that may explain a later divergence."""
        self._say(f"warning: {text}")

    def diverged(self, found: Divergence) -> str:
        """Write the report as JSON."""
        self._write(json.dumps(report.as_json(found)))
        return ""

    def interrupted(self, done: int, total: int) -> None:
        """Write how far it came."""
        self._write(json.dumps({"result": "interrupted", "matched": done, "steps": total}))

    def same(self, total: int, denials: int, recorded_denials: int, status: int, *, guarded: bool) -> None:
        """Write that all is well."""
        counts = {"now": denials, "recorded": recorded_denials}
        facts = {"result": "ok", "matched": total, "steps": total, "denials": counts, "status": status}
        self._write(json.dumps({**facts, "guarded": guarded}))


def to_stderr(text: str) -> None:
    """One line to standard error, if there is one."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except OSError:
            pass  # nobody is left to be told


def say(text: str) -> None:
    """One `agentbox:` message; its control characters are escaped by whoever worded it."""
    to_stderr(f"agentbox: {text}")
