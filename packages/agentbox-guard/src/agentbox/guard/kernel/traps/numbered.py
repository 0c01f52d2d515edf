"""Calls that change a process by its number (limits, priorities, processors): only those of the run are reached.

The number is a register's, so that the kernel can go on with a call that was decided on.
"""

from __future__ import annotations

import errno
import os

from agentbox.guard.kernel import others
from agentbox.guard.kernel.traps._base import Box, number
from agentbox.guard.kernel.traps.refusals import refuse
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler

OTHERS = "only processes of this run may be changed"
_WHO = {"setpriority": others.PRIO_PROCESS, "ioprio_set": others.IOPRIO_WHO_PROCESS}


def _by_number(box: Box, call: Call, name: str) -> None:
    if number(call.args[0]) != _WHO.get(name, number(call.args[0])):
        refuse(box, call, name)  # a group or a user, of which the supervisor is one
        return
    allow(box, call, number(call.args[others.BY_NUMBER[name]]), name)
    box.listener.proceed(call)


def allow(box: Box, call: Call, target: int, name: str) -> None:
    """Raise `OSError` (EPERM) unless the process, thread or (negative) group is of the run, and none that keeps it."""
    own = box.ids(call).process
    family = box.desk.family
    if target in (0, own, call.pid) or (family.has_group(-target) if target < 0 else family.may_reach(target)):
        return
    shown = f"{name} of process {target}" if target > 0 else f"{name} of process group {-target}"
    if box.scribe.deny_once(own, "sys.call", shown, {"name": shown}, Denial("call", shown, OTHERS)):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


CALLS: dict[str, Handler] = dict.fromkeys(others.BY_NUMBER, _by_number)
