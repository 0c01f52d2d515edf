"""Calls that no policy opens: answered with an errno and recorded once for each process.

What the filter let through to here is decided by registers alone, so that letting it proceed (while only observing, or
for what was merely noted) cannot be turned into something else.
"""

from __future__ import annotations

from agentbox.guard.kernel import rows
from agentbox.guard.kernel.traps._base import NEVER, Box
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler

_ELSEWHERE = (
    "socket", "socketpair", "sendto", "sendmsg", "sendmmsg", "ioctl", "fcntl", "setpriority", "ioprio_set", "clone",
)  # fmt: skip
"""Those of which others decide what is refused."""


def refuse(box: Box, call: Call, name: str, shown: str = "") -> None:
    """Refuse one call for good; `shown` names it more exactly."""
    shown = shown or name
    denial = Denial("call", shown, NEVER)
    if box.scribe.deny_once(box.ids(call).process, "sys.call", shown, {"name": shown}, denial):
        box.listener.fail(call, rows.REFUSED[name])
    else:
        box.listener.proceed(call)


def _ring(box: Box, call: Call, name: str) -> None:
    """A kernel without io_uring, which it may be built as: libuv asks for a ring in every program that starts
    (uv__platform_loop_init(), 1.49: Node 22 and 24, CMake) and does without, so a denial would tell of nobody's doing.
    """
    box.scribe.absent(box.ids(call).process, name)
    box.listener.fail(call, rows.REFUSED[name])


CALLS: dict[str, Handler] = {
    **{name: refuse for name in rows.REFUSED if name not in _ELSEWHERE},
    "io_uring_setup": _ring,
}
