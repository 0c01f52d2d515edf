"""Verification by several processes: each walks a range that begins at a newline, and the ends are then joined.

A worker must never report a place: where anything does not fit, the caller walks that range again itself, from a
state that it knows.
"""

from __future__ import annotations

import marshal
import os
from signal import SIGKILL

from .chain import split_prefix
from .walk import BLOCK, Walk, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = 16 * 1024 * 1024
"""Bytes per process below which a fork costs more than it saves."""


def usable_processes(size: int) -> int:
    """How many processes are worth it here: by the processors that this process may use, the file's size, and
    whether a fork is safe (no other threads)."""
    if _threads() > 1:  # a fork beside other threads could deadlock the child
        return 1
    try:
        processors = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        processors = os.cpu_count() or 1
    return max(1, min(processors, 8, size // SMALL))


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        import threading

        return threading.active_count()


def walk_together(fd: int, position: Walk, end: int, processes: int, *, progress: Callable[[int], None] | None) -> Walk:
    """Do what `walk` does, with up to `processes` processes, this one included."""
    starts = _starts(fd, position.offset, end, processes)
    if not starts:
        return walk(fd, position, end, progress=progress)
    workers: list[_Worker] = []
    try:
        try:
            for start, stop in zip(starts, [*starts[1:], end], strict=True):
                workers.append(_Worker(fd, start, stop))
        except OSError:  # no process to be had: the work can be done without
            return walk(fd, position, end, progress=progress)
        share = len(workers) + 1
        first = position.offset
        report = None if progress is None else lambda done: progress(first + (done - first) * share)
        walk(fd, position, starts[0], progress=report)
        for worker in workers:
            if position.bad or position.rest or not worker.join(position):
                walk(fd, position, end, progress=progress)
                break
    finally:
        for worker in workers:
            worker.stop()
    return position


def _starts(fd: int, begin: int, end: int, processes: int) -> list[int]:
    """Return where the ranges after the first begin: just behind the first newline after equal shares."""
    starts: list[int] = []
    for number in range(1, processes):
        at = begin + (end - begin) * number // processes
        data = os.pread(fd, BLOCK, at)
        newline = data.find(b"\n")
        if newline < 0:
            continue  # a very long line: this share goes to the range before
        start = at + newline + 1
        if start < end and start > (starts[-1] if starts else begin):
            starts.append(start)
    return starts


class _Worker:
    """A forked process that walks one range, from the state that the range's first line claims."""

    __slots__ = ("_pid", "_pipe")

    def __init__(self, fd: int, start: int, end: int) -> None:
        self._pipe, write = os.pipe()
        self._pid = -1
        try:
            self._pid = _fork()
        except OSError:
            os.close(self._pipe)
            os.close(write)
            raise
        if self._pid == 0:
            # Whatever happens here must end here: the copy of the caller's stack must never run on.
            try:
                os.close(self._pipe)
                with open(write, "wb") as file:
                    file.write(_claimed_walk(fd, start, end))
            finally:
                os._exit(0)
        os.close(write)

    def join(self, position: Walk) -> bool:
        """Advance `position` over the worker's range if that fits on; False if it does not and has to be walked
        again."""
        with open(self._pipe, "rb") as file:
            self._pipe = -1
            data = file.read()
        try:
            claim, offset, head, seq, before, counts, seal, rest, blobs = marshal.loads(data)
        except (EOFError, ValueError, TypeError):
            return False
        if claim != (position.head, position.seq):
            return False
        position.offset, position.head, position.seq, position.before, position.rest = offset, head, seq, before, rest
        position.counts = {kind: count + counts[kind] for kind, count in position.counts.items()}
        position.seal = seal if position.seal < 0 else position.seal
        for name, number in blobs.items():
            position.blobs.setdefault(name, number)
        return True

    def stop(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._pid > 0:
            os.kill(self._pid, SIGKILL)  # done already, or not needed any more
            os.waitpid(self._pid, 0)
            self._pid = -1


def _fork() -> int:
    """Fork without the warning about other threads (Python 3.12): the caller has asked for processes, and the child
    takes no lock of theirs."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _claimed_walk(fd: int, start: int, end: int) -> bytes:
    """Return what `join` needs, or no bytes where anything does not fit."""
    claim = split_prefix(os.pread(fd, 128, start))
    if claim is None:
        return b""
    at = walk(fd, Walk(start, claim[0], claim[1]), end)
    if at.bad:
        return b""
    return marshal.dumps((claim[:2], at.offset, at.head, at.seq, at.before, at.counts, at.seal, at.rest, at.blobs))
