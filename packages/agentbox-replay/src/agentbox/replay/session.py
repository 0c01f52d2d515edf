"""The session that replays: every live step is matched with a recorded one, and effects are served from the trace.

It never performs anything, never writes to the trace or to the real tree, and ends the run at the first difference.
"""

from __future__ import annotations

import signal

from agentbox.guard.effects.fs_write import put
from agentbox.guard.session import EndRun
from agentbox.guard.states import NOT_HASHED
from agentbox.replay import explain
from agentbox.replay.describe import StepView, describe, escape, target
from agentbox.replay.errors import ReplayError
from agentbox.replay.identity import SKIPPED_EFFECTS, identity, is_listening, is_private, is_step, key_of, redacted
from agentbox.replay.match import Matcher
from agentbox.trace import Redactor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Never, Protocol

    from agentbox.guard.session import Denial, EffectFacts, Ended, Event
    from agentbox.replay.recording import Recording
    from agentbox.replay.report import Divergence
    from agentbox.replay.scratch import Scratch

    class Outcome(Protocol):
        """Where the result of a replay goes; one of the last three is called, once."""

        def warn(self, text: str) -> None:
            """Something that may explain a later divergence."""

        def diverged(self, found: Divergence) -> str:
            """The replay differs; returns the report for `EndRun`, empty when it has been shown already."""

        def interrupted(self, done: int, total: int) -> None:
            """The user ended it."""

        def same(self, total: int, denials: int, recorded_denials: int, status: int, *, guarded: bool) -> None:
            """Every step matched; not `guarded`: nobody told of steps."""


DIVERGED = 3
_UNGUARDED = "native"
"""The runtime of programs without a guard, as a header names it."""
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _is_agents(event: Event) -> bool:
    """Whether a refused call was the agent's own: what native code does, and its loading, may differ in each run."""
    return event.src != "kernel" and event.op != "code.load"


