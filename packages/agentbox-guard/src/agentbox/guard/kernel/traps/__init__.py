"""The table of traps: which system calls the supervisor answers, and who answers each. A new family is one file and
one row.
"""

from __future__ import annotations

from agentbox.guard.kernel.traps import changes, execs, metadata, opens, peers, refusals, sends, signals, sockets
from agentbox.guard.kernel.traps._base import Box, merge

TRAPS = merge(
    opens.CALLS,
    changes.CALLS,
    metadata.CALLS,
    execs.CALLS,
    sockets.CALLS,
    sends.CALLS,
    signals.CALLS,
    peers.CALLS,
    refusals.CALLS,
)
"""System call name to handler; every call that a row of the filter hands over is here."""

__all__ = ["TRAPS", "Box"]
