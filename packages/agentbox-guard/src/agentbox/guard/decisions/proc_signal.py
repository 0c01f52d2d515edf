"""`proc.signal`: a process of the run may signal the run's own processes, and nobody else: never the supervisor."""

from __future__ import annotations

import errno

from agentbox.guard.decisions._base import Desk, Verdict, member
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Signal:
    """Args: `target` as kill(2) takes it (a pid; 0 or negative: process groups) and `signal`."""

    def decide(self, op: str, args: dict[str, Any], pid: int, desk: Desk) -> Verdict:
        target = member(args, "target", int, op)
        number = member(args, "signal", int, op)
        verdict = Verdict({"target": target, "signal": number})
        if (
            (desk.wall is not None and desk.wall.own_processes)  # numbers of its own, and groups are sorted out there
            or target == pid
            or (target > 0 and desk.family.may_reach(target))
            or (target < -1 and desk.family.has_group(-target))
        ):
            return verdict
        reason = "only processes of this run may be signalled"
        if target <= 0:
            reason = "the process group holds processes that are not of this run, the supervisor among them"
        verdict.code = errno.EPERM
        verdict.denial = Denial("signal", f"process {target}" if target > 0 else f"process group {-target}", reason)
        return verdict

    def complete(self, verdict: Verdict, pid: int, desk: Desk) -> None:
        """Nothing takes time here."""


DECIDER = Signal()
