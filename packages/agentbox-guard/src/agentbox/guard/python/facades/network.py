"""Sealed: stand-ins for name look-ups, and for socket methods that would make one. Never asks the network itself.

Names are resolved and pinned by the supervisor; what reaches C code is a literal address in plain values.
"""

from __future__ import annotations

import _socket
from _socket import AI_NUMERICHOST, EAI_NONAME, NI_NUMERICHOST
from _socket import socket as RawSocket
from errno import EACCES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.events.network import is_literal
    from agentbox.guard.python.facades._plain import stop
    from agentbox.guard.python.resolve import exact_text
    from agentbox.guard.python.wire import ask


def lookup(
    host: Any,
    port: Any,
    family: str,
    *,
    ask=ask,
    hello="",
    exact_text=exact_text,
    gaierror=_socket.gaierror,
    stop=stop,
    EACCES=EACCES,
    EAI_NONAME=EAI_NONAME,
    type=type,
    int=int,
) -> list[str]:
    """The addresses of a name, from the supervisor, which decides, resolves and pins them."""
    text = exact_text(host) or "?"
    answer = ask("net.resolve", {"host": text, "port": port if type(port) is int else 0, "family": family}, "", hello)
    if answer["allow"] is not True:
        stop((answer.get("errno") or EACCES, answer.get("text") or "agentbox denied it", None))
    addresses = (answer.get("value") or {}).get("addresses") or ()
    if not addresses:
        raise gaierror(EAI_NONAME, "Name or service not known")
    return addresses


def getaddrinfo(
    host: Any,
    port: Any,
    family: int = 0,
    type: int = 0,
    proto: int = 0,
    flags: int = 0,
    *,
    real=_socket.getaddrinfo,
    lookup=lookup,
    exact_text=exact_text,
    is_literal=is_literal,
    gaierror=_socket.gaierror,
    inet=_socket.AF_INET,
    inet6=_socket.AF_INET6,
    NUMERIC=AI_NUMERICHOST,
    EAI_NONAME=EAI_NONAME,
    int=int,
) -> list[Any]:
    """Resolve host and port into list of address infos."""
    text = None if host is None else exact_text(host)
    if text is None or text == "" or is_literal(text) or flags & NUMERIC:
        return real(host, port, family, type, proto, flags)
    found = []
    for address in lookup(text, port, "inet" if family == inet else "inet6" if family == inet6 else "any"):
        try:
            found += real(address, port, family, type, proto, flags | NUMERIC)
        except gaierror:
            continue
    if not found:
        raise gaierror(EAI_NONAME, "Name or service not known")
    return found


def gethostbyname(
    host: Any, *, lookup=lookup, exact_text=exact_text, is_literal=is_literal, real=_socket.gethostbyname
) -> str:
    """Return the IP address (a string of the form '255.255.255.255') for a host."""
    text = exact_text(host)
    return real(host) if text is None or text == "" or is_literal(text) else lookup(text, 0, "inet")[0]


def gethostbyname_ex(
    host: Any, *, lookup=lookup, exact_text=exact_text, is_literal=is_literal
) -> tuple[str, list[str], list[str]]:
    """Return the true host name, a list of aliases, and a list of IP addresses, for a host."""
    text = exact_text(host) or "?"
    return (text, [], [text] if is_literal(text) else [*lookup(text, 0, "inet")])


def gethostbyaddr(
    host: Any, *, lookup=lookup, exact_text=exact_text, is_literal=is_literal
) -> tuple[str, list[str], list[str]]:
    """Return the true host name, a list of aliases, and a list of IP addresses.

    An address keeps its number: reverse look-ups leave the machine.
    """
    text = exact_text(host) or "?"
    return (text, [], [text] if is_literal(text) else [*lookup(text, 0, "any")])


def getnameinfo(
    sockaddr: Any, flags: int, /, *, real=_socket.getnameinfo, NUMERIC=NI_NUMERICHOST, index=int.__index__
) -> tuple[str, str]:
    """Get host and port for a sockaddr; the host as a number, as a reverse look-up would leave the machine."""
    return real(sockaddr, index(flags) | NUMERIC)


def plain_address(
    sock: Any,
    address: Any,
    *,
    lookup=lookup,
    exact_text=exact_text,
    is_literal=is_literal,
    family_of=RawSocket.family,
    inet=_socket.AF_INET,
    inet6=_socket.AF_INET6,
    type=type,
    issubclass=issubclass,
    tuple=tuple,
    int=int,
    whole=int.__int__,
    item=tuple.__getitem__,
    everything=slice(None),
    len=len,
    bytearray=bytearray,
    bytes=bytes,
) -> Any:
    """An address whose parts cannot change and whose host is a number; names are looked up by the supervisor."""
    family = family_of.__get__(sock)
    if (family != inet and family != inet6) or not issubclass(type(address), tuple):
        return address
    parts = [*item(address, everything)]
    if len(parts) >= 2:
        if issubclass(type(parts[1]), int):
            parts[1] = whole(parts[1])
        host = bytes(parts[0]) if issubclass(type(parts[0]), bytearray) else parts[0]
        text = exact_text(host)
        if text is not None:
            named = text != "" and text != "<broadcast>" and not is_literal(text)
            parts[0] = lookup(text, parts[1], "inet" if family == inet else "inet6")[0] if named else text
    return tuple(parts)


def socket_connect(self: Any, address: Any, /, *, real=RawSocket.connect, plain_address=plain_address) -> None:
    """Connect the socket to a remote address."""
    return real(self, plain_address(self, address))


def socket_connect_ex(self: Any, address: Any, /, *, real=RawSocket.connect_ex, plain_address=plain_address) -> int:
    """Like connect(address), but returns an error code instead of raising an exception when the system call fails."""
    return real(self, plain_address(self, address))


def socket_bind(self: Any, address: Any, /, *, real=RawSocket.bind, plain_address=plain_address) -> None:
    """Bind the socket to a local address."""
    return real(self, plain_address(self, address))


def socket_sendto(self: Any, data: Any, *rest: Any, real=RawSocket.sendto, plain_address=plain_address) -> int:
    """Send data to the address: sendto(data[, flags], address)."""
    return real(self, data, *rest[:-1], plain_address(self, rest[-1])) if rest else real(self, data)


def socket_sendmsg(
    self: Any,
    buffers: Any,
    ancdata: Any = (),
    flags: int = 0,
    address: Any = None,
    /,
    *,
    real=RawSocket.sendmsg,
    plain_address=plain_address,
) -> int:
    """Send normal and ancillary data to the socket, to an address where it is not connected."""
    return (
        real(self, buffers, ancdata, flags)
        if address is None
        else real(self, buffers, ancdata, flags, plain_address(self, address))
    )


def socket_listen(
    self: Any,
    *backlog: Any,
    real=RawSocket.listen,
    bind=RawSocket.bind,
    name_of=RawSocket.getsockname,
    family_of=RawSocket.family,
    inet=_socket.AF_INET,
    inet6=_socket.AF_INET6,
) -> None:
    """Enable a server to accept connections.

    An unbound socket is bound first, as the kernel would on its own and unseen.
    """
    family = family_of.__get__(self)
    if family in (inet, inet6) and name_of(self)[1] == 0:
        bind(self, ("0.0.0.0" if family == inet else "::", 0))
    return real(self, *backlog)
