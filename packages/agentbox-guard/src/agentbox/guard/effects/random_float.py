"""The effect `random.float`: a number from the system's own source, never from a seed that could be known."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.context import EffectContext
    from agentbox.guard.effects._base import Args, Result

_BITS = 53
"""A double between 0 and 1 has 53 bits of precision (IEEE 754)."""


class RandomFloat:
    """No args. Result: `value`, from 0.0 up to, not including, 1.0."""

    op = "random.float"
    irreversible = False
    mutates = False
    slow = False

    def normalise(self, args: Args, context: EffectContext) -> Args:
        return {}

    def identity(self, args: Args) -> Args:
        return {}

    def perform(self, args: Args, context: EffectContext) -> Result:
        return {"value": (int.from_bytes(os.urandom(7), "big") >> (56 - _BITS)) * 2.0**-_BITS}
