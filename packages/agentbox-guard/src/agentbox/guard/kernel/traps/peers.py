"""Who is at the other end of a local socket (SO_PEERCRED, unix(7)): the process that asked for the connection.

The supervisor makes local connections in a program's name, so the kernel would name the supervisor. Nothing is decided
here.
"""

from __future__ import annotations

import _socket as socket  # the module around it loads enum and selectors, 3 ms of a start
import errno
import os
import struct
from _signal import SIGKILL  # type: ignore[import-not-found]

from agentbox.guard.kernel import syscalls
from agentbox.guard.kernel.traps._base import Box, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler

_CREDENTIALS = struct.Struct("=iII")


def _getsockopt(box: Box, call: Call, name: str) -> None:
    value_at, size_at = call.args[3:5]
    (room,) = struct.unpack("=i", box.memory.block(call.pid, size_at, 4))
    fd = box.duplicate(call, number(call.args[0]))
    one = socket.socket(fileno=fd)
    try:
        pid, uid, gid = _CREDENTIALS.unpack(one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    finally:
        one.close()
    pid = box.peers.get(pid, pid)
    inner = box.askers.ids(pid).inner if pid > 0 and box.desk.family.has(pid) else 0 if box.pidns else pid
    data = _CREDENTIALS.pack(inner, uid, gid)[: max(room, 0)]
    box.memory.write(call.pid, value_at, data)
    box.memory.write(call.pid, size_at, struct.pack("=i", len(data)))
    box.listener.value(call, 0)


def act_as(box: Box, pid: int, act: Callable[[], object]) -> int:
    """Make a call in a child, whose number stands for the process `pid` from then on; 0. Raises `OSError`."""
    return in_child(act, lambda child: box.peers.__setitem__(child, pid))


def powerless(spaces: int, act: Callable[[], object]) -> int:
    """Make a call in a child that is in the user namespace behind `spaces` and has no capability there; 0.

    An ordinary user's supervisor owns the run's user namespace, which is as good as every capability in it
    (user_namespaces(7)), and root's has them all: so giving them up is not enough, and neither is going there. Raises
    `OSError`.
    """

    def without() -> None:
        if os.fstat(spaces).st_ino != os.stat("/proc/self/ns/user").st_ino:
            syscalls.setns(spaces, syscalls.CLONE_NEWUSER)
        syscalls.capset(0, 0, 0)
        act()

    return in_child(without)


def in_child(act: Callable[[], object], began: Callable[[int], object] | None = None) -> int:
    """Make a call in a child of its own and wait for it; `began` takes the child's number. 0; raises `OSError`."""
    child = os.fork()
    if child == 0:
        code = errno.EIO
        try:
            act()
            code = 0
        except OSError as error:
            code = error.errno or errno.EIO
        finally:
            os._exit(code & 0xFF)
    if began is not None:
        began(child)
    interrupted: OSError | None = None
    try:
        status = syscalls.waitpid(child)
    except InterruptedError as error:  # in a program's name nobody waits on: what the child has done by now counts
        interrupted = error
        os.kill(child, SIGKILL)
        _, status = os.waitpid(child, 0)
    number_of = os.waitstatus_to_exitcode(status)
    if interrupted is not None and number_of < 0:
        raise interrupted
    if number_of:
        number_of = max(number_of, errno.EPERM)  # of a child that was killed nobody knows what it did
        raise OSError(number_of, os.strerror(number_of))
    return 0


CALLS: dict[str, Handler] = {"getsockopt": _getsockopt}
