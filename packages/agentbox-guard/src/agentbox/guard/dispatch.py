"""What each line of the channel means: processes that start, acts that are announced, questions that are decided, SDK
calls that are made.

It runs on the loop thread and is the only caller of the session. Slow work goes to threads and comes back here to be
recorded and answered.
"""

from __future__ import annotations

import errno
import os
import stat

from agentbox.guard import arguments, channel
from agentbox.guard.context import EffectContext, EffectDenied, EffectUsage, show_path
from agentbox.guard.decisions import DECIDERS, Verdict, denial_text
from agentbox.guard.errors import ProtocolError
from agentbox.guard.paths import is_name, within
from agentbox.guard.session import Denial, Event
from agentbox.guard.states import LARGEST
from agentbox.policy.forms.path import path_decide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from agentbox.guard.connections import Connection, Process, Processes
    from agentbox.guard.decisions import Desk
    from agentbox.guard.decisions._base import Decider
    from agentbox.guard.effects._base import Effect
    from agentbox.guard.gate import Gate
    from agentbox.guard.jobs import Jobs
    from agentbox.guard.kernel.announced import Announced
    from agentbox.guard.services import RunServices
    from agentbox.guard.session import Session

    Read = tuple[str, int, int | None, str]
    """Path as it is shown, thread, task and site of an announced read."""

_MOST_KNOWN = 4096
_MADE_UP = ("/dev", "/proc", "/sys")
_PATHS = ("path", "to", "file", "cwd")
_NAMED = {"path"}
_LONGEST, _MOST_WORDS = 4096, 64
_PLAIN_WELCOME = channel.welcome("sdk", {})


