"""The folders that `write:` rules ask for by a slash at the end: missing ones are made before a run, or named.

Never makes anything outside of the working directory and the user's home, where a typo would leave folders behind.
"""

from __future__ import annotations

import os

from agentbox.guard.errors import CannotCreate
from agentbox.policy.forms.path import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbox.guard.options import RunOptions


def missing(options: RunOptions) -> tuple[list[str], list[str]]:
    """The missing folders of the write rules: those to make, and those that are left to the user.

    Raises `CannotCreate` when one to make cannot be made, so that this is known before anything of the run is there.
    """
    own, others = [], []
    made = options.policy.made_folders()
    for folder in options.policy.write_folders():
        if os.path.lexists(folder):
            continue
        if folder not in made:
            others.append(folder)
            continue
        above = _chain(folder)[0].rpartition("/")[0] or "/"
        if not os.path.isdir(above):
            raise _cannot(folder, f"{shown(above)} is not a directory")
        if os.statvfs(above).f_flag & os.ST_RDONLY:
            raise _cannot(folder, f"{shown(above)} is on a read-only file system")
        if not os.access(above, os.W_OK | os.X_OK):
            raise _cannot(folder, f"no permission to write in {shown(above)}")
        own.append(folder)
    return own, others


def make(options: RunOptions, folders: list[str]) -> None:
    """Make those of the folders that are missing, parents included, for their owner alone, and say so.

    Raises `CannotCreate`.
    """
    for folder in folders:
        chain = _chain(folder)
        for path in chain:
            try:
                os.mkdir(path, 0o700)
            except OSError as error:
                raise _cannot(path, error.strerror or str(error)) from error
        if chain:
            options.note(f"created {short(folder, options.cwd)}/ (named by a write: rule, did not exist)")


def unreachable(options: RunOptions, layers: Sequence[str]) -> list[str]:
    """The missing paths of write rules that nothing can create: Landlock names what exists (landlock(7)), and only the
    seccomp layer creates the others in a program's name.
    """
    if "landlock" not in layers or "seccomp" in layers:
        return []
    return [root for root in options.policy.write_roots() if not os.path.lexists(root)]


def advice(folder: str) -> str:
    """What is said of a missing folder that is not agentbox's to make."""
    return (
        f"a write: rule names the folder {shown(folder)}, which does not exist; only folders below the working "
        f"directory or your home are created: mkdir -p {_word(folder)}"
    )


def _chain(folder: str) -> list[str]:
    """The missing folders on the way to `folder`, the highest first."""
    found = []
    while not os.path.lexists(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found[::-1]


def short(path: str, cwd: str) -> str:
    """A path as a policy names it, fit for a message."""
    return shown("." + path[len(cwd.rstrip("/")) :] if path.startswith(cwd.rstrip("/") + "/") else path)


def _word(path: str) -> str:
    """A path as a shell takes it."""
    if path.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum() and path.isascii():
        return path
    return "'" + shown(path).replace("'", "'\\''") + "'"


def _cannot(path: str, why: str) -> CannotCreate:
    return CannotCreate(
        f"{shown(path)}: the folder of a write: rule cannot be made: {why}", "make it yourself or change the rule"
    )
