"""Whom a number in a call means: processes, threads and groups as the asker counts them, translated into our numbers.

A process namespace counts for itself, and its own process 1 and the run's starter of programs are in it. Nothing is
decided here.
"""

from __future__ import annotations

import errno
import fcntl
import os

from agentbox.guard.family import parent_and_group
from agentbox.guard.kernel.traps._base import Box
from agentbox.guard.procfs import member, read_entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call

_FROM_NAMESPACE = 0x8004B706  # NS_GET_PID_FROM_PIDNS, <linux/nsfs.h>, Linux 6.11


def meant(box: Box, call: Call, number: int) -> int:
    """The process or thread of a number, negative for a group. Raises `OSError` (ESRCH): the run has none by it."""
    ids = box.ids(call)
    if number in (0, ids.own):
        return ids.process if number else 0
    if number == ids.own_thread:
        return call.pid
    if not box.pidns:
        return number
    found = _inside(box, call, number) if number > 0 else -_group(box, -number)
    if not found:
        raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
    return found


def inner_group(pid: int, pidns: bool) -> int:
    """A process's group as the run's own processes number it (NSpgid of proc_pid_status(5), Linux 4.1)."""
    if not pidns:
        return parent_and_group(pid)[1]
    try:
        return int(_numbers(pid, b"NSpgid")[-1])
    except (OSError, IndexError):
        return -1


def _inside(box: Box, call: Call, number: int) -> int:
    """Who has the number in the asker's process namespace; 0 for nobody. Raises `OSError`."""
    try:
        space = os.open(f"/proc/{call.pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # a program that its user may not read
        return _searched(box, call, number)
    try:
        return fcntl.ioctl(space, _FROM_NAMESPACE, number)
    except ProcessLookupError:
        return 0
    except OSError:  # an older kernel
        return _searched(box, call, number)
    finally:
        os.close(space)


def _searched(box: Box, call: Call, number: int) -> int:
    """The same by a look at all threads of the run. Raises `OSError`."""
    depth = len(_numbers(call.pid, b"NSpid"))  # who is not in the namespace has fewer
    for pid in box.desk.family.all():
        try:
            for thread in map(int, os.listdir(f"/proc/{pid}/task")):
                numbers = _numbers(thread, b"NSpid")
                if len(numbers) == depth and int(numbers[-1]) == number:
                    return thread
        except FileNotFoundError:
            pass  # it has ended
    return 0


def _group(box: Box, group: int) -> int:
    """Our number of a process group of the run's own, 0 when it has no members. Raises `OSError`."""
    family = box.desk.family
    members = (pid for pid in family.all() if not family.is_ours(pid))
    return next((parent_and_group(pid)[1] for pid in members if inner_group(pid, box.pidns) == group), 0)


def _numbers(pid: int, name: bytes) -> list[bytes]:
    """A member of proc_pid_status(5) that has one number for each namespace, ours first. Raises `OSError`."""
    return member(read_entry(f"/proc/{pid}/status"), name).split()
