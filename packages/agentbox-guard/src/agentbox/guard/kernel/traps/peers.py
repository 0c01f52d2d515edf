"""Who is at the other end of a local socket (SO_PEERCRED, unix(7)): the process that asked for the connection.

The supervisor makes local connections in a program's name, so the kernel would name the supervisor. Nothing is decided
here.
"""

from __future__ import annotations

import _socket as socket  # the module around it loads enum and selectors, 3 ms of a start
import errno
import os
import select
import struct
from _signal import SIGKILL  # type: ignore[import-not-found]

from agentbox.guard.family import AWAITED
from agentbox.guard.kernel import syscalls
from agentbox.guard.kernel.traps._base import Box, number
from agentbox.guard.twins import owned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler

_CREDENTIALS = struct.Struct("=iII")
_SO_PEERPIDFD = 77  # <asm-generic/socket.h>, Linux 6.5
_MOST_KNOWN = 4096
"""Of older connections the peer is then told as one that has ended: 0, or the child's number."""


def _getsockopt(box: Box, call: Call, name: str) -> None:
    value_at, size_at = call.args[3:5]
    (room,) = struct.unpack("=i", box.memory.block(call.pid, size_at, 4))
    one = owned(box.duplicate(call, number(call.args[0])))
    try:
        pid, uid, gid = _CREDENTIALS.unpack(one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        inner = _inner(box, pid, lambda: _peer(one))
    finally:
        one.close()
    data = _CREDENTIALS.pack(inner, uid, gid)[: max(room, 0)]
    box.write(call, value_at, data)
    box.write(call, size_at, struct.pack("=i", len(data)))
    box.listener.value(call, 0)


def _inner(box: Box, pid: int, ask: Callable[[], tuple[bool | None, int]]) -> int:
    """The number, as the asker counts, of the process that the kernel noted as `pid`; `ask` says what `_peer` does."""
    acting = pid in box.acting  # looked at first: a child that ends in between is in one of the two answers
    lives, inode = ask()
    # The number of a child of ours, once it has ended, may be another process's by now, a later child's among them.
    noted = box.peers.get((pid, inode))
    if noted is not None and (inode or acting or not lives):
        return noted
    if pid > 0 and lives is not False and box.desk.family.has(pid):
        try:
            return box.askers.ids(pid).inner
        except OSError:
            pass  # it has ended since
    return 0 if box.pidns else pid


def _peer(one: socket.socket) -> tuple[bool | None, int]:
    """Whether the process that the kernel noted at the other end still lives, None where it does not tell, and its
    `_inode`: of one that has ended, the kernel gives a pidfd since Linux 6.16.
    """
    try:
        pidfd = struct.unpack("=i", one.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4))[0]
    except OSError as error:
        return (None if error.errno == errno.ENOPROTOOPT else False), 0
    try:
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        return not ended.poll(0), _inode(pidfd)
    finally:
        os.close(pidfd)


def _inode(pidfd: int) -> int:
    """What names a process for good, while its number is given out again: the inode of its pidfds (pidfs, Linux 6.9).

    0 where all pidfds have the same one.
    """
    number = os.fstat(pidfd).st_ino
    own = os.pidfd_open(os.getpid())
    try:
        return 0 if os.fstat(own).st_ino == number else number
    finally:
        os.close(own)


def _inode_of(child: int) -> int:
    """The `_inode` of a child that has not been waited for; 0 where it cannot be had."""
    try:
        pidfd = os.pidfd_open(child)
    except (AttributeError, OSError):  # no pidfds here, or no descriptor left
        return 0
    try:
        return _inode(pidfd)
    except OSError:
        return 0
    finally:
        os.close(pidfd)


def act_as(box: Box, pid: int, act: Callable[[], object]) -> int:
    """Make a call in a child, whose number stands for the process `pid` from then on; 0. Raises `OSError`."""
    inner = box.askers.ids(pid).inner

    def note(child: int) -> None:
        box.acting.add(child)
        acting.append(child)
        for key in {(child, 0), (child, _inode_of(child))}:
            box.peers.pop(key, None)
            box.peers[key] = inner
        while len(box.peers) > _MOST_KNOWN:
            del box.peers[next(iter(box.peers))]

    acting: list[int] = []
    try:
        return in_child(act, note)
    finally:
        box.acting.difference_update(acting)


def powerless(spaces: int, act: Callable[[], object]) -> int:
    """Make a call in a child that is in the user namespace behind `spaces` and has no capability there; 0.

    An ordinary user's supervisor owns the run's user namespace, which is as good as every capability in it
    (user_namespaces(7)), and root's has them all: so giving them up is not enough, and neither is going there. Raises
    `OSError`.
    """

    def without() -> None:
        enter(spaces, "user", syscalls.CLONE_NEWUSER)
        syscalls.capset(0, 0, 0)
        act()

    return in_child(without)


def enter(space: int, name: str, kind: int) -> None:
    """Join a namespace, unless this is it: nobody may join the own user namespace again (setns(2)). Raises
    `OSError`.
    """
    if os.fstat(space).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
        syscalls.setns(space, kind)


def in_child(act: Callable[[], object], began: Callable[[int], object] | None = None) -> int:
    """Make a call in a child of its own and wait for it; `began` takes the child's number before the call is made.

    0; raises `OSError`.
    """
    parent = os.getpid()
    ready, go = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(ready)
        os.close(go)
        raise
    if child == 0:
        code = errno.EIO
        try:
            # What it waits for may come when there is no run any more. Our thread lives for as long as it does.
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, SIGKILL)
            os.close(go)
            if os.getppid() == parent and os.read(ready, 1):  # the other end may ask at once who it was
                act()
                code = 0
        except OSError as error:
            code = error.errno or errno.EIO
        finally:
            os._exit(code & 0xFF)
    AWAITED.add(child)
    os.close(ready)
    try:
        if began is not None:
            began(child)
        os.write(go, b"\0")
    except OSError:
        pass  # the child is gone, which its status tells
    finally:
        os.close(go)
    interrupted: OSError | None = None
    try:
        status = syscalls.waitpid(child)
    except InterruptedError as error:  # in a program's name nobody waits on: what the child has done by now counts
        interrupted = error
        os.kill(child, SIGKILL)
        _, status = os.waitpid(child, 0)
    finally:
        AWAITED.discard(child)
    number_of = os.waitstatus_to_exitcode(status)
    if interrupted is not None and number_of < 0:
        raise interrupted
    if number_of:
        number_of = max(number_of, errno.EPERM)  # of a child that was killed nobody knows what it did
        raise OSError(number_of, os.strerror(number_of))
    return 0


CALLS: dict[str, Handler] = {"getsockopt": _getsockopt}
