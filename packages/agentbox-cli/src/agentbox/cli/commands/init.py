"""`agentbox init`: writes a starter policy with comments.

Never overwrites a file.
"""

from __future__ import annotations

import errno
import os

from agentbox.cli import exitcodes, output
from agentbox.cli.commands._base import Command
from agentbox.cli.errors import CannotCreate
from agentbox.cli.options import Parsed, Word


def run(parsed: Parsed) -> int:
    from agentbox.policy import starter_policy

    path = parsed.text("FILE")
    try:
        # O_EXCL also refuses a dangling symbolic link (open(2)), so that nothing is written elsewhere.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        kind = "is a directory" if os.path.isdir(path) else "is there already and was left as it is"
        raise CannotCreate(f"{path} {kind}", "name another file: agentbox init FILE") from None
    except OSError as error:
        raise CannotCreate(f"cannot create {path}: {output.reason(error)}", _way_out(error, path)) from error
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(starter_policy())
    except OSError as error:
        os.unlink(path)  # half a policy would be read as a whole one
        raise CannotCreate(f"cannot write {path}: {output.reason(error)}") from error
    output.message(f"wrote {path}: edit it, then agentbox run{_policy_option(path)} -- python agent.py")
    return exitcodes.OK


def _policy_option(path: str) -> str:
    return "" if path == FILE.default else f" -p {path}"


FILE = Word("FILE", default="agentbox.policy", help="where to write it")

COMMAND = Command(
    "init",
    summary="write a starter policy",
    description=(
        "Writes a policy with comments that allows little and explains how to allow more.",
        "An existing file is left as it is.",
    ),
    words=(FILE,),
    examples=(
        "agentbox init",
        "agentbox init policies/reader.policy",
    ),
    run=run,
)


def _way_out(error: OSError, path: str) -> str:
    """Say what helps against the error of an open(2) that was to make `path`."""
    if error.errno == errno.ENOENT:
        return f"make the folder first: mkdir -p {os.path.dirname(path) or '.'}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space"
    return "name a file that you may write: agentbox init FILE"
