"""Programs that the supervisor runs for an SDK call: started with the agent's environment, fed and read to their end.

It runs in worker threads, so it never forks in Python: posix_spawn(3) starts the program without running code of ours
in between.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import time

from agentbox.guard.kernel import posix_spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentbox.guard.decisions._base import Starter
    from agentbox.guard.family import Family

_CHUNK = 65536


def run(
    file: str,
    argv: Sequence[str],
    *,
    environ: Mapping[str, str],
    cwd: str,
    stdin: bytes,
    timeout: float | None,
    limit: int,
    family: Family,
    start: Starter | None = None,
) -> tuple[int, bytes, bytes]:
    """Status (128+n for signal n), standard output and standard error of a program.

    With `start` it is started by that, inside the run's layers.

    Raises `OSError`: ETIMEDOUT after `timeout` seconds, EFBIG when one stream is longer than `limit` bytes, else
    posix_spawn(3)'s.
    """
    inside: list[int] = []
    outside: list[int] = []
    for _ in range(3):
        for end, descriptor in zip((inside, outside), os.pipe(), strict=True):
            end.append(descriptor)
    inside[1], outside[1] = outside[1], inside[1]  # the program reads the first pipe and writes the others
    inside[2], outside[2] = outside[2], inside[2]
    try:
        program = start(file, argv, environ, cwd, inside) if start else _Child(file, argv, environ, cwd, inside, family)
    except OSError:
        _close(outside)
        raise
    finally:
        _close(inside)
    try:
        out, error = _converse(outside, stdin, None if timeout is None else time.monotonic() + timeout, limit)
    except OSError:
        family.end_tree(program.pid)
        raise
    finally:
        _close(outside)
        status = program.wait()
    code = os.waitstatus_to_exitcode(status)
    return (code if code >= 0 else 128 - code), out, error


class _Child:
    """A program started by the supervisor itself."""

    __slots__ = ("_family", "pid")

    def __init__(
        self, file: str, argv: Sequence[str], environ: Mapping[str, str], cwd: str, ends: list[int], family: Family
    ) -> None:
        self._family = family
        self.pid = posix_spawn.spawn(file, argv, environ, cwd, ends, (signal.SIGPIPE, signal.SIGXFSZ))

    def wait(self) -> int:
        """Its wait status, when it has ended."""
        return self._family.wait(self.pid)


def _converse(ends: list[int], stdin: bytes, deadline: float | None, limit: int) -> tuple[bytes, bytes]:
    """Write all of `stdin`, read both outputs until they are closed; ends[0] is closed early."""
    streams: dict[int, list[bytes]] = {ends[1]: [], ends[2]: []}
    sizes = dict.fromkeys(streams, 0)
    waiting = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        for descriptor in streams:
            selector.register(descriptor, selectors.EVENT_READ)
        if waiting:
            os.set_blocking(ends[0], False)
            selector.register(ends[0], selectors.EVENT_WRITE)
        else:
            os.close(ends[0])
            ends[0] = -1
        while selector.get_map():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            for key, _ in selector.select(left):
                if key.fd == ends[0]:
                    waiting = _feed(key.fd, waiting)
                    if not waiting:
                        selector.unregister(key.fd)
                        os.close(key.fd)
                        ends[0] = -1
                    continue
                data = os.read(key.fd, _CHUNK)
                if not data:
                    selector.unregister(key.fd)
                    continue
                sizes[key.fd] += len(data)
                if sizes[key.fd] > limit:
                    raise OSError(errno.EFBIG, f"the program wrote more than {limit} bytes")
                streams[key.fd].append(data)
    return b"".join(streams[ends[1]]), b"".join(streams[ends[2]])


def _feed(descriptor: int, waiting: memoryview) -> memoryview:
    try:
        return waiting[os.write(descriptor, waiting[:_CHUNK]) :]
    except BlockingIOError:
        return waiting
    except BrokenPipeError:
        return waiting[:0]  # it does not read to the end; its own business


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)
