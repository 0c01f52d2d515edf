"""bind(2) and listen(2): on the socket that was looked at and the supervisor's own copy of the address, never on what
the program's memory and descriptors are by then.

A local socket's file is made by a child that stands where the program stands (folder, namespaces, mask) and can make
sockets below the decided folder alone.
"""

from __future__ import annotations

import _socket as socket  # the module around it loads enum and selectors, 3 ms of a start
import errno
import os
import struct

from agentbox.guard.kernel import landlock, peers_only, syscalls
from agentbox.guard.kernel.traps import peers
from agentbox.guard.kernel.traps._base import NEVER, Box, number, refused
from agentbox.guard.kernel.traps.sockets import (
    INTERNET,
    OF_HOST,
    addressed,
    as_inet,
    decide_abstract,
    decide_local,
    endpoint,
    family_of,
    is_outside,
    own_call,
    powerless_call,
    sort_of,
    unix_name,
)
from agentbox.guard.session import Denial
from agentbox.guard.twins import owned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler
    from agentbox.guard.kernel.walk import Found


def _bind(box: Box, call: Call, name: str) -> None:
    addressed(box, call, _bind_to)


def _bind_to(box: Box, call: Call, fd: int, address: bytes) -> None:
    """Takes `fd` over, unless it raises."""
    family, kind = sort_of(fd)
    if family == socket.AF_NETLINK:
        powerless_call(box, call, fd, lambda: syscalls.bind(fd, address))
        return
    if family == socket.AF_UNIX and family_of(address) == socket.AF_UNIX:
        if unix_name(address)[:1] not in (b"", b"\0"):
            _bind_path(box, call, fd, address)
            return
        if unix_name(address) or not box.netns:  # without a name the kernel chooses an abstract one (unix(7), autobind)
            decide_abstract(box, call, fd, "net.bind", unix_name(address) or b"\0")
    elif family in INTERNET:
        _refuse_outside(box, call, fd, "bind")
        address = as_inet(address, family)
        endpoint(box, call, "net.bind", address, datagram=kind == socket.SOCK_DGRAM)
        if kind == socket.SOCK_DGRAM and not box.netns:
            own_call(box, call, fd, lambda: _bind_to_hear(fd, address), waits=False)
            return
    own_call(box, call, fd, lambda: syscalls.bind(fd, address), waits=False)


def _bind_to_hear(fd: int, address: bytes) -> int:
    """What may be bound hears anybody, but for one that a send has bound already: that fails. Raises `OSError`."""
    syscalls.bind(fd, address)
    peers_only.lift(fd)
    return 0


def _refuse_outside(box: Box, call: Call, fd: int, name: str) -> None:
    """A socket that was put in the place of a program's own is for what was decided when it was made, and for nothing
    else: nobody may bind it or listen with it, which would be on the host. Raises `OSError`.
    """
    if not is_outside(box, fd):
        return
    shown = f"{name} {OF_HOST}"
    box.scribe.deny_once(box.ids(call).process, "sys.call", shown, {"name": shown}, Denial("call", shown, NEVER))
    box.scribe.flush()
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def _bind_path(box: Box, call: Call, fd: int, address: bytes) -> None:
    """A local socket's file. Takes `fd` over, unless it raises."""
    found = box.tree.place(call.pid, unix_name(address))
    try:
        if found.fd >= 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        judged = box.judge.judge("write", found.text, box.ids(call).inner)
        if isinstance(judged, Denial) and box.scribe.deny(
            box.ids(call).process, "net.bind", {"path": found.text}, judged
        ):
            raise refused()
        decide_local(box, call, "net.bind", found.text)
        act, held = _by_name(box, call, fd, address, found) if box.landlock else _by_folder(box, call, fd, found)
    except BaseException:
        found.close()
        raise

    def spent() -> None:
        found.close()
        _close(held)

    own_call(box, call, fd, lambda: peers.in_child(act), wakes=False, spent=spent)


def _by_name(box: Box, call: Call, fd: int, address: bytes, found: Found) -> tuple[Callable[[], object], list[int]]:
    """What the child does, and the descriptors that it needs for that. Raises `OSError`.

    The socket has the name that was given, as others will see it. What the name leads to may become another after the
    decision: Landlock then lets the child make no socket elsewhere.
    """
    mask = box.askers.umask(call.pid)
    process = f"/proc/{box.ids(call).process}"
    held: list[int] = []
    try:
        held.extend(_opened(f"{process}/ns/{name}", os.O_RDONLY) for name in ("user", "mnt"))
        held.append(_opened(f"/proc/{call.pid}/cwd", os.O_PATH | os.O_DIRECTORY))
        if not box.listener.stands(call):  # the number may be another's by now
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
    except OSError:
        _close(held)
        raise
    user, mounts, cwd = held

    def bind() -> None:
        peers.enter(user, "user", syscalls.CLONE_NEWUSER)
        peers.enter(mounts, "mnt", syscalls.CLONE_NEWNS)
        os.fchdir(cwd)
        os.umask(mask)
        landlock.only_below(found.folder, landlock.MAKE_SOCK)
        syscalls.capset(0, 0, 0)
        syscalls.bind(fd, address)

    return bind, held


def _by_folder(box: Box, call: Call, fd: int, found: Found) -> tuple[Callable[[], object], list[int]]:
    """Without Landlock the socket gets a name by which only the decided folder can be meant."""
    target = struct.pack("=H", int(socket.AF_UNIX)) + b"/proc/self/fd/%d/%s\0" % (found.folder, found.leaf)
    mask = box.askers.umask(call.pid)

    def bind() -> None:
        os.umask(mask)
        syscalls.bind(fd, target)

    return bind, []


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC)


def _close(descriptors: list[int]) -> None:
    for one in descriptors:
        os.close(one)


def _listen(box: Box, call: Call, name: str) -> None:
    """Of a local socket the kernel notes who listens (unix(7)): a child does it in the program's name."""
    one = owned(box.duplicate(call, number(call.args[0])))
    try:
        backlog = number(call.args[1])
        if one.family in INTERNET:
            _refuse_outside(box, call, one.fileno(), name)
            _listen_by_name(box, call, one, backlog)
        else:
            peers.act_as(box, box.ids(call).process, lambda: one.listen(backlog))
    finally:
        one.close()
    box.listener.value(call, 0)


def _listen_by_name(box: Box, call: Call, one: socket.socket, backlog: int) -> None:
    """Decide on where a socket is to listen by the name that it has, and have it listen there. Raises `OSError`.

    One that is not bound gets a port from the kernel by listening, and its name does not tell: when a connection has
    failed or was dissolved, the number of the port that was given back stays in it (inet_put_port() and
    inet_csk_listen_start() of net/ipv4). What was bound, and so decided on and recorded before, is not bound again.
    """
    name = one.getsockname()
    packed = socket.inet_pton(one.family, name[0].partition("%")[0])
    address = struct.pack("=H", int(one.family)) + name[1].to_bytes(2, "big")
    address += packed + bytes(8) if one.family == socket.AF_INET else bytes(4) + packed + bytes(4)
    endpoint(box, call, "net.bind", address, known=bool(name[1]))
    if name[1]:
        try:
            one.bind(name)
            endpoint(box, call, "net.bind", address)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    one.listen(backlog)
    if name[1] and one.getsockname() != name:  # a connection that was under way has failed meanwhile
        one.shutdown(socket.SHUT_RDWR)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


CALLS: dict[str, Handler] = {"bind": _bind, "listen": _listen}
