"""ioctl(2) and fcntl(2): requests that no program may make, and who gets the signals of a descriptor.

The kernel sends those to whom the descriptor's owner names, and to a terminal's foreground group when nobody was named
(drivers/tty/tty_io.c): the supervisor is in that. What depends on memory or on the descriptor is done by the supervisor
on its own duplicate, never by the kernel after it was looked at.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from _signal import SIG_BLOCK, SIG_SETMASK, SIGTTOU, pthread_sigmask  # type: ignore[import-not-found]

from agentbox.guard.kernel import ioctls, others, socketrows
from agentbox.guard.kernel.traps import _interfaces
from agentbox.guard.kernel.traps._base import Box, number
from agentbox.guard.kernel.traps._targets import meant
from agentbox.guard.kernel.traps.numbered import allow
from agentbox.guard.kernel.traps.refusals import refuse
from agentbox.guard.kernel.waits import heeds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler

_F_OWNER_PGRP = 2  # <asm-generic/fcntl.h>, Linux 2.6.32


def _ioctl(box: Box, call: Call, name: str) -> None:
    request = call.args[1] & 0xFFFFFFFF
    if request == ioctls.FIOASYNC:
        on = box.memory.block(call.pid, call.args[2], 4)
        _asynchronous(box, call, "ioctl FIOASYNC", lambda fd: fcntl.ioctl(fd, request, on), any(on))
    elif request in (ioctls.FIOSETOWN, ioctls.SIOCSPGRP):
        (owner,) = struct.unpack("=i", box.memory.block(call.pid, call.args[2], 4))
        target = allow(box, call, owner, "ioctl FIOSETOWN")
        _do(box, call, lambda fd: fcntl.fcntl(fd, others.F_SETOWN, target))
    elif request == ioctls.TIOCSPGRP:
        _give_terminal(box, call)
    elif request & 0xFFFFFF00 in socketrows.INTERFACES:
        _interfaces.ask(box, call, request)
    else:
        refuse(box, call, name, f"ioctl {request:#x}")


def _give_terminal(box: Box, call: Call) -> None:
    """tcsetpgrp(3): to a group of the run's alone, or back to the supervisor's, where numbers mean others as well.

    In another session than ours the kernel takes no group but one of that session's, all of which are the run's. In
    ours the supervisor does it, so that it knows who gets the user's Ctrl-C. A program in the background that SIGTTOU
    would stop is stopped by it in a process namespace of the run's own; else it gets an error, as one whom nobody could
    continue (__tty_check_change() of drivers/tty/tty_jobctrl.c).
    """
    (group,) = struct.unpack("=i", box.memory.block(call.pid, call.args[2], 4))
    if os.getsid(call.pid) != os.getsid(0) or (box.pidns and group <= 0):
        box.listener.proceed(call)
        return
    if box.pidns:
        group = -meant(box, call, -group)
    elif group != os.getpgrp():
        allow(box, call, -group, "ioctl TIOCSPGRP")
    fd = box.duplicate(call, number(call.args[0]))
    try:
        if os.getpgid(call.pid) != os.tcgetpgrp(fd) and heeds(call.pid, SIGTTOU):
            if box.pidns:
                box.listener.proceed(call)
                return
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        blocked = pthread_sigmask(SIG_BLOCK, (SIGTTOU,))
        try:
            os.tcsetpgrp(fd, group)
        finally:
            pthread_sigmask(SIG_SETMASK, blocked)
    finally:
        os.close(fd)
    box.listener.value(call, 0)
    box.foreground(group)


def _fcntl(box: Box, call: Call, name: str) -> None:
    command, argument = number(call.args[1]), call.args[2]
    if command == others.F_SETFL:
        _asynchronous(box, call, "fcntl O_ASYNC", lambda fd: fcntl.fcntl(fd, command, number(argument)), True)
    elif command == others.F_SETOWN:
        allow(box, call, number(argument), "fcntl F_SETOWN")
        box.listener.proceed(call)  # the owner is a register's, whichever descriptor it gets
    else:
        kind, owner = struct.unpack("=ii", box.memory.block(call.pid, argument, 8))  # struct f_owner_ex
        target = abs(allow(box, call, -owner if kind == _F_OWNER_PGRP else owner, "fcntl F_SETOWN_EX"))
        _do(box, call, lambda fd: fcntl.fcntl(fd, command, struct.pack("=ii", kind, target)))


def _asynchronous(box: Box, call: Call, shown: str, act: Callable[[int], object], on: bool) -> None:
    def unless_terminal(fd: int) -> None:
        if on and os.isatty(fd):
            refuse(box, call, "fcntl", shown + " of a terminal")
        else:
            act(fd)

    _do(box, call, unless_terminal)


def _do(box: Box, call: Call, act: Callable[[int], object]) -> None:
    fd = box.duplicate(call, number(call.args[0]))
    try:
        act(fd)
    finally:
        os.close(fd)
    box.listener.value(call, 0)


CALLS: dict[str, Handler] = {"ioctl": _ioctl, "fcntl": _fcntl}
