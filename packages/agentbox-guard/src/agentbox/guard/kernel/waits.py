"""Waiting in a program's name: until what it waits for happens, a signal is to be handled, time is over, or it is gone.

While the supervisor answers, only a fatal signal wakes the asker (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, so that
nothing is done twice). Who waits here longer than a moment is therefore told of the others. It decides nothing.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import time
from _thread import allocate_lock, get_ident, start_new_thread

from agentbox.guard.procfs import read_entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.guard.kernel.notify import Call

RESTART = 512
"""ERESTARTSYS, <linux/errno.h>: the kernel makes it EINTR for a handler without SA_RESTART, and else makes the call
again (signal(7)). No program sees it, if a signal is there: `signalled` says when there is one for sure.
"""
_WAKE = _signal.SIGURG
"""Ends a system call of one of our threads. The default is to ignore it, so that nobody does harm by sending it."""
_STOPS = sum(1 << number - 1 for number in (_signal.SIGSTOP, _signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU))
_TICK, _LONG_TICK = 0.02, 0.1  # seconds; the longer one when nobody has begun to wait within the last second
_IDLE = 50  # ticks


class Wait:
    """One wait; `number` is the errno by which it is to end, 0 while it may go on."""

    __slots__ = ("_due", "_process", "_stop", "began", "call", "number")

    def __init__(self, call: Call, process: int, stop: Callable[[], object], limit: float) -> None:
        self.call = call
        self.number = 0
        self.began = time.monotonic()
        self._process = process
        self._stop = stop
        self._due = self.began + limit if limit else 0.0

    def look(self, now: float, stands: Callable[[Call], bool]) -> None:
        """Stop the wait when there is reason to; again and again, since a thread may not have begun its call."""
        if not self.number:
            if not stands(self.call):
                self.number = errno.ESRCH
            elif self._due and now >= self._due:
                self.number = errno.EINPROGRESS
            else:
                self.number = signalled(self.call.pid, self._process)
        if self.number:
            self._stop()


class Waits:
    """All waits of a run, with a thread that looks after them while there are any. `stands` says whether a call still
    waits. Make it on the main thread.
    """

    __slots__ = ("_before", "_lock", "_stands", "_waits", "_watched")

    def __init__(self, stands: Callable[[Call], bool]) -> None:
        self._stands = stands
        self._lock = allocate_lock()
        self._waits: set[Wait] = set()
        self._watched = False
        self._before = _signal.signal(_WAKE, _nothing)

    def add(self, call: Call, process: int, stop: Callable[[], object], limit: float = 0.0) -> Wait:
        """Begin to wait for at most `limit` seconds (0: any time). `stop` is called, on another thread and until `end`,
        when the wait has a `number`.
        """
        wait = Wait(call, process, stop, limit)
        with self._lock:
            self._waits.add(wait)
            start, self._watched = not self._watched, True
        if start:
            try:
                start_new_thread(self._watch, ())
            except RuntimeError:  # no more threads to be had
                self._watched = False
        return wait

    def end(self, wait: Wait) -> None:
        """`stop` is not called any more."""
        with self._lock:
            self._waits.discard(wait)

    def blocking(self, call: Call, process: int, work: Callable[[], int], *, once: bool = False) -> int:
        """Do `work`, which makes one system call that may block, by `syscalls`: Python's own calls go on after a
        signal. Raises `OSError`; with `once` a call is never made again by the kernel.
        """
        thread = get_ident()
        wait = self.add(call, process, lambda: _signal.pthread_kill(thread, _WAKE))
        try:
            return work()
        except InterruptedError:
            number = errno.EINTR if once else wait.number or errno.EINTR
            raise OSError(number, "a signal came while it waited") from None
        finally:
            self.end(wait)

    def close(self) -> None:
        """Put back what the signal did before; on the main thread."""
        if self._before is not None:
            _signal.signal(_WAKE, self._before)

    def _watch(self) -> None:
        idle = 0
        while idle < _IDLE:
            now = time.monotonic()
            with self._lock:
                recent = any(now - wait.began < 1 for wait in self._waits)
            time.sleep(_TICK if recent or idle else _LONG_TICK)
            with self._lock:
                idle = 0 if self._waits else idle + 1
                for wait in self._waits:
                    wait.look(now, self._stands)
                self._watched = idle < _IDLE


def signalled(thread: int, process: int) -> int:
    """The errno for a thread that waits while a signal is to be handled or to stop it, 0 when there is none.

    `RESTART` where the kernel has chosen this very thread for the signal; EINTR where it may have chosen another one.
    Source: proc_pid_status(5); complete_signal() of kernel/signal.c, which takes the main thread if that does not block
    the signal.
    """
    pending, shared, blocked, wanted = _signals(thread)
    if pending & wanted & ~blocked:
        return RESTART
    if not shared & wanted & ~blocked:
        return 0
    if thread == process:
        return RESTART
    return errno.EINTR if shared & wanted & ~blocked & _signals(process)[2] else 0


def heeds(thread: int, signal: int) -> bool:
    """Whether a signal that stops by default would stop a thread, or be handled by it."""
    _, _, blocked, wanted = _signals(thread)
    return bool(1 << signal - 1 & wanted & ~blocked)


def _signals(thread: int) -> tuple[int, int, int, int]:
    """Masks: pending for the thread, pending for its process, blocked, and those that are caught or stop it."""
    found = dict.fromkeys((b"SigPnd", b"ShdPnd", b"SigBlk", b"SigIgn", b"SigCgt"), 0)
    try:
        for line in read_entry(f"/proc/{thread}/status").split(b"\n"):
            name, _, value = line.partition(b":")
            if name in found:
                found[name] = int(value, 16)
    except OSError:
        pass  # it is gone, and nobody waits
    wanted = found[b"SigCgt"] | (_STOPS & ~found[b"SigIgn"])
    return found[b"SigPnd"], found[b"ShdPnd"], found[b"SigBlk"], wanted


def _nothing(number: int, frame: object) -> None:
    """A handler, without which the signal would end no call."""
