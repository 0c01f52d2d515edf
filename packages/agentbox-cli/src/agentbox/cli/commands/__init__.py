"""The table of subcommands: each is one file of this folder that holds its `COMMAND`, and one line here.

Never imports a subcommand before it is asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.cli.commands._base import Command

NAMES = (
    "init",
    "run",
    "show",
    "verify",
    "replay",
    "doctor",
)


def load(name: str) -> Command:
    """The subcommand `name`, which must be one of `NAMES`."""
    module = __import__(f"agentbox.cli.commands.{name}", fromlist=("COMMAND",))
    command: Command = module.COMMAND
    return command
