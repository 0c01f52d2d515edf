"""What must be true of a started program besides its file and its arguments: its variables, and that its content is
what was recorded.

It is asked when the image is there, which has run little of its own or nothing yet. It decides nothing, and ends
nothing itself.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import fcntl
import os

from agentbox.guard.paths import identity
from agentbox.guard.procfs import read_long

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.hashes import Hashes
    from agentbox.guard.kernel.inherited import Inherited
    from agentbox.guard.kernel.injected import Injected

CONTENT = "the program's content was another than the one that was recorded"
UNKNOWN = "nobody can tell which variables it was started with"
ELSEWHERE = "it was started in another folder, where its script may be another"


class Content:
    """The content of a program's file, from before it is hashed to its image. Until `close` the run does not get the
    file for writing. Raises `OSError` (ETXTBSY, as execve(2) would) when somebody has it for writing now.
    """

    __slots__ = ("_hashes", "_info", "_release", "_steady", "digest")

    def __init__(self, hashes: Hashes, fd: int, writable: bool) -> None:
        self.digest: str | None = None
        """What is recorded; None when it cannot be read."""
        self._hashes = hashes
        self._info = os.fstat(fd)
        self._steady = True
        """False when the file could be changed without a change of its times: a mapping from before (mmap(2))."""
        if writable or hashes.is_written(self._info):
            writers = _has_writers(fd)
            if writers:
                raise OSError(errno.ETXTBSY, os.strerror(errno.ETXTBSY))
            self._steady = writers is not None
        self._release = hashes.hold(self._info)

    def problem(self, pid: int) -> str:
        """Why the file that the process runs does not hold what was recorded, or ""."""
        if self.digest is None:
            return ""
        file = f"/proc/{pid}/exe"
        try:
            if self._steady and _state(os.stat(file)) == _state(self._info):
                return ""
            # Another name or mode changes a file's times as well: only its content says that it is another.
            return "" if self._hashes.file(file) == self.digest else CONTENT
        except (FileNotFoundError, ProcessLookupError):
            return ""  # the process is gone
        except OSError:
            return CONTENT

    def close(self) -> None:
        """The run may have the file for writing again, as far as the kernel lets it."""
        self._release()


class Proof:
    """What an exec that was let through must have led to: the `content` of the file that is executed, which for a
    script is not that of the image, no variable that is `injected`, the working directory `folder`, where that says
    which script is meant, and nothing that it `keeps` of its caller, where that could change until the exec was done.
    """

    __slots__ = ("_content", "_folder", "_injected", "_keeps", "_script")

    def __init__(
        self,
        content: Content,
        injected: Injected | None,
        *,
        script: bool,
        folder: tuple[int, int] | None = None,
        keeps: Inherited | None = None,
    ) -> None:
        self._content = content
        self._folder = folder
        self._injected = None if injected is None or injected.any else injected
        self._keeps = keeps
        self._script = script

    def problem(self, pid: int) -> str:
        """See `lineage.Proof`."""
        found = "" if self._script else self._content.problem(pid)
        if not found and self._folder is not None and identity(f"/proc/{pid}/cwd") != self._folder:
            return ELSEWHERE
        if not found and self._keeps is not None:
            found = self._keeps.problem(pid)
        return found or ("" if self._injected is None else _given(pid, self._injected))

    def close(self) -> None:
        """See `lineage.Proof`."""
        self._content.close()


def _given(pid: int, injected: Injected) -> str:
    """The problem with the variables that a process has been started with; proc_pid_environ(5)."""
    try:
        return injected.reason(read_long(f"/proc/{pid}/environ").split(b"\0"))
    except PermissionError:
        return UNKNOWN
    except OSError:
        return ""  # the process is gone


def _has_writers(fd: int) -> bool | None:
    """Whether somebody has the file open for writing, or mapped; None when that cannot be told.

    A read lease is given only while nobody has (fcntl(2)), to the file's owner or with CAP_LEASE, where the filesystem
    has leases. Who opens the file meanwhile makes the kernel send a signal, here one that is ignored by default.
    """
    try:
        readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.fcntl(readable, _F_SETSIG, _signal.SIGURG)
        fcntl.fcntl(readable, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(readable, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(readable)
    return False


_F_SETSIG = 10  # <asm-generic/fcntl.h>, Linux 2.0


def _state(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns
