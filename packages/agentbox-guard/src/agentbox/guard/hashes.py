"""SHA-256 of files, remembered while a file's device, inode, size and times stay the same.

Nothing is remembered of a file that the run has opened for writing: mmap(2) lets a change of its content come before
the change of its times. While a program is about to start, the run does not get its file for writing. It writes
nothing.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from agentbox.trace.chain import quick_sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MOST = 4096  # entries; a run that starts more programs than this hashes some twice

_MOST_WRITTEN = 200_000
_CHUNK = 256 * 1024
_LEAST = 4096
_SMALL = 64 * 1024
_MOST_GROWTH = 64 * 1024 * 1024  # bytes beyond the size: files of /proc say 0, and one that is written to has no end


class Hashes:
    """May be used from any thread: a race costs a second hash, never a wrong one."""

    __slots__ = ("_held", "_known", "_written")

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[int, ...], str] = {}
        self._written: set[tuple[int, int]] | None = set()

    def file(self, path: str, wanted: Callable[[], bool] = lambda: True) -> str:
        """The digest in hex of a regular file. Raises `OSError`, as `opened`."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return self.opened(descriptor, wanted)
        finally:
            os.close(descriptor)

    def opened(self, descriptor: int, wanted: Callable[[], bool] = lambda: True) -> str:
        """The digest of a regular file that is open for reading; its offset stays what it is.

        Raises `OSError`: ECANCELED once it is not `wanted` any more, which is asked now and then.
        """

        def read(size: int, at: int) -> bytes:
            if at and not wanted():
                raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
            return os.pread(descriptor, size, at)

        return self._digest(descriptor, read)

    def _digest(self, descriptor: int, read: Callable[[int, int], bytes]) -> str:
        before = _identity(descriptor)
        known = self._remembered(before)
        if known:
            return known
        found, done, most = _sha256(before[2])(b""), 0, before[2] + _MOST_GROWTH
        # One byte more than there should be: the end shows at once. Large buffers cost more than small files.
        while done < most and (data := read(min(_CHUNK, max(before[2] - done, _LEAST) + 1), done)):
            found.update(data)  # not readinto(): /proc may have nothing yet
            done += len(data)
        digest: str = found.hexdigest()
        if _identity(descriptor) == before and not self._is_written(before):
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[before] = digest
        return digest

    def known(self, info: os.stat_result) -> str:
        """The remembered digest of the file that `info` is of; "" if there is none."""
        return self._remembered((info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns))

    def written(self, info: os.stat_result) -> None:
        """The run is about to get the file for writing: from now on it is hashed anew each time.

        Raises `OSError` (ETXTBSY, as of a running program) while the file is held.
        """
        if (info.st_dev, info.st_ino) in self._held:
            raise OSError(errno.ETXTBSY, os.strerror(errno.ETXTBSY))
        if self._written is not None:
            self._written.add((info.st_dev, info.st_ino))
            if len(self._written) > _MOST_WRITTEN:
                self._written = None  # of so many, nothing is remembered at all

    def is_written(self, info: os.stat_result) -> bool:
        """Whether the run has had the file for writing."""
        return self._is_written((info.st_dev, info.st_ino))

    def hold(self, info: os.stat_result) -> Callable[[], None]:
        """Let nobody of the run have the file for writing until the function that is returned has been called."""
        place = info.st_dev, info.st_ino
        self._held[place] = self._held.get(place, 0) + 1
        left = [place]

        def release() -> None:
            for one in left:
                self._held[one] -= 1
                if not self._held[one]:
                    del self._held[one]
            left.clear()

        return release

    def _remembered(self, identity: tuple[int, ...]) -> str:
        return "" if self._is_written(identity) else self._known.get(identity, "")

    def _is_written(self, identity: tuple[int, ...]) -> bool:
        written = self._written
        return written is None or identity[:2] in written

    def descriptor(self, descriptor: int, wanted: Callable[[], bool] = lambda: True) -> str:
        """The digest of an open regular file (an O_PATH descriptor will do), whatever its name is now. Raises
        `OSError`, as `opened`.
        """
        return self.known(os.fstat(descriptor)) or self.file(f"/proc/self/fd/{descriptor}", wanted)


def _sha256(size: int) -> Callable[[bytes], Any]:
    """hashlib's, which is fast and takes a run's start a millisecond to load; for a small file what comes without."""
    if size <= _SMALL and "hashlib" not in sys.modules:
        return quick_sha256()
    from hashlib import sha256

    return sha256


def _identity(descriptor: int) -> tuple[int, ...]:
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        raise OSError(22, "not a regular file")
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns
