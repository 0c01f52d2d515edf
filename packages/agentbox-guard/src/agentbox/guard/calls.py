"""SDK calls: each is normalised, decided, performed in the agent's stead, recorded and answered.

It runs on the loop thread; slow effects go to threads and come back here. Loaded at a run's first call.
"""

from __future__ import annotations

import errno
import os

from agentbox.guard import channel, shortage
from agentbox.guard.context import EffectContext, EffectDenied, EffectUsage
from agentbox.guard.decisions import denial_text
from agentbox.guard.dispatch import public_form, shown
from agentbox.guard.effects import EFFECTS
from agentbox.guard.effects._base import os_error
from agentbox.guard.services import RunServices
from agentbox.guard.session import Denial, Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agentbox.guard.connections import Connection
    from agentbox.guard.decisions import Desk
    from agentbox.guard.effects._base import Effect
    from agentbox.guard.gate import Gate
    from agentbox.guard.jobs import Jobs
    from agentbox.guard.session import Session

_LONGEST, _MOST_WORDS = 4096, 64


class Calls:
    """The calls of one run; `answer` has a line sent to a connection."""

    __slots__ = ("_answer", "_desk", "_gate", "_jobs", "_observing", "_session")

    def __init__(
        self, session: Session, desk: Desk, jobs: Jobs, gate: Gate, answer: Callable[[Connection, bytes], None]
    ) -> None:
        self._session = session
        self._desk = desk
        self._jobs = jobs
        self._gate = gate
        self._answer = answer
        self._observing = session.mode == "observe"

    def call(self, connection: Connection, number: int, event: Event) -> None:
        """Handle one call, and answer it when it is done."""
        effect = EFFECTS.get(event.op)

        def answer(result: dict[str, Any]) -> None:
            self._answer(connection, channel.result(number, result))

        if effect is None:
            answer(_error("usage", f"{event.op[:60]}: no such call"))
            return
        context = EffectContext(
            self._desk.policy,
            RunServices(self._desk, connection.pid),
            cwd=working_directory(connection.pid, self._desk.cwd),
            environ=self._desk.environ,
            writable=self._desk.private,
            observing=self._observing,
            pid=connection.pid,
        )
        try:
            args = effect.normalise(event.args, context)
        except EffectUsage as error:
            answer(_error("usage", str(error)))
            return
        except EffectDenied as error:
            event.args = shown(_bounded(event.args), self._desk.private)
            self._session.deny(event, error.denial)
            answer(self._denied(event.op, error.denial))
            return
        except OSError as error:
            filename = error.filename if type(error.filename) is str else None
            answer(_error("os", error.strerror or str(error), errno=error.errno or errno.EIO, filename=filename))
            return
        event.args = args
        for denial in context.denials:
            self._session.deny(public_form(event), denial)
        context.denials.clear()
        if effect.mutates and not str(args.get("path", "")).startswith("$"):
            self._gate.before(
                event,
                lambda: self._perform(answer, event, effect, context),
                lambda text: answer(_error("checkpoint", text)),
            )
        else:
            self._perform(answer, event, effect, context)

    def _perform(
        self, answer: Callable[[dict[str, Any]], None], event: Event, effect: Effect, context: EffectContext
    ) -> None:
        args = event.args
        public = public_form(event)
        served = self._session.begin(public, effect)
        if served is not None:
            self._repeat_denials(public, served)
            answer(served)
            return

        def done(outcome: Any) -> None:
            result = self._outcome(event.op, outcome, context)
            self._repeat_denials(public, result)
            self._session.complete(public, effect, result)
            answer(result)

        def work() -> Any:
            return effect.perform(args, context)

        if effect.slow:
            self._jobs.run(work, done)
            return
        try:
            outcome: Any = work()
        except (EffectDenied, OSError) as error:
            outcome = error
        done(outcome)

    def _outcome(self, op: str, outcome: Any, context: EffectContext) -> dict[str, Any]:
        """The result of an effect. What was refused midway (a redirect) is in `denied`, so that a replay can tell of it
        as well.
        """
        denials = [*context.denials]
        if isinstance(outcome, EffectDenied):
            denials.append(outcome.denial)
            outcome = self._denied(op, outcome.denial)
        elif shortage.met(outcome):
            outcome = os_error(outcome)
        elif isinstance(outcome, Exception):
            raise outcome
        result: dict[str, Any] = dict(outcome)
        if denials:
            result["denied"] = [{name: getattr(denial, name) for name in Denial.__slots__} for denial in denials]
        return result

    def _denied(self, op: str, denial: Denial) -> dict[str, Any]:
        text = denial_text(op, denial, self._desk.policy.name)
        return _error("denied", text, errno=errno.EACCES, target=denial.target, rule=denial.rule, fix=denial.fix)

    def _repeat_denials(self, event: Event, result: dict[str, Any]) -> None:
        for facts in result.get("denied", ()):
            denial = Denial(facts["key"], facts["target"], facts["reason"], rule=facts["rule"], fix=facts["fix"])
            denial.enforced = facts["enforced"]
            self._session.deny(event, denial)


def working_directory(pid: int, default: str) -> str:
    """Where a process is now, as the kernel says; what it says itself is not asked."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return default


def _error(kind: str, text: str, **more: int | str | None) -> dict[str, Any]:
    return {"error": {"type": kind, "text": text, **more}}


def _bounded(args: dict[str, Any]) -> dict[str, Any]:
    """What a refused call's unchecked args tell in the trace: short texts, numbers and words, no bodies."""
    found: dict[str, Any] = {}
    for name, value in list(args.items())[:_MOST_WORDS]:
        if type(value) is str:
            found[name[:_LONGEST]] = value[:_LONGEST]
        elif value is None or type(value) in (int, float, bool):
            found[name[:_LONGEST]] = value
        elif type(value) is list:
            found[name[:_LONGEST]] = [word[:_LONGEST] for word in value[:_MOST_WORDS] if type(word) is str]
    return found
