"""What ended a run early, told to its user: in one line each, with the way out, and never a traceback.

Loaded with every run: when it is needed, there may be neither descriptors nor memory to load it with.
"""

from __future__ import annotations

import os

from agentbox.guard.errors import GuardError, GuardFailed
from agentbox.guard.session import EndRun
from agentbox.trace import TraceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TRACE_LOST = 74


class Failure(Exception):
    """The run had to be ended: what the user reads, the exit status, and whether the trace can still be written."""

    def __init__(self, text: str, status: int, *, hint: str = "", trace_lost: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.hint = hint
        self.trace_lost = trace_lost


def explain(error: Exception, *, layers: bool = True) -> Failure:
    """Say what an exception means for the user; the traceback of a defect is shown only with AGENTBOX_DEBUG=1.

    With `layers` the kernel holds each act until it is recorded. A guard alone announces an act and goes on.
    """
    if os.environ.get("AGENTBOX_DEBUG"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, EndRun):
        return Failure(error.report, error.status)
    if isinstance(error, TraceError) and error.code == "moved":
        return Failure(str(error), TRACE_LOST, hint=error.hint)
    if isinstance(error, TraceError):
        why = "because nothing may happen unrecorded"
        if not layers:
            why = "its last acts may be missing: with the guard alone an act does not wait for its record"
        text = f"{error}; the agent was ended{', ' if layers else '; '}{why}"
        lost = error.code in ("full", "io", "changed")
        return Failure(text, TRACE_LOST if lost else GuardFailed.status, hint=error.hint, trace_lost=lost)
    if isinstance(error, GuardError):
        return Failure(str(error), error.status, hint=error.hint)
    if isinstance(error, MemoryError) or str(error) == "can't start new thread":  # Python/thread_pthread.h
        what = "out of memory" if isinstance(error, MemoryError) else "no thread can be started"
        hint = "raise the limits of memory and processes (ulimit -v, ulimit -u, or the container's), or free some"
        return Failure(f"{what}; the agent was ended", GuardFailed.status, hint=hint)
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = f"{os.path.basename(where.tb_frame.f_code.co_filename)}:{where.tb_lineno}" if where is not None else "?"
    return Failure(
        f"internal error at {place}: {type(error).__name__}: {error}; the agent was ended",
        GuardFailed.status,
        hint="a defect in agentbox; AGENTBOX_DEBUG=1 shows the traceback to report",
    )


def tell(say: Callable[[str], None], failure: Failure) -> None:
    """Say a failure line by line, and the way out after it."""
    for line in failure.text.splitlines():
        say(line)
    if failure.hint:
        say(f"hint: {failure.hint}")
