"""The effects of the SDK: one file and one line in the table each.

They run in the supervisor; an agent must never reach one but through the channel.
"""

from __future__ import annotations

from agentbox.guard.effects.clock_now import ClockNow
from agentbox.guard.effects.fs_read import FsRead
from agentbox.guard.effects.fs_write import FsWrite
from agentbox.guard.effects.http_request import HttpRequest
from agentbox.guard.effects.proc_run import ProcRun
from agentbox.guard.effects.random_float import RandomFloat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.effects._base import Effect

__all__ = ["EFFECTS"]

EFFECTS: dict[str, Effect] = {
    effect.op: effect for effect in (FsRead(), FsWrite(), HttpRequest(), ProcRun(), ClockNow(), RandomFloat())
}
"""Operation name to effect: what a `call` line may ask for (docs/spec/channel.md)."""
