"""Sealed: which paths inside write roots are protected by themselves, from names alone. Plain data in, text out.

It runs inside the agent as well as in the supervisor (docs/reference/architecture.md, "Sealed code"): no function
reads a global, a builtin or a cell, and the only call to the system is `lstat`.
"""
# mypy: disable-error-code="no-untyped-def, no-any-return"
# A keyword default that binds a builtin is not annotated: it has the type of that builtin.

from __future__ import annotations

from posix import lstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDERS = frozenset((
    ".vscode", ".idea", ".zed", ".fleet", ".devcontainer",  # tasks and settings that editors run
    ".claude", ".cursor", ".codex", ".gemini", ".windsurf", ".continue", ".aider", ".kiro", ".roo",  # agents' settings
    ".husky", ".githooks",  # where repositories keep their hooks
    ".ssh",
))  # fmt: skip
"""Folders whose files make other programs run code, at any depth; in lower case."""

FILES = frozenset((
    ".mcp.json", "mcp.json", ".aider.conf.yml", ".envrc", ".cursorrules", ".windsurfrules",
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".inputrc",
    ".xinitrc", ".xprofile", ".xsession", ".xsessionrc", ".xserverrc", ".pam_environment",
    ".vimrc", ".gvimrc", ".exrc", ".nvimrc", ".emacs", ".dir-locals.el", ".gdbinit", ".lldbinit", ".pdbrc", ".irbrc",
    ".pryrc", ".rprofile", ".tmux.conf", ".screenrc", "agentbox.policy",
))  # fmt: skip
"""Files that shells, editors, debuggers and agents run or take commands from when they start, and the policy that the
next run would be under; in lower case.
"""

UNDER_CONFIG = frozenset((
    "autostart", "environment.d", "systemd", "fish", "zsh", "nvim", "helix", "direnv", "mise", "plasma-workspace",
))  # fmt: skip
"""Folders of ~/.config (XDG base directories) of the same kind."""

VENDORED = frozenset(("node_modules", "site-packages", "dist-packages"))
"""Folders of installed packages: they ship their authors' editor settings, which nobody opens there."""

IGNORED = "\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u206a\u206b\u206c\u206d\u206e\u206f\ufeff"
"""Characters that some file systems leave out of a comparison (git's protectHFS)."""

HOOK_REASON = "git runs what is in hooks"
FOLDER_REASON = "other programs run or obey what is in this folder"
FILE_REASON = "other programs run or obey this file when they start"
CONFIG_REASON = "git configuration can name programs to run, so only a whole new file may take its place, as git does"
BUILTIN = "; it is protected unless a write: rule names it"


def folded(path: str, *, ignored=IGNORED) -> str:
    """The path as a file system without letter case compares it."""
    if path.isascii():
        return path.lower()
    for char in ignored:
        path = path.replace(char, "")
    return path.casefold()


def exists(path: str, *, lstat=lstat, OSError=OSError, ValueError=ValueError) -> bool:
    """Whether something has this name."""
    try:
        lstat(path)
    except (OSError, ValueError):
        return False
    return True


def is_repository(folder: str, name: str, *, exists=exists) -> bool:
    """Whether git could take a folder for a git directory, a worktree's or what several worktrees share: by its folded
    `name`, or by what is in it (gitrepository-layout(5)).
    """
    if name.endswith(".git") or (exists(folder + "/objects") and exists(folder + "/refs")):
        return True
    return exists(folder + "/HEAD") and exists(folder + "/commondir")


def place_of(
    path: str,
    beyond: int = 0,
    *,
    folded=folded,
    start_folders=FOLDERS,
    start_files=FILES,
    under_config=UNDER_CONFIG,
    vendored=VENDORED,
    is_repository=is_repository,
    hook=HOOK_REASON,
    folder=FOLDER_REASON,
    file=FILE_REASON,
    config=CONFIG_REASON,
    len=len,
    range=range,
) -> tuple[int, str]:
    """What protects the resolved `path`: (index of the first part after `beyond` that does, why), or (0, "").

    A rule lifts it if its root goes as far as that part; then the parts beyond it count. The folders themselves are
    not protected: an empty one does nothing.
    """
    parts = folded(path).split("/")
    real = path.split("/")
    last = len(parts) - 1
    foreign = False
    module = False
    for at in range(1, last):
        part = parts[at]
        if part in vendored:
            foreign = True
        elif part == "modules" and parts[at - 1] == ".git":
            module = True
        elif at <= beyond:
            pass
        elif part in start_folders and not foreign:
            return (at, folder)
        elif part == ".config" and parts[at + 1] in under_config and at + 1 < last:
            return (at + 1, folder)
        elif part != "hooks" or (at + 1 == last and parts[last].endswith(".sample")):
            pass
        elif module or is_repository("/".join(real[:at]), parts[at - 1]):
            return (at, hook)
    name = parts[last]
    if last <= beyond:
        return (0, "")
    if name in start_files and not foreign:
        return (last, file)
    if name == ".gitconfig" or (name == "config" and parts[last - 2 : last] == [".config", "git"]):
        return (last, config)
    named = name == "config" or name == "config.worktree"
    if named and (module or is_repository("/".join(real[:last]), parts[last - 1])):
        return (last, config)
    return (0, "")


def is_lifted(path: str, index: int, roots: Any, globs: Any, *, folded=folded, len=len) -> bool:
    """Whether a write rule names what protects `path`: `roots` are (root, parts) of those without wildcards, `globs`
    the literal names in each of the others that covers the path.
    """
    for root, parts in roots:
        if parts > index and (path == root or path.startswith(root + "/")):
            return True
    name = folded(path).split("/")[index]
    for names in globs:  # noqa: SIM110 (any() would need a nested function)
        if name in names:
            return True
    return False


def reason_for(path: str, *, lifting=(), exempt=(), place_of=place_of, is_lifted=is_lifted, builtin=BUILTIN) -> str:
    """Why the resolved `path` may not be written, made, replaced, linked or removed although a rule covers it; or "".

    `lifting` as `roots` of `is_lifted`; `exempt` are trees (with a slash at the end) that are the run's own.
    """
    for tree in exempt:
        if path.startswith(tree):
            return ""
    index, why = place_of(path)
    while index and is_lifted(path, index, lifting, ()):
        index, why = place_of(path, index)
    return why + builtin if index else ""
