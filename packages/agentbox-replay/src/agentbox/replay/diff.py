"""Two traces compared step by step: what one did and the other did not, did otherwise, or did at another place.

It runs nothing and writes nothing; results count here too, unlike in a replay, which never asks for them.
"""

from __future__ import annotations

from bisect import bisect_left

from agentbox.replay.describe import StepView, describe, readable, target
from agentbox.replay.describe import diff as diff_values
from agentbox.replay.identity import identity, key_of, stable
from agentbox.replay.match import MAIN, Matcher
from agentbox.replay.recording import Recording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from agentbox.trace import Entry

KINDS = {
    "header": "the runs were started differently",
    "removed": "only the first run did it",
    "added": "only the second run did it",
    "changed": "both did it, with other arguments",
    "result": "both did it, with another result",
    "order": "both did it, at another place in the order",
    "status": "the runs ended differently",
}
"""Kind of a difference to what it means."""


class Difference:
    """One difference: `kind` (a key of `KINDS`), the step in either trace (None: there is none), `lines` to show."""

    __slots__ = ("first", "kind", "lines", "second")

    def __init__(
        self, kind: str, first: StepView | None = None, second: StepView | None = None, lines: list[str] | None = None
    ) -> None:
        self.kind = kind
        self.first = first
        self.second = second
        self.lines = lines or []

    def __str__(self) -> str:
        shown = self.first or self.second
        place = "" if shown is None else f" step {shown.number}: {describe(shown)}"
        return f"{self.kind}{place}"

    def as_json(self) -> dict[str, Any]:
        """The difference as a JSON object."""
        sides = {"first": self.first, "second": self.second}
        return {"kind": self.kind, "lines": self.lines} | {
            name: None if view is None else view.as_json() for name, view in sides.items()
        }


def diff(a: str, b: str, *, allow_unsealed: bool = False) -> list[Difference]:
    """The differences between the traces at paths `a` and `b`, in the order of `a`; none means the same behaviour.

    Steps are matched as a replay of `b` against `a` would, but without ending at the first difference. Raises
    `TraceMissing` and `TraceInvalid`.
    """
    first = Recording.open(a, allow_unsealed=allow_unsealed)
    try:
        cwd = first.header.get("cwd")
        second = Recording.open(b, allow_unsealed=allow_unsealed, cwd=cwd if isinstance(cwd, str) else None)
        try:
            return list(_differences(first, second))
        finally:
            second.close()
    finally:
        first.close()


def _differences(first: Recording, second: Recording) -> Iterator[Difference]:
    for name in ("argv", "cwd", "policy"):
        if lines := diff_values({name: first.header.get(name)}, {name: second.header.get(name)}):
            yield Difference("header", lines=lines)
    pairs, added = _pair(first, second)
    removed = list(first.cursor.unconsumed())
    changed = _changed(first, second, removed, added)
    found = [Difference("changed", one, two, diff_values(one.args, two.args)) for one, two in changed]
    one_numbers, two_numbers = {one.number for one, _ in changed}, {two.number for _, two in changed}
    found += [Difference("removed", first.view(step)) for step in removed if step + 1 not in one_numbers]
    found += [Difference("added", None, second.view(step)) for step in added if step + 1 not in two_numbers]
    found += _results(first, second, pairs)
    found += _moved(first, second, pairs)
    yield from sorted(found, key=_place)
    if first.status != second.status:
        yield Difference("status", lines=diff_values({"status": first.status}, {"status": second.status}))


def _pair(first: Recording, second: Recording) -> tuple[list[tuple[int, int]], list[int]]:
    """Equal steps of both traces (first, second), and the steps of the second that have no equal in the first."""
    matcher = Matcher(first.cursor, ordered=False)
    pairs, added = [], []
    for step in range(len(second)):
        entry = second.entry(step)
        key = key_of(entry.kind, entry.op, identity(entry.kind, entry.op, entry.args))
        found = matcher.take(entry.lane, key)
        if found is None:
            added.append(step)
        else:
            pairs.append((found, step))
    return pairs, added


def _changed(
    first: Recording, second: Recording, removed: list[int], added: list[int]
) -> list[tuple[StepView, StepView]]:
    """Steps that only one trace has, paired where both are about the same thing."""
    waiting: dict[tuple[str, str, str], list[StepView]] = {}
    for step in removed:
        view = first.view(step)
        waiting.setdefault(_about(view), []).append(view)
    changed = []
    for step in added:
        view = second.view(step)
        if same := waiting.get(_about(view)):
            changed.append((same.pop(0), view))
    return changed


def _results(first: Recording, second: Recording, pairs: list[tuple[int, int]]) -> Iterator[Difference]:
    for one, two in pairs:
        results = [stable(_outcome(recording.entry(step))) for recording, step in ((first, one), (second, two))]
        if results[0] != results[1]:
            shown = [readable(_shown_outcome(recording, step)) for recording, step in ((first, one), (second, two))]
            yield Difference("result", first.view(one), second.view(two), diff_values(*shown))


def _outcome(entry: Entry) -> object:
    """What came of a step: an effect's result, or what the agent read."""
    if entry.kind == "effect":
        return entry.result
    return {name: entry.args.get(name) for name in ("sha256", "absent")} if entry.op == "fs.read" else None


def _shown_outcome(recording: Recording, step: int) -> object:
    entry = recording.entry(step)
    return recording.result(step) if entry.kind == "effect" else _outcome(entry)


def _moved(first: Recording, second: Recording, pairs: list[tuple[int, int]]) -> Iterator[Difference]:
    """Steps of the main thread that both have, outside of the longest run of steps in the same order."""
    main = [(one, two) for one, two in sorted(pairs) if first.cursor.lane(one) == second.cursor.lane(two) == MAIN]
    kept = _longest_rise([two for _, two in main])
    for place, (one, two) in enumerate(main):
        if place not in kept:
            yield Difference("order", first.view(one), second.view(two))


def _longest_rise(numbers: list[int]) -> set[int]:
    """The places of a longest increasing subsequence of distinct numbers (patience sorting)."""
    tops: list[int] = []
    places: list[int] = []
    before: list[int] = []
    for place, number in enumerate(numbers):
        pile = bisect_left(tops, number)
        before.append(places[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(number)
            places.append(place)
        else:
            tops[pile] = number
            places[pile] = place
    kept = set()
    place = places[-1] if places else -1
    while place >= 0:
        kept.add(place)
        place = before[place]
    return kept


def _about(view: StepView) -> tuple[str, str, str]:
    return view.kind, view.op, target(view.op, view.args)


def _place(found: Difference) -> int:
    view = found.first or found.second
    return view.number if view is not None else 0
