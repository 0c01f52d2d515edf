"""Why a JavaScript program is not run.

Never a denial of a policy: nothing was started, so there is nothing to deny.
"""

from __future__ import annotations


class NodeError(Exception):
    """Root of this package's errors; `code` is stable for scripts, `status` ends the command, `hint` is the way out."""

    code = "node"
    status = 69
    unconfinable = True
    """Tells agentbox.guard that nothing but a kernel layer could hold the command."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


class NodeUnsupported(NodeError):
    """A JavaScript program of a kind that this version cannot guard; nothing was run."""

    code = "node-unsupported"


class NodeUnguardable(NodeError):
    """A Node command under which the guard could not arm; nothing was run."""

    code = "node-unguardable"
