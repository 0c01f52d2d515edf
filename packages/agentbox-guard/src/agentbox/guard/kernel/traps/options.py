"""setsockopt(2): options that lead packets elsewhere, send by themselves or need power stay away from sockets of the
host's network, where one was put in place of a program's own.

The filter lets through what is harmless on any socket (`socketrows.PLAIN`). The rest is set here: on a duplicate of
the very socket that was looked at, with the supervisor's copy of the value, by a child without capabilities.
"""

from __future__ import annotations

import errno
import os
import struct

from agentbox.guard.kernel import socketrows, syscalls
from agentbox.guard.kernel.traps import sockets
from agentbox.guard.kernel.traps._base import NEVER, Box, number
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler

_LINGER = socketrows.SOL_SOCKET, 13  # SO_LINGER, <asm-generic/socket.h>, Linux 1.0
_MOST_VALUE = 65536
_MOST_FILTER = 4096
"""BPF_MAXINSNS, <linux/bpf_common.h>."""
_FILTERS = (syscalls.SO_ATTACH_FILTER, 51)
"""The other is SO_ATTACH_REUSEPORT_CBPF: options of SOL_SOCKET whose value points to a program."""
_NAMES = {
    (0, 4): "IP_OPTIONS", (0, 8): "IP_PKTINFO", (0, 32): "IP_MULTICAST_IF", (0, 35): "IP_ADD_MEMBERSHIP",
    (0, 39): "IP_ADD_SOURCE_MEMBERSHIP", (0, 42): "MCAST_JOIN_GROUP", (0, 46): "MCAST_JOIN_SOURCE_GROUP",
    (41, 6): "IPV6_2292PKTOPTIONS", (41, 17): "IPV6_MULTICAST_IF", (41, 20): "IPV6_ADD_MEMBERSHIP",
    (41, 42): "MCAST_JOIN_GROUP", (41, 46): "MCAST_JOIN_SOURCE_GROUP", (41, 50): "IPV6_PKTINFO",
    (41, 54): "IPV6_HOPOPTS", (41, 55): "IPV6_RTHDRDSTOPTS", (41, 57): "IPV6_RTHDR", (41, 59): "IPV6_DSTOPTS",
    (1, 25): "SO_BINDTODEVICE", (1, 26): "SO_ATTACH_FILTER", (1, 27): "SO_DETACH_FILTER", (1, 36): "SO_MARK",
    (1, 62): "SO_BINDTOIFINDEX", (6, 14): "TCP_MD5SIG", (6, 19): "TCP_REPAIR", (6, 30): "TCP_FASTOPEN_CONNECT",
    (6, 31): "TCP_ULP", (17, 100): "UDP_ENCAP",
}  # fmt: skip


def _setsockopt(box: Box, call: Call, name: str) -> None:
    level, option, size = (number(call.args[place]) for place in (1, 2, 4))
    if not 0 <= size <= _MOST_VALUE:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    value = box.memory.block(call.pid, call.args[3], size)
    if (level, option) == _LINGER:
        _linger(box, call, value)
        return
    program = _program(box, call, value) if level == socketrows.SOL_SOCKET and option in _FILTERS else None
    fd = box.duplicate(call, number(call.args[0]))

    def act() -> None:
        if program is None:
            syscalls.setsockopt(fd, level, option, value)
        else:
            syscalls.attach_filter(fd, program, option)

    try:
        if sockets.is_of_host(box, fd):
            _refuse(box, call, level, option)
        sockets.powerless_call(box, call, fd, act)
    except OSError:
        os.close(fd)
        raise


def _linger(box: Box, call: Call, value: bytes) -> None:
    """A struct linger (socket(7)): whether, and how many seconds close(2) waits for what is not sent yet.

    Who closes last waits, and that may be the supervisor with a duplicate: so nobody does, and the kernel sends on.
    At 0 seconds the connection is reset instead, which takes no time. Raises `OSError`.
    """
    if len(value) >= 8 and value[:4] != bytes(4) and value[4:8] != bytes(4):
        value = bytes(8)
    fd = box.duplicate(call, number(call.args[0]))
    try:
        syscalls.setsockopt(fd, *_LINGER, value)
    finally:
        os.close(fd)
    box.listener.value(call, 0)


def _program(box: Box, call: Call, value: bytes) -> bytes:
    """The program behind a struct sock_fprog: a count of instructions and a pointer. Raises `OSError`."""
    if len(value) != 16:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    count, place = struct.unpack("=H6xQ", value)
    if not 1 <= count <= _MOST_FILTER:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return box.memory.block(call.pid, place, 8 * count)


def _refuse(box: Box, call: Call, level: int, option: int) -> None:
    """Raises `OSError`, unless the run only observes."""
    shown = f"setsockopt {_NAMES.get((level, option), f'level {level} option {option}')} {sockets.OF_HOST}"
    denial = Denial("call", shown, NEVER)
    if box.scribe.deny_once(box.ids(call).process, "sys.call", shown, {"name": shown}, denial):
        box.scribe.flush()
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


CALLS: dict[str, Handler] = {"setsockopt": _setsockopt}
