"""Why a live call is not a recorded step: the cause, the nearest recorded steps and the number of the step.

It reads the recording and changes nothing; it is only used once the replay has failed, so it may take its time.
"""

from __future__ import annotations

from agentbox.guard.kernel.netns import is_local
from agentbox.replay.describe import StepView, describe, diff, nearest, target
from agentbox.replay.report import CAUSES, Divergence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.replay.recording import Recording

_CANDIDATES = 300
"""How many unconsumed steps are looked at for the nearest: those closest to where the replay stands."""
_SHOWN = 2

_ELSEWHERE = frozenset(("no-such-step", "differs", "file-changed", "stopped-early", "content", "exit-status"))
"""Causes that another working directory may be behind: what is in it differs from what is in the recorded one."""

_FOLLOWS = frozenset(("no-such-step", "differs", "order", "consumed"))
"""Causes that a call which was refused before may be behind: the agent goes another way from there."""

_OWN_NETWORK = "the recorded run had a loopback of its own, where it may listen and be reached without a rule"

Denials = dict[tuple[str, str], str]
"""(op, target) of what the policy refused in this run, to the reason."""


def mismatch(
    recording: Recording, live: StepView, key: bytes, expected: int | None, denials: Denials, news: StepView | None
) -> Divergence:
    """The divergence for a call that no unconsumed step matches. `expected` is what its lane should have done next,
    `news` a call that the policy refused before, and that was not recorded.
    """
    cursor = recording.cursor
    awaited = None if expected is None else recording.view(expected)
    cause, detail, near = "no-such-step", "", []
    later = next(cursor.with_key(key), None)
    if awaited is not None and (refused := _denied(recording, awaited, denials)):
        cause, detail = refused
    elif later is not None:
        before = "other steps of its lane" if awaited is None else describe(awaited)
        cause, detail = "order", f"it was recorded as step {later + 1}, after {before}"
    elif count := cursor.count(key):
        cause, detail = "consumed", f"it was recorded {_times(count)}, and this is call {count + 1} of it"
    elif (live.op, target(live.op, live.args)) in recording.refused:
        cause = "allowed"
    else:
        near = _nearest(recording, live, expected)
        if near and _same_target(near[0], live):
            cause = "differs"
            if awaited is None or not _same_target(awaited, live):
                awaited = near[0]
    number = expected + 1 if expected is not None else near[0].number if cause == "differs" else len(recording) + 1
    shown = [(view, diff(view.args, live.args)) for view in near]
    if cause == "no-such-step" and (lost := _removed(recording)):
        detail = f"{CAUSES[cause]}; {lost}"
    if news is not None and cause in _FOLLOWS:
        detail = f"{detail or CAUSES[cause]}; before it came {describe(news)}, which was not recorded"
    return Divergence(
        cause,
        number,
        len(recording),
        detail=detail,
        recorded=awaited,
        now=live,
        nearest=shown,
        at=live.site,
        first=_elsewhere(recording, cause),
    )


def observed(recording: Recording, live: StepView, reason: str, expected: int | None) -> Divergence:
    """The divergence for a call that is denied now and was let pass when recorded, under `--observe`."""
    number = len(recording) + 1 if expected is None else expected + 1
    recorded = StepView("let-pass", live.op, live.args)
    detail = f"recorded under --observe, where nothing was denied; the policy denies it now: {reason}"
    return Divergence("observed", number, len(recording), detail=detail, recorded=recorded, now=live, at=live.site)


def live_access(
    recording: Recording, live: StepView, expected: int | None, *, own_loopback: bool = False
) -> Divergence:
    """The divergence for a direct network access or start of a program, recorded or not. `own_loopback`: the recorded
    run had one, without a rule.
    """
    cause = "live-spawn" if live.op == "proc.exec" else "live-network"
    if own_loopback and "address" in live.args and is_local(str(live.args["address"]), ()):
        return _at(recording, "own-network", expected, live, _OWN_NETWORK)
    return _at(recording, cause, expected, live)


def changed_file(recording: Recording, recorded: StepView, step: int, live: StepView) -> Divergence:
    """The divergence for a direct read of a file whose content is another one than `recorded`, at `step`."""
    path = str(live.args["path"])
    detail = f"the file changed: recorded {content(recorded.args)}, now {content(live.args)}"
    if recording.last_write.get(path, -1) > step:
        done = "removed" if recording.states.get(path) == "absent" else "changed"
        detail += f"\nthe recorded run itself {done} it later: {_way_back(recording)}"
    return Divergence(
        "file-changed",
        step + 1,
        len(recording),
        detail=detail,
        recorded=recorded,
        now=live,
        at=live.site,
        first=_elsewhere(recording, "file-changed"),
    )


