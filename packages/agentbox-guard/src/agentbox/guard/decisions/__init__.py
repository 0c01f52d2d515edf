"""The table of decisions: which operations a guard asks for, and who decides each. A new one is one file and its rows
here.

A row is loaded when it is first asked: every run's start would wait for all of them.
"""

from __future__ import annotations

from agentbox.guard.decisions._base import Desk, Verdict, astray, denial_of, denial_text, protects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.decisions._base import Decider

DECIDERS = {
    "net.bind": "net_endpoint",
    "net.connect": "net_endpoint",
    "net.resolve": "net_resolve",
    "net.send": "net_endpoint",
    "proc.exec": "proc_exec",
    "proc.signal": "proc_signal",
}
"""Operation name to the module whose `DECIDER` decides it; file operations are decided by the guard and pass when they
are asked (docs/spec/channel.md).
"""


def decider(op: str) -> Decider:
    """Who decides an operation of the table. Raises `KeyError` for another."""
    found: Decider = __import__(f"{__name__}.{DECIDERS[op]}", fromlist=["DECIDER"]).DECIDER
    return found


__all__ = ["DECIDERS", "Desk", "Verdict", "astray", "decider", "denial_of", "denial_text", "protects"]
