"""Reads files that a program of the run, or of an earlier run, may have made: regular ones only, never waiting, and no
more than was asked for.

To open a FIFO or a device may wait for ever or have an effect, so what is there is looked at before it is opened. It
decides nothing; `tests/test_untrusted_opens.py` keeps other opens of such files out of the supervisor.
"""

from __future__ import annotations

import errno
import os
import stat

LARGEST_TEXT = 1 << 20
"""Bytes of a settings file that are worth reading."""
_PATH = getattr(os, "O_PATH", 0)  # Linux 2.6.39
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_regular(path: str, *, follow: bool = False) -> int:
    """Open a regular file for reading; the last name may be a link only with `follow`. Raises `OSError`: ELOOP for a
    link, EINVAL for what is no regular file.
    """
    last = 0 if follow else os.O_NOFOLLOW
    if not _PATH:
        _need_regular(os.stat(path, follow_symlinks=follow))
        descriptor = os.open(path, _READ | last)
    else:
        place = os.open(path, _PATH | last | os.O_CLOEXEC)
        try:
            _need_regular(os.fstat(place))
            descriptor = os.open(f"/proc/self/fd/{place}", _READ)
        finally:
            os.close(place)
    try:
        _need_regular(os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str, most: int, *, follow: bool = False) -> bytes:
    """All of a regular file. Raises `OSError` as `open_regular`, and EFBIG for more than `most` bytes."""
    descriptor = open_regular(path, follow=follow)
    try:
        data = b""
        while len(data) <= most and (chunk := os.read(descriptor, min(65536, most + 1 - len(data)))):
            data += chunk
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data


def _need_regular(info: os.stat_result) -> None:
    if stat.S_ISLNK(info.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
