"""The supervisor's own descriptors: all that it may have are for the run but a few, which are kept for what must be
done when the others are used up, recording a refusal and ending the run.

The soft limit keeps them (getrlimit(2)): a descriptor that was held open and given up for a moment could be taken by
any thread that works for the run.
"""

from __future__ import annotations

import resource

_KEPT = 16
_KEPT_FOR_END = 8


def keep() -> None:
    """Leave all but the kept ones to whoever wants one. The agent, already started, has a limit of its own."""
    _leave(_KEPT)


def release() -> None:
    """Leave all of them: the run is to end."""
    _leave(0)


class Spare:
    """Some more for as long as a refusal is recorded: `with spare:`."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = -1

    def __enter__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        _leave(_KEPT_FOR_END, self._before)

    def __exit__(self, *_: object) -> None:
        _set(self._before)


def _leave(kept: int, least: int = 0) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY:
        _set(max(hard - kept, least))


def _set(soft: int) -> None:
    now, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != now:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        except (OSError, ValueError):
            pass
