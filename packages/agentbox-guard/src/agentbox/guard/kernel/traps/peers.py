"""Who is at the other end of a local socket (SO_PEERCRED, unix(7)): the process that asked for the connection.

The supervisor makes local connections in a program's name, so the kernel would name the supervisor. Nothing is decided
here.
"""

from __future__ import annotations

import _socket as socket  # the module around it loads enum and selectors, 3 ms of a start
import os
import struct

from agentbox.guard.kernel.traps._base import Box, number

TYPE_CHECKING = False
if TYPE_CHECKING:
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


def connect_as(box: Box, pid: int, fd: int, target: bytes) -> int:
    """connect(2) in a child of its own, whose number stands for the process `pid` from then on. Raises `OSError`."""
    from agentbox.guard.kernel import syscalls

    child = os.fork()
    if child == 0:
        code = 0
        try:
            syscalls.connect(fd, target)
        except OSError as error:
            code = error.errno or 5
        finally:
            os._exit(code & 0xFF)
    box.peers[child] = pid
    _, status = os.waitpid(child, 0)
    number_of = os.waitstatus_to_exitcode(status)
    if number_of:
        raise OSError(number_of, os.strerror(number_of))
    return 0


CALLS: dict[str, Handler] = {"getsockopt": _getsockopt}
