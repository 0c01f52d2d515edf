"""Names to objects: walks a path part by part as the kernel would for the asking process. It opens nothing and decides
nothing.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_LINKS = 40  # path_resolution(7): the kernel gives up after 40 symbolic links


def resolve(path: str, cwd: str, pid: int) -> str:
    """The absolute object that `path` names for process `pid`: links followed, parts that do not exist kept as written.

    `/proc/self` and `/proc/thread-self` are those of `pid` (0: the caller's own). Raises `OSError` (ELOOP) on a circle
    of links, EINVAL for what can be no path.
    """
    if not is_name(path) or not is_name(cwd):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    waiting = _parts(os.path.join(cwd, path))
    done = ""
    links = 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        if done == "/proc" and pid and part in ("self", "thread-self"):
            done = f"/proc/{pid}"
            continue
        here = f"{done}/{part}"
        try:
            target = os.readlink(here)
        except OSError:
            done = here
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if target.startswith("/"):
            done = ""
        elif here.startswith("/proc/") and ":" in target:
            done = here  # pipe:[1], socket:[2]: an object without a path
            continue
        waiting.extend(_parts(target))
    return done or "/"


def _parts(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def identity(path: str) -> tuple[int, int] | None:
    """Device and inode; None for what is not there."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def is_name(text: str) -> bool:
    """Whether the system could take `text` for a path or an argument: no NUL, and no surrogates but those that stand
    for bytes (PEP 383)."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def within(path: str, trees: tuple[str, ...] | list[str]) -> bool:
    """True if `path` is one of `trees` or lies below one; all resolved."""
    return any(path == tree or path.startswith(tree.rstrip("/") + "/") for tree in trees)


def show_path(path: str, writable: Mapping[str, str]) -> str:
    """`path` with a private folder's name put in place of its per-run location; `writable` maps name to location."""
    for name, root in writable.items():
        if path == root or path.startswith(root + "/"):
            return "$" + name + path[len(root) :]
    return path


def existing(paths: Iterable[str]) -> list[str]:
    """The resolved forms of those that are there, each once."""
    folders: dict[str, str] = {}
    found: dict[str, None] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder not in folders:  # most of a list share a few, and resolving one takes as long as ten of these looks
            folders[folder] = os.path.realpath(folder or "/").rstrip("/")
        place = f"{folders[folder]}/{name}"
        try:
            is_link = stat.S_ISLNK(os.lstat(place).st_mode)
        except OSError:
            continue
        if not is_link:
            found[place] = None
        elif os.path.exists(place):
            found[os.path.realpath(place)] = None
    return list(found)
