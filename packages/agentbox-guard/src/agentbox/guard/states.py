"""What a path holds at the end of a run: its SHA-256, or in words why there is none. It opens regular files only.

The paths come from the agent: nothing here may wait for what has no end or no bottom, nor follow a link.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST = 1 << 30
"""Bytes; a larger file is told by its size. A sparse one may claim to hold more than any machine could read."""
NOT_HASHED = "not hashed "
"""How the state of a file begins of which nothing is known."""
_CHUNK = 1 << 20
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


def state_of(path: str, late: Callable[[], bool] = lambda: False) -> str:
    """What is at the absolute `path`: the sha256 of a file in hex, `too large (N bytes)`, `absent`, `directory`,
    `link`,
    `special`, `unreadable (why)` or `not hashed (why)`.

    `late` is asked all the time; once it says so there is no time left to hash.
    """
    try:
        folder = os.path.dirname(path)
        if os.path.realpath(folder) != folder:
            return NOT_HASHED + "(a link leads to it)"
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode):
            return "directory" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "special"
        descriptor = os.open(path, _OPEN)
        try:
            info = os.fstat(descriptor)
            return _content(descriptor, info.st_size, late) if stat.S_ISREG(info.st_mode) else "special"
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except OSError as error:
        return f"unreadable ({error.strerror})"


def _content(descriptor: int, size: int, late: Callable[[], bool]) -> str:
    import hashlib

    if size > LARGEST:
        return f"too large ({size} bytes)"
    found = hashlib.sha256()
    left = LARGEST
    while left >= 0:
        if late():
            return NOT_HASHED + "(no time was left)"
        data = os.read(descriptor, _CHUNK)
        if not data:
            return found.hexdigest()
        found.update(data)
        left -= len(data)
    return NOT_HASHED + "(it grew)"
