"""When the supervisor itself has no descriptor left: what could not be decided for want of one is refused and recorded,
like any other refusal.

Recording needs descriptors, too: some are kept for that (`guard.descriptors`). Where not even they help the error goes
on, and ends the run.
"""

from __future__ import annotations

import errno

_NUMBERS = (errno.EMFILE, errno.ENFILE)
"""None left to this process, none left to the machine (open(2)). A program that has none left itself is told so by
`Listener.give`, which raises nothing.
"""
REASON = "the supervisor has no descriptor left to decide it with"


def met(outcome: object) -> int:
    """The number of an outcome that is the error of having none left; 0 for another."""
    return outcome.errno or 0 if isinstance(outcome, OSError) and outcome.errno in _NUMBERS else 0
