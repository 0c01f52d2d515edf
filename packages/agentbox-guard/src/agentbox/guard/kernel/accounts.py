"""What guards have told of acts whose outcome only the kernel's layers know: the entry waits for the kernel's notice.

It holds thread and place of an act, and decides and records nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.guard.session import Event

    Key = tuple[object, ...]

MOST_ACCOUNTS = 512
"""Accounts of one process that wait: nothing may follow them, for a call that failed before anybody decided on it."""


class Accounts:
    """By process and by a key, which is the same for the account and the notice of an act."""

    __slots__ = ("_waiting", "unshown")

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[Key, Event]]] = {}
        self.unshown: Callable[[Event], None] = lambda event: None
        """Told each account that nothing followed, when it is dropped."""

    def add(self, key: Key, event: Event) -> None:
        """A guard is about to do this."""
        waiting = self._waiting.setdefault(event.pid, [])
        waiting.append((key, event))
        if len(waiting) > MOST_ACCOUNTS:
            self.unshown(waiting.pop(0)[1])

    def take(self, pid: int, key: Key) -> Event | None:
        """The latest account of this act, if there is one; it is then used up."""
        waiting = self._waiting.get(pid, ())
        for place in range(len(waiting) - 1, -1, -1):
            if waiting[place][0] == key:
                return self._waiting[pid].pop(place)[1]
        return None

    def forget(self, pid: int) -> None:
        """The process is gone."""
        for _, event in self._waiting.pop(pid, ()):
            self.unshown(event)

    def finish(self) -> None:
        """The run is over: nothing will follow any more."""
        for pid in list(self._waiting):
            self.forget(pid)
