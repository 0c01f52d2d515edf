"""Calls that change a process by its number (limits, priorities, processors): only those of the run are reached.

The number is a register's, so that the kernel can go on with a call that was decided on.
"""

from __future__ import annotations

import errno
import os

from agentbox.guard.kernel import others
from agentbox.guard.kernel.traps import _targets
from agentbox.guard.kernel.traps._base import Box, number
from agentbox.guard.kernel.traps.refusals import refuse
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler

OTHERS = "only processes of this run may be changed"
_WHO = {"setpriority": others.PRIO_PROCESS, "ioprio_set": others.IOPRIO_WHO_PROCESS}


def by_number(box: Box, call: Call, name: str) -> None:
    """Let the kernel go on with a call for a process of the run. Raises `OSError` (EPERM)."""
    if number(call.args[0]) != _WHO.get(name, number(call.args[0])):
        refuse(box, call, name)  # a group or a user, of which the supervisor is one
        return
    allow(box, call, number(call.args[others.BY_NUMBER[name]]), name)
    box.listener.proceed(call)


def _join(box: Box, call: Call, name: str) -> None:
    """setpgid(2) into a group that is there: one of the run's alone, or the supervisor's, in which the agent began. The
    job control of terminals signals whole groups, and asks for nobody's right to (__tty_check_change() of
    drivers/tty/tty_jobctrl.c). Raises `OSError` (EPERM).
    """
    process, group = (number(argument) for argument in call.args[:2])
    if group not in (process or box.ids(call).own, os.getpgrp()):
        allow(box, call, -group, name)
    box.listener.proceed(call)


def allow(box: Box, call: Call, asked: int, name: str) -> int:
    """Our number of the process, thread or (negative) group. Raises `OSError`: EPERM unless it is of the run, and none
    that keeps it; ESRCH when nobody has it.
    """
    own = box.ids(call).process
    family = box.desk.family
    target = _targets.meant(box, call, asked)
    if target in (0, own, call.pid) or (family.has_group(-target) if target < 0 else family.may_reach(target)):
        return target
    shown = f"{name} of process {asked}" if asked > 0 else f"{name} of process group {-asked}"
    if box.scribe.deny_once(own, "sys.call", shown, {"name": shown}, Denial("call", shown, OTHERS)):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    return target


CALLS: dict[str, Handler] = {
    **{name: by_number for name in others.BY_NUMBER if name != "prlimit64"},
    "setpgid": _join,
}
