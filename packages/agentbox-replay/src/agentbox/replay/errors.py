"""The errors of `agentbox.replay`: one root class, each with a stable `code` and an optional `hint`.

It holds no report of a divergence: a divergence is a result, and lives in `report.py`.
"""

from __future__ import annotations


class ReplayError(Exception):
    """Root of this package's errors; the text is one clear line, `hint` (may be empty) says the way out.

    `code` is stable for scripts, `status` is the exit status of the whole command.
    """

    code = "replay"
    status = 70

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


class TraceMissing(ReplayError):
    """There is no such trace file, or it cannot be read."""

    code = "trace-missing"
    status = 66


class TraceInvalid(ReplayError):
    """The trace does not verify: not a trace, broken, unsealed, or a body of it is gone."""

    code = "trace-invalid"
    status = 4


class NoSteps(ReplayError):
    """No guard runs inside the command, so it does nothing that a replay could match or answer; nothing was run."""

    code = "no-steps"
    status = 69

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}: replay answers and compares what a guard inside the program tells of, and none runs in this one; "
            "nothing was run",
            hint="agentbox show and agentbox verify read its recording; --layers kernel runs it again in a scratch copy"
            " without network, and compares what it reads and writes, but starts no program for it",
        )


class ScratchUnavailable(ReplayError):
    """This machine cannot give the scratch copy that direct writes need; `reason` names the step that failed."""

    code = "scratch-unavailable"
    status = 69

    def __init__(self, reason: str, *, hint: str = "") -> None:
        super().__init__(f"no scratch copy for direct writes: {reason}", hint=hint)
        self.reason = reason


class ScratchFailed(ReplayError):
    """The scratch copy was there and then failed: its process died, or a write into it was refused by the system."""

    code = "scratch-failed"
