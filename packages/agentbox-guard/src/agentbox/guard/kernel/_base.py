"""What a kernel layer is: probed, planned in the supervisor, applied in the child before exec.

A layer never decides by itself; it makes the kernel hold what the policy says, and says which rule kinds it holds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    from agentbox.policy import Policy

    class Layer(Protocol):
        """One way to make the kernel enforce a policy; a row of `agentbox.guard.kernel.LAYERS`."""

        name: str
        """As it is shown and recorded: `landlock`, `seccomp`, ..."""
        enforces: frozenset[str]
        """The rule kinds (`read`, `write`, `net`, `exec`) that hold for every program of the run, whatever its
        language.
        """

        def probe(self) -> str:
            """Empty when this machine has what the layer needs, else what is missing, in one clause."""

        def plan(self, policy: Policy, context: Mapping[str, Any]) -> Any:
            """All that can be prepared before the fork; `context` is the guard's welcome message (paths, private
            trees).
            """

        def advice(self) -> str:
            """How a user gets the layer on a machine without it; "" when nothing is known to be in its way."""

        def apply(self, plan: Any) -> None:
            """Confine the calling process (the forked child, before exec). Raises `OSError`: the run then ends
            unstarted.
            """
