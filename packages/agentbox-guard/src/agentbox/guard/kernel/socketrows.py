"""The filter's rows for what is set on sockets and asked of them (setsockopt(2), getsockopt(2), ioctl(2)): what is
harmless on any socket stays with the kernel, all else is handed over.

A socket may be one of the host's network, and a filter does not see which: a list of what is harmless fails closed.
"""

from __future__ import annotations

import errno

from agentbox.guard.kernel.bpf import ALLOW, ERRNO, NOTIFY, Row, Test

SOL_SOCKET, _IP, _TCP, _UDP, _IPV6 = 1, 0, 6, 17, 41  # levels: <asm-generic/socket.h>, <linux/in.h>, <linux/in6.h>

_OF_SOCKETS = (
    2, 3, 4,  # SO_REUSEADDR, TYPE, ERROR; not DONTROUTE, which chooses a way
    *range(6, 13), *range(14, 22),  # BROADCAST to SNDTIMEO but LINGER, of x86-64 and aarch64: <asm-generic/socket.h>
    29, 30, 34, 35, 40,  # TIMESTAMP, ACCEPTCONN, PASSSEC, TIMESTAMPNS, RXQ_OVFL
    42, 46, 47, 49, 60,  # PEEK_OFF, BUSY_POLL, MAX_PACING_RATE, INCOMING_CPU, ZEROCOPY
    63, 64, 66, 67, 72, 74,  # TIMESTAMP_NEW, TIMESTAMPNS_NEW, RCVTIMEO_NEW, SNDTIMEO_NEW, BUF_LOCK, TXREHASH
)  # fmt: skip
_OF_IP = (
    1, 2, 8, 10, 11, 12, 13, 14,  # IP_TOS, TTL, PKTINFO, MTU_DISCOVER, RECVERR, RECVTTL, RECVTOS, MTU: <linux/in.h>
    20, 21, 23, 24, 25, 26,  # ORIGDSTADDR, MINTTL, CHECKSUM, BIND_ADDRESS_NO_PORT, RECVFRAGSIZE, RECVERR_RFC4884
    33, 34, 49,  # MULTICAST_TTL, MULTICAST_LOOP, MULTICAST_ALL
)  # fmt: skip
_OF_TCP = (
    *range(1, 11),  # TCP_NODELAY to WINDOW_CLAMP: <linux/tcp.h>
    12, 13, 16, 17, 18,  # QUICKACK, CONGESTION, THIN_LINEAR_TIMEOUTS, THIN_DUPACK, USER_TIMEOUT
    23, 25, 27, 36,  # FASTOPEN (of servers), NOTSENT_LOWAT, SAVE_SYN, INQ
)  # fmt: skip
_OF_UDP = (1, 103, 104)
"""UDP_CORK, SEGMENT, GRO: <linux/udp.h>."""
_OF_IPV6 = (
    16, 18, 19, 23, 24, 25,  # IPV6_UNICAST_HOPS, MULTICAST_HOPS, MULTICAST_LOOP, MTU_DISCOVER, MTU, RECVERR
    26, 29, 31, 49, 51, 60,  # V6ONLY, MULTICAST_ALL, RECVERR_RFC4884, RECVPKTINFO, RECVHOPLIMIT, RECVPATHMTU
    62, 66, 67, 70, 73, 74, 77,  # DONTFRAG, RECVTCLASS, TCLASS, AUTOFLOWLABEL, MINHOPCOUNT, ORIGDSTADDR, RECVFRAGSIZE
)  # fmt: skip
PLAIN = {SOL_SOCKET: _OF_SOCKETS, _IP: _OF_IP, _TCP: _OF_TCP, _UDP: _OF_UDP, _IPV6: _OF_IPV6}
"""By level, the options that neither send nor choose a way, need no power, and tell of nothing but what comes in."""

_SO_PASSPIDFD, _SO_PEERPIDFD = 76, 77  # <asm-generic/socket.h>, Linux 6.5

INTERFACES = (0x8900, 0x8B00)
"""The requests of <linux/sockios.h> and <linux/wireless.h>, their last byte left out."""
_OF_THE_SOCKET = (0x8901, 0x8902, 0x8903, 0x8904, 0x8905, 0x8906, 0x8907, 0x894B)
"""FIOSETOWN to SIOCGSTAMPNS, <asm-generic/sockios.h>, and SIOCOUTQNSD: they are about the socket alone."""


def rows() -> tuple[Row, ...]:
    """See above; the rows of ioctl come after others of it, since the first that fits counts."""
    of_sockets = Test(1, (SOL_SOCKET,))
    return (
        # Their answers would be about the supervisor, or a child of it: programs take it for an older kernel.
        Row("getsockopt", ERRNO | errno.ENOPROTOOPT, of_sockets, Test(2, (_SO_PEERPIDFD,))),
        Row("setsockopt", ERRNO | errno.ENOPROTOOPT, of_sockets, Test(2, (_SO_PASSPIDFD,))),
        *(Row("setsockopt", ALLOW, Test(1, (level,)), Test(2, plain)) for level, plain in PLAIN.items()),
        Row("setsockopt", NOTIFY),
        Row("ioctl", ALLOW, Test(1, _OF_THE_SOCKET)),
        Row("ioctl", NOTIFY, Test(1, INTERFACES, mask=0xFFFFFF00)),
    )
