"""How an effect opens the very file that the policy decided on, though the agent may move and link things meanwhile.

It never follows a link: the folder is opened and asked where it is, then the name inside it is opened as it stands.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.context import EffectContext

_TRIES = 3
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", 0)
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_F_GETPATH = 50
"""fcntl(2) of macOS: the path of a descriptor."""


class Moved(Exception):
    """The path no longer leads to where it led when it was decided."""


def open_folder(path: str) -> tuple[int, str]:
    """A descriptor of the folder of the resolved `path`, proved to be it, and the last name. Raises `Moved`."""
    head, _, name = path.rpartition("/")
    head = head or "/"
    folder = os.open(head, _FOLDER)
    try:
        if _location(folder) != head:
            raise Moved
    except BaseException:
        os.close(folder)
        raise
    return folder, name or "."


def open_regular(folder: int, name: str, flags: int) -> int:
    """Open an existing regular file in an open folder. Raises `Moved` for a link, `OSError` for what has no content."""
    # Looked at before it is opened as well: merely to open a device or a FIFO can have an effect.
    _expect_regular(os.stat(name, dir_fd=folder, follow_symlinks=False))
    try:
        fd = os.open(name, flags | _SAFE, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Moved from None
        raise
    try:
        _expect_regular(os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def refuse_moved(key: str, path: str, context: EffectContext) -> OSError:
    """Refuse because of `Moved`; in observe mode, where nothing is refused, the error to answer with."""
    context.refuse(Denial(key, path, "the path was changed between the check and the use"))
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def tries() -> range:
    """How often what met `Moved` is tried: a program may replace a file while it is read, without ill intent."""
    return range(_TRIES)


def _location(fd: int) -> str:
    """Where an open folder is now (proc(5), /proc/pid/fd; fcntl(2) on macOS)."""
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(fd, _F_GETPATH, bytes(1024)).split(b"\0", 1)[0])
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        raise OSError(errno.ENOSYS, "/proc is not mounted, so the file cannot be told from another") from None


def _expect_regular(info: os.stat_result) -> None:
    if stat.S_ISREG(info.st_mode):
        return
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISLNK(info.st_mode):
        raise Moved
    kind = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}.get(stat.S_IFMT(info.st_mode), "a device")
    raise OSError(errno.EINVAL, f"got {kind}, expected a regular file")
