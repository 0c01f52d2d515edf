"""Replay for agentbox: the same command against its recording, and the first step that differs.

This file never loads more than it is asked for: the names below arrive at their first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.replay.errors import ReplayError as ReplayError
    from agentbox.replay.options import ReplayOptions as ReplayOptions
    from agentbox.replay.recording import Recording as Recording
    from agentbox.replay.report import Divergence as Divergence
    from agentbox.replay.run import replay as replay
    from agentbox.replay.session import ReplaySession as ReplaySession

__version__ = "0.1.0"

_HOME = {
    "Divergence": "report",
    "Recording": "recording",
    "ReplayError": "errors",
    "ReplayOptions": "options",
    "ReplaySession": "session",
    "replay": "run",
}

__all__ = [
    "Divergence",
    "Recording",
    "ReplayError",
    "ReplayOptions",
    "ReplaySession",
    "replay",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(__import__(f"{__name__}.{home}", fromlist=(name,)), name)
    globals()[name] = value
    return value
