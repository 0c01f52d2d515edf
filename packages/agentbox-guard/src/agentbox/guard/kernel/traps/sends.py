"""Datagrams and messages: an address that goes with them is decided on like a connection, on the supervisor's own copy.

The supervisor sends copies itself, on a duplicate of the socket: neither the message nor the socket that a descriptor
stands for can then become another after the decision. The kernel goes on by itself only where no address counts and
nobody can put another socket in that one's place (`_is_certain`); its receivers are then told the sender (SO_PASSCRED).
"""

from __future__ import annotations

import _socket as socket  # the module around it loads enum and selectors, 3 ms of a start
import errno
import os
import struct
from _signal import SIGPIPE  # type: ignore[import-not-found]

from agentbox.guard.kernel import memory, rows, syscalls
from agentbox.guard.kernel.traps import _controls, _replaced, sockets
from agentbox.guard.kernel.traps._base import NEVER, Box, number, refused
from agentbox.guard.kernel.traps.refusals import refuse
from agentbox.guard.session import Denial
from agentbox.guard.twins import owned, twin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Buffer = bytes | memoryview

    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler

_MOST_PAYLOAD = 1 << 20
"""Bytes that one call sends at most of a stream (it may send less than asked); a datagram must fit in whole."""
MOST_HELD = 64 << 20
"""Bytes of all messages that wait for room at their receivers."""
_LEAST_PAYLOAD = 4096
"""What a stream may send all the same when others hold as much."""
_MSG_ZEROCOPY = 0x4000000  # <linux/socket.h>, Linux 4.14
_SO_ZEROCOPY = 60  # <asm-generic/socket.h>, Linux 4.14


def _sendto(box: Box, call: Call, name: str) -> None:
    place, data, size, flags, address_at, address_size = call.args
    if flags & rows.MSG_FASTOPEN:
        refuse(box, call, name, "sendto with MSG_FASTOPEN")
        return
    address = sockets.address_at(box, call, address_at, address_size)
    parts = [(data, size)]
    _send(box, call, number(place), parts, _controls.Control(), number(flags), address)


def _sendmsg(box: Box, call: Call, name: str) -> None:
    place, head, flags = call.args[:3]
    if flags & rows.MSG_FASTOPEN:
        refuse(box, call, name, "sendmsg with MSG_FASTOPEN")
        return
    if _is_certain(box, call, number(place)):
        box.listener.proceed(call)
        return
    found = memory.message(box.memory, call.pid, head)
    control = _controls.copied(box, call, found.control)
    _send(box, call, number(place), found.parts, control, number(flags), found.name)


def _sendmmsg(box: Box, call: Call, name: str) -> None:
    """Several messages at once: when they must be looked at, the first is sent and the caller told so (sendmmsg(2))."""
    place, heads, count, flags = call.args[:4]
    if flags & rows.MSG_FASTOPEN:
        refuse(box, call, name, "sendmmsg with MSG_FASTOPEN")
        return
    if not count & 0xFFFFFFFF:
        box.listener.value(call, 0)
        return
    if _is_certain(box, call, number(place)):
        box.listener.proceed(call)
        return
    found = memory.message(box.memory, call.pid, heads)
    control = _controls.copied(box, call, found.control)
    _send(box, call, number(place), found.parts, control, number(flags), found.name, heads + 56)


def _is_certain(box: Box, call: Call, place: int) -> bool:
    """Whether a message can go nowhere but to the peer of a local socket, whatever its head says by then.

    unix_stream_sendmsg and unix_seqpacket_sendmsg of net/unix/af_unix.c heed no address. Only a thread of the same
    process could put another socket in its place, since the filter lets nobody else share a table of descriptors: with
    a single thread, which waits here, nobody does. Descriptors and ids that go along are checked by the kernel. Raises
    `OSError` (EBADF, ESRCH).
    """
    if not box.askers.is_single(call.pid):  # asked first: who was there before may have changed the table until now
        return False
    one = owned(box.duplicate(call, place))
    try:
        return int(one.family) == socket.AF_UNIX and int(one.type) in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    finally:
        one.close()


