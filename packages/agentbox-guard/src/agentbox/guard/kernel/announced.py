"""What guards have announced and the kernel has not yet shown, so that one act becomes one entry.

It decides nothing and records nothing. Only the loop thread may use it.
"""

from __future__ import annotations

from agentbox.guard import arguments
from agentbox.guard.kernel.accounts import Accounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from agentbox.guard.session import Event

MOST_ANNOUNCED = 512
"""Announcements of one process that wait for the call they announce; what a failed look-up leaves behind is dropped."""
_MOST_PROCESSES = 8192
_OBJECTS = ("path", "to", "sha256")
_FACTS = {"fs.write": ("size", "absent"), "fs.mkdir": ("exists",), "proc.exec": ("cwd",)}
"""What an announcement says beside the act itself, and the kernel's layers find out by themselves."""


class Announced:
    """Announcements by process: acts that are recorded already, and reads that are recorded when the kernel shows them.

    A read is known by its content, which nobody has before it is opened: a guard only says where it comes from.
    """

    __slots__ = ("_accounts", "_acts", "_reads")

    def __init__(self) -> None:
        self._acts: dict[int, dict[tuple[object, ...], list[int]]] = {}
        self._reads: dict[int, dict[str, list[tuple[str, str]]]] = {}
        self._accounts = Accounts()

    def add(self, pid: int, op: str, args: Mapping[str, Any], *, denied: bool = False) -> None:
        """A guard says that its process is about to do this; `denied`: against the policy, where that only observes."""
        acts = self._acts.setdefault(pid, {})
        key = _key(op, args, denied)
        waiting = acts[key] = acts.pop(key, [])
        if len(waiting) < MOST_ANNOUNCED:
            waiting.append(_facts(op, args))
        if len(acts) > MOST_ANNOUNCED:
            del acts[next(iter(acts))]
        _bound(self._acts)

    def take(self, pid: int, op: str, args: Mapping[str, Any], *, denied: bool = False) -> bool:
        """True if this act was announced as it is; it is then used up. What was announced with other facts is used up
        as well, but then the act has an entry of its own.
        """
        acts = self._acts.get(pid)
        if not acts:
            return False
        key = _key(op, args, denied)
        waiting = acts.get(key)
        if not waiting:
            return False
        shown = _facts(op, args)
        at = next((at for at, told in enumerate(waiting) if told in (shown, _NOTHING)), -1)
        del waiting[max(at, 0)]
        if not waiting:
            del acts[key]
        return at >= 0

    def add_read(self, pid: int, path: str, lane: str, site: str) -> None:
        """A guard says that its process is about to read `path` (as the trace shows it), in `lane` at `site`."""
        reads = self._reads.get(pid)
        if reads is None:
            reads = self._reads[pid] = {}
            _bound(self._reads)
        waiting = reads.get(path)
        if waiting is None:
            reads[path] = [(lane, site)]
            if len(reads) > MOST_ANNOUNCED:
                del reads[next(iter(reads))]
        elif len(waiting) < MOST_ANNOUNCED:
            waiting.append((lane, site))

    def take_read(self, pid: int, path: str) -> tuple[str, str] | None:
        """Lane and site of the announced read of `path`, the first of several, which is used up; None if there is
        none.
        """
        reads = self._reads.get(pid)
        if not reads:
            return None
        waiting = reads.pop(path, None)
        if waiting is None:
            return None
        found = waiting.pop(0)
        if waiting:
            reads[path] = waiting
        return found

    def awaits_read(self, pid: int, path: str) -> bool:
        """Whether a read of `path` is announced; it stays so."""
        reads = self._reads.get(pid)
        return reads is not None and path in reads

    def defer(self, event: Event) -> None:
        """A guard says what its process is about to do, and the kernel's notice will tell how that ends."""
        self._accounts.add(act(event.op, event.args), event)

    def account(self, pid: int, op: str, args: Mapping[str, Any]) -> Event | None:
        """What was so said of this act, used up by asking; None if nothing was."""
        return self._accounts.take(pid, act(op, args))

    def on_unshown(self, call: Callable[[Event], None]) -> None:
        """Have `call` told what was deferred and never shown by the kernel: a mere claim."""
        self._accounts.unshown = call

    def finish(self) -> None:
        """The run is over: what the kernel has not shown by now it never will."""
        self._accounts.finish()

    def forget(self, pid: int) -> None:
        """The process is gone."""
        self._acts.pop(pid, None)
        self._reads.pop(pid, None)
        self._accounts.forget(pid)


def _bound(table: dict[int, Any]) -> None:
    """Processes end without a word: the one that has been there longest goes first."""
    if len(table) > _MOST_PROCESSES:
        del table[next(iter(table))]


def _key(op: str, args: Mapping[str, Any], denied: bool) -> tuple[object, ...]:
    """Of a program that may start, the content counts as well: it may be another by then. A refused one has none."""
    content = args.get("sha256") if op == "proc.exec" and not denied else None
    return denied, repr(content), *act(op, args)


_NOTHING = 0


def _facts(op: str, args: Mapping[str, Any]) -> int:
    """A number for what is said beside the act, the same for the same; it may be of any length, and much may wait."""
    said = tuple((name, repr(args[name])) for name in _FACTS.get(op, ()) if name in args)
    return hash(said) if said else _NOTHING


def act(op: str, args: Mapping[str, Any]) -> tuple[object, ...]:
    """What makes an announcement and a notification the same act; content that was announced wrongly is another act."""
    if op == "proc.exec":
        args = arguments.recorded(dict(args))
        return op, args.get("file"), args.get("argv_sha256"), *args.get("argv", ())
    if op.startswith("net."):
        return op, args.get("address", args.get("path")), args.get("port")
    # An announcement may hold anything; what is no text is no act that the kernel shows.
    return op, *(value if type(value) is str or value is None else repr(value) for value in map(args.get, _OBJECTS))
