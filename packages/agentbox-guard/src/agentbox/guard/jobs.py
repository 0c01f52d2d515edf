"""Slow work in threads, whose results come back to the loop thread in the order in which they are ready.

A job never touches the session, the trace or a connection; only the function that takes its result does, on the loop
thread.
"""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOST_THREADS = 256
"""More slow calls than this at once wait for a thread; far above what an honest agent does."""
MOST_WAITS = 4096
"""What waits for somebody else, for ever perhaps, must not keep work from its threads; more than this are refused, and
more than a quarter of the descriptors that we may have: each holds one.
"""


class Jobs:
    """Register `wake` for reading in the loop and call `collect` when it is readable."""

    __slots__ = ("_done", "_lock", "_threads", "_waiting", "_waits", "_writer", "running", "wake")

    def __init__(self) -> None:
        self.wake, self._writer = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self._writer, False)
        self.running = 0
        self._threads = 0
        self._waits = 0
        self._lock = allocate_lock()
        self._waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self._done: list[tuple[Callable[[Any], None], Any]] = []

    @property
    def working(self) -> int:
        """How many do more than wait for somebody else."""
        return self.running - self._waits

    def run(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Run `work` in a thread, then `then` on the loop thread with its result or the exception that it raised."""
        self.running += 1
        with self._lock:
            self._waiting.append((work, then))
            if self._threads >= MOST_THREADS:
                return
            self._threads += 1
        try:
            start_new_thread(self._work, ())
        except RuntimeError:  # no more threads to be had: the ones that run will get to it, or it is done here
            with self._lock:
                self._threads -= 1
                alone = self._threads == 0
            if alone:
                self._work_here()

    def wait(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """The same for what does nothing but wait for others: it has a thread of its own at once.

        Where there is none left, `then` gets an `OSError` (EAGAIN).
        """

        def ended(value: Any) -> None:
            self._waits -= 1
            then(value)

        self.running += 1
        self._waits += 1
        try:
            # sysconf(3): the soft RLIMIT_NOFILE, which is raised while the run begins
            if self._waits > min(MOST_WAITS, os.sysconf("SC_OPEN_MAX") // 4):
                raise RuntimeError("too many wait")
            start_new_thread(self._do, (work, ended))
        except RuntimeError:
            none_left = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            self.post(lambda value: self._finish(ended, value), none_left)

    def post(self, then: Callable[[Any], None], value: Any) -> None:
        """Have `then(value)` called on the loop thread; from any thread."""
        self._done.append((then, value))
        try:
            os.write(self._writer, b"\0")
        except OSError:
            pass  # full: the loop is woken anyway

    def collect(self) -> None:
        """Hand over the results that are ready; on the loop thread."""
        try:
            while os.read(self.wake, 4096):
                pass
        except BlockingIOError:
            pass
        for _ in range(len(self._done)):  # what is posted meanwhile has its turn after all others
            then, value = self._done.pop(0)
            then(value)

    def close(self) -> None:
        """Close the descriptors; results that come later are dropped."""
        os.close(self.wake)
        writer, self._writer = self._writer, -1
        os.close(writer)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                work, then = self._waiting.pop(0)
            self._do(work, then)

    def _work_here(self) -> None:
        while self._waiting:
            self._do(*self._waiting.pop(0))

    def _do(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        try:
            value = work()
        except Exception as error:
            value = error
        self.post(lambda result: self._finish(then, result), value)

    def _finish(self, then: Callable[[Any], None], value: Any) -> None:
        self.running -= 1
        then(value)
