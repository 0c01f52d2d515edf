"""`--checkpoint`: everything that may change the user's files waits here until there is a snapshot, or is refused for
want of one.

It is passed once; it never lets a change through while the snapshot is being taken.
"""

from __future__ import annotations

from agentbox.guard.session import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agentbox.guard.checkpoint import Checkpoint
    from agentbox.guard.jobs import Jobs
    from agentbox.guard.session import Session


class Gate:
    """Call `before` with what is to happen; without a `checkpoint` it happens at once."""

    __slots__ = ("_blocked", "_checkpoint", "_failure", "_jobs", "_session", "_started", "_waiting")

    def __init__(self, checkpoint: Checkpoint | None, session: Session, jobs: Jobs) -> None:
        self._checkpoint = checkpoint
        self._session = session
        self._jobs = jobs
        self._started = False
        self._failure = ""
        self._blocked = 0
        self._waiting: list[tuple[Callable[[], None], Callable[[str], None]]] = []

    @property
    def is_open(self) -> bool:
        """Whether whatever comes may happen at once."""
        return self._checkpoint is None

    def before(self, event: Event, go: Callable[[], None], stop: Callable[[str], None]) -> None:
        """Call `go` when there is a snapshot, `stop` with a text when none can be taken; `event` is what asks for it
        first.
        """
        if self._failure:
            self._stop(stop)
        elif self._checkpoint is None:
            go()
        else:
            self._waiting.append((go, stop))
            if not self._started:
                self._started = True
                self._take(self._checkpoint, event)

    def _take(self, checkpoint: Checkpoint, cause: Event) -> None:
        from agentbox.guard.checkpoint import CheckpointError

        event = Event(checkpoint.op, dict(checkpoint.args), lane=cause.lane, pid=cause.pid, src="supervisor")
        if self._session.begin(event, checkpoint) is not None:
            self._open()
            return

        def taken(outcome: Any) -> None:
            if isinstance(outcome, CheckpointError):
                self._failure = str(outcome)
                outcome_result = {"error": {"type": "checkpoint", "text": self._failure}}
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                outcome_result = {"id": outcome}
            self._session.complete(event, checkpoint, outcome_result)
            self._open()

        self._jobs.run(checkpoint.take, taken)

    def _open(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not self._failure:
            self._checkpoint = None
        for go, stop in waiting:
            if self._failure:
                self._stop(stop)
            else:
                go()

    def _stop(self, stop: Callable[[str], None]) -> None:
        self._blocked += 1
        stop(self._failure)

    def summary(self) -> str:
        """What the user is told at the end: how many changes were blocked, and why; "" when none was."""
        if not self._blocked:
            return ""
        return f"blocked {self._blocked} change{'s' if self._blocked > 1 else ''}: {self._failure}"
