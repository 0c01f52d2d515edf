"""File decisions of the supervisor for any program: what is exempt, built in, or for the policy's rules to say.

The same order as in the interpreter's guard (python/events/files.py): records and sealed files first, then what every
program needs, then the rules. It opens nothing.
"""

from __future__ import annotations

import os
import stat

from agentbox.guard.decisions import Desk, denial_of, protects
from agentbox.guard.kernel.protected import BUILTIN
from agentbox.guard.procfs import REASON, is_public
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentbox.guard.kernel.protect import Protection

HIDDEN = "it is agentbox's own record of this run, which no rule opens"
SEALED = (
    "the policy, agentbox's own code and the interpreter are never writable, whatever the rules say; "
    "change them outside of the run, or install packages into an environment that the run makes (python -m venv)"
)
NO_NAME = "it has no name by which it could be decided"
OWN_PROC = "this entry of /proc would change or show a process past its confinement"
SET_USER = "a file with a set-user-ID or set-group-ID bit gives its rights to whoever starts it, outside as well"
HOLDS_PROTECTED = "it holds files that agentbox protects"
OWN_GIT = (
    "; that holds in the run's private folders too, as a file .git could lead git there from outside:"
    " use a folder that a write: rule names, and name what is to be written"
)
OWN_FOLDER = "a private folder of the run stays where it is"

DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts/ptmx"})
"""Devices without content of anybody, which all programs may open for reading and writing; what they are called, and
their modes and owners, are the machine's.
"""
_OWN_REFUSED = ("/mem", "/pagemap", "/clear_refs", "/syscall", "/stack", "/personality")
_OWN_WRITABLE = ("/comm", "/oom_score_adj", "/oom_adj", "/coredump_filter", "/timerslack_ns")

EXEMPT, RECORDED = 0, 1
_MOST_KNOWN = 20_000
_MOST_TERMINALS = 256
_MOST_LINKS = 8


class Trees:
    """Paths and all that is below them, for quick tests."""

    __slots__ = ("_exact", "_prefixes")

    def __init__(self, paths: Iterable[str]) -> None:
        listed = [path.rstrip("/") or "/" for path in paths]
        self._exact = frozenset(listed)
        self._prefixes = tuple(sorted({"/" if path == "/" else path + "/" for path in listed}))

    def __contains__(self, path: str) -> bool:
        return path in self._exact or path.startswith(self._prefixes)

    def below(self, path: str) -> bool:
        """True if one of the trees lies within the folder `path`."""
        prefix = path.rstrip("/") + "/"
        return any(tree.startswith(prefix) for tree in self._exact)


