"""The matching rules: which recorded step a live call is, given its lane and its key.

It never looks at results and never decides what a mismatch means: that is the report's part.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.replay.cursor import Cursor

MAIN = "0.0"
"""The main thread of the first process: the one lane whose order no scheduler decides."""

_LOOK = 256
"""How many equal steps are tried as another lane's head before the earliest is taken: bounds the cost of a call."""


class Matcher:
    """Consumes recorded steps for live calls. Live lanes are bound to recorded ones when they first speak.

    A live call is, in this order (docs/how-to/replay.md, "What counts as the same"):

    1. the next step of the recorded lane that its own lane is bound to;
    2. the next step of another recorded lane: lanes are numbered by who came first, so labels may swap;
    3. the earliest unconsumed step with its key, unless both sides are ordered: pools and loops deal out work freely.
    """

    __slots__ = ("_bound", "_cursor", "_ordered", "_taken")

    def __init__(self, cursor: Cursor, *, ordered: bool = True) -> None:
        """`ordered` false lets the main thread's steps match in any order too, for a comparison that goes on."""
        self._cursor = cursor
        self._bound = {MAIN: MAIN}
        self._taken = {MAIN}
        # Direct actions of asyncio tasks carry their thread's lane: where tasks ran, that lane's order is the loop's.
        with_tasks = {label.rpartition(".")[0] for label in cursor.lanes if label.count(".") == 2}
        mains = {label for label in cursor.lanes if label.endswith(".0") and label.count(".") == 1}
        self._ordered = mains - with_tasks if ordered else set()

    def take(self, lane: str, key: bytes) -> int | None:
        """Consume the step that a call from live `lane` with `key` is; None if it is none."""
        step = self._find(lane, key)
        if step is not None:
            self._cursor.consume(step)
        return step

    def expected(self, lane: str) -> int | None:
        """The step that live `lane` should have done next: the head of its recorded lane, or of its namesake's."""
        return self._cursor.head(self._bound.get(lane, lane))

    def _find(self, lane: str, key: bytes) -> int | None:
        cursor = self._cursor
        own = self._bound.get(lane)
        if own is None and lane not in self._taken:
            own = lane  # not bound yet: its namesake is the first guess
        head = None if own is None else cursor.head(own)
        if own is not None and head is not None and cursor.has_key(head, key):
            self._bind(lane, own)
            return head
        earliest = None
        for looked, step in enumerate(cursor.with_key(key)):
            if earliest is not None and looked >= _LOOK:
                break
            if cursor.is_head(step):
                other = cursor.lane(step)
                if lane not in self._bound and other not in self._taken:
                    self._bind(lane, other)
                return step
            if earliest is None and not (lane == MAIN and cursor.lane(step) in self._ordered):
                earliest = step
        return earliest

    def _bind(self, lane: str, recorded: str) -> None:
        self._bound[lane] = recorded
        self._taken.add(recorded)
