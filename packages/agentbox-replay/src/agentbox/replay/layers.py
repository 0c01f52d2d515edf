"""Which layers hold a replay that was asked for none by name: the kernel's where the recorded run had them, and this
machine gives them to a process inside a scratch copy.

It never assumes that: what does not work in a forked child leaves the interpreter's guard alone, as on any machine
without layers.
"""

from __future__ import annotations

import os
import sys

from agentbox.guard import kernel
from agentbox.replay import _worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.replay.recording import Recording


def chosen(recording: Recording) -> str:
    """What `--layers auto` comes to: `kernel`, or `auto`, which is the guard alone for a session that records nothing.

    A run without namespaces had the machine's loopback and /dev/shm, and one under `--observe` was refused nothing:
    under all layers either would meet what it did not meet then.
    """
    held = recording.has_own_network() and recording.has_kernel_view() and recording.header.get("mode") != "observe"
    if not held or sys.platform != "linux" or "AGENTBOX_CHANNEL" in os.environ:  # inside another run there are none
        return "auto"
    return "auto" if missing() else "kernel"


def missing() -> str:
    """What keeps the kernel's layers from a replay here, in one clause; "" when nothing does."""
    return kernel.missing(_go_where_the_agent_will_be)


def _go_where_the_agent_will_be() -> None:
    """Limits and rules on namespaces count those of the scratch copy, too."""
    _worker.isolate(user=not _worker.is_mount_admin())