def _payload(box: Box, call: Call, parts: list[tuple[int, int]], kind: int) -> bytes:
    """What is sent of a message. Raises `OSError`: of one that is whole or nothing all must fit (send(2))."""
    left = min(_MOST_PAYLOAD, max(MOST_HELD - box.sending, _LEAST_PAYLOAD))
    if kind != socket.SOCK_STREAM and (size := sum(size for _, size in parts)) > left:
        number_of = errno.EMSGSIZE if size > _MOST_PAYLOAD else errno.ENOBUFS
        raise OSError(number_of, os.strerror(number_of))
    pieces = []
    for address, size in parts:
        step = min(size, left)
        pieces.append(box.memory.block(call.pid, address, step))
        left -= step
    return b"".join(pieces)


def _packed(control: _controls.Control) -> bytes:
    """Control messages as cmsg(3) has them."""
    return b"".join(_controls.packed(*message) for message in control.messages)


def _send(
    box: Box,
    call: Call,
    place: int,
    parts: list[tuple[int, int]],
    control: _controls.Control,
    flags: int,
    address: bytes,
    length_at: int = 0,
) -> None:
    """Takes `control` over. `length_at` is where to tell how much of the first of several messages was sent (msg_len of
    struct mmsghdr, sendmmsg(2)); the answer is then that it was one.
    """

    def told(sent: int) -> int:
        if not length_at:
            return sent
        box.write(call, length_at, struct.pack("=I", sent))
        return 1

    fd = -1
    try:
        fd = box.duplicate(call, place)
        family, kind = sockets.sort_of(fd, named=bool(address))
        payload = _payload(box, call, parts, kind)
        if family in sockets.INTERNET:
            box.network()
        if control.messages:
            _check(box, call, fd, family, control)
        if family == socket.AF_NETLINK:
            if control.messages:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            value = told(len(payload))
            sockets.powerless_call(box, call, fd, lambda: syscalls.sendto(fd, payload, flags, address), value)
            return
        if kind == socket.SOCK_DGRAM and address:
            address = sockets.as_inet(address, family)
            if family == socket.AF_INET6 and sockets.family_of(address) == socket.AF_UNSPEC:
                address = b""  # as udpv6_sendmsg of net/ipv6/udp.c takes it
        if address and family == socket.AF_UNIX and sockets.family_of(address) == socket.AF_UNIX:
            target: Any = sockets.local(box, call, fd, "net.send", address)
        elif address and family in (socket.AF_INET, socket.AF_INET6):
            if kind == socket.SOCK_DGRAM and box.broker is not None:
                if flags & _MSG_ZEROCOPY and _is_zerocopy(fd):
                    # It may have to be sent by another socket, from which nobody hears when that is done.
                    raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
                if _send_out(box, call, fd, payload, address, family, kind, told):
                    control.close()
                    return
            elif kind == socket.SOCK_DGRAM:
                sockets.reach(box, call, fd, "net.send", address, kind)
            target = (address, None)
        else:
            target = (address, None)
    except OSError:
        control.close()
        if fd >= 0:
            os.close(fd)
        raise
    breaks = kind == socket.SOCK_STREAM and not flags & socket.MSG_NOSIGNAL
    # By flag, since the program may take O_NONBLOCK away in between.
    flags |= socket.MSG_NOSIGNAL | (0 if os.get_blocking(fd) else socket.MSG_DONTWAIT)

    sender = _controls.credentials(box.ids(call).process) if family == socket.AF_UNIX else b""

    def act() -> int:
        if sender:
            try:
                return syscalls.sendmsg(fd, payload, sender + _packed(control), flags, target[0])
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ESRCH):
                    raise  # an ordinary user's supervisor may not speak for others: unix(7), SCM_CREDENTIALS
        if flags & _MSG_ZEROCOPY and _is_zerocopy(fd):
            return _from_pages(fd, payload, _packed(control), flags, target[0])
        if control.messages:
            return syscalls.sendmsg(fd, payload, _packed(control), flags, target[0])
        return syscalls.sendto(fd, payload, flags, target[0])

    def spent() -> None:
        box.sending -= len(payload)
        if target[1] is not None:
            target[1].close()
        control.close()

    failed = (lambda error: _broken(box, call, error)) if breaks else None
    box.sending += len(payload)
    sockets.own_call(box, call, fd, act, failed, waits=not flags & socket.MSG_DONTWAIT, spent=spent, told=told)