class Terminals:
    """The slaves of the run's own pseudo terminals, by path, each held so that one of a later terminal is not taken
    for it.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def add(self, path: str, descriptor: int) -> None:
        """The slave at `path`, which is what `descriptor` (O_PATH, taken over) holds."""
        for one in [one for one in list(self._held) if one == path or one not in self]:
            self._forget(one)
        if len(self._held) >= _MOST_TERMINALS:
            self._forget(next(iter(self._held)))
        self._held[path] = descriptor

    def __contains__(self, path: str) -> bool:
        # The file system takes the slave's name away when the master is closed (drivers/tty/pty.c, devpts_pty_kill),
        # and only then gives its number to another: what still has a name is the one that was added.
        held = self._held.get(path)
        if held is None:
            return False
        if os.fstat(held).st_nlink:
            return True
        self._forget(path)
        return False

    def close(self) -> None:
        """Give the descriptors back."""
        for path in list(self._held):
            self._forget(path)

    def _forget(self, path: str) -> None:
        held = self._held.pop(path, -1)
        if held >= 0:
            os.close(held)


class Judge:
    """Decides reads and writes of resolved paths, the built-in `protection` of write roots included.

    `terminals` are the pseudo terminals that the run has made; add to it as they are made. `listable` folders may be
    listed unrecorded. `own_proc`: the run's /proc shows its own processes and no other.
    """

    __slots__ = (
        "_changeable", "_code", "_desk", "_hidden", "_known", "_listable", "_own_proc", "_private", "_readable",
        "_sealed", "protection", "terminals",
    )  # fmt: skip

    def __init__(
        self,
        desk: Desk,
        *,
        readable: Iterable[str],
        sealed: Iterable[str],
        code: Iterable[str],
        listable: Iterable[str],
        protection: Protection,
        own_proc: bool = False,
    ) -> None:
        self._desk = desk
        self._own_proc = own_proc
        self._private = Trees(desk.private.values())
        self._changeable = Trees([*desk.private.values(), *desk.policy.changeable()])
        self._hidden = Trees(desk.hidden)
        self._sealed = Trees([*desk.sealed, *sealed])
        self._readable = Trees([*desk.readable, *readable])
        self._code = Trees(code)
        self._listable = frozenset(listable)
        self.protection = protection
        self._known: dict[tuple[str, str], int | Denial] = {}
        self.terminals = Terminals()

    def judge(self, access: str, path: str, own: int, *, listing: bool = False) -> int | Denial:
        """`EXEMPT` or `RECORDED` when it is allowed, else the denial. `own` is the asker's id in the run's own
        /proc.
        """
        if path.startswith("/proc/"):
            return self._proc("list" if listing and access == "read" else access, path, own)
        if listing and (path in self._listable or (path == "/proc" and self._own_proc)):
            return EXEMPT
        if path in self.terminals or (path in DEVICES and _is_device(path)):
            return EXEMPT
        if access == "write":
            return self.named(path, lambda: self.protection.reason(path))
        return self._ruled(path, "list" if listing else access)

    def _ruled(self, path: str, access: str) -> int | Denial:
        key = (access, path)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = self._decide(access, path)
        return known

    def named(self, path: str, problem: Callable[[], str]) -> int | Denial:
        """Whether this name may come, change or go: by the rules alone. What is exempt is so for opening only.

        `problem` says what the built-in protection has against it, or "".
        """
        judged = self._ruled(path, "write")
        if type(judged) is not int:
            return judged
        if path.startswith("/proc/") and path[6:7].isdigit():
            return Denial("write", path, OWN_PROC)
        built_in = self.protecting((path, problem()))
        return judged if type(built_in) is int else built_in

    def changed(self, path: str, problem: Callable[[], str]) -> int | Denial:
        """Whether what is named so may get another mode, owner, time or attribute: as `named`, but for terminals that
        the run has made, which are gone with it.
        """
        return EXEMPT if path in self.terminals else self.named(path, problem)

    def renamed(self, path: str, *, tree: bool) -> int | Denial:
        """The same for a name that something gets or loses by renaming, without the built-in protection; `tree`: it is
        a folder with what it holds.
        """
        judged = self.named(path, lambda: "")
        if not tree or type(judged) is not int:
            return judged
        if path in self._desk.private.values():
            return Denial("write", path, OWN_FOLDER)
        if self._hidden.below(path) or self._sealed.below(path):
            return Denial("write", path, HOLDS_PROTECTED)
        return judged

    def protecting(self, problem: tuple[str, str]) -> int | Denial:
        """The built-in protection's refusal for a (path, reason), with the rule that would lift it."""
        path, reason = problem
        if reason and path in self._private:
            reason = reason.removesuffix(BUILTIN) + OWN_GIT
        return protects(path, reason, self._desk.cwd) if reason else EXEMPT

    def may_watch(self, path: str) -> bool:
        """True for agentbox's own record where a rule opens its place: a watch of the folder there tells when it
        changes, and so may one of itself; what is in it stays closed. Tools watch folders file by file (chokidar).
        """
        return path in self._hidden and self._desk.policy.decide("read", path).allowed

    def is_own_cache(self, path: str) -> bool:
        """True where a guard's loader would keep agentbox's compiled code: refused, and no act of the agent."""
        return "/__pycache__" in path and path in self._code

    def immutable(self, path: str) -> bool:
        """True if nothing of the run can change what this path means: it lies in no tree that the run may write."""
        return path not in self._changeable

    def leads(self, path: str, to: str) -> bool:
        """True if `path` leads to the resolved path `to`, and nothing of the run can change that: every name on the
        way, and every link, lies in no tree that the run may write.
        """
        waiting, done = path.split("/")[::-1], ""
        links = 0
        while waiting:
            part = waiting.pop()
            if part in ("", "."):
                continue
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            here = f"{done}/{part}"
            if here in self._changeable:
                return False
            try:
                target = os.readlink(here)
            except OSError:
                done = here
                continue
            links += 1
            if links > _MOST_LINKS:
                return False
            if target.startswith("/"):
                done = ""
            waiting += target.split("/")[::-1]
        return done == to

    def _decide(self, access: str, path: str) -> int | Denial:
        if path in self._hidden:
            return Denial(access, path, HIDDEN)
        if path in self._private:
            return RECORDED
        if access == "write":
            if path in self._sealed:
                return Denial(access, path, SEALED)
        elif path in self._readable:
            return EXEMPT
        decision = self._desk.policy.decide(access, path)
        if not decision.allowed:
            return denial_of(decision, access)
        return RECORDED

    def _proc(self, access: str, path: str, own: int) -> int | Denial:
        mine = f"/proc/{own}"
        is_mine = path == mine or path.startswith(mine + "/")
        numbered = path[6:7].isdigit()
        if numbered and path.endswith(_OWN_REFUSED):
            return Denial(access, path, OWN_PROC)
        if access == "write":
            if is_mine and path.endswith(_OWN_WRITABLE):
                return EXEMPT
            return Denial(access, path, OWN_PROC) if numbered else self._ruled(path, access)
        if is_mine:
            return EXEMPT
        if numbered:
            number, _, rest = path[6:].partition("/")
            if not is_public(rest):
                return Denial(access, path, REASON)
            if self._own_proc or (number.isdigit() and self._desk.family.may_reach(int(number))):
                return EXEMPT
        return self._ruled(path, access)


def _is_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.lstat(path).st_mode)
    except OSError:
        return False
