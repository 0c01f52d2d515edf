"""Sealed: the audit events of sockets and name look-ups. Decides nothing but families: the supervisor holds the rules.

Host names given to connect() are resolved in C before its event; the facades resolve them first, and what still arrives
as a name is refused.
"""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, AF_UNIX, inet_aton, inet_pton
from _socket import socket as RawSocket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.report import Refusal, inquire, refuse
    from agentbox.guard.python.resolve import exact_text, resolve

EVENTS = (
    *("socket.__new__", "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.sethostname"),
    *("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"),
    *("syslog.openlog", "syslog.syslog"),
)
OPS = {
    "socket.connect": "net.connect",
    "socket.bind": "net.bind",
    "socket.sendto": "net.send",
    "socket.sendmsg": "net.send",
}
NUMERIC = frozenset("0123456789.")
FAMILY = RawSocket.family
"""The C slot: a socket subclass may answer anything for `.family`."""
SOCKET_KIND = RawSocket.type


def is_literal(
    host: str,
    *,
    numeric=NUMERIC,
    set=frozenset,
    inet_aton=inet_aton,
    inet_pton=inet_pton,
    inet6=AF_INET6,
    OSError=OSError,
) -> bool:
    """Whether C code takes `host` for an address rather than a name, which it would ask the network about.

    That it looks like one is not enough: `a:b.example.org` and `1.2.3.4.5` are names to getaddrinfo(3).
    """
    if not host.isascii() or "\0" in host or host == "":
        return False
    try:
        if ":" in host:
            inet_pton(inet6, host.partition("%")[0])
        elif set(host) <= numeric:
            inet_aton(host)
        else:
            return False
    except OSError:
        return False
    return True


def on_new(
    family: Any,
    kind: Any,
    proto: Any,
    *,
    refuse=refuse,
    unix=AF_UNIX,
    inet=AF_INET,
    inet6=AF_INET6,
    type=type,
    int=int,
) -> Refusal | None:
    """`socket.__new__`: TCP, UDP and unix sockets only; -1 stands for a descriptor that exists already (socket(7))."""
    if type(family) is not int or type(kind) is not int or type(proto) is not int:  # sys.audit takes any object
        return refuse("net.connect", {"address": "?"}, "net", "?", "its family, type or protocol is no plain int", None)
    if family == -1 or family == unix:
        return None
    if family in (inet, inet6) and (kind == -1 or kind & 0xF in (1, 2)) and proto in (-1, 0, 6, 17):
        return None
    target = f"socket family {family} type {kind & 0xF} protocol {proto}"
    return refuse(
        "net.connect", {"address": target}, "net", target, "only TCP, UDP and unix sockets can be ruled", None
    )


def on_unix(
    op: str,
    address: Any,
    *,
    exact_text=exact_text,
    resolve=resolve,
    inquire=inquire,
    refuse=refuse,
    channel="",
    owned=(frozenset(), ()),
    bytes=bytes,
    str=str,
    type=type,
    issubclass=issubclass,
    bytearray=bytearray,
) -> Refusal | None:
    """A unix socket by path or by abstract name, which the supervisor decides on.

    The guard's own channel and the run's private folders are free.
    """
    if type(address) is bytearray:
        address = bytes(address)
    elif issubclass(type(address), bytes) and type(address) is not bytes:  # C has asked its buffer, which may lie
        reason = "an address must be a plain str or bytes"
        return refuse(op, {"path": "?"}, "net", "unix:?", reason, None)
    abstract = (type(address) is bytes or type(address) is str) and (not address or address[0] in (0, "\0"))
    text = exact_text(address[1:] if abstract else address)
    if text is None:
        reason = "its name holds a NUL byte, or is no plain str or bytes"
        return refuse(op, {"path": "?"}, "net", "unix:?", reason, None)
    if abstract or text == "":
        return inquire(op, {"path": "@" + text}, "@" + text)
    if text == channel and op == "net.connect":
        return None
    path = resolve(text, True)
    if path is None:
        return refuse(op, {"path": text}, "net", "unix:" + text, "its links lead in a circle", None)
    if path.startswith(owned[1]):
        return None
    return inquire(op, {"path": path}, path)


def on_address(
    op: str,
    sock: Any,
    address: Any,
    *,
    on_unix=on_unix,
    family_of=FAMILY,
    kind_of=SOCKET_KIND,
    refuse=refuse,
    inquire=inquire,
    exact_text=exact_text,
    is_literal=is_literal,
    unix=AF_UNIX,
    inet=AF_INET,
    inet6=AF_INET6,
    tuple=tuple,
    int=int,
    str=str,
    type=type,
    len=len,
) -> Refusal | None:
    """connect, bind, sendto, sendmsg: the supervisor decides on the literal address and port."""
    family = family_of.__get__(sock)
    if family == unix:
        return on_unix(op, address)
    if family != inet and family != inet6:
        return refuse(
            op, {"address": "?"}, "net", f"socket family {family}", "only TCP, UDP and unix sockets can be ruled", None
        )
    if type(address) is not tuple or len(address) < 2 or type(address[1]) is not int:
        return refuse(op, {"address": "?"}, "net", "?", "an address must be a plain (host, port) tuple", None)
    host = exact_text(address[0]) if type(address[0]) is str else None
    if host is None:
        return refuse(op, {"address": "?"}, "net", "?", "the host of an address must be a plain str", None)
    if host == "":
        host = "0.0.0.0" if family == inet else "::"
    if host == "<broadcast>" or not is_literal(host):
        return refuse(
            op,
            {"host": host, "port": address[1]},
            "net",
            host,
            "the name was resolved before the guard could see it",
            None,
        )
    args = {"family": "inet" if family == inet else "inet6", "address": host, "port": address[1]}
    if op == "net.bind" and kind_of.__get__(sock) & 0xF == 2:  # SOCK_DGRAM
        args["datagram"] = True
    return inquire(op, args, None)


def on_lookup(
    event: str, host: Any, *, exact_text=exact_text, is_literal=is_literal, refuse=refuse, type=type, bytes=bytes
) -> Refusal | None:
    """A look-up by C code.

    Names go through the facades, which ask the supervisor; only literal addresses and "no host" pass here.
    """
    if host is None:
        return None
    text = exact_text(host)
    if text is not None and (text == "" or is_literal(text)):
        return None
    name = text if text is not None else "?"
    return refuse(
        "net.resolve",
        {"host": name},
        "net",
        name,
        f"{event} would ask the network itself",
        f"net: {name}" if text else None,
    )


def on_network(
    event: str,
    args: tuple[Any, ...],
    *,
    on_new=on_new,
    on_address=on_address,
    on_lookup=on_lookup,
    inquire=inquire,
    refuse=refuse,
    ops=OPS,
    type=type,
    tuple=tuple,
    len=len,
    NI_NUMERICHOST=1,
) -> Refusal | None:
    """The family's dispatcher."""
    if event == "socket.__new__":
        return on_new(args[1], args[2], args[3])
    if event in ops:
        if event == "socket.sendmsg" and args[1] is None:
            return None
        return on_address(ops[event], args[0], args[1])
    if event == "socket.sethostname":
        return refuse("net.bind", {"host": "?"}, "net", "the host's name", "it belongs to the machine", None)
    if event[:7] == "syslog.":
        return inquire("net.connect", {"path": "/dev/log"}, "/dev/log")
    if event == "socket.getnameinfo":
        address = args[0]
        host = address[0] if type(address) is tuple and len(address) else "?"
        return on_lookup(event, host)
    return on_lookup(event, args[0])
