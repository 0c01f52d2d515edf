"""What /proc says of a process that waits for an answer: its ids inside the run, folder, umask, terminal, descriptors.

Everything is read anew when it is asked for, since processes change; only ids are remembered. It opens nothing for a
process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource

from agentbox.guard import procfs, shortage
from agentbox.guard.kernel import syscalls
from agentbox.guard.procfs import member, read_entry, read_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

AT_FDCWD = 0xFFFFFF9C
"""-100 as the low half of an argument, <linux/fcntl.h>: relative to the working directory."""
_MOST_KNOWN = 8192
_PIDFD_THREAD = os.O_EXCL  # <linux/pidfd.h>, Linux 6.9: a thread that need not be its group's leader


def gone() -> OSError:
    """The error for a process that is not there any more."""
    return OSError(errno.ESRCH, os.strerror(errno.ESRCH))


class Ids:
    """`process` is the thread group's id for us; `inner` and `inner_thread` are the ids that the run's own /proc
    shows, `own` and `own_thread` those that its calls know.
    """

    __slots__ = ("inner", "inner_thread", "own", "own_thread", "process")

    def __init__(self, process: int, inner: int, inner_thread: int, own: int, own_thread: int) -> None:
        self.process = process
        self.inner = inner
        self.inner_thread = inner_thread
        self.own = own
        self.own_thread = own_thread


class Askers:
    """Facts of waiting threads by their id in our namespace. `own_proc`: the run has a /proc of its own namespace."""

    __slots__ = ("_ids", "_own_proc", "heard")

    def __init__(self, own_proc: bool) -> None:
        self._ids: dict[int, tuple[tuple[int, int], Ids]] = {}
        self._own_proc = own_proc
        self.heard: Callable[[int], object] = lambda process: None
        """Told the process of a thread that is heard of for the first time."""

    def ids(self, thread: int) -> Ids:
        """The ids of a thread. Raises `OSError` (ESRCH)."""
        try:
            life = procfs.life(thread)
        except OSError:
            raise gone() from None
        known = self._ids.get(thread)
        if known is not None and known[0] == life:
            return known[1]
        status = _status(thread)
        process = int(member(status, b"Tgid"))
        self.heard(process)
        # NStgid and NSpid name one id for each nested namespace, ours first (Linux 4.1).
        own = int((member(status, b"NStgid") or member(status, b"Tgid")).split()[-1])
        own_thread = int((member(status, b"NSpid") or member(status, b"Pid")).split()[-1])
        inner, inner_thread = (own, own_thread) if self._own_proc else (process, thread)
        if len(self._ids) >= _MOST_KNOWN:
            self._ids.clear()
        ids = Ids(process, inner, inner_thread, own, own_thread)
        self._ids[thread] = life, ids
        return ids

    def process(self, thread: int) -> int:
        """The process of a thread, as it was when last seen: for what does no harm when the number is another's now.

        Raises `OSError` (ESRCH).
        """
        known = self._ids.get(thread)
        return known[1].process if known is not None else self.ids(thread).process

    def forget(self, thread: int) -> None:
        """A thread has begun another life by exec."""
        self._ids.pop(thread, None)

    def umask(self, thread: int) -> int:
        """The file mode creation mask (Linux 4.7)."""
        return int(member(_status(thread), b"Umask"), 8)

    def is_single(self, thread: int) -> bool:
        """Whether its process has no other thread (member Threads of proc_pid_status(5)). Raises `OSError` (ESRCH)."""
        return member(_status(thread), b"Threads").strip() == b"1"

    def owner(self, thread: int) -> tuple[int, set[int]]:
        """The user id by which a thread owns files, and its group ids: members Uid, Gid and Groups of
        proc_pid_status(5).
        """
        status = _status(thread)
        groups = {int(member(status, b"Gid").split()[3]), *map(int, member(status, b"Groups").split())}
        return int(member(status, b"Uid").split()[3]), groups

    def terminal(self, thread: int) -> tuple[int, int] | None:
        """(major, minor) of the controlling terminal, or None; field 7 of proc_pid_stat(5)."""
        number = int(stat_fields(thread)[4]) & 0xFFFFFFFF
        if not number:
            return None
        return (number >> 8) & 0xFFF, (number & 0xFF) | ((number >> 12) & 0xFFF00)

    def base(self, thread: int, descriptor: int) -> bytes:
        """The folder that a relative path starts from: `AT_FDCWD` or a descriptor's number, as an absolute path."""
        try:
            return os.readlink(_base(thread, descriptor))
        except OSError as error:
            if error.errno == errno.ENOENT and descriptor != AT_FDCWD:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None
            raise

    def above(self, thread: int, descriptor: int, levels: int) -> bytes:
        """The folder so many levels above `base`, by the tree and not by its name: one that was removed has no name,
        but still knows where it lay. Raises `OSError`.
        """
        fd = os.open(_base(thread, descriptor) + b"/.." * levels, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return os.readlink(b"/proc/self/fd/%d" % fd)
        finally:
            os.close(fd)

    def duplicate(self, thread: int, number: int) -> int:
        """A duplicate of the thread's own descriptor `number`, whatever other threads have at that number.

        Source: pidfd_open(2), pidfd_getfd(2). Raises `OSError` (EBADF, ESRCH).
        """
        pidfd = self._pidfd(thread)
        try:
            return syscalls.pidfd_getfd(pidfd, number)
        finally:
            os.close(pidfd)

    def descriptor(self, thread: int, number: int) -> tuple[int, int | None]:
        """An O_PATH descriptor of what the thread's descriptor `number` is, and the access mode (O_RDONLY, O_WRONLY,
        O_RDWR) that it was opened with: None for an O_PATH one. Raises `OSError` (EBADF, ESRCH).
        """
        # Both are asked of one duplicate: the number may mean something else at any moment.
        copy = self.duplicate(thread, number)
        try:
            flags = fcntl.fcntl(copy, fcntl.F_GETFL)
            fd = os.open(b"/proc/self/fd/%d" % copy, os.O_PATH | os.O_CLOEXEC)
        finally:
            os.close(copy)
        return fd, None if flags & os.O_PATH else flags & os.O_ACCMODE

    def closes_on_exec(self, thread: int, number: int) -> bool:
        """Whether a descriptor is closed by exec. Raises `OSError` (EBADF)."""
        return bool(self._flags(thread, number) & os.O_CLOEXEC)

    def _pidfd(self, thread: int) -> int:
        try:
            return os.pidfd_open(thread, _PIDFD_THREAD)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        # Before Linux 6.9 there are only those of leaders. The thread waits, so that its table stays the one compared.
        process = self.ids(thread).process
        if process != thread and not syscalls.same_descriptors(process, thread):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return os.pidfd_open(process)

    @staticmethod
    def _flags(thread: int, number: int) -> int:
        try:
            return int(member(read_entry(f"/proc/{thread}/fdinfo/{number}"), b"flags"), 8)
        except (OSError, ValueError) as error:
            raise _or_short(error, OSError(errno.EBADF, os.strerror(errno.EBADF))) from None


def _or_short(error: Exception, instead: OSError) -> Exception:
    """What an entry that cannot be read means, unless it is the supervisor that lacks something."""
    return error if shortage.met(error) else instead


def _base(thread: int, descriptor: int) -> bytes:
    return b"/proc/%d/" % thread + (b"cwd" if descriptor == AT_FDCWD else b"fd/%d" % descriptor)


def _status(thread: int) -> bytes:
    try:
        return read_entry(f"/proc/{thread}/status")
    except OSError as error:
        raise _or_short(error, gone()) from None


def stat_fields(pid: int) -> list[str]:
    """See `procfs.read_stat`. Raises `OSError` (ESRCH, or the shortage of descriptors that kept us from looking)."""
    try:
        return read_stat(pid)
    except OSError as error:
        raise _or_short(error, gone()) from None


def is_full(thread: int) -> bool:
    """Whether a thread's table takes no further descriptor (EMFILE, open(2)); asked before an open changes a file.

    The size of /proc/PID/fd is their count since Linux 6.2; before, and for a process whose limit is not shown, the
    answer is False, and the open fails at its end.
    """
    folder = f"/proc/{thread}/fd"
    try:
        count = os.stat(folder).st_size
        limit = resource.prlimit(thread, resource.RLIMIT_NOFILE)[0] if count else -1
        if not 0 <= limit <= count:
            return False
        return sum(int(name) < limit for name in os.listdir(folder)) >= limit  # the others are from before it fell
    except OSError:
        return False
