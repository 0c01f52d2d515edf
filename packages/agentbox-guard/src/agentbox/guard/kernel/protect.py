"""Built-in protection: files inside write roots that make others run code, which no program of the run may change
unless a rule names that very file or its folder.

Names are compared without letter case, at any depth, whether the file exists or not; nothing is ever created in the
workspace to protect it. It decides on resolved paths and changes nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os

from agentbox.guard.kernel import gitconfig, protected
from agentbox.policy.forms.path import glob_matches, glob_patterns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.policy import Policy, Rule

MOST_FILES = 20000
"""How many files of a folder are looked through before it may be renamed."""

_F_SETLEASE = 1024  # <fcntl.h>, Linux 2.4
_MAKINGS = frozenset(("head", "objects", "refs", "commondir"))
"""What makes a folder a git directory, see `protected.is_repository`."""


class Protection:
    """One for a run. `exempt` are the run's private trees, in which only its own programs read."""

    __slots__ = ("_exempt", "_globs", "_roots")

    def __init__(self, policy: Policy, exempt: tuple[str, ...] = ()) -> None:
        rules = policy.rules_of(("write",))
        self._exempt = tuple(tree.rstrip("/") + "/" for tree in exempt)
        self._roots = tuple(
            (rule.form["root"], rule.form["root"].rstrip("/").count("/") + 1)
            for rule in rules
            if rule.form["glob"] is None
        )
        self._globs = tuple(_glob(rule) for rule in rules if rule.form["glob"] is not None)

    def tuples(self) -> dict[str, Any]:
        """The keyword arguments of `protected.reason_for`, which decides the same inside a guard; globs do not lift."""
        return {"lifting": self._roots, "exempt": self._exempt}

    def reason(self, path: str) -> str:
        """Why the resolved `path` may not be opened for writing, made, replaced, changed or removed; "" if nothing is
        against it. `path` need not exist.
        """
        why = self._place(path)[1]
        if why:
            return why + protected.BUILTIN
        return self._completed(path)

    def is_content(self, path: str) -> bool:
        """Whether `path` is git configuration, which may be replaced by a file that `content_reason` finds harmless."""
        return self._place(path)[1] == protected.CONFIG_REASON

    def removal_reason(self, path: str) -> str:
        """The same as `reason` for removing, and for changing mode, owner or times: configuration may go, and by its
        mode `git init` finds out whether the file system keeps modes.
        """
        why = self._place(path)[1]
        return "" if why in ("", protected.CONFIG_REASON) else why + protected.BUILTIN

    def symlink_reason(self, path: str) -> str:
        """Why no symbolic link may be made at `path`: what is written behind it would not bear its name."""
        name = protected.folded(os.path.basename(path))
        if name == ".git" and not self._is_exempt(path):
            return "a link named .git could lead git to a folder that somebody else fills" + protected.BUILTIN
        return self.reason(path) or self.reason(path + "/x")

    def link_reason(self, source: str, target: str) -> str:
        """Why no hard link may be made: a second name would be written instead of the protected one."""
        return self.reason(source) or self.reason(target)

    def rename_reason(self, source: str, target: str) -> str:
        """Why `source` may not become `target`; looks through folders. When it gives "" and `is_content(target)`, the
        file must pass `content_reason` as well.
        """
        if os.path.islink(source):
            return self.removal_reason(source) or self.symlink_reason(target)
        if os.path.isdir(source):
            return self._tree_reason(source, target)
        why = self.removal_reason(source)
        return why if why or self.is_content(target) else self.reason(target)

    def content_reason(self, descriptor: int, path: str) -> str:
        """Why the file open for reading as `descriptor` may not become the configuration `path`; "" if it may.

        It then has a lease on the file, which nobody has open for writing: rename it, and close the descriptor after
        (fcntl(2), F_SETLEASE). Raises `OSError` when it cannot be read.
        """
        try:
            fcntl.fcntl(descriptor, _F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EBUSY):
                return "the new configuration is still open for writing" + protected.BUILTIN
            if error.errno not in (errno.EINVAL, errno.EACCES):
                raise
            return "the new configuration cannot be held while it is looked at" + protected.BUILTIN
        data = _read(descriptor)
        try:
            before = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            found = gitconfig.problem(data)
        else:
            try:
                found = gitconfig.problem(data, _read(before))
            finally:
                os.close(before)
        return found + protected.BUILTIN if found else ""

    def _place(self, path: str) -> tuple[int, str]:
        """What protects `path`, (0, "") when nothing does or a rule lifts it."""
        if self._is_exempt(path):
            return 0, ""
        index, why = protected.place_of(path)
        while index and protected.is_lifted(path, index, self._roots, self._covering(path)):
            index, why = protected.place_of(path, index)
        return index, why

    def _is_exempt(self, path: str) -> bool:
        return path.startswith(self._exempt)

    def _covering(self, path: str) -> list[frozenset[str]]:
        """The literal names in each write glob that covers `path`."""
        return [
            names
            for prefix, patterns, names in self._globs
            if path.startswith(prefix) and glob_matches(patterns, path[len(prefix) :])
        ]

    def _completed(self, path: str) -> str:
        """When `path` makes its folder a git directory, what is in it already must not be what git would run."""
        folder, name = os.path.split(path)
        if protected.folded(name) not in _MAKINGS or self._is_exempt(path) or os.path.lexists(path):
            return ""
        try:
            hooks = os.listdir(folder + "/hooks")
        except OSError:
            hooks = []
        if any(not protected.folded(name).endswith(".sample") for name in hooks):
            return protected.HOOK_REASON + protected.BUILTIN
        for name in ("config", "config.worktree"):
            try:
                descriptor = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:
                continue
            try:
                found = gitconfig.problem(_read(descriptor))
            except OSError:
                found = protected.CONFIG_REASON
            finally:
                os.close(descriptor)
            if found:
                return found + protected.BUILTIN
        return ""

    def _tree_reason(self, source: str, target: str) -> str:
        """Whether something in a folder would be protected under its new name that is not under its old one."""
        why = self._completed(target)
        if why:
            return why
        left = MOST_FILES
        pending = [""]
        while pending:
            inner = pending.pop()
            with os.scandir(source + inner) as found:
                for entry in found:
                    left -= 1
                    if left < 0:
                        return "the folder holds more files than can be looked through" + protected.BUILTIN
                    name = f"{inner}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(name)
                        continue
                    old, new = source + name, target + name
                    why = self._place(new)[1]
                    if why and not self._place(old)[1] and not self._is_harmless(old, new):
                        return why + protected.BUILTIN
        return ""

    def _is_harmless(self, source: str, target: str) -> bool:
        """Whether a file that becomes git configuration by the renaming of a folder runs nothing."""
        if not self.is_content(target):
            return False
        try:
            descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return not self.content_reason(descriptor, target)
        except OSError:
            return False
        finally:
            os.close(descriptor)


def _glob(rule: Rule) -> tuple[str, tuple[Any, ...], frozenset[str]]:
    """The root with a slash, the patterns and the names without wildcards of a rule's glob."""
    patterns = glob_patterns(rule.form["glob"])
    names = frozenset(protected.folded(one) for one in patterns if type(one) is str)
    return rule.form["root"].rstrip("/") + "/", patterns, names


def _read(descriptor: int) -> bytes:
    """All of a file, or more than may be looked through."""
    data = b""
    while len(data) <= gitconfig.LARGEST and (chunk := os.pread(descriptor, 65536, len(data))):
        data += chunk
    return data
