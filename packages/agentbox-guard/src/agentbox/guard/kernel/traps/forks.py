"""New processes: of no kind with namespaces of their own, and without a process namespace of the run's none that the
supervisor has not let come.

A call proceeds by its flags alone, which are in registers: fork(2), vfork(2), clone(2).
"""

from __future__ import annotations

import errno

from agentbox.guard.kernel import rows
from agentbox.guard.kernel.traps._base import Box
from agentbox.guard.kernel.traps.refusals import refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler


def _fork(box: Box, call: Call, name: str) -> None:
    if box.desk.family.ending:
        box.listener.fail(call, errno.EAGAIN)  # as at a limit on processes
    else:
        box.listener.proceed(call)


def _clone(box: Box, call: Call, name: str) -> None:
    (refuse if call.args[0] & rows.NAMESPACES else _fork)(box, call, name)


CALLS: dict[str, Handler] = {"fork": _fork, "vfork": _fork, "clone": _clone}
