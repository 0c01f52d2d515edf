"""Whether a process is still the agent's own program, or one that an `exec:` rule has let in.

Rules say what the agent may start; what such a program starts in turn is recorded and stays confined. The invariant:
a process counts as another than the agent only if an exec is proven to lie between it and what the run was started
with, by the process itself and by nobody that it descends from. Ancestors prove nothing: one may have begun another
program after it forked, end (then process 1 is the parent), or give its number to another.

- fork(2), vfork(2), clone(2) and threads copy or share the memory's layout and the program's file; exec(2) alone
  changes them (prctl PR_SET_MM is refused). The first call of the run after the launcher's exec comes from the agent's
  program, before any other exec can have been let through: what is read then is the agent's.
- Another file, or another layout, is thus another program. The same file by an allowed exec has a layout of its own,
  as addresses are random; where they are not, it may count as the agent, which is the strict side.
- A process whose new image was looked at and is what was decided on is that for its whole life: number and start time.
- What cannot be read (a process that is not dumpable, whose main thread has ended, that is gone) proves nothing.
"""

from __future__ import annotations

import os

from agentbox.guard.kernel.process import stat_fields
from agentbox.guard.paths import identity
from agentbox.guard.procfs import read_long

_MOST_KNOWN = 8192
_DEPTH = 64
_MOST_HELD = 128  # descriptors; programs that never make a call could use up all that we have
OTHER = "the program was another than the one that was decided on"
_ARGUMENTS = "the arguments were others than those that were decided on"
_PARENT, _THREADS, _LIFE, _STACK = 1, 17, 19, 25  # fields of proc_pid_stat(5), the state being 0
_CODE, _DATA = slice(23, 26), slice(42, 49)
"""start_code to startstack, Linux 2.0, and start_data to env_end, Linux 3.3 and 3.5."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Proof(Protocol):
        """What must hold of an image besides its file and its arguments (kernel/proof.py)."""

        def problem(self, pid: int) -> str:
            """Why the process `pid`, which has that file and these arguments, is not what was decided on, or ""."""

        def close(self) -> None:
            """Nobody asks any more."""


class Start:
    """An exec that was let through: what it must have become when the image of its process is another.

    `program` is the file that the image must be of (device, inode; None: one that cannot be read, so that the kernel
    does not tell an ordinary user what runs), `tail` the last arguments that it must have, all of them if `whole`.
    """

    __slots__ = ("_maps", "_old", "_proof", "_stack", "life", "program", "tail", "whole")

    def __init__(
        self,
        pid: int,
        fields: list[str],
        program: tuple[int, int] | None,
        tail: list[bytes],
        whole: bool,
        proof: Proof | None,
        hold: bool,
    ) -> None:
        self.life = fields[_LIFE]
        self.program = program
        self.tail = tail
        self.whole = whole
        self._proof = proof
        self._old = image(pid)
        self._stack = fields[_STACK]
        self._maps = -1
        if hold:
            try:
                self._maps = os.open(f"/proc/{pid}/maps", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                pass
        if self._maps >= 0 and not self._lives():  # of a process that is about to end
            os.close(self._maps)
            self._maps = -1

    def happened(self, pid: int, fields: list[str]) -> bool:
        """True when the process has another image than at the decision, whichever.

        A file of /proc/PID keeps the memory that it was opened on: once that is gone, an exec has happened. A child of
        vfork(2) shares its memory with its parent, so the program and the stack's start (field 28 of proc_pid_stat(5),
        0 where the kernel does not tell) are compared as well.
        """
        if image(pid) != self._old or fields[_STACK] != self._stack:
            return True
        return self._maps >= 0 and not self._lives()

    def is_proven(self, pid: int, fields: list[str]) -> bool:
        """True when an exec has happened for certain. A program that hides itself (PR_SET_DUMPABLE, or the end of its
        main thread) only looks like another one.
        """
        if self._maps >= 0 and not self._lives():
            return True
        now = image(pid)
        if now is not None and self._old is not None and now != self._old:
            return True
        return "0" not in (fields[_STACK], self._stack) and fields[_STACK] != self._stack

    def problem(self, pid: int, argv: list[bytes] | None) -> str:
        """Why the image, of the right file, is not what was decided on, or ""."""
        if argv is not None and not self._has_arguments(argv):
            return _ARGUMENTS
        return "" if self._proof is None else self._proof.problem(pid)

    def _has_arguments(self, argv: list[bytes]) -> bool:
        if not self.tail:
            return argv in ([], [b""])  # Linux 5.18 gives a program without arguments an empty one
        return argv == self.tail if self.whole else argv[-len(self.tail) :] == self.tail

    def is_other(self, pid: int) -> bool:
        """True when the process runs a file that is neither what it was nor what was decided on."""
        now = image(pid)
        return now is not None and self.program is not None and now not in (self._old, self.program)

    def close(self) -> None:
        """Nobody looks any more: give back what is held."""
        if self._maps >= 0:
            os.close(self._maps)
            self._maps = -1
        if self._proof is not None:
            self._proof.close()

    def _lives(self) -> bool:
        try:
            return bool(os.pread(self._maps, 1, 0))
        except OSError:
            return True


class Look:
    """What tells one program of a process from another: the `image`, and where in memory its parts lie; None what
    cannot be read. A child without an exec of its own has all of it from its parent.
    """

    __slots__ = ("_layout", "image")

    def __init__(self, pid: int, fields: list[str] | None) -> None:
        self.image = image(pid)
        self._layout: list[str] | None = None
        if fields is not None and fields[_STACK] != "0":  # 0: the kernel does not tell
            self._layout = fields[_CODE] + fields[_DATA]

    def differs(self, other: Look) -> bool:
        """True if an exec lies between the two for certain."""
        if self.image is not None and other.image is not None and self.image != other.image:
            return True
        return self._layout is not None and other._layout is not None and self._layout != other._layout


class Lineage:
    """The run's processes by what they have started. `agent` is the agent's process."""

    __slots__ = ("_others", "_own", "_programs", "_starts", "agent", "started")

    def __init__(self, agent: int) -> None:
        self.agent = agent
        self.started = False
        """True when the launcher's own exec, which the run's header tells of, has been let through."""
        self._own: Look | None = None
        self._programs: dict[int, str] = {}
        """Processes whose new image was looked at: number and start of life."""
        self._starts: dict[int, dict[int, Start]] = {}
        self._others: set[tuple[int, int]] = set()
        """Files that were started though another was decided on."""

    def is_agent(self, pid: int) -> bool:
        """True unless the process is proven to run a program that an exec has let in: see the module's text."""
        fields = _fields(pid)
        if fields is None or self._own is None:
            return True
        return self._programs.get(pid) != fields[_LIFE] and not self._own.differs(Look(pid, fields))

    def expect(
        self,
        pid: int,
        thread: int,
        program: tuple[int, int] | None,
        tail: list[bytes],
        *,
        whole: bool = True,
        proof: Proof | None = None,
    ) -> None:
        """An exec by a `thread` of `pid` is let through; until its new image is seen, the process is what it was. See
        `Start`; `proof` is closed when nobody asks it any more.
        """
        fields = _fields(pid)
        if fields is None:
            if proof is not None:
                proof.close()
            return
        if len(self._programs) >= _MOST_KNOWN:
            self._programs = {known: start for known, start in self._programs.items() if _fields(known) is not None}
        starts = self._starts.setdefault(pid, {})
        before = starts.pop(thread, None)
        if before is not None:
            before.close()
        starts[thread] = Start(pid, fields, program, tail, whole, proof, len(self._starts) <= _MOST_HELD)

    def surprise(self, pid: int, thread: int, stands: Callable[[], bool]) -> str:
        """Why the process, of which `thread` makes a call, is not what its last exec was let through as, or "".

        The path and arguments of an exec are read by the kernel itself, after they were decided on: a second thread may
        have rewritten them. `stands` says whether the call still waits: a thread that waits is not one that an exec
        under way has ended, so that what was read before is of an image that is complete. Only the thread that made the
        exec can tell, by another call, that it has failed: no other uses up the check.
        """
        if self._own is None and self.started:
            self._own = Look(thread, _fields(thread))
        fields = _fields(pid)
        if fields is None:
            return ""
        if self._others and self._descends_from_other(pid):
            return OTHER
        starts = self._starts.get(pid)
        if not starts:
            return ""
        if all(start.life != fields[_LIFE] for start in starts.values()):
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
        elif any(start.is_proven(pid, fields) for start in starts.values()):
            self._programs[pid] = fields[_LIFE]
        self._drop(pid)
        return reason

    def is_starting(self, pid: int) -> bool:
        """True while an exec of the process was let through, and its image has not been looked at."""
        return pid in self._starts

    def others(self, but: int) -> list[int]:
        """Processes, except one, that have become what was not decided on, and have not been heard of since."""
        found = []
        for pid, starts in list(self._starts.items()):
            fields = _fields(pid)
            if fields is None or _is_over(fields):
                self._drop(pid)
            elif pid != but and all(start.is_other(pid) for start in starts.values()):
                self.mark(pid)
                self._drop(pid)
                found.append(pid)
        return found

    def mark(self, pid: int) -> None:
        """The process runs what was not decided on: so do its children, if it has forked before it was found."""
        now = image(pid)
        if now is not None and self._own is not None and now != self._own.image:
            self._others.add(now)

    @property
    def waiting(self) -> bool:
        """True while some exec has not been looked at again, or processes must be told from what one became; and until
        the agent's program has been looked at.
        """
        return bool(self._starts) or bool(self._others) or (self.started and self._own is None)

    def close(self) -> None:
        """Give all descriptors back."""
        for pid in list(self._starts):
            self._drop(pid)

    def _drop(self, pid: int) -> None:
        for start in self._starts.pop(pid).values():
            start.close()

    def _descends_from_other(self, pid: int) -> bool:
        """True for a process of a marked file that no decided start has made, itself or an ancestor of that file."""
        now = image(pid)
        if now not in self._others:
            return False
        for _ in range(_DEPTH):
            fields = _fields(pid)
            if fields is None or image(pid) != now:
                return True
            if self._programs.get(pid) == fields[_LIFE]:
                return False
            if any(start.program == now for start in self._starts.get(pid, {}).values()):
                return False
            pid = int(fields[_PARENT])
        return True


def image(pid: int) -> tuple[int, int] | None:
    """Device and inode of the file that a process runs; None when it is gone."""
    return identity(f"/proc/{pid}/exe")


def _difference(pid: int, starts: dict[int, Start]) -> str:
    """Why the image of a process is of none of the starts that it may be of, or ""."""
    now = image(pid)
    fitting = [start for start in starts.values() if now == start.program]
    if not fitting:
        return OTHER
    argv = _arguments(pid)
    reasons = [start.problem(pid, argv) for start in fitting]
    return "" if "" in reasons else reasons[-1]


def _arguments(pid: int) -> list[bytes] | None:
    try:
        text = read_long(f"/proc/{pid}/cmdline")
    except OSError:
        return None
    return text[:-1].split(b"\0") if text else []


def _is_over(fields: list[str]) -> bool:
    """True when no thread is left: a process whose main thread has ended shows as a zombie all the same."""
    return fields[0] in "ZX" and int(fields[_THREADS]) <= 1


def _fields(pid: int) -> list[str] | None:
    try:
        return stat_fields(pid)
    except OSError:
        return None
