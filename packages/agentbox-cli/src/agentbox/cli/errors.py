"""What can be wrong with a command line or with the files it names, as the command reports it.

Never holds an error of another distribution: those arrive with their own text and are worded by `main`.
"""

from __future__ import annotations

from agentbox.cli import exitcodes


class CliError(Exception):
    """The command cannot do what was asked: a stable `code`, the exit `status`, and as `hint` the way out."""

    code = "cli"
    status = exitcodes.USAGE

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


class UsageError(CliError):
    """The words of the command line do not fit the command."""

    code = "usage"
    status = exitcodes.USAGE


class MissingInput(CliError):
    """A file that the command needs is not there, not a file, or not readable."""

    code = "missing-input"
    status = exitcodes.NO_INPUT


class CannotCreate(CliError):
    """A file that the command should make cannot be made."""

    code = "cannot-create"
    status = exitcodes.CANNOT_CREATE
