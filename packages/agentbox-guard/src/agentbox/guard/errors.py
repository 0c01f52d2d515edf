"""Why a run could not be made, or had to be ended: one class per cause, each with a stable code, an exit status and a
way out.

Never holds a denial: what the policy refuses the agent is answered to the agent, and is not an error of the run.
"""

from __future__ import annotations


class GuardError(Exception):
    """Root of this package's errors: `code` is stable for scripts, `status` the exit status of the command, `hint` the
    way out.
    """

    code = "guard"
    status = 70

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


class CommandNotFound(GuardError):
    """The command is not there (status 127, as a shell gives)."""

    code = "command-not-found"
    status = 127


class CommandNotExecutable(GuardError):
    """The command is there but cannot be executed (status 126, as a shell gives)."""

    code = "command-not-executable"
    status = 126


class Unconfinable(GuardError):
    """Nothing was run, because this command or this machine cannot be confined as asked."""

    code = "unconfinable"
    status = 69


class Unguarded(Unconfinable):
    """No guard runs inside the command, and no kernel layer is live."""

    code = "unguarded"


class OutdatedInterpreter(Unconfinable):
    """The interpreter is older than the guard, which would end it at its start whatever else holds it."""

    code = "outdated"


class CannotCreate(GuardError):
    """The trace, the private folder or a write root cannot be made; nothing was run."""

    code = "cannot-create"
    status = 73


class TraceFailed(GuardError):
    """The trace can no longer be written (a full disk, mostly), so the run was ended: nothing goes on unrecorded."""

    code = "trace-io"
    status = 74


class ProtocolError(GuardError):
    """A process of the run sent something that docs/spec/channel.md does not allow: it is broken or hostile."""

    code = "protocol"


class GuardFailed(GuardError):
    """The guard did not come up in the agent, or a part of agentbox failed; the agent was ended."""

    code = "guard-failed"
