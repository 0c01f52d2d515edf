"""Who listens inside a process's network namespace, as the kernel tells it in /proc/PID/net (proc_pid_net(5)).

It looks and decides nothing; what cannot be read counts as nobody.
"""

from __future__ import annotations

from agentbox.policy.address import parse_v4, parse_v6

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LISTEN, _UNCONNECTED = "0A", "07"
"""TCP_LISTEN, and TCP_CLOSE as a UDP socket without a peer has it: <net/tcp_states.h>, in hexadecimal."""


def listens(pid: int, address: str, port: int, *, datagram: bool = False) -> bool:
    """Whether a socket of the namespace that process `pid` is in takes TCP connections (or datagrams) for `address`
    (canonical) and `port`.
    """
    kind, state = ("udp", _UNCONNECTED) if datagram else ("tcp", _LISTEN)
    wanted = _wanted(address)
    for table in (kind, kind + "6"):
        for local, found in _rows(f"/proc/{pid}/net/{table}"):
            place, _, number = local.partition(":")
            if found == state and place in wanted and int(number, 16) == port:
                return True
    return False


def _wanted(address: str) -> frozenset[str]:
    """The spellings in those tables of the addresses that a socket may be bound to so as to be reached at `address`.

    A socket bound to any IPv6 address takes IPv4 too, unless told not to, which the tables do not say.
    """
    if ":" in address:
        groups = parse_v6(address) or [0] * 8
        packed = b"".join(group.to_bytes(2, "big") for group in groups)
        return frozenset((_spelled(packed), _spelled(bytes(16))))
    number = parse_v4(address) or 0
    if number == 0:  # connecting to 0.0.0.0 reaches 127.0.0.1
        number = 0x7F000001
    packed = number.to_bytes(4, "big")
    mapped = bytes(10) + b"\xff\xff" + packed
    return frozenset((_spelled(packed), _spelled(bytes(4)), _spelled(mapped), _spelled(bytes(16))))


def _spelled(packed: bytes) -> str:
    """Each 32-bit word of a packed address in the machine's own byte order, as hexadecimal."""
    from sys import byteorder

    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(word, byteorder):08X}" for word in words)


def _rows(path: str) -> Iterable[tuple[str, str]]:
    """Local address and state of each socket."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            lines = file.readlines()[1:]
    except OSError:
        return []
    found = [line.split(maxsplit=4) for line in lines]
    return [(words[1], words[3]) for words in found if len(words) > 4]
