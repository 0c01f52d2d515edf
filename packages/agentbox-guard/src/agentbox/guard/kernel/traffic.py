"""How many bytes each connection carried, from the kernel's own notices when a socket is destroyed.

No descriptor of a connection is held open for it: the other side would not see its end. Sources: sock_diag(7),
<linux/sock_diag.h> and <linux/inet_diag.h>; measured on Linux 6.18, as an ordinary user.
"""

from __future__ import annotations

import errno
import struct
from _socket import AF_INET, AF_INET6, IPPROTO_TCP, SOCK_CLOEXEC, SOCK_RAW, SOL_SOCKET
from _socket import socket as Socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_AF_NETLINK = 16  # <linux/socket.h>
_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG, <linux/netlink.h>, Linux 3.3
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1  # <linux/netlink.h>
_TCP_ENDS = (1, 3)  # SKNLGRP_INET_TCP_DESTROY and _INET6_, <linux/sock_diag.h>, Linux 4.4
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY, <linux/sock_diag.h>, Linux 3.3
_INFO = 2  # INET_DIAG_INFO, <linux/inet_diag.h>
_SO_COOKIE = 57  # <asm-generic/socket.h>, Linux 4.12
_REQUEST = 1  # NLM_F_REQUEST
_SO_RCVBUF = 8
_QUEUE = 1 << 20  # bytes of notices that may wait; every connection of the machine that ends is told
_BATCH = 256

_MESSAGE = struct.Struct("=IHHII")  # struct nlmsghdr
_ATTRIBUTE = struct.Struct("=HH")  # struct rtattr
_COOKIE_AT, _ATTRIBUTES_AT = 44, 72  # in struct inet_diag_msg
_RECEIVED_AT, _SENT_AT = 128, 200  # tcpi_bytes_received; tcpi_bytes_sent and _retrans: struct tcp_info, Linux 4.19


class Traffic:
    """Counts for connections that are watched; one thread. Without the kernel's notices (`is_live` false) it counts
    nothing, and every connection is unknown rather than zero.
    """

    __slots__ = ("_socket", "_watched", "is_live")

    def __init__(self) -> None:
        self._watched: dict[int, Any] = {}
        self._socket: Socket | None = None
        try:
            self._socket = _listening()
        except OSError:
            pass  # before Linux 4.4, or a sandbox around us that forbids it
        self.is_live = self._socket is not None

    def fileno(self) -> int:
        """To be watched for reading; -1 when there is nothing to watch."""
        return -1 if self._socket is None else self._socket.fileno()

    def watch(self, connection: Socket, key: Any) -> None:
        """Count a TCP connection, from now to its end; `key` comes back with the counts. Call it before the socket is
        given away.
        """
        if self._socket is not None:
            self._watched[cookie(connection)] = key

    def read(self) -> list[tuple[Any, int, int]]:
        """`(key, sent, received)` of watched connections that have ended since; bytes of data, as the application saw
        them.

        What the other side's end of stream adds to the kernel's count is taken off again; of a connection that was
        reset after data came, `received` may therefore be one too low.
        """
        ended: list[tuple[Any, int, int]] = []
        while self._socket is not None and len(ended) < _BATCH:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                continue  # notices were lost: those connections are counted by `finish`, or stay unknown
            for number, counts in _notices(data):
                if number in self._watched and counts is not None:
                    ended.append((self._watched.pop(number), *counts))
        return ended

    def finish(self) -> list[tuple[Any, int | None, int | None]]:
        """The watched connections whose end was not told, with None for counts; then close."""
        left: list[tuple[Any, int | None, int | None]] = [(key, None, None) for key in self._watched.values()]
        self._watched = {}
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        return left


def cookie(connection: Socket) -> int:
    """The number that names a socket for as long as the machine runs."""
    return int.from_bytes(connection.getsockopt(SOL_SOCKET, _SO_COOKIE, 8), _order())


def _listening() -> Socket:
    made = Socket(_AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, _SOCK_DIAG)
    try:
        made.bind((0, 0))
        for group in _TCP_ENDS:
            made.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
        made.setsockopt(SOL_SOCKET, _SO_RCVBUF, _QUEUE)
        made.setblocking(False)
        # The kernel loads the part that fills the notices only when it is asked something: tcp_diag(7) is a module.
        for family in (AF_INET, AF_INET6):
            _wake(made, family)
    except OSError:
        made.close()
        raise
    return made


def _wake(made: Socket, family: int) -> None:
    """Ask for a socket that is not there; the answer, an error, is passed over by `_notices`."""
    body = bytes((family, IPPROTO_TCP, 0, 0)) + (1 << 7).to_bytes(4, _order()) + bytes(48)
    made.send(_MESSAGE.pack(_MESSAGE.size + len(body), _BY_FAMILY, _REQUEST, 0, 0) + body)


def _notices(data: bytes) -> list[tuple[int, tuple[int, int] | None]]:
    """The sockets that a netlink message tells of: cookie, and (sent, received) if it has them."""
    found = []
    at = 0
    while at + _MESSAGE.size <= len(data):
        length, kind, *_ = _MESSAGE.unpack_from(data, at)
        if length < _MESSAGE.size or at + length > len(data):
            break
        body = data[at + _MESSAGE.size : at + length]
        at += (length + 3) & ~3
        if kind == _BY_FAMILY and len(body) >= _ATTRIBUTES_AT:
            found.append((int.from_bytes(body[_COOKIE_AT : _COOKIE_AT + 8], _order()), _counts(body)))
    return found


def _counts(body: bytes) -> tuple[int, int] | None:
    at = _ATTRIBUTES_AT
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size:
            break
        info = body[at + _ATTRIBUTE.size : at + length]
        if kind == _INFO and len(info) >= _SENT_AT + 16:
            (received,) = struct.unpack_from("=Q", info, _RECEIVED_AT)
            sent, again = struct.unpack_from("=QQ", info, _SENT_AT)
            return sent - again, max(received - 1, 0)
        at += (length + 3) & ~3
    return None


def _order() -> Any:
    from sys import byteorder

    return byteorder
