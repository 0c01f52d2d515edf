"""The enforcing parts of agentbox: the supervisor, its launcher and decisions, and the guard that runs inside the
agent's interpreter.

This module only names what other packages use, and loads it when it is first used: start-up time is the agent's.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.errors import GuardError
    from agentbox.guard.options import RunOptions
    from agentbox.guard.supervisor import run

__all__ = ["GuardError", "RunOptions", "run"]

_LATER = {
    "GuardError": "agentbox.guard.errors",
    "RunOptions": "agentbox.guard.options",
    "run": "agentbox.guard.supervisor",
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(__import__(_LATER[name], fromlist=[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
