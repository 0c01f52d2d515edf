"""What tells of files without opening them: watches and extended attributes, judged like reading.

The supervisor asks for it itself, of the very object that was decided on. Source: inotify_add_watch(2), xattr(7).
"""

from __future__ import annotations

import errno
import os
import stat

from agentbox.guard.kernel import syscalls
from agentbox.guard.kernel.judge import EXEMPT, NO_NAME
from agentbox.guard.kernel.traps._base import Box, number, refused
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler
    from agentbox.guard.kernel.walk import Found

IN_DONT_FOLLOW = 0x02000000  # <linux/inotify.h>, Linux 2.6.15
_OPTIONS = 0xFF000000  # such flags, of which none is an event
_OF_ITSELF = 0x400 | 0x800
"""IN_DELETE_SELF and IN_MOVE_SELF (Linux 2.6.13), the events that never tell of a name in a folder."""
_PLAIN = (b"system.posix_acl_access", b"system.posix_acl_default", b"security.")
"""Names that tell no more than the mode and owner do, which stat(2) tells of every file."""
_PRIVILEGED = b"trusted."
"""What the kernel shows to CAP_SYS_ADMIN only, which no program of the run has."""
_MOST_NAME = 256  # XATTR_NAME_MAX and a zero, <linux/limits.h>
_FD = b"/proc/self/fd/%d"


def _judge(box: Box, call: Call, found: Found, listing: bool = False) -> int | Denial:
    if found.no_name:
        return EXEMPT if found.own >= 0 else Denial("read", found.text, NO_NAME)
    return box.judge.judge("read", found.text, box.ids(call).inner, listing=listing)


def _find(box: Box, call: Call, address: int, follow: bool) -> Found:
    return box.tree.find(call.pid, box.memory.text(call.pid, address), follow=follow)


def _watch(box: Box, call: Call, name: str) -> None:
    """A watch of a folder tells the names in it, one of a file when it is used.

    One of a folder of agentbox's own record tells of no name in it, as one of the folder around it would not.
    """
    queue, address, mask = number(call.args[0]), call.args[1], call.args[2] & 0xFFFFFFFF
    found = _find(box, call, address, not mask & IN_DONT_FOLLOW)
    try:
        folder = stat.S_ISDIR(os.fstat(found.fd).st_mode)
        op = "fs.list" if folder else "fs.read"
        if not found.no_name and box.judge.may_watch(found.text):
            if folder and not box.scribe.observing:
                mask = mask & _OPTIONS | _OF_ITSELF
        elif not box.allowed(call, op, {"path": found.text}, _judge(box, call, found, folder)):
            raise refused()
        mine = box.duplicate(call, queue)
        try:
            made = syscalls.inotify_add_watch(mine, _FD % found.fd, mask & ~IN_DONT_FOLLOW)
        finally:
            os.close(mine)
    finally:
        found.close()
    box.listener.value(call, made)


def _value(box: Box, call: Call, follow: bool) -> None:
    found = _find(box, call, call.args[0], follow)
    try:
        name = box.memory.text(call.pid, call.args[1], _MOST_NAME)
        if not name.startswith(_PLAIN):
            folder = stat.S_ISDIR(os.fstat(found.fd).st_mode)
            if not box.allowed(call, "fs.xattr", {"path": found.text}, _judge(box, call, found, folder)):
                raise refused()
            if name.startswith(_PRIVILEGED):
                raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        value = os.getxattr(_FD % found.fd, name)
    finally:
        found.close()
    _answer(box, call, value, call.args[2], call.args[3])


def _names(box: Box, call: Call, follow: bool) -> None:
    """Whoever may not read the file learns what a long listing asks for, and no other name."""
    found = _find(box, call, call.args[0], follow)
    try:
        names = [os.fsencode(name) for name in os.listxattr(_FD % found.fd)]
        if any(not name.startswith(_PLAIN) for name in names):
            judged = _judge(box, call, found, stat.S_ISDIR(os.fstat(found.fd).st_mode))
            kept = type(judged) is int or box.scribe.observing
            names = [name for name in names if name.startswith(_PLAIN) or (kept and not name.startswith(_PRIVILEGED))]
    finally:
        found.close()
    _answer(box, call, b"".join(name + b"\0" for name in names), call.args[1], call.args[2])


def _answer(box: Box, call: Call, data: bytes, address: int, room: int) -> None:
    """Room of 0 asks for the size alone."""
    if room and len(data) > room:
        raise OSError(errno.ERANGE, os.strerror(errno.ERANGE))
    if room:
        box.write(call, address, data)
    box.listener.value(call, len(data))


CALLS: dict[str, Handler] = {
    "inotify_add_watch": _watch,
    "getxattr": lambda box, call, _: _value(box, call, True),
    "lgetxattr": lambda box, call, _: _value(box, call, False),
    "listxattr": lambda box, call, _: _names(box, call, True),
    "llistxattr": lambda box, call, _: _names(box, call, False),
}
