"""A socket made outside is put in the place of a program's own: under every number that the process has for it, and in
every epoll set in which it waits already.

A number is only filled while it still stands for the socket that was decided on. What other processes have of that one
(after fork, or passed on) stays as it was, unconnected.
"""

from __future__ import annotations

import errno
import fcntl
import os

from agentbox.guard import shortage
from agentbox.guard.kernel import syscalls
from agentbox.guard.kernel.traps import peers
from agentbox.guard.kernel.traps._base import Box, number
from agentbox.guard.procfs import member, read_long

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call

    Watch = tuple[int, int, int, int]
    """An epoll set's number, that of the socket in it, its events and its data."""

_EPOLL = "anon_inode:[eventpoll]"


def put_over(box: Box, call: Call, old: int, new: int) -> int:
    """Have the asker's descriptors of `old` stand for `new`, both duplicates of ours; the call still waits.

    0, or what the call is to fail with: EBADF when the number that it was made with is the socket's no more, or who
    asked has gone; or the supervisor's shortage of descriptors.
    """
    place = number(call.args[0])
    try:
        try:
            numbers, sets = _seen(call.pid, old)
        except PermissionError:  # of a process that shows nobody its descriptors (PR_SET_DUMPABLE, prctl(2))
            numbers, sets = {place} if _is(call.pid, place, old) else set(), []
        watches = [watch for one in sets for watch in _watches(call.pid, one, old)]
        if place not in numbers or not _put(box, call, new, place):
            return errno.EBADF
    except OSError as error:
        return shortage.met(error) or errno.EBADF
    for one in numbers:
        if one != place:
            try:
                _put(box, call, new, one)
            except OSError:
                pass  # closed meanwhile
    if watches:
        _watch(box, call, watches, old, new)
    return 0


def _put(box: Box, call: Call, new: int, place: int) -> bool:
    """False if the asker is gone. Raises `OSError`."""
    return box.listener.put(call, new, place, box.askers.closes_on_exec(call.pid, place))


def _seen(thread: int, old: int) -> tuple[set[int], list[int]]:
    """The numbers that a thread's process has for a socket of ours, and those of its epoll sets. Raises `OSError`."""
    wanted = f"socket:[{os.fstat(old).st_ino}]"
    numbers, sets = set(), []
    for name in os.listdir(f"/proc/{thread}/fd"):
        try:
            target = os.readlink(f"/proc/{thread}/fd/{name}")
        except OSError:
            continue  # closed meanwhile
        if target == wanted:
            numbers.add(int(name))
        elif target == _EPOLL:
            sets.append(int(name))
    return numbers, sets


def _is(thread: int, place: int, old: int) -> bool:
    """Whether a number stands for a socket of ours, by its fdinfo (`ino` since Linux 5.14). Raises `OSError`."""
    return member(read_long(f"/proc/{thread}/fdinfo/{place}"), b"ino") == b"%d" % os.fstat(old).st_ino


def _watches(thread: int, at: int, old: int) -> list[Watch]:
    """What an epoll set has of the socket: `tfd: 7 events: 19 data: 7 pos:0 ino:2a sdev:8`, numbers but the first in
    hexadecimal (proc_pid_fdinfo(5), Linux 3.8; `ino` 4.13). Raises `OSError`.
    """
    inode = os.fstat(old).st_ino
    found = []
    for line in read_long(f"/proc/{thread}/fdinfo/{at}").splitlines():
        words = line.replace(b":", b": ").split()
        if words[:1] == [b"tfd:"] and len(words) >= 12 and int(words[9], 16) == inode:
            found.append((at, int(words[1]), int(words[3], 16), int(words[5], 16)))
    return found


def _watch(box: Box, call: Call, watches: list[Watch], old: int, new: int) -> None:
    """Have the sets wait for the new socket as they did for the old one. To an epoll set a socket is known by its
    number in the process that adds it (epoll(7), question 0), so a child gives the sockets the program's numbers.
    """
    held: dict[int, int] = {}

    def again() -> None:
        above = max(one for _, one, _, _ in watches) + 1
        ours = {at: fcntl.fcntl(fd, fcntl.F_DUPFD, above) for at, fd in held.items()}
        before, after = (fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in (old, new))
        for at, one, events, data in watches:
            os.dup2(before, one)
            syscalls.epoll_ctl(ours[at], syscalls.EPOLL_CTL_DEL, one)
            os.dup2(after, one)
            syscalls.epoll_ctl(ours[at], syscalls.EPOLL_CTL_ADD, one, events, data)

    try:
        for at, *_ in watches:
            if at not in held:
                held[at] = box.duplicate(call, at)
        peers.in_child(again)
    except OSError:
        pass  # closed meanwhile
    finally:
        for fd in held.values():
            os.close(fd)
