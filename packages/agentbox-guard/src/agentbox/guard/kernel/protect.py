"""Built-in protection: files inside write roots that make others run code, which no program of the run may change
unless a rule names that very file or its folder.

Names are compared without letter case, at any depth, whether the file exists or not; nothing is ever created in the
workspace to protect it. It decides on resolved paths and changes nothing.
"""

from __future__ import annotations

import os

from agentbox.guard.kernel import gitdirs, protected
from agentbox.policy.forms.path import glob_matches, glob_patterns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.policy import Policy, Rule

_GIT_REASONS = (protected.HOOK_REASON, protected.CONFIG_REASON)
MOST_FILES = 20000
"""How many files of a folder are looked through before it may be renamed."""


class Protection:
    """One for a run. `exempt` are the run's private trees, in which only its own programs read.

    Where rules let the agent start git for some commands only, what makes git run others is protected in there too.
    """

    __slots__ = ("_exempt", "_exempt_from_git", "_globs", "_roots")

    def __init__(self, policy: Policy, exempt: tuple[str, ...] = ()) -> None:
        rules = policy.rules_of(("write",))
        self._exempt = tuple(tree.rstrip("/") + "/" for tree in exempt)
        self._exempt_from_git = () if _limits_git(policy) else self._exempt
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
        if self._is_exempt(path):
            return ""
        why = self._link_place(path)
        if not why and gitdirs.is_part(path) and gitdirs.completes(path):
            why = gitdirs.LINK_REASON
        return why + protected.BUILTIN if why else self.reason(path)

    def link_reason(self, source: str, target: str) -> str:
        """Why no hard link may be made: a second name would be written instead of the protected one."""
        return self.reason(source) or self.reason(target)

    def rename_reason(self, source: str, target: str) -> str:
        """Why `source` may not become `target`; looks through folders. When it gives "" and `is_content(target)`, the
        file must pass `content_reason` as well.
        """
        if gitdirs.breaks(source) and not self._is_exempt(source):
            return gitdirs.BREAK_REASON + protected.BUILTIN
        if os.path.islink(source):
            return self.removal_reason(source) or self.symlink_reason(target)
        if os.path.isdir(source):
            return self._tree_reason(source, target)
        why = self.removal_reason(source)
        return why if why or self.is_content(target) else self.reason(target)

    def content_reason(self, descriptor: int, path: str) -> str:
        """Why the file open for reading as `descriptor` may not become the configuration `path`; "" if it may.

        It then has a lease on the file, which has one name and which nobody has open for writing: rename it, and close
        the descriptor after (`gitdirs.configuration_problem`). Raises `OSError` when it cannot be read.
        """
        data = b""
        try:
            before = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            pass
        else:
            try:
                data = gitdirs.read(before)
            finally:
                os.close(before)
        found = gitdirs.configuration_problem(descriptor, data)
        return found + protected.BUILTIN if found else ""

    def _place(self, path: str) -> tuple[int, str]:
        """What protects `path`, (0, "") when nothing does or a rule lifts it."""
        if self._is_exempt(path):
            return 0, ""
        index, why = protected.place_of(path)
        if path.startswith(self._exempt) and why not in _GIT_REASONS:
            return 0, ""
        while index and protected.is_lifted(path, index, self._roots, self._covering(path)):
            index, why = protected.place_of(path, index)
        return index, why

    def _is_exempt(self, path: str) -> bool:
        return path.startswith(self._exempt_from_git)

    def _covering(self, path: str) -> list[frozenset[str]]:
        """The literal names in each write glob that covers `path`."""
        return [
            names
            for prefix, patterns, names in self._globs
            if path.startswith(prefix) and glob_matches(patterns, path[len(prefix) :])
        ]

    def _completed(self, path: str) -> str:
        """When `path` makes its folder a git directory, what is in it already must not be what git would run."""
        why = "" if self._is_exempt(path) else gitdirs.completion_problem(path)
        return why + protected.BUILTIN if why else ""

    def _link_place(self, path: str) -> str:
        """What a link at `path` would lead elsewhere, by names alone; "" for nothing."""
        name = protected.folded(path)
        if name.endswith("/.git"):
            return "a link named .git could lead git to a folder that somebody else fills"
        behind = "/fish/x" if name.endswith("/.config") else "/config" if name.endswith("/.config/git") else ""
        places = (path, path + "/x", path + behind, path + "/git/config")
        return next((why for place in places if (why := self._place(place)[1])), "")

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
                    why = self._moved_reason(source + name, target + name, entry.is_symlink())
                    if why:
                        return why + protected.BUILTIN
        return ""

    def _moved_reason(self, old: str, new: str, link: bool) -> str:
        """What makes a file or link protected at `new` that was not at `old`, by the renaming of a folder."""
        if link:
            why = self._link_place(new)
            return "" if not why or self._link_place(old) else why
        why = self._place(new)[1]
        if why and not self._place(old)[1] and not self._is_harmless(old, new):
            return why
        return gitdirs.COMMON_REASON if gitdirs.moves_commondir(old, new) and not self._is_exempt(new) else ""

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


def _limits_git(policy: Policy) -> bool:
    """Whether each rule that allows git names arguments, and there is one."""
    rules = [rule.form for rule in policy.rules_of(("exec",))]
    ours = [form for form in rules if form["match"] == "any" or os.path.basename(form["file"] or "") == "git"]
    return bool(ours) and all(form["args"] for form in ours)


def _glob(rule: Rule) -> tuple[str, tuple[Any, ...], frozenset[str]]:
    """The root with a slash, the patterns and the names without wildcards of a rule's glob."""
    patterns = glob_patterns(rule.form["glob"])
    names = frozenset(protected.folded(one) for one in patterns if type(one) is str)
    return rule.form["root"].rstrip("/") + "/", patterns, names