def leftover(recording: Recording, denials: Denials, news: StepView | None) -> Divergence | None:
    """The divergence for recorded steps that never happened; None if all did. `news` as in `mismatch`."""
    step = next(recording.cursor.unconsumed(), None)
    if step is None:
        return None
    view = recording.view(step)
    missing = len(recording) - recording.cursor.consumed
    cause = "stopped-early"
    detail = f"the agent stopped early at step {step + 1} of {len(recording)}, with {missing} not done"
    if refused := _denied(recording, view, denials):
        cause, detail, news = *refused, None
    elif news is not None:
        detail += "; a call was refused that was not recorded"
    elif lost := _removed(recording):
        detail += f"\n{lost}"
    first = _elsewhere(recording, cause)
    at = "" if news is None else news.site
    return Divergence(cause, step + 1, len(recording), detail=detail, recorded=view, now=news, at=at, first=first)


def wrong_content(recording: Recording, path: str, now: str) -> Divergence:
    """The divergence for a file whose final content in the scratch copy (a hash or a word) is not the recorded one."""
    step = recording.last_write.get(path)
    detail = f"the content differs at the end: {path}: recorded {_hash(recording.states[path])}, now {_hash(now)}"
    recorded = None if step is None else recording.view(step)
    return Divergence(
        "content",
        len(recording) + 1 if step is None else step + 1,
        len(recording),
        detail=detail,
        recorded=recorded,
        first=_elsewhere(recording, "content"),
    )


def wrong_status(recording: Recording, status: int) -> Divergence:
    """The divergence for an exit status that is not the recorded one."""
    detail = f"every step is the same, but the exit status was {recording.status} when recorded and is {status} now"
    if lost := _removed(recording):
        detail += f"\n{lost}"
    first = _elsewhere(recording, "exit-status")
    return Divergence("exit-status", len(recording) + 1, len(recording), detail=detail, first=first)


def content(args: dict[str, object]) -> str:
    """What a read file was, from the args of `fs.read`."""
    return _hash(str(args["sha256"])) if "sha256" in args else "absent" if args.get("absent") else "unknown"


def _at(recording: Recording, cause: str, expected: int | None, live: StepView, detail: str = "") -> Divergence:
    recorded = None if expected is None else recording.view(expected)
    number = len(recording) + 1 if expected is None else expected + 1
    return Divergence(cause, number, len(recording), detail=detail, recorded=recorded, now=live, at=live.site)


def _denied(recording: Recording, view: StepView, denials: Denials) -> tuple[str, str] | None:
    """Cause and detail if the policy refused a recorded step in this run; None if it did not."""
    refused = denials.get((view.op, target(view.op, view.args)))
    led = view.args.get("addresses")  # of a name that was looked up
    addresses = led if isinstance(led, list) else [view.args.get("address", "")]
    if recording.has_own_network() and any(is_local(str(address), ()) for address in addresses):
        # Its port is another one in each run.
        others = (name.rpartition(":")[0].strip("[]") for op, name in denials if op == view.op)
        if refused or any(is_local(host, ()) for host in others):
            return "own-network", _OWN_NETWORK
    return None if refused is None else ("denied", f"the policy denies the recorded step now: {refused}")


def _removed(recording: Recording) -> str:
    """What the recorded run took away and the agent may miss now; "" if nothing."""
    paths = recording.prestate.removed()
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"the recorded run itself removed {paths[0]}{more}: {_way_back(recording)}" if paths else ""


def _way_back(recording: Recording) -> str:
    if recording.checkpoint and recording.moved is None:
        return f"`snapback undo {recording.checkpoint}` puts it back as it was before that run"
    return "put it back as it was before that run"


def _elsewhere(recording: Recording, cause: str) -> str:
    if recording.moved is None or cause not in _ELSEWHERE:
        return ""
    return f"replay in the recorded working directory, {recording.moved.old}"


def _nearest(recording: Recording, live: StepView, expected: int | None) -> list[StepView]:
    steps = list(recording.cursor.unconsumed())
    middle = expected or 0
    steps.sort(key=lambda step: abs(step - middle))
    return nearest(live, (recording.view(step) for step in steps[:_CANDIDATES]), _SHOWN)


def _same_target(one: StepView, other: StepView) -> bool:
    return (one.kind, one.op) == (other.kind, other.op) and target(one.op, one.args) == target(other.op, other.args)


def _hash(state: str) -> str:
    return f"sha256 {state}" if len(state) == 64 else state


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
