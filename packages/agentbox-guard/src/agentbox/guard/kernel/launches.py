"""Programs that the supervisor has started for SDK calls, and the run's own starter of them: what is theirs alone.

A number means a process only together with its start, since numbers are given out again; a listener means the one
filter that was handed over with it.
"""

from __future__ import annotations

from agentbox.guard.family import parent_and_group
from agentbox.guard.procfs import started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_KNOWN = 1024


class Launches:
    """`starter` gives the starter's process, 0 when there is none any more."""

    __slots__ = ("_begun", "_waiting", "starter")

    def __init__(self) -> None:
        self.starter: Callable[[], int] = lambda: 0
        self._waiting: dict[int, tuple[int, int]] = {}
        self._begun: dict[int, int] = {}

    def add(self, listener: int, pid: int) -> None:
        """The process has handed over its listener, and is about to execute what the supervisor has decided on."""
        self._waiting[listener] = pid, started(pid)

    def take(self, listener: int, pid: int) -> bool:
        """Whether this exec, of which `listener` told, is the one that was decided on; it is one only once."""
        if listener not in self._waiting or self._waiting[listener] != (pid, started(pid)):
            return False
        del self._waiting[listener]
        if len(self._begun) >= _MOST_KNOWN:
            self._begun = {known: start for known, start in self._begun.items() if started(known) == start}
        self._begun[pid] = started(pid)
        return True

    def holds(self, pid: int) -> bool:
        """Whether a process is the starter, one that follows a program for it, or a program that has not begun.

        They have the agent's user and namespaces and not yet its layers: none of them is the run's to signal.
        """
        starter = self.starter()
        if not starter:
            return False
        parent = parent_and_group(pid)[0]
        if starter in (pid, parent):
            return True
        return parent_and_group(parent)[0] == starter and self._begun.get(pid, 0) != started(pid)
