"""The recorded steps of a trace, grouped by lane and by key, and which of them have been consumed.

It holds numbers only (where a step's line is, its lane, its key), never arguments, results or bodies.
"""

from __future__ import annotations

from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_NONE = -1


class Cursor:
    """The steps in the order in which they were recorded; a step is named by its index, 0 first.

    Every index is consumed at most once. A step costs five machine words, and a new key one entry of a table.
    """

    __slots__ = (
        "_consumed",
        "_first",
        "_key",
        "_lane",
        "_lane_at",
        "_lane_steps",
        "_last",
        "_next",
        "_offset",
        "_places",
        "consumed",
        "keys",
        "lanes",
    )

    def __init__(self) -> None:
        self.lanes: list[str] = []
        """Lane labels, in the order in which they are first heard of."""
        self.keys: dict[bytes, int] = {}
        """Key to key number."""
        self.consumed = 0
        self._offset = array("q")
        self._lane = array("l")
        self._key = array("l")
        self._next = array("q")  # the next step with the same key
        self._consumed = bytearray()
        self._lane_steps: list[array[int]] = []
        self._lane_at: list[int] = []  # per lane, how many leading steps are consumed
        self._first = array("q")  # per key, the earliest step that may be unconsumed
        self._last = array("q")  # per key, the latest step
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._offset)

    def add(self, lane: str, key: bytes, offset: int) -> None:
        """Append the next recorded step: its lane's label, its key, and where in the file its line begins."""
        step = len(self._offset)
        place = self._places.setdefault(lane, len(self.lanes))
        if place == len(self.lanes):
            self.lanes.append(lane)
            self._lane_steps.append(array("q"))
            self._lane_at.append(0)
        number = self.keys.setdefault(key, len(self.keys))
        if number == len(self._first):
            self._first.append(step)
            self._last.append(step)
        else:
            self._next[self._last[number]] = step
            self._last[number] = step
        self._offset.append(offset)
        self._lane.append(place)
        self._key.append(number)
        self._next.append(_NONE)
        self._consumed.append(0)
        self._lane_steps[place].append(step)

    def consume(self, step: int) -> None:
        """Mark a step as done. Raises `ValueError` if it is already: nothing is ever served twice."""
        if self._consumed[step]:
            raise ValueError(f"step {step + 1} is consumed already")
        self._consumed[step] = 1
        self.consumed += 1
        number = self._key[step]
        while self._first[number] != _NONE and self._consumed[self._first[number]]:
            self._first[number] = self._next[self._first[number]]
        place = self._lane[step]
        steps, at = self._lane_steps[place], self._lane_at[place]
        while at < len(steps) and self._consumed[steps[at]]:
            at += 1
        self._lane_at[place] = at

    def is_consumed(self, step: int) -> bool:
        """True if the step has been done."""
        return bool(self._consumed[step])

    def head(self, lane: str) -> int | None:
        """The earliest unconsumed step of a recorded lane; None if there is none or no such lane."""
        place = self._places.get(lane)
        if place is None or self._lane_at[place] == len(self._lane_steps[place]):
            return None
        return self._lane_steps[place][self._lane_at[place]]

    def is_head(self, step: int) -> bool:
        """True if the step is the earliest unconsumed one of its own lane."""
        return self.head(self.lane(step)) == step

    def has_key(self, step: int, key: bytes) -> bool:
        """True if the step's key is `key`."""
        return self.keys.get(key) == self._key[step]

    def lane(self, step: int) -> str:
        """The label of the step's lane."""
        return self.lanes[self._lane[step]]

    def offset(self, step: int) -> int:
        """Where in the trace the step's line begins, in bytes."""
        return self._offset[step]

    def with_key(self, key: bytes) -> Iterator[int]:
        """The unconsumed steps with this key, earliest first."""
        number = self.keys.get(key)
        step = _NONE if number is None else self._first[number]
        while step != _NONE:
            following = self._next[step]
            if not self._consumed[step]:
                yield step
            step = following

    def count(self, key: bytes) -> int:
        """How many steps were recorded with this key."""
        number = self.keys.get(key)
        return 0 if number is None else sum(1 for found in self._key if found == number)

    def unconsumed(self) -> Iterator[int]:
        """Every step that has not been done, in recorded order."""
        return (step for step, done in enumerate(self._consumed) if not done)
