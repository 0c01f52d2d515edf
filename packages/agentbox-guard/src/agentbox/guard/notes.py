"""What a user is told before the agent starts, one line each: what is no error, but most often not what was meant.

Never stops a run, and never looks at anything but the policy, the caller's environment and the command.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbox.guard.supervisor import Run


def notes(run: Run) -> Iterator[str]:
    """The lines for a run that is about to start, without prefix."""
    options = run.options
    environ = os.environ if options.environ is None else options.environ
    for rule, reason in options.policy.absent():
        yield f"{rule.where}: {rule}: {reason}"
    if (
        run.how.runtime == "python"
        and environ.get("PYTHONPATH")
        and not run.nested
        and "AGENTBOX_PYTHONPATH" not in run.environ
    ):
        yield (
            f"PYTHONPATH is not passed on, so modules in {environ['PYTHONPATH']} are not found: install the package"
            " (pip install -e .) with a read: rule for its folder, start the agent from that folder, or add the rules"
            " env: PYTHONPATH and read: for these folders"
        )
    if options.checkpoint and run.how.arms:  # any other command is not started then, and that is said
        from agentbox.guard.checkpoint import INSTALL, find_snapback

        if find_snapback(environ) is None:
            yield f"--checkpoint: snapback is not on PATH, so every change will be blocked; install it: {INSTALL}"
