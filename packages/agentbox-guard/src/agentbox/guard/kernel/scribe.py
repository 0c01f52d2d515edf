"""What the kernel's notifications leave in the record: one entry for each act, and none for what a guard has announced.

It decides nothing and answers nobody. Only the loop thread may use it.
"""

from __future__ import annotations

from agentbox.guard import arguments
from agentbox.guard.paths import show_path
from agentbox.guard.session import Denial, Event
from agentbox.guard.states import LARGEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from agentbox.guard.connections import Processes
    from agentbox.guard.kernel.announced import Announced
    from agentbox.guard.session import Session

_MOST_KNOWN = 20_000
_FLAGS, _MOST_FLAGS = frozenset("0123456789abcdefghijklmnopqrstuvwxyz+-"), 16
_NAMES = ("path", "to", "file", "cwd")


class Scribe:
    """Writes to the session, which `begin` starts if it has not been. `observing`: nothing is refused, and denials
    say so.
    """

    __slots__ = ("_announced", "_begin", "_once", "_private", "_processes", "_session", "_shown", "observing", "reads")

    def __init__(
        self,
        session: Session,
        processes: Processes,
        announced: Announced,
        private: Mapping[str, str],
        *,
        observing: bool,
        reads: bool,
        begin: Callable[[], None],
    ) -> None:
        self._session = session
        self._begin = begin
        self._processes = processes
        self._announced = announced
        self._private = private
        self._once: set[tuple[int, str]] = set()
        self._shown: dict[str, str] = {}
        self.observing = observing
        self.reads = reads
        """Whether reads of programs without a guard are recorded."""

    def shown(self, args: dict[str, Any]) -> dict[str, Any]:
        """Args as they are recorded, the run's private folders by their names."""
        known = self._shown
        for name in _NAMES:
            value = args.get(name)
            if type(value) is str:
                shown = known.get(value)
                if shown is None:
                    if len(known) >= _MOST_KNOWN:
                        known.clear()
                    shown = known[value] = show_path(value, self._private)
                args[name] = shown
        if "argv" in args:
            args["argv"] = [show_path(word, self._private) for word in args["argv"]]
        return args

    def observe(self, pid: int, op: str, args: dict[str, Any], *, also: int = 0) -> None:
        """An allowed act of the process `pid`; `also` is another process that may have announced it (a parent)."""
        args = self.shown(args)
        if op == "fs.read" and self._observe_announced(pid, args):
            return
        if self._announced.take(pid, op, args) or (also and self._announced.take(also, op, args)):
            return
        told = self._announced.account(pid, op, args)
        if told is None and also:
            told = self._announced.account(also, op, args)
        if told is None and op in ("fs.read", "fs.list") and not self.reads:
            return
        self._begin()
        self._session.observe(self._event(pid, op, args) if told is None else _confirmed(told, args))

    def confirm(self, pid: int, op: str, args: dict[str, Any]) -> None:
        """An act that needs no entry of its own, as in a private folder: recorded if a guard has announced it."""
        args = self.shown(args)
        event = None if op == "fs.read" else self._announced.account(pid, op, args)
        if event is not None:
            self._begin()
            self._session.observe(_confirmed(event, args))

    def _observe_announced(self, pid: int, args: dict[str, Any]) -> bool:
        """Record a read as the guard's that has announced it. What could not be hashed is told by the kernel alone,
        since no replay can compare it.
        """
        told = self._announced.take_read(pid, args["path"])
        if told is None or args.get("sha256", "") == "" or args["size"] > LARGEST:
            return False
        self._tell_read(pid, args, told)
        return True

    def tells_read(self, pid: int, path: str) -> bool:
        """Whether a read of this file would be recorded: what would not need not be hashed."""
        return self.reads or self._announced.awaits_read(pid, self.shown({"path": path})["path"])

    def unread(self, pid: int, path: str) -> None:
        """The system lets nobody of this user read a file: what a guard has announced of it is told as a guard tells it
        that meets the same without kernel layers.
        """
        args = self.shown({"path": path})
        told = self._announced.take_read(pid, args["path"])
        if told is not None:
            self._tell_read(pid, {**args, "absent": True}, told)

    def _tell_read(self, pid: int, args: dict[str, Any], told: tuple[str, str]) -> None:
        self._begin()
        self._session.observe(Event("fs.read", args, lane=told[0], pid=pid, src="guard", site=told[1]))

    def consult(self, pid: int, op: str, args: Mapping[str, Any]) -> bool:
        """Before something leaves the machine: whether the session lets it happen. A replay ends the run here."""
        self._begin()
        return self._session.consult(self._event(pid, op, self.shown(dict(args)))) is None

    def announced(self, pid: int, op: str, args: dict[str, Any]) -> bool:
        """True if a guard has announced this, which is used up by asking."""
        return self._announced.take(pid, op, self.shown(args))

    def deny(self, pid: int, op: str, args: dict[str, Any], denial: Denial, *, also: int = 0) -> bool:
        """A refused act; returns whether it is really refused. What a guard has told while observing is recorded.

        `also` as in `observe`.
        """
        args = self.shown(args)
        if self.observing and any(self._announced.take(one, op, args, denied=True) for one in (pid, also)):
            return False
        if op == "fs.read":
            self._announced.take_read(pid, args["path"])
        denial = Denial(denial.key, denial.target, denial.reason, rule=denial.rule, fix=denial.fix)
        denial.enforced = not self.observing
        self._begin()
        told = self._announced.account(pid, op, args)
        self._session.deny(self._event(pid, op, args) if told is None else _confirmed(told, args), denial)
        return denial.enforced

    def deny_once(self, pid: int, op: str, name: str, args: dict[str, Any], denial: Denial) -> bool:
        """The same for what a program may try again and again: recorded once for each process and `name`."""
        return self.deny(pid, op, args, denial) if self._is_new(pid, name) else not self.observing

    def absent(self, pid: int, name: str) -> None:
        """A process is told that the kernel lacks a call; recorded once for each, and no denial."""
        if self._is_new(pid, name):
            self._begin()
            self._session.process(self._event(pid, "sys.call", {"name": name, "absent": True}))

    def _is_new(self, pid: int, name: str) -> bool:
        key = (self._processes.seen(pid).number, name)  # which no other process gets, unlike the pid
        if key in self._once:
            return False
        if len(self._once) > 4096:
            self._once.clear()
        self._once.add(key)
        return True

    def started(self, pid: int, args: dict[str, Any]) -> None:
        """A program that agentbox itself starts, for an SDK call."""
        self._begin()
        self._session.process(self._event(pid, "proc.exec", self.shown(args)))

    def later(self, pid: int, op: str, args: dict[str, Any]) -> Event:
        """What `tell` records at a time when the process may be gone and its number another's."""
        return self._event(pid, op, args)

    def tell(self, event: Event) -> None:
        """Record an event that `later` has made."""
        self._begin()
        self._session.observe(event)

    def flush(self) -> None:
        """Have all of it written, before an answer that lets something happen outside."""
        self._begin()
        self._session.flush()

    def _event(self, pid: int, op: str, args: dict[str, Any]) -> Event:
        process = self._processes.seen(pid)
        if op == "proc.exec":
            args = arguments.recorded(args)
        return Event(op, args, lane=f"{process.number}.0", pid=pid, src="kernel")


def _confirmed(told: Event, args: dict[str, Any]) -> Event:
    """What a guard has told (thread, place in the code) as the kernel has shown it: `args` are the kernel's.

    Only the flags of an open stay as the guard names them: in a replay it names them in the same way.
    """
    flags = told.args.get("flags")
    if "flags" in args and type(flags) is str and _FLAGS.issuperset(flags) and len(flags) < _MOST_FLAGS:
        args["flags"] = flags
    told.args = arguments.recorded(args) if told.op == "proc.exec" else args
    return told
