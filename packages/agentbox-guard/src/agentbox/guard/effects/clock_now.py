"""The effect `clock.now`: the time of day. It must never be what agentbox itself measures durations with."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.context import EffectContext
    from agentbox.guard.effects._base import Args, Result


class ClockNow:
    """No args. Result: `value`, seconds since the epoch."""

    op = "clock.now"
    irreversible = False
    mutates = False
    slow = False

    def normalise(self, args: Args, context: EffectContext) -> Args:
        return {}

    def identity(self, args: Args) -> Args:
        return {}

    def perform(self, args: Args, context: EffectContext) -> Result:
        return {"value": time.time()}
