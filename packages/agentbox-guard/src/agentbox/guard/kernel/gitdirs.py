"""Folders that become git directories, as far as safety goes: what may be in one before git takes it for its own.

It looks only, follows no link, and what it cannot look at counts as dangerous. Source: gitrepository-layout(5),
git-worktree(1).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from agentbox.guard.kernel import protected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Exists = Callable[[str], bool]
    """Whether something has a name: `protected.exists`, or as it will be after a folder has been renamed."""

_F_SETLEASE = 1024  # <fcntl.h>, Linux 2.4
_MAKINGS = frozenset(("head", "objects", "refs", "commondir"))
"""What makes a folder a git directory, see `protected.is_repository`."""
_CONFIGS = ("config", "config.worktree")
_PARTS = frozenset(("hooks", "objects", "refs", "commondir", *_CONFIGS))
"""What git reads by these names may be no link: what is behind it bears another name, by which it is written."""

LINK_REASON = "a link in a git directory could lead git to what somebody else fills"
COMMON_REASON = "commondir leads git to another folder, and only git worktree makes it, in .git/worktrees"
BREAK_REASON = "without it the git directory would be an ordinary folder, whose hooks anybody fills"
NOT_REGULAR = "git configuration must be a regular file"
_SECOND_NAME = "git configuration has another name, by which it could be changed after it was looked at"


def completion_problem(path: str) -> str:
    """What is against making the resolved `path`, which is not there, when that makes its folder a git directory."""
    folder, name = os.path.split(path)
    part = protected.folded(name)
    if part not in _MAKINGS:
        return ""
    if part == "commondir" and is_stray(path) and (_is_directory(folder) or _has(folder, "HEAD")):
        return COMMON_REASON
    if os.path.lexists(path) or not _completes(folder, part):
        return ""
    try:
        with os.scandir(folder) as found:
            for entry in found:
                problem = _part_problem(entry)
                if problem:
                    return problem
    except FileNotFoundError:
        return ""
    except OSError:
        return protected.HOOK_REASON
    return ""


def is_part(path: str) -> bool:
    """Whether `path` is named like what may be no link in a git directory."""
    return protected.folded(os.path.basename(path)) in _PARTS


def completes(path: str, exists: Exists = protected.exists) -> bool:
    """Whether the folder of `path` is a git directory with it, by what is in it."""
    folder, name = os.path.split(path)
    return _completes(folder, protected.folded(name), exists)


def breaks(path: str) -> bool:
    """Whether the folder of `path`, by any other name than git's, would be no git directory without it."""
    folder, name = os.path.split(path)
    if name not in ("HEAD", "objects", "refs", "commondir") or not protected.is_repository(folder, ""):
        return False
    whole, linked = _has(folder, "objects") and _has(folder, "refs"), _has(folder, "HEAD") and _has(folder, "commondir")
    return not linked if name in ("objects", "refs") else not whole


def is_stray(path: str, exists: Exists = protected.exists) -> bool:
    """Whether the file `path`, named commondir, lies elsewhere than in a linked worktree's own git directory."""
    trees, _ = os.path.split(os.path.dirname(path))
    repository, name = os.path.split(trees)
    return name != "worktrees" or not _is_directory(repository, exists)


def leads_away(path: str, exists: Exists = protected.exists) -> bool:
    """Whether `path` is a stray commondir in a git directory."""
    folder, name = os.path.split(path)
    return protected.folded(name) == "commondir" and _is_directory(folder, exists) and is_stray(path, exists)


def configuration_problem(descriptor: int, path: str, before: bytes = b"") -> str:
    """Why the file open for reading as `descriptor` may not become the git configuration `path`; entries it had
    `before` may stay.

    Without a problem there is a lease on the file, which nobody has open for writing, until it is closed (fcntl(2),
    F_SETLEASE). Raises `OSError` when it cannot be read.
    """
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        return NOT_REGULAR
    if info.st_nlink > 1:
        return _SECOND_NAME
    try:
        fcntl.fcntl(descriptor, _F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EBUSY):
            return "the new configuration is still open for writing"
        if error.errno not in (errno.EINVAL, errno.EACCES):
            raise
        return "the new configuration cannot be held while it is looked at"
    from agentbox.guard.kernel import gitentries

    return gitentries.problem(read(descriptor), before, path)


def read(descriptor: int) -> bytes:
    """All of a file, or more than may be looked through."""
    from agentbox.guard.kernel import gitconfig

    data = b""
    while len(data) <= gitconfig.LARGEST and (chunk := os.pread(descriptor, 65536, len(data))):
        data += chunk
    return data


def _completes(folder: str, part: str, exists: Exists = protected.exists) -> bool:
    if part == "head":  # the last thing that git asks for
        return protected.is_repository(folder, "", exists=exists) or exists(f"{folder}/commondir")
    other = {"objects": "refs", "refs": "objects", "commondir": "HEAD"}.get(part)
    return other is not None and exists(f"{folder}/{other}")


def _part_problem(entry: os.DirEntry[str]) -> str:
    """What is against one entry of a folder that becomes a git directory."""
    name = protected.folded(entry.name)
    if name not in _PARTS:
        return ""
    if entry.is_symlink():
        return LINK_REASON
    if name == "commondir" and is_stray(entry.path):
        return COMMON_REASON if not entry.is_dir(follow_symlinks=False) else ""
    if name == "hooks" and entry.is_dir(follow_symlinks=False):
        files = os.listdir(entry.path)
        return "" if all(protected.folded(file).endswith(".sample") for file in files) else protected.HOOK_REASON
    if name in _CONFIGS:
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            return configuration_problem(descriptor, entry.path)
        finally:
            os.close(descriptor)
    return ""


def _is_directory(folder: str, exists: Exists = protected.exists) -> bool:
    return protected.is_repository(folder, protected.folded(os.path.basename(folder)), exists=exists)


def _has(folder: str, name: str) -> bool:
    return protected.exists(f"{folder}/{name}")
