"""The session that records: every event becomes a line of the trace, in the order in which the loop tells of it.

It decides nothing and holds nothing back: what it cannot write raises, and the run ends.
"""

from __future__ import annotations

import os
import time

from agentbox.guard import report, welcome
from agentbox.guard.paths import is_name, within
from agentbox.trace import Redactor, TraceError, TraceWriter, older, rotate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from agentbox.guard.options import RunOptions
    from agentbox.guard.session import Denial, EffectFacts, Ended, Event

MOST_STATES = 10_000
"""Paths whose final state is written at the end; a run that writes more files says so in its last `fs.state` line."""
MOST_SECONDS = 20.0
"""What hashing those may take, all together; the user waits for it."""
_SYNC_EVERY = 1.0  # seconds: what a power cut may take
_WROTE = {
    "fs.write": ("path",),
    "fs.truncate": ("path",),
    "fs.remove": ("path",),
    "fs.rename": ("path", "to"),
    "fs.link": ("to",),
    "fs.symlink": ("to",),
}
"""The operations that change what a path holds, and the args that name it."""


class RecordSession:
    """Implements `agentbox.guard.session.Session` over a `TraceWriter`; a trace that is there already is kept
    in `traces/`.

    Raises `TraceError` where no trace can be made. `environ` is the agent's environment: its secrets are kept out of
    the trace.
    """

    ask = "none"

    __slots__ = (
        "_denials",
        "_guard_only",
        "_hidden",
        "_layers",
        "_native",
        "_next_sync",
        "_options",
        "_states",
        "_states_cut",
        "_writer",
        "mode",
    )

    def __init__(self, options: RunOptions, environ: Mapping[str, str]) -> None:
        self.mode = options.mode
        self._options = options
        path = os.path.join(options.cwd, options.trace)
        rotate(path)
        self._writer = TraceWriter.create(path, redactor=Redactor(environ))
        self._hidden = welcome.trace_files(options)
        self._states: dict[str, None] = {}
        self._states_cut = False
        self._denials = report.Denials(options.live)
        self._native: dict[str, None] = {}
        self._guard_only = False
        self._layers = ""
        self._next_sync = time.monotonic() + _SYNC_EVERY
        if self.mode == "observe":
            options.say(report.OBSERVING)

    def start(self, header: dict[str, Any]) -> None:
        self._guard_only = header.get("layers") == ["guard"]
        if header.get("platform", "").startswith("Linux ") and self.mode == "record":
            self._layers = report.layers(header["layers"])
        self._writer.append("meta", "run.start", args=header, src="supervisor")

    def process(self, event: Event) -> None:
        self._append("meta", event)
        if event.op == "code.load" and self._guard_only:
            self._native.setdefault(report.library(str(event.args.get("path", ""))))

    def observe(self, event: Event) -> None:
        self._append("observe", event)
        for name in _WROTE.get(event.op, ()):
            self._note_state(event.args.get(name))
        if event.op == "net.bind" and event.args.get("port"):
            self._denials.listens(event.args["port"])

    def deny(self, event: Event, denial: Denial) -> None:
        more = {name: getattr(denial, name) for name in ("key", "target", "rule", "reason", "fix", "enforced")}
        self._append("deny", event, more=more)
        self._denials.add(denial)

    def consult(self, event: Event) -> None:
        """Recording answers nothing in the system's place."""

    def begin(self, event: Event, effect: EffectFacts) -> None:
        if effect.irreversible:
            args = {"op": event.op, "args": self._bodies(event.args)}
            self._writer.append("meta", "effect.begin", args=args, lane=event.lane, pid=event.pid, src=event.src)
            self._writer.flush()

    def complete(self, event: Event, effect: EffectFacts, result: dict[str, Any]) -> None:
        self._append("effect", event, result=self._bodies(result))

    def flush(self) -> None:
        self._writer.flush()
        if time.monotonic() >= self._next_sync:
            self._writer.sync()
            self._next_sync = time.monotonic() + _SYNC_EVERY

    def finish(self, ended: Ended) -> int:
        deadline = time.monotonic() + MOST_SECONDS

        def late() -> bool:
            return ended.hurry() or time.monotonic() > deadline

        if self._states:
            from agentbox.guard.states import state_of
        for path in self._states:
            found = {"path": path, "sha256": state_of(path, late)}
            self._writer.append("meta", "fs.state", args=found, src="supervisor")
        if self._states_cut:
            args = {"path": "", "sha256": "", "cut": True, "most": MOST_STATES}
            self._writer.append("meta", "fs.state", args=args, src="supervisor")
        moved = None
        try:
            self._writer.seal(ended.status, duration=ended.duration, signal=ended.signal, failure=ended.failure)
        except TraceError as error:
            if error.code != "moved":
                raise
            moved = error  # sealed, but under no name that the user knows
        note = self._options.note
        if ended.signal:
            note(report.ended_by(self._options.argv[0], ended.signal))
        for line in self._denials.lines():
            note(line)
        if self._native:
            note(report.native(self._native))
        if self.mode == "observe":
            self._options.say(report.OBSERVED)
        if self._layers:
            note(self._layers)
        note(f"head {self._writer.head}")
        if moved is not None:
            raise moved
        if kept := len(older(os.path.join(self._options.cwd, self._options.trace))):
            note(report.kept(kept, self._options.trace))
        note(report.summary(self._writer.counts, self._options.trace))
        return ended.status

    def _append(
        self, kind: str, event: Event, *, result: dict[str, Any] | None = None, more: dict[str, Any] | None = None
    ) -> None:
        extra = {"site": event.site, **(more or {})} if event.site else more
        self._writer.append(
            kind,
            event.op,
            args=self._bodies(event.args),
            result=result,
            lane=event.lane,
            pid=event.pid,
            src=event.src,
            extra=extra,
        )

    def _bodies(self, members: dict[str, Any]) -> dict[str, Any]:
        """The members with every body in the form of the trace."""
        if bytes not in map(type, members.values()):
            return members
        return {n: self._writer.body(v) if type(v) is bytes else v for n, v in members.items()}

    def _note_state(self, path: Any) -> None:
        """Note what the agent says it has written, where the policy lets it write: elsewhere it has not, and what is
        there is not for the trace."""
        if type(path) is not str or not path.startswith("/") or path in self._states or not is_name(path):
            return
        if not self._options.policy.is_writable(path) or within(path, self._hidden):
            return
        if len(self._states) < MOST_STATES:
            self._states[path] = None
        else:
            self._states_cut = True
