"""The divergence report: which step differs, what was recorded, what happens now, why, where, and what to do.

It words what it is given and never decides that something diverged; every text in it may be hostile and is escaped.
"""

from __future__ import annotations

from agentbox.replay.describe import describe, escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from agentbox.replay.describe import StepView

CAUSES = {
    "no-such-step": "nothing like it was recorded",
    "consumed": "it was recorded fewer times than it is asked for",
    "differs": "the call differs from the recorded one",
    "order": "it was recorded at another place in the order",
    "file-changed": "the file is not the one that was read when the trace was recorded",
    "denied": "the policy denies it now",
    "allowed": "it was denied when the trace was recorded, and the policy allows it now",
    "observed": "it was recorded under --observe, where nothing was denied, and the policy denies it now",
    "stopped-early": "the agent ended before it had done every recorded step",
    "live-network": "replay never goes live, and this is a direct network access",
    "live-spawn": "replay never goes live, and this starts a program",
    "own-network": "replay has no network, not even the run's own, in which this was done",
    "content": "what the agent wrote is not what it wrote when the trace was recorded",
    "exit-status": "every step is the same, but the agent's exit status is not",
}
"""Code of a cause to its general text; a divergence's `detail` says it with the facts of the case."""

_FIXES = {
    "no-such-step": "if the agent was changed on purpose, record it again with: agentbox run -- COMMAND",
    "consumed": "look for a loop or a retry that now runs more often, or record again",
    "differs": "make what goes into the call the same in every run (box.now() and box.random() are), or record again",
    "order": "keep the order of calls fixed in the main thread, or record again",
    "file-changed": "put the recorded file back, or record again",
    "denied": "replay under the policy that the trace was recorded with, or add the rule",
    "allowed": "replay under the policy that the trace was recorded with, or record again",
    "observed": "add the rule to the policy, then record again without --observe",
    "stopped-early": "look for the condition or the error that now ends the agent, or record again",
    "live-network": "use the SDK in the agent: box.get() and box.request() are recorded, and served in replay",
    "live-spawn": "use the SDK in the agent: box.run() is recorded, and served in replay",
    "own-network": "leave servers of the agent's own out of what is replayed, or talk to them without a network",
    "content": "make what is written the same in every run (time, random numbers, order of sets), or record again",
    "exit-status": "look at how the agent computes its status, or record again",
}

_LONGEST = 300  # characters of a step in one line: a command or a URL can be a megabyte


class Divergence:
    """The first difference of a replay.

    `step` is the number of the recorded step concerned, from 1, or `total` + 1 after the last; `cause` is a key of
    `CAUSES`; `recorded` and `now` are the two sides (None: there is none); `nearest` are unconsumed recorded steps that
    come closest, each with a diff; `at` is the agent's `file:line`; `first` is what to try before the cause's own fix.
    """

    __slots__ = ("at", "cause", "detail", "first", "nearest", "now", "recorded", "step", "total")

    def __init__(
        self,
        cause: str,
        step: int,
        total: int,
        *,
        detail: str = "",
        recorded: StepView | None = None,
        now: StepView | None = None,
        nearest: Sequence[tuple[StepView, list[str]]] = (),
        at: str = "",
        first: str = "",
    ) -> None:
        self.cause = cause
        self.step = step
        self.total = total
        self.detail = detail or CAUSES[cause]
        self.recorded = recorded
        self.now = now
        self.nearest = list(nearest)
        self.at = at
        self.first = first

    @property
    def fix(self) -> str:
        """What to try."""
        return f"{self.first}; or {_FIXES[self.cause]}" if self.first else _FIXES[self.cause]


def headline(found: Divergence) -> str:
    """The first line of the report, without the `agentbox:` prefix."""
    if found.step > found.total:
        return f"replay diverged after step {found.total} of {found.total}"
    return f"replay diverged at step {found.step} of {found.total}"


def lines(found: Divergence) -> list[str]:
    """The whole report, line by line, without the `agentbox:` prefix."""
    lines = [headline(found)]
    lines += _field("recorded", _side(found.recorded))
    lines += _field("now", _side(found.now))
    lines += _field("cause", found.detail)
    for view, diff in found.nearest:
        lines += _field("nearest", f"step {view.number}: {_short(describe(view))}")
        lines += [" " * 12 + escape(line) for line in diff]
    if found.at:
        lines += _field("at", found.at)
    lines += _field("fix", found.fix)
    return lines


def as_json(found: Divergence) -> dict[str, Any]:
    """The report as a JSON object; `recorded` and `now` are null where there is no such side."""
    return {
        "result": "diverged",
        "step": found.step,
        "steps": found.total,
        "cause": found.cause,
        "detail": found.detail,
        "recorded": found.recorded.as_json() if found.recorded else None,
        "now": found.now.as_json() if found.now else None,
        "nearest": [{**view.as_json(), "diff": diff} for view, diff in found.nearest],
        "at": found.at or None,
        "fix": found.fix,
    }


def _side(view: StepView | None) -> str:
    if view is None:
        return "nothing more"
    place = f", {view.site}" if view.number and view.site else ""
    return _short(describe(view)) + place


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _field(name: str, value: str) -> list[str]:
    first, *rest = value.split("\n")
    return [f"  {name + ':':<10}{escape(first)}"] + [" " * 12 + escape(line) for line in rest]
