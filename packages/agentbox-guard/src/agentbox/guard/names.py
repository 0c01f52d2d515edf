"""Host names: looked up once for an allowed name, pinned for the run, and never led to an address that only the machine
itself should reach.

It makes queries only for names that the caller has already found allowed.
"""

from __future__ import annotations

import _socket
from _thread import allocate_lock

from agentbox.guard.ownaddress import is_own
from agentbox.policy.address import canonical_address, is_special_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.policy import Policy


def literal(host: str) -> str:
    """`host` as a plain IP address when it is one in any spelling that the C library takes, else "".

    As in CPython's Modules/socketmodule.c (setipaddr), an empty host is any address, `<broadcast>` the broadcast one.
    """
    if not host:
        return "0.0.0.0"
    if host == "<broadcast>":
        return "255.255.255.255"
    return canonical_address(host.partition("%")[0]) or ""


def key(host: str) -> str:
    """What names the same host: case and the final dot do not count (RFC 4343)."""
    return host.rstrip(".").lower()


class Names:
    """The run's names. `look_up` may be called from any thread; the rest reads what it has pinned."""

    __slots__ = ("_lock", "_pins", "_policy")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._pins: dict[str, tuple[str, ...]] = {}
        self._lock = allocate_lock()

    def look_up(self, host: str) -> tuple[str, ...]:
        """All addresses of an allowed name, from the first look-up of the run. Raises `OSError` (`gaierror`)."""
        name = key(host)
        known = self._pins.get(name)
        if known is not None:
            return known
        try:
            answers = _socket.getaddrinfo(host, None, 0, _socket.SOCK_STREAM)
        except UnicodeError:
            raise _socket.gaierror(_socket.EAI_NONAME, "Name or service not known") from None
        found = tuple(dict.fromkeys(literal(str(answer[4][0])) for answer in answers))
        with self._lock:
            return self._pins.setdefault(name, found)

    def usable(self, host: str, port: int | None, addresses: tuple[str, ...]) -> list[str]:
        """Those of a name's addresses that it may lead to: into this machine or a private network only where a rule
        says so.
        """
        return [address for address in addresses if self.leads(host, port, address)]

    def leads(self, host: str, port: int | None, address: str) -> bool:
        """Whether a name may lead to an address: by the rule for the name, and to one of this machine by one for that
        address as well.
        """
        if not self._policy.decide("net", host, port, address).allowed:
            return False
        # Of special ranges (loopback, private ...) the policy has decided that already.
        if is_special_address(address) is not None or not is_own(address):
            return True
        return self._policy.decide("net", address, port).allowed

    def behind(self, address: str, port: int) -> str:
        """The allowed name that has led to `address` in this run, when its rule takes `port`; else ""."""
        for name, addresses in list(self._pins.items()):
            if address in addresses and self.leads(name, port, address):
                return name
        return ""
