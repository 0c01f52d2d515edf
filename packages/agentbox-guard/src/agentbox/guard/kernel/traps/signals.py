"""Signals beyond a single known process: a group may hold the supervisor, so only the run's own members get them.

In an own process namespace no other process can be named at all; without one every target is looked at.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import os

from agentbox.guard.family import parent_and_group
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
    everyone = [pid for pid in family.all() if pid == own or (pid not in family.keepers and not family.is_kept(pid))]
    if target == -1:
        return everyone
    if target == 0:
        group = parent_and_group(own)[1]
        return [pid for pid in everyone if parent_and_group(pid)[1] == group]
    return [pid for pid in everyone if _inner_group(pid, box.pidns) == -target]


def _inner_group(pid: int, pidns: bool) -> int:
    """A process's group as the run's own processes number it (NSpgid of proc_pid_status(5), Linux 4.1)."""
    if not pidns:
        return parent_and_group(pid)[1]
    try:
        return int(member(read_entry(f"/proc/{pid}/status"), b"NSpgid").split()[-1])
    except (OSError, IndexError):
        return -1


def _one(box: Box, call: Call, own: int, target: int, signal: int) -> None:
    """Without an own process namespace: one process, by its number."""
    if target == own or box.desk.family.may_reach(target):
        box.listener.proceed(call)  # registers only: nothing to be rewritten
        return
    _refuse(box, call, own, target, signal)


def _refuse(box: Box, call: Call, own: int, target: int, signal: int) -> None:
    denial = Denial("signal", f"process {target}", OTHERS)
    if box.scribe.deny(own, "proc.signal", {"target": target, "signal": signal}, denial):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    box.listener.proceed(call)


def _thread(box: Box, call: Call, name: str) -> None:
    """tkill(2), tgkill(2), rt_sigqueueinfo(2) and the like without an own process namespace: the first argument
    counts.
    """
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
        target = _process_of(fd)
        if number(call.args[3]):  # a whole group, Linux 6.9
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if target != own and not box.desk.family.may_reach(target):
            denial = Denial("signal", f"process {target}", OTHERS)
            if box.scribe.deny(own, "proc.signal", {"target": target, "signal": signal}, denial):
                raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        _signal.pidfd_send_signal(fd, signal)
    finally:
        os.close(fd)
    box.listener.value(call, 0)


def _process_of(pidfd: int) -> int:
    try:
        return int(member(read_entry(f"/proc/self/fdinfo/{pidfd}"), b"Pid"))
    except (OSError, ValueError):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None


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
