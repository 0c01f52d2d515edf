"""socket(2) and socketpair(2): of three families and two kinds, and without an own network deaf ones for datagrams.

The kernel binds a datagram socket to every address of the machine by its first send, and be it a write(2) that fails,
and then it would hear anybody without a rule for that. So such a socket is made here, with a filter that lets nothing
in (`peers_only`); whom it sends or connects to is let in then, and everybody when a rule lets it be bound.
"""

from __future__ import annotations

import _socket as socket  # the module around it loads enum and selectors, 3 ms of a start

from agentbox.guard.kernel import peers_only, rows
from agentbox.guard.kernel.traps._base import Box, number
from agentbox.guard.kernel.traps.refusals import refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler

_FAMILIES = {17: "packet", 38: "alg", 40: "vsock", 43: "smc", 16: "netlink", 1: "unix", 2: "inet", 10: "inet6"}


def _socket(box: Box, call: Call, name: str) -> None:
    family, kind, protocol = (number(argument) for argument in call.args[:3])
    sort = kind & rows.SOCK_KIND
    datagrams = name == "socket" and family in (rows.AF_INET, rows.AF_INET6) and sort == rows.SOCK_DGRAM
    if not datagrams or protocol not in rows.IP_PROTOCOLS:
        refuse(box, call, name, f"{name} {_FAMILIES.get(family, str(family))} kind {sort} protocol {protocol}")
    elif box.scribe.observing:
        box.listener.proceed(call)
    else:
        with_flags = socket.socket(family, kind, protocol)
        try:
            peers_only.deafen(with_flags.fileno())
            box.listener.give(call, with_flags.fileno(), bool(kind & socket.SOCK_CLOEXEC))
        finally:
            with_flags.close()


CALLS: dict[str, Handler] = {"socket": _socket, "socketpair": _socket}
