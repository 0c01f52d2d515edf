"""Whether an address is this machine's: what listens on every address of it would be reached there.

No list of ranges tells that of a public address, so the kernel is asked for the way that a packet would take. It sends
nothing to the address and decides nothing.
"""

from __future__ import annotations

import _socket
import errno
import struct

_GETROUTE, _NEWROUTE = 26, 24  # RTM_GETROUTE, RTM_NEWROUTE, <linux/rtnetlink.h>, Linux 2.2
_REQUEST = 1  # NLM_F_REQUEST, <linux/netlink.h>
_DESTINATION = 1  # RTA_DST
_ERROR = 2  # NLMSG_ERROR
_HOME = (2, 3, 4, 5)
"""RTN_LOCAL and ANYCAST lead to this machine, RTN_BROADCAST and MULTICAST to it among others, <linux/rtnetlink.h>."""
_NOWHERE = (errno.ENETUNREACH, errno.EHOSTUNREACH)
_HEAD = struct.Struct("=IHHII")  # struct nlmsghdr
_ROUTE = struct.Struct("=8BI")  # struct rtmsg: family, destination's length, ..., type at 7, flags


def is_own(address: str) -> bool:
    """Whether connecting to a canonical address would reach this machine, as far as its routes tell.

    What cannot be asked counts as its own. A translation of addresses on the way (a firewall's, a router's) is not
    seen.
    """
    family = _socket.AF_INET6 if ":" in address else _socket.AF_INET
    try:
        packed = _socket.inet_pton(family, address)
        return _leads_home(family, packed) if hasattr(_socket, "AF_NETLINK") else _is_bound(family, packed)
    except OSError:
        return True


def _leads_home(family: int, packed: bytes) -> bool:
    """By rtnetlink(7); a machine without any way there has none to itself either. Raises `OSError`."""
    body = _ROUTE.pack(family, 8 * len(packed), 0, 0, 0, 0, 0, 0, 0)
    body += struct.pack("=HH", 4 + len(packed), _DESTINATION) + packed
    one = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, 0)  # NETLINK_ROUTE
    try:
        one.send(_HEAD.pack(_HEAD.size + len(body), _GETROUTE, _REQUEST, 0, 0) + body)
        answer = one.recv(4096)
    finally:
        one.close()
    kind = _HEAD.unpack_from(answer)[1]
    if kind == _ERROR:
        return -int(struct.unpack_from("=i", answer, _HEAD.size)[0]) not in _NOWHERE
    return kind != _NEWROUTE or _ROUTE.unpack_from(answer, _HEAD.size)[7] in _HOME


def _is_bound(family: int, packed: bytes) -> bool:
    """Where there is no rtnetlink: only an own address can be bound. Raises `OSError`."""
    one = _socket.socket(family, _socket.SOCK_DGRAM)
    try:
        one.bind((_socket.inet_ntop(family, packed), 0))
        return True
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return False
        raise
    finally:
        one.close()
