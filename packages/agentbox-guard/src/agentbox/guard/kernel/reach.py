"""Which programs the Landlock layer lets a run start, as the supervisor knows it: to say so before the kernel refuses.

It restricts nothing itself, and reads the plan only for programs outside of the system's folders.
"""

from __future__ import annotations

from agentbox.guard.kernel import system
from agentbox.guard.paths import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from agentbox.guard.kernel.landlock import Plan
    from agentbox.policy import Policy

_MOST_KNOWN = 1024


class Reach:
    """Call it with a resolved file. `context` is what the layers are planned from, with what was looked at then."""

    __slots__ = ("_context", "_known", "_plan", "_policy")

    def __init__(self, policy: Policy, context: Mapping[str, Any]) -> None:
        self._policy = policy
        self._context = context
        self._plan: Plan | None = None
        self._known: dict[str, bool] = {}

    def __call__(self, file: str) -> bool:
        if system.is_system(file):
            return True
        if self._policy.is_writable(file):  # it may be another one each time
            return self._covers(file)
        known = self._known.get(file)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[file] = self._covers(file)
        return known

    def _covers(self, file: str) -> bool:
        return self._planned().covers("exec", file, self._stands)

    def _stands(self, root: str) -> bool:
        """Whether a granted path names the object that was granted: no other is, though it has the same name."""
        there = self._context["there"]
        return root not in there or (there[root] is not None and identity(root) == there[root])

    def _planned(self) -> Plan:
        if self._plan is None:
            from agentbox.guard.kernel import landlock

            self._plan = landlock.plan_for(self._policy, self._context, abi=landlock.NEWEST_ABI)
        return self._plan
