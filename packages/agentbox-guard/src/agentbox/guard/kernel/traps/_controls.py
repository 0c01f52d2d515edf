"""Control messages that go with a send (cmsg(3)): those that do no more than the send itself, and no others.

The supervisor sends them, so the kernel would let its power count (SO_MARK), and some lead a packet elsewhere than to
the address that was decided on (IP_RETOPTS, IPV6_RTHDR). It decides on the supervisor's own copy.
"""

from __future__ import annotations

import _socket as socket  # the module around it loads enum and selectors, 3 ms of a start
import errno
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Box

_RIGHTS, _CREDENTIALS = (1, 1), (1, 2)  # SOL_SOCKET with SCM_RIGHTS, SCM_CREDENTIALS, <linux/socket.h>
_PKTINFO = {(0, 8): (12, 4, 4), (41, 50): (20, 0, 16)}
"""IP_PKTINFO and IPV6_PKTINFO (ip(7), ipv6(7)): size, where the sender's address begins, and its size."""
_PLAIN = frozenset({(0, 1), (0, 2), (41, 52), (41, 62), (41, 67), (17, 103)})
"""IP_TOS, IP_TTL, IPV6_HOPLIMIT, IPV6_DONTFRAG, IPV6_TCLASS (<linux/in.h>, <linux/in6.h>), UDP_SEGMENT (udp(7))."""
_NAMES = {
    (0, 7): "IP_RETOPTS", (41, 50): "IPV6_PKTINFO", (0, 8): "IP_PKTINFO", (41, 57): "IPV6_RTHDR",
    (41, 54): "IPV6_HOPOPTS", (41, 59): "IPV6_DSTOPTS", (41, 55): "IPV6_RTHDRDSTOPTS", (1, 36): "SO_MARK",
    (1, 61): "SCM_TXTIME",
}  # fmt: skip
_MOST_PASSED = 253
"""SCM_MAX_FD, <net/scm.h>."""
_HEAD = struct.Struct("=Qii")


class Control:
    """The control messages of one send: `messages` are level and kind with the body, where descriptors are duplicates
    of ours, which `close` gives back.
    """

    __slots__ = ("_passed", "messages")

    def __init__(self) -> None:
        self.messages: list[tuple[tuple[int, int], bytes]] = []
        self._passed: list[int] = []

    def add_rights(self, box: Box, call: Call, body: bytes) -> None:
        """The asker's descriptors. Raises `OSError`; those that were made stay here."""
        numbers = struct.unpack(f"={len(body) // 4}i", body[: len(body) // 4 * 4])
        if len(numbers) > _MOST_PASSED:
            raise _invalid()
        start = len(self._passed)
        for one in numbers:
            self._passed.append(box.duplicate(call, one))
        ours = self._passed[start:]
        self.messages.append((_RIGHTS, struct.pack(f"={len(ours)}i", *ours)))

    def close(self) -> None:
        """Close our duplicates."""
        passed, self._passed = self._passed, []
        for fd in passed:
            os.close(fd)


def copied(box: Box, call: Call, data: bytes) -> Control:
    """The control messages of a struct msghdr. Raises `OSError`."""
    made = Control()
    try:
        while len(data) >= _HEAD.size:
            size, level, kind = _HEAD.unpack_from(data)
            if not _HEAD.size <= size <= len(data):
                raise _invalid()
            body = data[_HEAD.size : size]
            data = data[(size + 7) & ~7 :]
            if (level, kind) == _RIGHTS:
                made.add_rights(box, call, body)
            elif (level, kind) != _CREDENTIALS:  # which the kernel puts in by itself where the receiver wants them
                made.messages.append(((level, kind), body))
    except OSError:
        made.close()
        raise
    return made


def packed(sort: tuple[int, int], body: bytes) -> bytes:
    """One control message as cmsg(3) has it."""
    return _HEAD.pack(_HEAD.size + len(body), *sort) + body + bytes(-len(body) % 8)


def credentials(pid: int) -> bytes:
    """The control message that names the process `pid` as the sender: the kernel would name the supervisor.

    The run's processes have the supervisor's user and group, and can have no others. Only who has CAP_SYS_ADMIN may
    send it (unix(7)).
    """
    return packed(_CREDENTIALS, struct.pack("=iII", pid, os.getuid(), os.getgid()))


def refused_one(control: Control, one: socket.socket | None) -> str:
    """What of them may not be sent, in a few words, or "". `one` is the socket when it is of another network than the
    run's own: the sender's address is then the one that it has, by whatever interface.
    """
    for place, (sort, body) in enumerate(control.messages):
        if sort in _PKTINFO:
            body = _own_sender(sort, body, one)
            control.messages[place] = sort, body
            if body:
                continue
        elif sort == _RIGHTS or sort in _PLAIN:
            continue
        return _NAMES.get(sort, "level {} type {}".format(*sort))
    return ""


def _own_sender(sort: tuple[int, int], body: bytes, one: socket.socket | None) -> bytes:
    """The message without an interface when it names no other sender than the socket is, else b""."""
    if one is None:
        return body
    size, at, length = _PKTINFO[sort]
    if len(body) != size:
        return b""
    sender = body[at : at + length]
    own = str(one.getsockname()[0]).partition("%")[0]
    if any(sender) and sender != socket.inet_pton(socket.AF_INET if length == 4 else socket.AF_INET6, own):
        return b""
    return bytes(at) + sender + bytes(size - at - length)


def _invalid() -> OSError:
    return OSError(errno.EINVAL, os.strerror(errno.EINVAL))