class ReplaySession:
    """Implements `agentbox.guard.session.Session` over a recording.

    `scratch` is the copy of the tree, None where the machine cannot give one; `environ` is the user's environment,
    whose secrets are looked for in live arguments as they were in recorded ones. `own_loopback`: the recorded run could
    listen on a loopback of its own, and be reached there, without a rule. `may_change`: native code of a guarded agent
    may do to files what was not recorded, and what it reads where this is true may be anything.
    """

    mode = "replay"
    ask = "all"

    def __init__(
        self,
        recording: Recording,
        outcome: Outcome,
        *,
        scratch: Scratch | None = None,
        environ: Mapping[str, str] | None = None,
        own_loopback: bool = False,
        may_change: Callable[[str], bool] | None = None,
    ) -> None:
        self._recording = recording
        self._matcher = Matcher(recording.cursor)
        self._outcome = outcome
        self._scratch = scratch
        self._environ = environ or {}
        self._redactor = Redactor({})
        self._denials: explain.Denials = {}
        self._news: StepView | None = None
        """The first call that the policy refused in this run and not in the recorded one."""
        self._denied = 0
        self._guarded = True
        self._own_network = scratch is not None and not scratch.network
        self._own_loopback = own_loopback
        self._may_change = may_change
        self._sealed_off = False
        self._refused: set[str] = set()
        self._over = False

    def start(self, header: dict[str, Any]) -> None:
        """Say how this run differs from the recorded one before a single step: often why a step differs later."""
        self._redactor = Redactor(
            {name: self._environ[name] for name in header.get("env", ()) if name in self._environ}
        )
        recorded = self._recording.header
        moved = self._recording.moved
        argv = recorded.get("argv") if moved is None else moved.args(recorded).get("argv")
        if argv != header.get("argv"):
            self._outcome.warn(f"another command: recorded {recorded.get('argv')}, now {header.get('argv')}")
        if recorded.get("cwd") != header.get("cwd"):
            read = "" if moved is None else "; recorded paths below it are read as paths below the present one"
            self._outcome.warn(
                f"another working directory: recorded {recorded.get('cwd')}, now {header.get('cwd')}{read}"
            )
        if recorded.get("policy_sha256") != header.get("policy_sha256"):
            self._outcome.warn("another policy than the recorded one, so it may deny or allow something else")
        if recorded.get("mode") == "observe":
            count = self._recording.let_pass
            self._outcome.warn(
                f"the trace was recorded under --observe, which let {count} call{'' if count == 1 else 's'} pass that "
                "its policy denies; the first of them that is denied now ends the replay"
            )
        self._sealed_off = "netns" in (header.get("layers") or ())
        self._own_network = self._own_network or self._sealed_off
        self._guarded = header.get("runtime") != _UNGUARDED
        if not self._guarded:
            self._outcome.warn(
                f"no guard runs inside {escape(str(header['argv'][0]))}: each file that it reads or writes must be in "
                "the trace, and what it reads the same, but not all that was recorded has to happen again; "
                "programs and network are refused"
            )
        for what, count in self._recording.unservable.items():
            self._outcome.warn(f"the trace holds {count} direct {what}, which replay refuses: it never goes live")

    def process(self, event: Event) -> None:
        """A process started; its lane shows in its steps."""

    def deny(self, event: Event, denial: Denial) -> None:
        """A denial: counted, and kept to explain a recorded step that is missing because of it.

        Raises `EndRun` where the recorded call was let pass: the agent would go another way from here.
        """
        self._denied += 1
        if denial.enforced:
            if self._recording.refused.get((event.op, denial.target)) is False:
                expected = self._matcher.expected(event.lane)
                live = self._view("deny", event)
                self._end(explain.observed(self._recording, live, denial.reason, expected))
            if (
                event.op == "code.load"
                and self._recording.has_kernel_view()
                and (event.op, denial.target) not in self._denials
            ):
                # Where the kernel's layers hold native code as well, the guard has not refused it.
                self._outcome.warn(
                    f"{escape(denial.target)} is refused here, and was not when the trace was recorded, "
                    "under the kernel's layers: replay with --layers kernel"
                )
            if self._news is None and (event.op, denial.target) not in self._recording.refused and _is_agents(event):
                self._news = self._view("deny", event)
            self._denials[event.op, target(event.op, event.args)] = denial.reason
            self._denials[event.op, denial.target] = denial.reason  # the args of a refused SDK call are not resolved

    def observe(self, event: Event) -> None:
        """A direct action: it must be a recorded one, and a file that is read must be the same file."""
        if not is_step("observe", event.op, event.args) or self._is_natives_own(event):
            return
        self._refuse_live(event)
        if event.src == "kernel" and not self._recording.has_kernel_view():
            return  # the recorded run had nobody who would have told of it
        key = self._key("observe", event)
        if not self._is_due(event, key) and (self._is_known_otherwise(event, key) or self._is_free(event)):
            return
        step = self._matcher.take(event.lane, key)
        if step is None and self._is_known_otherwise(event, key):
            return
        if step is None:
            self._mismatch("observe", event, key)
        if event.op == "fs.read":
            recorded = self._recording.entry(step).args
            if explain.content(recorded) != explain.content(event.args):
                view = self._view("observe", event)
                self._end(explain.changed_file(self._recording, self._recording.view(step), step, view))

    def consult(self, event: Event) -> dict[str, Any] | None:
        """An action beyond files: what would go live ends the run before it happens.

        Native code of a guarded agent is refused it and goes on, as in an empty network without layers: what only they
        see is no step, and may have failed when it was recorded.
        """
        if self._is_natives_own(event):
            self._warn_refused(event)
            return {"allow": False}
        listening = is_listening(event.op, event.args) and not self._own_network
        if listening or is_step("observe", event.op, event.args):
            self._refuse_live(event)
        return None

    def begin(self, event: Event, effect: EffectFacts) -> dict[str, Any] | None:
        """Serve an SDK call from the recording."""
        if event.op.startswith(SKIPPED_EFFECTS):
            return {"id": ""}
        step = self._take("effect", event)
        try:
            result = self._recording.result(step)
            if event.op == "fs.write" and "error" not in result:
                self._write(event)
        except ReplayError as error:
            self._over = True
            raise EndRun(error.status, str(error)) from error
        return result

    def complete(self, event: Event, effect: EffectFacts, result: dict[str, Any]) -> None:
        """Nothing is ever performed, so nothing completes."""

    def flush(self) -> None:
        """Nothing is written, so nothing waits."""

    def finish(self, ended: Ended) -> int:
        """The agent is gone: everything recorded must have happened, and what it wrote must be the same."""
        recording = self._recording
        if self._over or ended.failure:
            return ended.status
        if ended.signal in _INTERRUPTS and ended.status != recording.status:
            self._outcome.interrupted(recording.cursor.consumed, len(recording))
            return ended.status
        try:
            found = (
                explain.leftover(recording, self._denials, self._news)
                or self._wrong_content()
                or self._wrong_status(ended)
            )
        except ReplayError as error:
            self._outcome.warn(str(error))
            return error.status
        if found is not None:
            self._outcome.diverged(found)
            return DIVERGED
        self._outcome.same(len(recording), self._denied, recording.denials, ended.status, guarded=self._guarded)
        return ended.status

    def _write(self, event: Event) -> None:
        """Put what the SDK would have written where the agent may read it itself: never into the real tree."""
        private = event.private
        if not private:
            return  # a supervisor that keeps the content to itself: the agent then sees what the recorded run left
        path, data = private["_path"], private["_data"]
        if is_private(event.args):
            self._write_private(path, data)
        elif self._scratch is not None and self._scratch.has_copy:
            self._scratch.write(path, data)

    def _write_private(self, path: str, data: bytes) -> None:
        """Into the run's own folder, which goes with it; over no link that the agent puts there meanwhile."""
        if not put(path, data):
            self._outcome.warn(f"{escape(path)} was not written: the path was changed between the check and the use")

    def _is_due(self, event: Event, key: bytes) -> bool:
        """Whether a step like it is still to come; for what the kernel alone tells of, whether it is the very next one.

        A library's act (SQLite lists a folder to sync it) must not use up the agent's own of the same kind.
        """
        cursor = self._recording.cursor
        if event.src == "kernel":
            expected = self._matcher.expected(event.lane)
            return expected is not None and cursor.has_key(expected, key)
        return next(cursor.with_key(key), None) is not None

    def _is_known_otherwise(self, event: Event, key: bytes) -> bool:
        """What is in the trace, and no step: let pass under `--observe` and allowed by now, or seen by the kernel only.

        A file that was so seen must be the same file all the same, unless native code may have written it.
        """
        if self._recording.refused.get((event.op, target(event.op, event.args))) is False:
            return True
        seen = self._recording.seen(key)
        if seen and event.op == "fs.read" and not self._is_free(event, may_change=True):
            now = explain.content(event.args)
            if all(explain.content(view.args) != now for view in seen):
                expected = self._matcher.expected(event.lane)
                step = len(self._recording) if expected is None else expected
                view = self._view("observe", event)
                self._end(explain.changed_file(self._recording, seen[0], step, view))
        return bool(seen)

    def _key(self, kind: str, event: Event) -> bytes:
        return key_of(kind, event.op, identity(kind, event.op, redacted(event.args, self._redactor)))

    def _take(self, kind: str, event: Event) -> int:
        key = self._key(kind, event)
        step = self._matcher.take(event.lane, key)
        if step is None:
            self._mismatch(kind, event, key)
        return step

    def _mismatch(self, kind: str, event: Event, key: bytes) -> Never:
        live = self._view(kind, event)
        expected = self._matcher.expected(event.lane)
        self._end(explain.mismatch(self._recording, live, key, expected, self._denials, self._news))

    def _refuse_live(self, event: Event) -> None:
        if event.op == "proc.exec" or event.op.startswith("net."):
            expected = self._matcher.expected(event.lane)
            live = self._view("observe", event)
            self._end(explain.live_access(self._recording, live, expected, own_loopback=self._own_loopback))

    def _is_free(self, event: Event, *, may_change: bool = False) -> bool:
        """Whether native code of a guarded agent does something to a file (with `may_change`: to one that it may have
        written) where the layers were not asked for: that counts as little as without them, since names and contents
        may be random.
        """
        if self._may_change is None or event.src != "kernel" or not self._guarded:
            return False
        return not may_change or self._may_change(str(event.args.get("path", "")))

    def _is_natives_own(self, event: Event) -> bool:
        """Whether native code of a guarded agent does something with the run's own network, which is empty: nothing
        goes live by that. A socket with a path leads out of it.
        """
        network = event.op.startswith("net.") and "path" not in event.args
        return network and event.src == "kernel" and self._guarded and self._sealed_off

    def _warn_refused(self, event: Event) -> None:
        what = describe(self._view("observe", event))
        if what not in self._refused:
            self._refused.add(what)
            self._outcome.warn(f"native code is refused {what}: replay never goes live")

    def _view(self, kind: str, event: Event) -> StepView:
        # What the report shows of a live call is redacted as the trace is.
        return StepView(kind, event.op, redacted(event.args, self._redactor), lane=event.lane, site=event.site)

    def _end(self, found: Divergence) -> Never:
        self._over = True
        raise EndRun(DIVERGED, self._outcome.diverged(found))

    def _wrong_content(self) -> Divergence | None:
        recording = self._recording
        if self._scratch is None or not self._scratch.has_copy or not recording.states:
            return None
        written = [path for path in recording.states if path in recording.last_write]
        for path, now in self._scratch.states(written).items():
            if now != recording.states[path] and not recording.states[path].startswith(NOT_HASHED):
                return explain.wrong_content(recording, path, now)
        return None

    def _wrong_status(self, ended: Ended) -> Divergence | None:
        if self._recording.status in (None, ended.status):
            return None
        return explain.wrong_status(self._recording, ended.status)
