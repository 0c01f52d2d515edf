"""What each line of the channel means: processes that start, acts that are announced, questions that are decided, SDK
calls that are made.

It runs on the loop thread; only it and `calls` call the session. Slow work goes to threads and comes back here to be
recorded and answered.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import os
import stat

from agentbox.guard import arguments, channel, report, shortage
from agentbox.guard.decisions import DECIDERS, Verdict, decider, denial_text
from agentbox.guard.descriptors import Spare
from agentbox.guard.errors import ProtocolError
from agentbox.guard.paths import is_name, show_path, within
from agentbox.guard.session import Denial, Event
from agentbox.policy.forms.path import path_decide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from agentbox.guard.calls import Calls
    from agentbox.guard.connections import Connection, Process, Processes
    from agentbox.guard.decisions import Desk
    from agentbox.guard.gate import Gate
    from agentbox.guard.jobs import Jobs
    from agentbox.guard.kernel.announced import Announced
    from agentbox.guard.session import Session

    Read = tuple[str, int, int | None, str]
    """Path as it is shown, thread, task and site of an announced read."""

CLAIM = "guard.claim"
"""The op of an entry for what a guard alone has said, where the kernel shows what happens."""
_SHOWN = channel.ANNOUNCED - {"fs.read", "code.load"} | {"proc.exec"}
_FILE_KEYS = ("read", "list", "write")
_KEYS_OF = {"fs.read": ("read",), "fs.list": ("list", "read"), "code.load": ("read",)}
"""By which keys a refused operation is decided; other operations on files by any of them."""
_LONGEST_REASON = 300
_CONTENT = ("sha256", "size")
_MOST_KNOWN = 4096
_MADE_UP = ("/dev", "/proc", "/sys")
_PATHS = ("path", "to", "file", "cwd")
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
        welcome: dict[str, Any],
        start: Callable[[], None],
        announced: Announced | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.answer: Callable[[Connection, bytes], None]
        self._session = session
        self._desk = desk
        self._processes = processes
        self._jobs = jobs
        self._gate = gate
        self._calls: Calls | None = None
        self._observing = session.mode == "observe"
        self._welcome = channel.welcome("guard", welcome)
        asked = {"all": channel.ANNOUNCED, "writes": channel.WRITES}
        self._asked = asked.get(welcome.get("ask", "none"), frozenset())
        self._start: Callable[[], None] | None = start
        self._say = say
        self._announced = announced
        if announced is not None:
            announced.on_unshown(self._claim)
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
            if event.op == "fs.read" and self._desk.wall is not None:
                # What is in a file the kernel's layers find out by themselves, and take nobody's word for.
                event.args = {name: value for name, value in event.args.items() if name not in _CONTENT}
                if type(event.args.get("path")) is not str or not self._is_absent(event):
                    event.args.pop("absent", None)
            if not self._awaits_kernel(event):
                self._observe(event)
            elif not within(event.private["_path"], _MADE_UP):  # what the kernel makes up is nobody's to announce
                self._remember(raw, (event.args["path"], line["thread"], line.get("task"), event.site))
                self.again(connection, raw)
            return
        self._deny(event, self._told_denial(event, line))

    def broken(self, connection: Connection, error: ProtocolError) -> None:
        """A peer has sent what is none of the channel's lines: end its process, which is broken or hostile, and record
        why. The run goes on without it.
        """
        process, pid = connection.process, connection.pid
        is_its_own = process is None or not process.is_replaced()  # a number may be another's by now
        if is_its_own and self._desk.family.may_reach(pid):
            os.kill(pid, _signal.SIGKILL)
        self.begin()
        lane = "0.0" if process is None else f"{process.number}.0"
        reason = report.shown(str(error), _LONGEST_REASON)
        self._session.process(Event("channel.broken", {"reason": reason}, lane=lane, pid=pid, src="supervisor"))
        hint = f" ({error.hint})" if error.hint else ""
        self._say(f"process {pid} was ended: {reason}{hint}")

    def question(self, connection: Connection, line: dict[str, Any]) -> None:
        """Handle an `ask` or a `call`. Raises `ProtocolError`."""
        self.begin()
        event = self._event(connection, line)
        number = line["id"]
        try:
            if line["t"] == "call":
                self._sdk_calls().call(connection, number, event)
            elif event.op in DECIDERS:
                self._ask(connection, number, event)
            elif event.op in self._asked:
                self._ask_file(connection, number, event)
            else:
                got = ascii(event.op)[:60]
                raise ProtocolError(f"channel: ask: got the operation {got}, expected one that is asked")
        except OSError as error:  # of what is loaded late, too
            if not (short := shortage.met(error)):
                raise
            if line["t"] == "call":
                failed = {"type": "os", "text": os.strerror(short), "errno": short}
                self.answer(connection, channel.result(number, {"error": failed}))
            else:
                self._short(connection, number, event, short)

    def _short(self, connection: Connection, number: int, event: Event, code: int) -> None:
        """Refuse what could not be decided for want of a descriptor, and record that."""
        with Spare():
            denial = Denial("call", event.op, shortage.REASON)
            self._session.deny(public_form(event), denial)
            text = denial_text(event.op, denial, self._desk.policy.name)
        self.answer(connection, channel.refused(number, text, code))

    def _sdk_calls(self) -> Calls:
        """Made at the first SDK call: many agents make none, and every run's start would wait for the code."""
        if self._calls is None:
            from agentbox.guard.calls import Calls

            self._calls = Calls(self._session, self._desk, self._jobs, self._gate, self.answer)
        return self._calls

    def _observe(self, event: Event, *, asked: bool = False) -> None:
        """Record an act, and note it for the kernel's own notice of the same.

        Native code that is loaded is a fact about a process, everything else that is announced an act of it.
        """
        if event.op == "code.load":
            self._session.process(event)
            return
        if self._announced is not None:
            if self._is_shown_later(event):
                self._announced.defer(event)
                return
            if event.op == "fs.read" and asked and not self._complete(event):
                self._await_kernel(event)
                return
            self._announced.add(event.pid, event.op, event.args)
        self._session.observe(event)

    def _is_shown_later(self, event: Event) -> bool:
        """Whether the entry waits until the kernel shows the act: a guard's word for it proves nothing. Only a replay
        has to match the act before it happens.
        """
        if self._desk.wall is None or event.op not in _SHOWN:
            return False
        return self._session.mode != "replay" or (event.op in channel.WRITES and self._is_refused_later(event))

    def _claim(self, event: Event) -> None:
        """Record what a guard has announced and the kernel has never shown: it failed, or was made up."""
        if event.op in _SHOWN and self._session.mode != "replay":
            self.begin()
            args = {"op": event.op, "args": event.args}
            self._session.process(Event(CLAIM, args, lane=event.lane, pid=event.pid, src=event.src, site=event.site))

    def finish(self) -> None:
        """The run is over: record what was announced and never shown."""
        if self._announced is not None:
            self._announced.finish()

    def _told_denial(self, event: Event, line: dict[str, Any]) -> Denial:
        """A guard's refusal. What the policy says of its target is decided here; nothing of the line may be read as a
        rule, or as a line to add to the policy.
        """
        key, target = line["key"], line["target"]
        named = (*map(event.args.get, _PATHS), *event.private.values())
        known = (
            key in _KEYS_OF.get(event.op, _FILE_KEYS if event.op.startswith("fs.") else ())
            and target in named
            and target.startswith("/")
            and is_name(target)
        )
        denial = None
        if known:
            from agentbox.guard.services import RunServices

            denial = RunServices(self._desk, event.pid).check_path(key, target)
        if denial is None:
            denial = Denial(key, target, said(line["reason"]))
        return denial

    def _is_refused_later(self, event: Event) -> bool:
        """Whether the kernel's layers, which hold the built-in protection, refuse what a guard takes for allowed.

        Their notice is then the only entry, also where they let it pass, as a new configuration of git.
        """
        if self._desk.wall is None:
            return False
        link, protection = event.op == "fs.symlink", self._desk.protection
        check = protection.symlink_reason if link else protection.reason
        names = [event.args.get(name) for name in (("to",) if link else ("path", "to"))]
        return any(type(name) is str and name[:1] == "/" and is_name(name) and check(name) for name in names)

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
            and "absent" not in event.args
            and type(event.args.get("path")) is str
        )

    def _await_kernel(self, event: Event) -> None:
        """Leave a read that was asked for and cannot be completed to the kernel's notice, as one that was announced."""
        path, shown = event.private["_path"], event.args.get("path")
        if self._announced is not None and type(path) is type(shown) is str and not within(path, _MADE_UP):
            self._announced.add_read(event.pid, shown, event.lane, event.site)

    def _deny(self, event: Event, denial: Denial) -> None:
        """Record a guard's refusal; what is let pass for observing comes to the kernel's notice as well."""
        denial.enforced = not self._observing
        if self._observing and self._announced is not None:
            self._announced.add(event.pid, event.op, event.args, denied=True)
        self._session.deny(event, denial)

    def _is_absent(self, event: Event) -> bool:
        """Whether a file that a guard says is not there is indeed not there, or not to be opened by this user."""
        path = event.private["_path"]
        if "absent" not in event.args or not self._is_readable(path):
            return False
        try:
            return not os.access(f"/proc/{event.pid}/root{path}", os.R_OK)
        except OSError:
            return False

    def _complete(self, event: Event) -> bool:
        """Take the hash of a file that a guard asks to read, which under kernel layers does not read it itself.

        False for what the agent may not or could not read: the open that follows says so.
        """
        if "sha256" in event.args or "absent" in event.args:
            return True
        path = event.private["_path"]
        if not self._is_readable(path):
            return False
        from agentbox.guard.states import LARGEST

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
            args = shown(args, self._desk.private)
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

    def _ask(self, connection: Connection, number: int, event: Event) -> None:
        found = decider(event.op)
        verdict = found.decide(event.op, event.args, connection.pid, self._desk)
        event.args = verdict.args
        if verdict.missing or (verdict.quiet and verdict.denial is None):
            self._conclude(connection, number, event, verdict)
            return
        if verdict.denial is not None and not self._observing:
            self._conclude(connection, number, event, verdict)
            return
        answer = self._session.consult(public_form(event))
        if answer is not None:
            self.answer(connection, channel.encode({"t": "verdict", "id": number, **answer}))
            return

        def conclude(outcome: Any = None) -> None:
            if short := shortage.met(outcome):
                self._short(connection, number, event, short)
                return
            if isinstance(outcome, Exception):
                raise outcome
            self._conclude(connection, number, event, verdict)

        def go() -> None:
            if verdict.slow:
                self._jobs.run(lambda: found.complete(verdict, connection.pid, self._desk), conclude)
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
            self._deny(public_form(event), denial)
            if denial.enforced:
                text = denial_text(event.op, denial, self._desk.policy.name)
                self.answer(connection, channel.refused(number, text, verdict.code))
                return
        elif self._announced is not None and (verdict.later or self._is_shown_later(event)):
            self._announced.defer(public_form(event))
        elif not verdict.quiet:
            self._observe(public_form(event))
        self.answer(connection, channel.allowed(number, verdict.value))


def shown(args: dict[str, Any], private: Mapping[str, str]) -> dict[str, Any]:
    """Args as they are recorded: the private folders, which are elsewhere in every run, by their names."""
    for name in _PATHS:
        if type(args.get(name)) is str:
            args[name] = show_path(args[name], private)
    return args


def said(reason: str) -> str:
    """A reason as a guard words it: never more than a clause, and nothing that reads like a line to add to a policy."""
    plain = reason.isprintable() and len(reason) <= _LONGEST_REASON and not report.reads_like_advice(reason)
    return reason if plain else "the guard refuses it"


def public_form(event: Event) -> Event:
    """The event as a session records it: members that start with `_` are apart, in `private`."""
    args = {name: value for name, value in event.args.items() if not name.startswith("_")}
    if event.op == "proc.exec":
        args = arguments.recorded(args)
    public = Event(event.op, args, lane=event.lane, pid=event.pid, src=event.src, site=event.site)
    public.private = {name: value for name, value in event.args.items() if name.startswith("_")}
    return public
