"""setrlimit(2) and prlimit64(2) of the size of core files: the limit stays what it was made before the run.

At a limit of nothing the kernel starts a program of the host for a core all the same, at one byte it does not (core(5),
piping core dumps to a program). Programs that want no core files see that they got their wish. The supervisor answers
on its own copy, and nothing is changed.
"""

from __future__ import annotations

import errno
import os
import resource
import struct

from agentbox.guard.kernel.others import RLIMIT_CORE
from agentbox.guard.kernel.traps._base import Box, number
from agentbox.guard.kernel.traps.numbered import allow, by_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler

_PAIR = struct.Struct("=QQ")
"""struct rlimit64: RLIM_INFINITY is the greatest number in it."""


def _setrlimit(box: Box, call: Call, name: str) -> None:
    _keep(box, call, call.args[1], 0)


def _prlimit(box: Box, call: Call, name: str) -> None:
    process, kind, new, old = call.args[:4]
    if number(kind) != RLIMIT_CORE or not new:
        by_number(box, call, name)
        return
    allow(box, call, number(process), name)
    _keep(box, call, new, old)


def _keep(box: Box, call: Call, new: int, old: int) -> None:
    """Answer as the kernel would, by the asker's own limit: every process of the run has the same. Raises `OSError`."""
    soft, hard = _PAIR.unpack(box.memory.block(call.pid, new, _PAIR.size))
    limits = [limit & 0xFFFFFFFFFFFFFFFF for limit in resource.prlimit(box.ids(call).process, RLIMIT_CORE)]
    if soft > hard:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    if hard > limits[1]:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    if old:
        box.write(call, old, _PAIR.pack(*limits))
    box.listener.value(call, 0)


CALLS: dict[str, Handler] = {"setrlimit": _setrlimit, "prlimit64": _prlimit}
