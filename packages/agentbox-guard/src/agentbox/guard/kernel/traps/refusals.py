"""Calls that no policy opens: answered with an errno and recorded once for each process.

What the filter let through to here is decided by registers alone, so that letting it proceed (while only observing, or
for what was merely noted) cannot be turned into something else.
"""

from __future__ import annotations

from agentbox.guard.kernel import rows
from agentbox.guard.kernel.traps._base import NEVER, Box, number
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler

_FAMILIES = {17: "packet", 38: "alg", 40: "vsock", 43: "smc", 16: "netlink", 1: "unix", 2: "inet", 10: "inet6"}

_ELSEWHERE = ("socket", "socketpair", "sendto", "sendmsg", "sendmmsg", "ioctl", "fcntl", "setpriority", "ioprio_set")
"""Those of which others decide what is refused."""


def refuse(box: Box, call: Call, name: str, shown: str = "") -> None:
    """Refuse one call for good; `shown` names it more exactly."""
    shown = shown or name
    denial = Denial("call", shown, NEVER)
    if box.scribe.deny_once(box.ids(call).process, "sys.call", shown, {"name": shown}, denial):
        box.listener.fail(call, rows.REFUSED[name])
    else:
        box.listener.proceed(call)


def _socket(box: Box, call: Call, name: str) -> None:
    family, kind, protocol = (number(argument) for argument in call.args[:3])
    shown = _FAMILIES.get(family, str(family))
    refuse(box, call, name, f"{name} {shown} kind {kind & rows.SOCK_KIND} protocol {protocol}")


CALLS: dict[str, Handler] = {
    **{name: refuse for name in rows.REFUSED if name not in _ELSEWHERE},
    "socket": _socket,
    "socketpair": _socket,
}
