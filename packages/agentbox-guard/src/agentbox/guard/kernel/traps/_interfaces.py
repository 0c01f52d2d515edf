"""Requests of ioctl(2) that tell of interfaces: netdevice(7).

A socket of the host's network would tell the machine's addresses, so questions are asked by the supervisor on a
duplicate of the socket that was looked at; one that was put in place of a program's own is not asked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from agentbox.guard.kernel import syscalls
from agentbox.guard.kernel.traps import sockets
from agentbox.guard.kernel.traps._base import NEVER, Box, number
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call

_LIST = 0x8912  # SIOCGIFCONF, <linux/sockios.h>
_ASKED = frozenset(
    {0x8910, 0x8913, 0x8915, 0x8917, 0x8919, 0x891B, 0x891D, 0x8921, 0x8927, 0x8933, 0x8935, 0x8942, 0x8970}
)
"""SIOCGIFNAME, FLAGS, ADDR, DSTADDR, BRDADDR, NETMASK, METRIC, MTU, HWADDR, INDEX, PFLAGS, TXQLEN and MAP: they need no
power, and take and give a struct ifreq.
"""
_REQUEST = 40
"""sizeof(struct ifreq), <linux/if.h>."""


def ask(box: Box, call: Call, request: int) -> None:
    """Answer a request of `socketrows.INTERFACES`. Raises `OSError`."""
    fd = box.duplicate(call, number(call.args[0]))
    try:
        _interface(box, call, fd, request, call.args[2])
    finally:
        os.close(fd)


def _interface(box: Box, call: Call, fd: int, request: int, place: int) -> None:
    try:
        outside = sockets.is_outside(box, fd)
    except OSError as error:
        code = errno.ENOTTY if error.errno == errno.ENOTSOCK else error.errno or errno.EIO
        raise OSError(code, os.strerror(code)) from None
    if outside:
        shown = f"ioctl {request:#x} {sockets.OF_HOST}"
        denial = Denial("call", shown, NEVER)
        if box.scribe.deny_once(box.ids(call).process, "sys.call", shown, {"name": shown}, denial):
            box.scribe.flush()
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    if request == _LIST:
        _list(box, call, fd, place)
    elif request in _ASKED:
        box.write(call, place, fcntl.ioctl(fd, request, box.memory.block(call.pid, place, _REQUEST)))
    else:  # what is left changes interfaces, or is a driver's own
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    box.listener.value(call, 0)


def _list(box: Box, call: Call, fd: int, place: int) -> None:
    """A struct ifconf: the size of a room, which becomes that of what is in it, and where it is (null: how much)."""
    size, room = struct.unpack("=i4xQ", box.memory.block(call.pid, place, 16))
    found = syscalls.interfaces(fd, syscalls.PAGE)
    if room:
        found = found[: max(size, 0) // _REQUEST * _REQUEST]
        box.write(call, room, found)
    box.write(call, place, struct.pack("=i", len(found)))
