"""The table of decisions: which operations a guard asks for, and who decides each. A new one is one file and its rows
here.
"""

from __future__ import annotations

from agentbox.guard.decisions._base import Desk, Verdict, denial_of, denial_text
from agentbox.guard.decisions.net_endpoint import Endpoint
from agentbox.guard.decisions.net_resolve import Resolve
from agentbox.guard.decisions.proc_exec import Exec
from agentbox.guard.decisions.proc_signal import Signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.decisions._base import Decider

_ENDPOINT = Endpoint()

DECIDERS: dict[str, Decider] = {
    "net.bind": _ENDPOINT,
    "net.connect": _ENDPOINT,
    "net.resolve": Resolve(),
    "net.send": _ENDPOINT,
    "proc.exec": Exec(),
    "proc.signal": Signal(),
}
"""Operation name to decider; file operations are decided by the guard and pass when they are asked
(docs/spec/channel.md).
"""

__all__ = ["DECIDERS", "Desk", "Verdict", "denial_of", "denial_text"]
