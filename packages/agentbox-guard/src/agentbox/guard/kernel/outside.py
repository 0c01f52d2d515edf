"""Sockets in the supervisor's own network namespace, made to stand in for those of a process inside the run's.

It opens and configures; it decides nothing and connects nothing. What it is told of an address is bytes from the agent.
"""

from __future__ import annotations

import errno
import os
from _socket import (
    AF_INET,
    AF_INET6,
    AF_UNSPEC,
    IPPROTO_IP,
    IPPROTO_IPV6,
    IPPROTO_TCP,
    SO_BROADCAST,
    SO_KEEPALIVE,
    SO_LINGER,
    SO_OOBINLINE,
    SO_PRIORITY,
    SO_RCVBUF,
    SO_RCVTIMEO,
    SO_SNDBUF,
    SO_SNDTIMEO,
    SOCK_CLOEXEC,
    SOCK_DGRAM,
    SOCK_NONBLOCK,
    SOCK_STREAM,
    SOL_SOCKET,
    TCP_INFO,
    TCP_KEEPCNT,
    TCP_KEEPIDLE,
    TCP_KEEPINTVL,
    TCP_NODELAY,
    inet_ntop,
)  # fmt: skip
from _socket import socket as Socket
from sys import byteorder

from agentbox.guard.kernel import syscalls
from agentbox.guard.names import literal
from agentbox.guard.twins import twin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.broker import Request

_SO_NETNS_COOKIE = 71  # <asm-generic/socket.h>, Linux 5.14
_SO_ZEROCOPY = 60  # <asm-generic/socket.h>, Linux 4.14
_TCP_USER_TIMEOUT = 18  # <linux/tcp.h>, Linux 2.6.37
_IP_TOS, _IPV6_TCLASS = 1, 67  # <linux/in.h>, <linux/in6.h>
_UNDER_WAY = (2, 3)  # TCP_SYN_SENT and TCP_SYN_RECV, <net/tcp_states.h>

_CARRIED = (
    (SOL_SOCKET, SO_KEEPALIVE, 4), (SOL_SOCKET, SO_OOBINLINE, 4), (SOL_SOCKET, SO_PRIORITY, 4),
    (SOL_SOCKET, SO_LINGER, 8), (SOL_SOCKET, SO_BROADCAST, 4), (SOL_SOCKET, SO_RCVTIMEO, 16),
    (SOL_SOCKET, SO_SNDTIMEO, 16), (SOL_SOCKET, _SO_ZEROCOPY, 4),
)  # fmt: skip
"""Options that a program may have set before it connects, and the sizes of their values: socket(7), tcp(7)."""
_CARRIED_TCP = (TCP_NODELAY, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, _TCP_USER_TIMEOUT)
_SIZES = (SO_RCVBUF, SO_SNDBUF)


def endpoint(data: bytes, family: int, kind: int) -> tuple[int, str, int]:
    """Family, canonical address and port of a sockaddr's bytes, as a socket of `family` and `kind` takes them.

    Raises `OSError` with what connect(2) says to others: EINVAL when too short, EAFNOSUPPORT for a family that does not
    fit.
    """
    given = int.from_bytes(data[:2], byteorder) if len(data) >= 2 else -1
    if given == AF_UNSPEC:
        return AF_UNSPEC, "", 0
    fits = given == family or (given == AF_INET and family == AF_INET6 and kind == SOCK_DGRAM)
    if given >= 0 and (given not in (AF_INET, AF_INET6) or not fits):
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    if len(data) < (16 if given == AF_INET else 24):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    packed = data[4:8] if given == AF_INET else data[8:24]
    return given, literal(inet_ntop(given, packed)), int.from_bytes(data[2:4], "big")


def namespace_cookie(descriptor: int) -> int:
    """The number of the network namespace that a socket lives in. Raises `OSError` before Linux 5.14."""
    one = twin(descriptor)
    try:
        return int.from_bytes(one.getsockopt(SOL_SOCKET, _SO_NETNS_COOKIE, 8), byteorder)
    finally:
        one.close()


def outside_socket(request: Request, address: str) -> Socket:
    """A socket in the supervisor's own namespace, non-blocking, with the options that the asker has set on its own.

    Of the asker's family where that can reach `address` (IPv4 over IPv6, RFC 4291 section 2.5.5.2), else of the
    address's. Raises `OSError`.
    """
    family = AF_INET6 if ":" in address or request.family == AF_INET6 else AF_INET
    made = Socket(family, request.kind | SOCK_NONBLOCK | SOCK_CLOEXEC)
    if request.template >= 0:
        source = twin(request.template)
        try:
            _carry(source, made, request)
        finally:
            source.close()
    return made


def _carry(source: Socket, made: Socket, request: Request) -> None:
    wanted = list(_CARRIED)
    if request.kind == SOCK_STREAM:
        wanted += [(IPPROTO_TCP, option, 4) for option in _CARRIED_TCP]
    if request.family == made.family:
        wanted.append((IPPROTO_IP, _IP_TOS, 4) if made.family == AF_INET else (IPPROTO_IPV6, _IPV6_TCLASS, 4))
    for level, option, size in wanted:
        try:
            value = source.getsockopt(level, option, size)
            if value != made.getsockopt(level, option, size):
                made.setsockopt(level, option, value)
        except OSError:
            pass  # an option that this kernel lacks
    for option in _SIZES:
        size = source.getsockopt(SOL_SOCKET, option)
        if size != made.getsockopt(SOL_SOCKET, option):
            made.setsockopt(SOL_SOCKET, option, size // 2)  # socket(7): the kernel doubles it


def target(made: Socket, address: str, port: int) -> tuple[str, int]:
    """The address and port as the socket's family takes them."""
    return ("::ffff:" + address if made.family == AF_INET6 and ":" not in address else address), port


NO_ADDRESS = AF_INET.to_bytes(2, byteorder)
"""Shorter than any address: connect(2) with it begins nothing, and only tells of what was begun before."""


def progress(template: int) -> int:
    """What connect(2) says to a TCP socket that has been given a connection before: 0 when that one is there now, which
    it says once; EINVAL when nothing is under way, nor an error of it to be told.

    Of one that is still under way it is not asked: without O_NONBLOCK, which the program can take away, it would wait.
    """
    one = twin(template)
    try:
        state = one.getsockopt(IPPROTO_TCP, TCP_INFO, 1)[0]
    finally:
        one.close()
    if state in _UNDER_WAY:
        return errno.EALREADY
    try:
        return syscalls.connect(template, NO_ADDRESS)
    except OSError as error:
        return error.errno or errno.EINVAL