def _check(box: Box, call: Call, fd: int, family: int, control: _controls.Control) -> None:
    """Refuse a send for what would go with it. Raises `OSError`, unless the run only observes."""
    one = twin(fd) if family in sockets.INTERNET and sockets.is_outside(box, fd) else None
    try:
        what = _controls.refused_one(control, one)
    finally:
        if one is not None:
            one.close()
    if not what:
        return
    shown = f"sendmsg with {what}"
    denial = Denial("call", shown, NEVER)
    if box.scribe.deny_once(box.ids(call).process, "sys.call", shown, {"name": shown}, denial):
        box.scribe.flush()
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def _broken(box: Box, call: Call, error: OSError) -> None:
    """Give the thread the signal that comes with EPIPE from a stream (send(2)), while its call still waits: so it is
    there when the call ends.
    """
    if error.errno != errno.EPIPE:
        return
    if not _signals_wait():
        box.listener.fail(call, errno.EPIPE)
    try:
        syscalls.tgkill(box.ids(call).process, call.pid, SIGPIPE)
    except OSError:
        pass  # it is gone


def _signals_wait() -> bool:
    """Whether a signal leaves a waiting call alone (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, Linux 5.19)."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int(minor.partition("-")[0])) >= (5, 19)


def _is_zerocopy(fd: int) -> bool:
    """Whether the program has asked for it on the socket as well; else the kernel passes the flag over."""
    one = twin(fd)
    try:
        return bool(one.getsockopt(socket.SOL_SOCKET, _SO_ZEROCOPY))
    except OSError:
        return False
    finally:
        one.close()


def _from_pages(fd: int, payload: bytes, control: bytes, flags: int, address: bytes) -> int:
    """Send from pages that nobody writes again: the kernel keeps them for as long as it needs them, and tells the
    program when it is done (Documentation/networking/msg_zerocopy.rst).
    """
    from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

    with mmap(-1, max(len(payload), 1), MAP_PRIVATE | MAP_ANONYMOUS) as pages:
        pages.write(payload)
        with memoryview(pages) as view:
            return syscalls.sendmsg(fd, view[: len(payload)], control, flags, address)


def _send_out(
    box: Box, call: Call, fd: int, payload: bytes, address: bytes, family: int, kind: int, told: Callable[[int], int]
) -> bool:
    """A datagram to an address outside of the empty network; False when it stays inside. `told` makes the answer of
    what was sent.
    """
    from agentbox.guard.kernel import broker

    pid = box.ids(call).process
    request = broker.Request(
        "net.send", pid, address, kind=kind, family=family, nonblocking=not os.get_blocking(fd), template=fd,
        payload=payload,
    )  # fmt: skip
    answer = box.broker.judge(request)
    denied = answer.denial is not None and box.scribe.deny(pid, "net.send", dict(answer.args), answer.denial)
    if denied and answer.action == broker.DENY:
        raise refused()
    if answer.action == broker.FAIL:
        raise OSError(answer.errno, os.strerror(answer.errno))
    if answer.action == broker.CONTINUE:
        sockets.goes_on(box, pid, answer)
        return False
    if not box.scribe.consult(pid, "net.send", answer.args):
        raise refused()
    recorded = answer.denial is not None

    def then(answer: Any) -> None:
        box.sending -= len(payload)
        sockets.tell_dialled(box, pid, answer, recorded)
        if answer.socket is not None:
            answer.errno = answer.errno or _replaced.put_over(box, call, fd, answer.socket.fileno())
            answer.socket.close()
        os.close(fd)
        if answer.errno:
            box.listener.fail(call, answer.errno)
        else:
            sockets.answer_with(box, call, answer.sent, told)

    box.sending += len(payload)
    box.broker.dial(answer, then)
    return True


CALLS: dict[str, Handler] = {"sendto": _sendto, "sendmsg": _sendmsg, "sendmmsg": _sendmmsg}
