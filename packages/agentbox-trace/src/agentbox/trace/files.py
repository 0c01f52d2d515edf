"""How trace files are made, opened and moved: never through a link, never a device, never over something else.

Nothing here may wait (a FIFO is refused, not opened for ever) or touch a file that agentbox did not write.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from .chain import START
from .errors import TraceError, from_os, shown

_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_OTHER = "name another trace: -t FILE"
_NAME_IT = "name the trace, as in trace.jsonl"
_MAKE_IT = "record one first, or name the file that it was recorded to"
_WAYS_TO_READ = {
    errno.ENOENT: _MAKE_IT,
    errno.EACCES: "read it as the user who recorded it",
    errno.ENOTDIR: "a folder of its path is a file; name the trace, as in trace.jsonl",
    errno.EMFILE: "raise the limit of open files: ulimit -n",
}
"""What a user can do about a trace that cannot be opened, by what the system says."""
_AWAY = f"move it away or {_OTHER}"


def create_file(name: str) -> int:
    """Return a locked descriptor, opened for appending, of a new or empty file at `name`, mode 0600. Raises
    `TraceError` (`exists`, `io`)."""
    try:
        fd = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE, 0o600)
    except OSError as error:
        raise from_os(name, "the trace cannot be made", error, hint=way_out(error, name)) from None
    except ValueError:
        raise TraceError(f"{shown(name)}: cannot be made: its name holds a NUL byte", code="io") from None
    try:
        claim(fd, name)
        facts = os.fstat(fd)
        if facts.st_size:
            raise TraceError(
                f"{shown(name)}: is there already, expected no file or an empty one", code="exists", hint=_AWAY
            )
        if facts.st_nlink != 1:
            raise TraceError(
                f"{shown(name)}: has {facts.st_nlink} names, expected one", code="io", hint="remove the hard links"
            )
        os.fchmod(fd, 0o600)
    except OSError as error:
        os.close(fd)
        raise from_os(name, "the trace cannot be made", error, hint=way_out(error, name)) from None
    except TraceError:
        os.close(fd)
        raise
    return fd


def claim(fd: int, name: str) -> None:
    """Take the writer's lock (flock(2): it ends with the last process that holds the descriptor)."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise TraceError(f"{shown(name)}: is not a regular file, expected none or an empty one", code="io", hint=_OTHER)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TraceError(
            f"{shown(name)}: another run is writing it", code="exists", hint=f"wait for that run or {_OTHER}"
        ) from None


def way_out(error: OSError, *names: str) -> str:
    """What a user can do where the system lets no trace be made, or an old one not be moved away."""
    for name in names if error.errno in (errno.EACCES, errno.EPERM) else ():
        try:
            owner = os.lstat(name).st_uid
        except (OSError, ValueError):
            continue
        if owner != os.geteuid():
            return f"{shown(name)} belongs to another user and is in the way; have it removed or {_OTHER}"
    return _OTHER


def open_trace(path: str | os.PathLike[str]) -> int:
    """Return a descriptor for reading a regular file. Links are followed. Raises `TraceError` (`io`) for everything
    that is not one."""
    name = os.fspath(path)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        hint = _WAYS_TO_READ.get(error.errno or 0, _NAME_IT)
        raise from_os(name, "cannot be opened", error, hint=hint) from None
    except ValueError:
        raise TraceError(
            f"{shown(name)}: cannot be opened: its name holds a NUL byte", code="io", hint=_NAME_IT
        ) from None
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind):
        return fd
    os.close(fd)
    what = "a directory" if stat.S_ISDIR(kind) else "a pipe" if stat.S_ISFIFO(kind) else "a device"
    raise TraceError(f"{shown(name)}: is {what}, expected a trace file", code="io", hint=_NAME_IT)


def open_own(name: str) -> int | None:
    """Return a descriptor of the trace at `name`, or None when there is no file or an empty one; refuse everything
    else."""
    try:
        fd = os.open(name, os.O_RDONLY | _SAFE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise from_os(name, "cannot be opened", error, hint=way_out(error, name)) from None
    try:
        regular = stat.S_ISREG(os.fstat(fd).st_mode)
        start = os.read(fd, len(START)) if regular else b"?"
    except OSError as error:
        os.close(fd)
        raise from_os(name, "cannot be read", error) from None
    if regular and start == START:
        return fd
    os.close(fd)
    if not start:
        return None
    raise TraceError(
        f"{shown(name)}: is there and is not an agentbox trace, expected none or a trace",
        code="not-a-trace",
        hint=f"it was left alone: {_AWAY}",
    )
