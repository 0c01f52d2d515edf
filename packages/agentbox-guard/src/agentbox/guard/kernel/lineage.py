"""Who started whom: whether a process is still the agent's own program, or one that an `exec:` rule has let in.

Rules say what the agent may start; what such a program starts in turn is recorded and stays confined. Whoever cannot be
placed counts as the agent.
"""

from __future__ import annotations

import os

from agentbox.guard.kernel.process import stat_fields
from agentbox.guard.procfs import read_long

_MOST_KNOWN = 8192
_DEPTH = 64
_MOST_HELD = 128  # descriptors; programs that never make a call could use up all that we have
OTHER = "the program was another than the one that was decided on"
_ARGUMENTS = "the arguments were others than those that were decided on"
_ENVIRONMENT = "its environment makes it run something else, and was another when it was decided on"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.guard.kernel.injected import Injected


class Start:
    """An exec that was let through: what it must have become when the image of its process is another.

    `program` is the file that the image must be of (device, inode; None: one that cannot be read, so that the kernel
    does not tell an ordinary user what runs), `tail` the last arguments that it must have, all of them if `whole`.
    """

    __slots__ = ("_maps", "_old", "_stack", "injected", "life", "program", "tail", "whole")

    def __init__(
        self, pid: int, fields: list[str], program: tuple[int, int] | None, tail: list[bytes], whole: bool, hold: bool,
        injected: Injected | None = None,
    ) -> None:  # fmt: skip
        self.life = fields[19]
        self.program = program
        self.tail = tail
        self.whole = whole
        self.injected = injected
        self._old = image(pid)
        self._stack = fields[25]
        self._maps = -1
        if hold:
            try:
                self._maps = os.open(f"/proc/{pid}/maps", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                pass
        if self._maps >= 0 and not self._lives():
            self.close()

    def happened(self, pid: int, fields: list[str]) -> bool:
        """True when the process has another image than at the decision, whichever.

        A file of /proc/PID keeps the memory that it was opened on: once that is gone, an exec has happened. A child of
        vfork(2) shares its memory with its parent, so the program and the stack's start (field 28 of proc_pid_stat(5),
        0 where the kernel does not tell) are compared as well.
        """
        if image(pid) != self._old or fields[25] != self._stack:
            return True
        return self._maps >= 0 and not self._lives()

    def is_other(self, pid: int) -> bool:
        """True when the process runs a file that is neither what it was nor what was decided on."""
        now = image(pid)
        return now is not None and self.program is not None and now not in (self._old, self.program)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._maps >= 0:
            os.close(self._maps)
            self._maps = -1

    def _lives(self) -> bool:
        try:
            return bool(os.pread(self._maps, 1, 0))
        except OSError:
            return True


class Lineage:
    """The run's processes by what they have started. `agent` is the agent's process."""

    __slots__ = ("_others", "_own", "_programs", "_starts", "agent", "started")

    def __init__(self, agent: int) -> None:
        self.agent = agent
        self.started = False
        """True when the launcher's own exec, which the run's header tells of, has been let through."""
        self._own: tuple[int, int] | None = None
        self._programs: dict[int, str] = {}
        self._starts: dict[int, dict[int, Start]] = {}
        self._others: set[tuple[int, int]] = set()
        """Files that were started though another was decided on."""

    def is_agent(self, pid: int) -> bool:
        """True if the process runs the agent's own program by descent: no allowed exec lies between them."""
        if self._own is None:  # nothing else has been started yet, so this is still what the run was started with
            self._own = image(self.agent)
        if self._own is not None and image(pid) not in (self._own, None):
            return False
        for _ in range(_DEPTH):
            fields = _fields(pid)
            if fields is None:
                return True
            if self._programs.get(pid) == fields[19] or self._has_happened(pid, fields):
                return False
            if pid == self.agent:
                return True
            pid = int(fields[1])
        return True

    def expect(
        self, pid: int, thread: int, program: tuple[int, int] | None, tail: list[bytes], *, whole: bool = True,
        injected: Injected | None = None,
    ) -> None:  # fmt: skip
        """An exec by a `thread` of `pid` is let through; until its new image is seen, the process is what it was. See
        `Start`.
        """
        fields = _fields(pid)
        if fields is None:
            return
        if len(self._programs) >= _MOST_KNOWN:
            self._programs = {known: start for known, start in self._programs.items() if _fields(known) is not None}
        starts = self._starts.setdefault(pid, {})
        before = starts.pop(thread, None)
        if before is not None:
            before.close()
        starts[thread] = Start(pid, fields, program, tail, whole, len(self._starts) <= _MOST_HELD, injected)

    def surprise(self, pid: int, thread: int, stands: Callable[[], bool]) -> str:
        """Why the process, of which `thread` makes a call, is not what its last exec was let through as, or "".

        The path and arguments of an exec are read by the kernel itself, after they were decided on: a second thread may
        have rewritten them. `stands` says whether the call still waits: a thread that waits is not one that an exec
        under way has ended, so that what was read before is of an image that is complete. Only the thread that made the
        exec can tell, by another call, that it has failed: no other uses up the check.
        """
        fields = _fields(pid)
        if fields is None:
            return ""
        if self._others and self._descends_from_other(pid):
            return OTHER
        starts = self._starts.get(pid)
        if not starts:
            return ""
        if all(start.life != fields[19] for start in starts.values()):
            self._drop(pid)  # another process by the same number
            return ""
        if not any(start.happened(pid, fields) for start in starts.values()):
            if thread in starts and stands():
                starts.pop(thread).close()
                if not starts:
                    del self._starts[pid]
            return ""
        reason = _difference(pid, starts)
        if not stands():
            return ""
        if reason:
            self.mark(pid)
        else:
            self._programs[pid] = fields[19]
        self._drop(pid)
        return reason

    def others(self, but: int) -> list[int]:
        """Processes, except one, that have become what was not decided on, and have not been heard of since."""
        found = []
        for pid, starts in list(self._starts.items()):
            fields = _fields(pid)
            if fields is None or fields[0] in "ZX":
                self._drop(pid)
            elif pid != but and all(start.is_other(pid) for start in starts.values()):
                self.mark(pid)
                self._drop(pid)
                found.append(pid)
        return found

    def mark(self, pid: int) -> None:
        """The process runs what was not decided on: so do its children, if it has forked before it was found."""
        now = image(pid)
        if now is not None and now != self._own:
            self._others.add(now)

    @property
    def waiting(self) -> bool:
        """True while some exec has not been looked at again, or processes must be told from what one became."""
        return bool(self._starts) or bool(self._others)

    def close(self) -> None:
        """Give all descriptors back."""
        for pid in list(self._starts):
            self._drop(pid)

    def _drop(self, pid: int) -> None:
        for start in self._starts.pop(pid).values():
            start.close()

    def _has_happened(self, pid: int, fields: list[str]) -> bool:
        starts = self._starts.get(pid, {}).values()
        return any(start.life == fields[19] and start.happened(pid, fields) for start in starts)

    def _descends_from_other(self, pid: int) -> bool:
        """True for a process of a marked file that no decided start has made, itself or an ancestor of that file."""
        now = image(pid)
        if now not in self._others:
            return False
        for _ in range(_DEPTH):
            fields = _fields(pid)
            if fields is None or image(pid) != now:
                return True
            if self._programs.get(pid) == fields[19]:
                return False
            if any(start.program == now for start in self._starts.get(pid, {}).values()):
                return False
            pid = int(fields[1])
        return True


def image(pid: int) -> tuple[int, int] | None:
    """Device and inode of the file that a process runs; None when it is gone."""
    try:
        info = os.stat(f"/proc/{pid}/exe")
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _difference(pid: int, starts: dict[int, Start]) -> str:
    """Why the image of a process is of none of the starts that it may be of, or ""."""
    now = image(pid)
    fitting = [start for start in starts.values() if now == start.program]
    if not fitting:
        return OTHER
    argv = _texts(pid, "cmdline")
    if argv is None:
        return ""
    fitting = [start for start in fitting if _same(argv, start)]
    if not fitting:
        return _ARGUMENTS
    if any(start.injected is None or start.injected.any for start in fitting):
        return ""
    environ = _texts(pid, "environ") or []
    return "" if any(not start.injected.reason(environ) for start in fitting if start.injected) else _ENVIRONMENT


def _same(now: list[bytes], start: Start) -> bool:
    if not start.tail:
        return now in ([], [b""])  # Linux 5.18 gives a program without arguments an empty one
    return now == start.tail if start.whole else now[-len(start.tail) :] == start.tail


def _texts(pid: int, name: str) -> list[bytes] | None:
    """What the kernel shows of a new image's arguments or environment (proc_pid_cmdline(5), proc_pid_environ(5))."""
    try:
        text = read_long(f"/proc/{pid}/{name}")
    except OSError:
        return None
    return text[:-1].split(b"\0") if text else []


def _fields(pid: int) -> list[str] | None:
    try:
        return stat_fields(pid)
    except OSError:
        return None
