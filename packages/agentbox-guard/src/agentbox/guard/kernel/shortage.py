"""When the supervisor itself has no descriptor left: what could not be decided for want of one is refused and recorded,
like any other refusal.

Recording needs a descriptor, too: one is kept for that. Where not even that helps the error goes on, and ends the run.
"""

from __future__ import annotations

import errno
import os

NUMBERS = (errno.EMFILE, errno.ENFILE)
"""None left to this process, none left to the machine (open(2)). A program that has none left itself is told so by
`Listener.give`, which raises nothing.
"""
REASON = "the supervisor has no descriptor left to decide it with"


class Spare:
    """A descriptor that is given up for as long as a refusal is recorded: `with spare:`."""

    __slots__ = ("_descriptor",)

    def __init__(self) -> None:
        self._descriptor = -1
        self._take()

    def __enter__(self) -> None:
        self.close()

    def __exit__(self, *_: object) -> None:
        try:
            self._take()
        except OSError:
            pass  # somebody else was quicker; it is tried again after the next refusal

    def close(self) -> None:
        """Give it up."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _take(self) -> None:
        self._descriptor = os.open("/", os.O_PATH | os.O_CLOEXEC)
