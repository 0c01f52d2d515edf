"""Submodules, as far as safety goes: which folders their git directories take for work trees (core.worktree).

It looks only, and what it cannot look at counts as dangerous. Source: gitsubmodules(7), gitrepository-layout(5).
"""

from __future__ import annotations

import errno
import os

from agentbox.guard.kernel import gitconfig, protected
from agentbox.guard.untrusted import read_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_CONFIGS = frozenset(("config", "config.worktree"))
_MOST = 1000
"""How many folders of submodules' git directories are looked through, and `_MOST_BYTES` of configuration in them: while
one process waits for that, all others do.
"""
_MOST_BYTES = 256 * 1024
_LONGEST_LINK = 8192
"""More than PATH_MAX: no file `.git` that leads anywhere is longer."""

TREE_REASON = "git writes a submodule's files to this folder, and a link would lead them elsewhere"


def is_tree(path: str, known: dict[str, list[str] | None] | None = None) -> bool:
    """Whether a submodule of a repository that the resolved `path` lies in has it, or something below it, for its work
    tree. `known` keeps what was found between calls that belong together: looking takes long where there are many.
    """
    known = {} if known is None else known
    for directory in _directories_above(path):
        if directory not in known:
            known[directory] = _trees(directory)
        trees = known[directory]
        if trees is None or any(f"{tree}/".startswith(path + "/") for tree in trees):
            return True
    return False


def _trees(directory: str) -> list[str] | None:
    """The work trees of the submodules of a git directory; None when they cannot be told."""
    trees = []
    left = _MOST_BYTES
    try:
        for config in _configurations(f"{directory}/modules"):
            data = read_regular(config, left)
            left -= len(data)
            trees += [_tree(config, entry[3]) for entry in gitconfig.entries(data) if _names_tree(entry)]
    except (OSError, gitconfig.Unreadable):
        return None
    return trees


def is_linked(config: str, value: str) -> bool:
    """Whether `value` is the work tree that git itself gives the submodule of the configuration `config`: the folder
    whose file `.git` leads back to that git directory, in a repository whose submodule it is.
    """
    tree, folder = os.path.realpath(_tree(config, value)), os.path.dirname(config)
    if os.path.relpath(tree, os.path.realpath(folder)) != value:
        return False  # over a link or a detour: what git itself writes is the plain way there
    if "/.git/" in protected.folded(tree) + "/" or protected.place_of(f"{tree}/hooks/x")[0]:
        return False
    if not any(folder.startswith(f"{directory}/modules/") for directory in _directories_above(tree)):
        return False
    return _behind(f"{tree}/.git") == os.path.realpath(folder)


def _names_tree(entry: gitconfig.Entry) -> bool:
    return entry[0] == "core" and entry[2] == "worktree"


def _tree(config: str, value: str | None) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(config), value or ""))


def _directories_above(path: str) -> Iterator[str]:
    """The git directories of the folders that `path` lies in, resolved."""
    while path not in ("", "/"):
        path = os.path.dirname(path)
        name = f"{path.rstrip('/')}/.git"
        if os.path.isdir(name):
            yield os.path.realpath(name)
        elif protected.exists(name):
            yield _behind(name)


def _behind(name: str) -> str:
    """Where a file `.git` leads, resolved; "" if it is none."""
    try:
        text = read_regular(name, _LONGEST_LINK)
    except (OSError, ValueError):
        return ""
    if not text.startswith(b"gitdir:"):
        return ""
    return os.path.realpath(os.path.join(os.path.dirname(name), os.fsdecode(text[7:].strip())))


def _configurations(modules: str) -> Iterator[str]:
    """The configuration files of all git directories below a folder `modules`. Raises `OSError` for too many."""
    for count, (folder, folders, files) in enumerate(os.walk(modules)):
        if count > _MOST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        if "objects" in folders:  # a git directory: in it only submodules of its own count
            folders[:] = [name for name in folders if name in ("modules", "worktrees")]
        yield from (f"{folder}/{name}" for name in files if name in _CONFIGS)
