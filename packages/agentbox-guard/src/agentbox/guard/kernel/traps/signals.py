"""Signals: a group may hold the supervisor, so only the run's own members get them, and so does no process that keeps
the run, nor without a process namespace of its own anybody else's.

Landlock refuses what leaves the run since Linux 6.12 only.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import os

from agentbox.guard.family import parent_and_group
from agentbox.guard.kernel.traps import _targets
from agentbox.guard.kernel.traps._base import Box, number
from agentbox.guard.procfs import member, read_entry
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler

OTHERS = "only processes of this run may be signalled"


def _kill(box: Box, call: Call, name: str) -> None:
    target, signal = number(call.args[0]), number(call.args[1])
    family = box.desk.family
    own = box.ids(call).process
    if target > 0:
        _one(box, call, own, target, signal)
        return
    members = _members(box, own, target)
    if not members:
        raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
    if target == -1:
        members = [pid for pid in members if pid != own]
    for pid in sorted(members, key=lambda pid: pid == own):  # the asker last: it may end by it
        if family.has(pid):
            _send(pid, signal)
    box.listener.value(call, 0)


def _members(box: Box, own: int, target: int) -> list[int]:
    """The run's processes that a group number means, as the asker counts groups."""
    family = box.desk.family
    everyone = [pid for pid in family.all() if pid == own or not family.is_ours(pid)]
    if target == -1:
        return everyone
    if target == 0:
        group = parent_and_group(own)[1]
        return [pid for pid in everyone if parent_and_group(pid)[1] == group]
    return [pid for pid in everyone if _targets.inner_group(pid, box.pidns) == -target]


def _one(box: Box, call: Call, own: int, asked: int, signal: int) -> None:
    """One process or thread, by its number; no other call than kill(2) takes a group's."""
    if asked > 0:
        _allow(box, call, own, _targets.meant(box, call, asked), asked, signal)
    box.listener.proceed(call)  # registers only: nothing to be rewritten


def _allow(box: Box, call: Call, own: int, target: int, asked: int, signal: int) -> None:
    """Raise `OSError` (EPERM) unless the process is the run's to signal; `asked` is its number for the program."""
    if target in (own, call.pid) or box.desk.family.may_reach(target):
        return
    if not signal and box.pidns:
        return  # a program asks whether its parent is there, which is process 1, and /proc tells that as well
    denial = Denial("signal", f"process {asked}", OTHERS)
    if box.scribe.deny(own, "proc.signal", {"target": asked, "signal": signal}, denial):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def _thread(box: Box, call: Call, name: str) -> None:
    """tkill(2), tgkill(2), rt_sigqueueinfo(2) and the like: the first argument counts."""
    _one(
        box,
        call,
        box.ids(call).process,
        number(call.args[0]),
        number(call.args[1 if name in ("tkill", "rt_sigqueueinfo") else 2]),
    )


def _pidfd(box: Box, call: Call, name: str) -> None:
    """pidfd_send_signal(2), sent by us to the very process that was looked at: the number may mean another by then."""
    own, signal = box.ids(call).process, number(call.args[1])
    fd = box.duplicate(call, number(call.args[0]))
    try:
        target, shown = _process_of(fd)
        if number(call.args[3]):  # a whole group, Linux 6.9
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        _allow(box, call, own, target, shown if box.pidns else target, signal)
        _signal.pidfd_send_signal(fd, signal)
    finally:
        os.close(fd)
    box.listener.value(call, 0)


def _process_of(pidfd: int) -> tuple[int, int]:
    """A process as we number it, and as those do who are in its own namespace: pidfd_open(2), NSpid since Linux 5.5.

    Raises `OSError`: EBADF when it is no such descriptor, ESRCH when the process has ended.
    """
    try:
        entry = read_entry(f"/proc/self/fdinfo/{pidfd}")
        pid, inner = int(member(entry, b"Pid")), int(member(entry, b"NSpid").split()[-1])
    except (OSError, ValueError, IndexError):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None
    if pid < 0:
        raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
    return pid, inner


def _send(pid: int, signal: int) -> None:
    try:
        os.kill(pid, signal)
    except (OSError, ValueError):
        pass


CALLS: dict[str, Handler] = {
    "kill": _kill,
    "tkill": _thread,
    "tgkill": _thread,
    "rt_sigqueueinfo": _thread,
    "rt_tgsigqueueinfo": _thread,
    "pidfd_send_signal": _pidfd,
}