class Dispatcher:
    """Give it `answer` (how a line is sent to a connection) before the first line comes."""

    def __init__(
        self,
        session: Session,
        desk: Desk,
        processes: Processes,
        jobs: Jobs,
        gate: Gate,
        *,
        services: Callable[[int], RunServices],
        welcome: dict[str, Any],
        start: Callable[[], None],
        announced: Announced | None = None,
    ) -> None:
        self.answer: Callable[[Connection, bytes], None]
        self._session = session
        self._desk = desk
        self._processes = processes
        self._jobs = jobs
        self._gate = gate
        self._services = services
        self._observing = session.mode == "observe"
        self._welcome = channel.welcome("guard", welcome)
        self._start: Callable[[], None] | None = start
        self._announced = announced
        self._reads: dict[bytes, Read] = {}
        self.greeted = False
        """True when a guard has been welcomed."""

    # --- what the loop calls ---

    def again(self, connection: Connection, raw: bytes) -> bool:
        """Handle a line that says, letter by letter, what has been handled before; False if it is to be parsed.

        Only reads that the kernel will show are remembered: programs read the same files again and again.
        """
        known = self._reads.get(raw)
        process = connection.process
        if known is None or process is None or not process.told or self._announced is None:
            return False
        path, thread, task, site = known
        self._announced.add_read(process.pid, path, process.lane(thread, task), site)
        return True

    def tell(self, connection: Connection, line: dict[str, Any], raw: bytes) -> None:
        """Handle a hello or a one-way line, `raw` as it came. Raises `ProtocolError`."""
        kind = line["t"]
        if kind == "hello":
            self._hello(connection, line)
            return
        self.begin()
        process = self._process(connection, kind)
        if kind == "armed":
            process.armed = True
            if "thread" in line:
                process.lane(line["thread"])  # the main thread, which is lane P.0
            self._introduce(process)
            return
        event = self._event(connection, line)
        if event.op == "proc.exec":
            event.args = arguments.recorded(event.args)
        if kind == "event":
            if not self._awaits_kernel(event):
                self._observe(event)
            elif not within(event.private["_path"], _MADE_UP):  # what the kernel makes up is nobody's to announce
                self._remember(raw, (event.args["path"], line["thread"], line.get("task"), event.site))
                self.again(connection, raw)
            return
        denial = Denial(line["key"], line["target"], line["reason"], rule=line["rule"], fix=line["fix"])
        self._deny(event, denial)

    def question(self, connection: Connection, line: dict[str, Any]) -> None:
        """Handle an `ask` or a `call`. Raises `ProtocolError`."""
        self.begin()
        event = self._event(connection, line)
        if line["t"] == "call":
            self._call(connection, line["id"], event)
        elif event.op in DECIDERS:
            self._ask(connection, line["id"], event, DECIDERS[event.op])
        elif event.op in channel.ANNOUNCED:
            self._ask_file(connection, line["id"], event)
        else:
            raise ProtocolError(f"channel: ask: got the operation {ascii(event.op)[:60]}, expected one that is asked")

    def _observe(self, event: Event, *, asked: bool = False) -> None:
        """Record an act, and note it for the kernel's own notice of the same.

        Native code that is loaded is a fact about a process, everything else that is announced an act of it.
        """
        if event.op == "code.load":
            self._session.process(event)
            return
        if self._announced is not None:
            if event.op == "fs.read" and asked and not self._complete(event):
                return
            self._announced.add(event.pid, event.op, event.args)
        self._session.observe(event)

    def _remember(self, raw: bytes, read: Read) -> None:
        if len(self._reads) >= _MOST_KNOWN:
            self._reads.clear()
        self._reads[raw] = read

    def _awaits_kernel(self, event: Event) -> bool:
        """Whether an announced read is recorded when the kernel shows it, with what is then found in the file.

        Under kernel layers a guard names the file and does not read it.
        """
        return (
            self._announced is not None
            and self._desk.wall is not None
            and event.op == "fs.read"
            and event.args.keys() == _NAMED
            and type(event.args["path"]) is str
        )

    def _deny(self, event: Event, denial: Denial) -> None:
        """Record a guard's refusal; what is let pass for observing comes to the kernel's notice as well."""
        denial.enforced = not self._observing
        if self._observing and self._announced is not None:
            self._announced.add(event.pid, event.op, event.args, denied=True)
        self._session.deny(event, denial)

    def _complete(self, event: Event) -> bool:
        """Take the hash of a file that a guard asks to read, which under kernel layers does not read it itself.

        False for what the agent may not or could not read: the open that follows says so.
        """
        if "sha256" in event.args or "absent" in event.args:
            return True
        path = event.private["_path"]
        if not self._is_readable(path):
            return False
        try:
            path = f"/proc/{event.pid}/root{path}"
            info = os.lstat(path)
            if stat.S_ISREG(info.st_mode):
                if info.st_size > LARGEST:
                    return False
                event.args["sha256"] = self._desk.hashes.known(info) or self._desk.hashes.file(path)
                event.args["size"] = info.st_size
        except OSError:
            return False
        return True

    def _is_readable(self, path: Any) -> bool:
        """Whether the agent may read what it announces: else nothing is opened for its mere claim. What the kernel
        makes up (/proc/kmsg) may have no end, and is hashed where it is opened."""
        if type(path) is not str or not path.startswith("/") or not is_name(path) or within(path, _MADE_UP):
            return False
        desk = self._desk
        return path_decide("read", path, desk.policy.paths) >= 0 or within(path, list(desk.private.values()))

    def begin(self) -> None:
        """Start the session, once: after the first welcome, which it would delay, and before anything is recorded."""
        start, self._start = self._start, None
        if start is not None:
            start()

    def flush(self) -> None:
        """The end of a batch."""
        if self._start is None:
            self._session.flush()

    # --- processes ---

    def _hello(self, connection: Connection, line: dict[str, Any]) -> None:
        if connection.process is not None:
            raise ProtocolError(f"channel: got a second hello on one connection of process {connection.pid}")
        connection.process = self._processes.hello(connection.pid, line)
        full = line["role"] == "guard" and (line.get("resume") is not True or line.get("full") is True)
        self.answer(connection, self._welcome if full else _PLAIN_WELCOME)
        self.greeted = self.greeted or full

    def _process(self, connection: Connection, kind: str) -> Process:
        if connection.process is None:
            raise ProtocolError(f"channel: got {kind} before hello from process {connection.pid}")
        return connection.process

    def _introduce(self, process: Process) -> None:
        """Tell the session of a process once: when it is armed, or at its first act (a fork inherits a live guard)."""
        if process.told:
            return
        process.told = True
        args = {
            "process": process.number,
            "parent": process.parent,
            "runtime": process.runtime,
            "version": process.version,
            "executable": process.executable,
        }
        self._session.process(Event("process.start", args, lane=f"{process.number}.0", pid=process.pid))

    def _event(self, connection: Connection, line: dict[str, Any]) -> Event:
        process = self._process(connection, line["t"])
        self._introduce(process)
        args = line["args"]
        private = {"_path": args.get("path")}
        if line["t"] != "call" and not (line["t"] == "ask" and line["op"] in DECIDERS):
            args = _shown(args, self._desk.private)
        lane = process.lane(line["thread"], line.get("task"))
        event = Event(line["op"], args, lane=lane, pid=process.pid, site=line.get("site", ""))
        event.private = private
        return event

    # --- asked operations ---

    def _ask_file(self, connection: Connection, number: int, event: Event) -> None:
        def go() -> None:
            self._observe(event, asked=True)
            self.answer(connection, channel.allowed(number, {}))

        if event.op in channel.WRITES and not str(event.args.get("path", "")).startswith("$"):
            self._gate.before(event, go, self._stop_asking(connection, number))
        else:
            go()

    def _stop_asking(self, connection: Connection, number: int) -> Callable[[str], None]:
        return lambda text: self.answer(connection, channel.refused(number, text, errno.EPERM))

    def _ask(self, connection: Connection, number: int, event: Event, decider: Decider) -> None:
        verdict = decider.decide(event.op, event.args, connection.pid, self._desk)
        event.args = verdict.args
        if verdict.missing or (verdict.quiet and verdict.denial is None):
            self._conclude(connection, number, event, verdict)
            return
        if verdict.denial is not None and not self._observing:
            self._conclude(connection, number, event, verdict)
            return
        answer = self._session.consult(_public(event))
        if answer is not None:
            self.answer(connection, channel.encode({"t": "verdict", "id": number, **answer}))
            return

        def conclude(outcome: Any = None) -> None:
            if isinstance(outcome, Exception):
                raise outcome
            self._conclude(connection, number, event, verdict)

        def go() -> None:
            if verdict.slow:
                self._jobs.run(lambda: decider.complete(verdict, connection.pid, self._desk), conclude)
            else:
                conclude()

        if event.op == "proc.exec":
            self._gate.before(event, go, self._stop_asking(connection, number))
        else:
            go()

    def _conclude(self, connection: Connection, number: int, event: Event, verdict: Verdict) -> None:
        if verdict.missing:
            self.answer(connection, channel.refused(number, os.strerror(verdict.missing), verdict.missing))
            return
        denial = verdict.denial
        if denial is not None:
            self._deny(_public(event), denial)
            if denial.enforced:
                text = denial_text(event.op, denial, self._desk.policy.name)
                self.answer(connection, channel.refused(number, text, verdict.code))
                return
        elif verdict.later and self._announced is not None:
            self._announced.defer(_public(event))
        elif not verdict.quiet:
            self._observe(_public(event))
        self.answer(connection, channel.allowed(number, verdict.value))

    # --- SDK calls ---

    def _call(self, connection: Connection, number: int, event: Event) -> None:
        from agentbox.guard.effects import EFFECTS

        effect = EFFECTS.get(event.op)

        def answer(result: dict[str, Any]) -> None:
            self.answer(connection, channel.result(number, result))

        if effect is None:
            answer(_error("usage", f"{event.op[:60]}: no such call"))
            return
        context = EffectContext(
            self._desk.policy,
            self._services(connection.pid),
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
            event.args = _shown(_bounded(event.args), self._desk.private)
            self._session.deny(event, error.denial)
            answer(self._denied(event.op, error.denial))
            return
        except OSError as error:
            filename = error.filename if type(error.filename) is str else None
            answer(_error("os", error.strerror or str(error), errno=error.errno or errno.EIO, filename=filename))
            return
        event.args = args
        for denial in context.denials:
            self._session.deny(_public(event), denial)
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
        public = _public(event)
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
        except EffectDenied as error:
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


def _shown(args: dict[str, Any], private: Mapping[str, str]) -> dict[str, Any]:
    """Args as they are recorded: the private folders, which are elsewhere in every run, by their names."""
    for name in _PATHS:
        if type(args.get(name)) is str:
            args[name] = show_path(args[name], private)
    return args


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


def _public(event: Event) -> Event:
    """The event as a session records it: members that start with `_` are apart, in `private`."""
    args = {name: value for name, value in event.args.items() if not name.startswith("_")}
    if event.op == "proc.exec":
        args = arguments.recorded(args)
    public = Event(event.op, args, lane=event.lane, pid=event.pid, src=event.src, site=event.site)
    public.private = {name: value for name, value in event.args.items() if name.startswith("_")}
    return public
