"""Built-in protection: files inside write roots that make others run code, which no program of the run may change
unless a rule names that very file or its folder.

Names are compared without letter case, at any depth, whether the file exists or not; nothing is ever created in the
workspace to protect it. It decides on resolved paths and changes nothing.
"""

from __future__ import annotations

import os

from agentbox.guard.kernel import gitdirs, protected
from agentbox.guard.paths import within
from agentbox.policy.forms.path import glob_matches, glob_patterns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.kernel.gitdirs import Exists
    from agentbox.policy import Policy, Rule

NOT_REGULAR = gitdirs.NOT_REGULAR + protected.BUILTIN
GIT_LINK_REASON = "a link named .git could lead git to a folder that somebody else fills"
_GIT_REASONS = (protected.HOOK_REASON, protected.CONFIG_REASON)
MOST_FILES = 20000
"""How many files of a folder are looked through before it may be renamed."""
_OF_GIT = (*_GIT_REASONS, gitdirs.LINK_REASON, gitdirs.COMMON_REASON)
_INNER = (
    (protected.INNER_FOLDERS, "/x"), (protected.INNER_FILES, ""), (protected.HOME_FOLDERS, "/x"),
    (protected.HOME_FILES, ""),
)  # fmt: skip
_NAMES = protected.INNER_FOLDERS | protected.INNER_FILES | {".config/git"}


def _behind(name: str) -> list[str]:
    """What is protected in a folder of this folded name that protects nothing by itself, as paths from there."""
    made = {".config": ["git/config"], "git": ["config"]}.get(name, [])
    made += [f"{rest}.py" for own in protected.OWN_MODULES for rest in [f"/{own}".partition(f"/{name}/")[2]] if rest]
    for table, ending in _INNER:
        for path in table:
            _, found, rest = f"/{path}{ending}".partition(f"/{name}/")
            if found and rest != "x":
                made.append(rest)
    return made


class Move:
    """A folder `source` that is about to be called `target`."""

    __slots__ = ("source", "target", "trees")

    def __init__(self, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.trees: dict[str, list[str] | None] = {}
        """What was found of submodules for one link in it, for the next."""

    def exists(self, path: str) -> bool:
        """Whether something will have this name: what comes to lie below `target` is looked for below `source`."""
        if path == self.target or path.startswith(self.target + "/"):
            path = self.source + path[len(self.target) :]
        return protected.exists(path)

    def carries(self, path: str, index: int, why: str) -> bool:
        """Whether all the names that protect `path` below `target`, the last of them at `index`, lie within what moves:
        of a git directory its own as well, and of `.config/fish` both.
        """
        parts = protected.folded(path).split("/")
        first = index - 1 if why in _OF_GIT else index
        for more in (1, 2):
            if "/".join(parts[first - more : first + 1]) in _NAMES:
                first -= more
                break
        return first > self.target.count("/")


class Protection:
    """One for a run. `exempt` are the run's private trees, in which only its own programs read. Git directories are
    protected there all the same: a file `.git` in the workspace could lead git there from outside while the run lasts.
    `homes` are the folders where programs outside look for what concerns all of their work, the user's home folder by
    default.

    Where rules let the agent start git for some commands only, all that makes git run others is protected in there.
    `elsewhere` are a folder that is the run's alone, and where it lies for us: what is in it is looked at there.
    """

    __slots__ = ("_elsewhere", "_exempt", "_exempt_from_git", "_globs", "_homes", "_limits_git", "_roots")

    def __init__(
        self,
        policy: Policy,
        exempt: tuple[str, ...] = (),
        homes: tuple[str, ...] | None = None,
        *,
        elsewhere: tuple[str, str] | None = None,
    ) -> None:
        rules = policy.rules_of(("write",))
        self._elsewhere = elsewhere
        self._homes = tuple(protected.folded(home) for home in (_own_homes() if homes is None else homes))
        self._exempt = tuple(self._seen(tree.rstrip("/") + "/") for tree in exempt)
        self._limits_git = _limits_git(policy)
        # What nobody outside can reach by a name is the run's own in all respects.
        inner = () if elsewhere is None or self._limits_git else (self._seen(elsewhere[0].rstrip("/") + "/"),)
        self._exempt_from_git = tuple(tree for tree in self._exempt if tree.startswith(inner)) if inner else ()
        roots = [_root(rule) for rule in rules]
        self._roots = tuple((root, root.rstrip("/").count("/") + 1) for root in roots if root)
        self._globs = tuple(_glob(rule) for rule, root in zip(rules, roots, strict=True) if not root)

    def tuples(self) -> dict[str, Any]:
        """The keyword arguments of `protected.reason_for`, which decides the same inside a guard; globs do not lift."""
        return {"lifting": self._roots, "exempt": self._exempt, "homes": self._homes}

    def reason(self, path: str) -> str:
        """Why the resolved `path` may not be opened for writing, made, replaced, changed or removed; "" if nothing is
        against it. `path` need not exist.
        """
        path = self._seen(path)
        why = self._place(path)[1]
        if why:
            return why + protected.BUILTIN
        return self._completed(path)

    def is_content(self, path: str) -> bool:
        """Whether `path` is git configuration, which may be replaced by a file that `content_reason` finds harmless."""
        return self._place(self._seen(path))[1] == protected.CONFIG_REASON

    def removal_reason(self, path: str) -> str:
        """The same as `reason` for removing, and for changing mode, owner or times: configuration may go, and by its
        mode `git init` finds out whether the file system keeps modes.
        """
        why = self._place(self._seen(path))[1]
        return "" if why in ("", protected.CONFIG_REASON) else why + protected.BUILTIN

    def symlink_reason(self, path: str) -> str:
        """Why no symbolic link may be made at `path`: what is written behind it would not bear its name."""
        path = self._seen(path)
        if self._is_exempt(path):
            return ""
        why = self._link_place(path)[1] or self._module_reason(path)
        return why + protected.BUILTIN if why else self.reason(path)

    def link_reason(self, path: str, *, link: bool) -> str:
        """Why `path` may not become another name of something; `link`: of a symbolic link, which leads on."""
        return self.symlink_reason(path) if link else self.reason(path)

    def rename_problem(self, source: str, target: str) -> tuple[str, str]:
        """The path, and why it is that `source` may not become `target`; looks through folders. When there is no reason
        and `is_content(target)`, the file must pass `content_reason` as well.
        """
        path, why = self._rename_problem(self._seen(source), self._seen(target))
        return self._named(path), why

    def _rename_problem(self, source: str, target: str) -> tuple[str, str]:
        if gitdirs.breaks(source) and not self._is_exempt(source):
            return source, gitdirs.BREAK_REASON + protected.BUILTIN
        why = self.removal_reason(source)
        if why:
            return source, why
        if os.path.isdir(source) and not os.path.islink(source):
            return self._tree_problem(Move(source, target))
        if os.path.islink(source):
            return target, self.symlink_reason(target)
        return target, "" if self.is_content(target) else self.reason(target)

    def content_reason(self, descriptor: int, path: str) -> str:
        """Why the file open for reading as `descriptor` may not become the configuration `path`; "" if it may.

        It then has a lease on the file, which has one name and which nobody has open for writing: rename it, and close
        the descriptor after (`gitdirs.configuration_problem`). Raises `OSError` when it cannot be read.
        """
        path = self._seen(path)
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
        found = gitdirs.configuration_problem(descriptor, path, data)
        return found + protected.BUILTIN if found else ""

    def _seen(self, path: str) -> str:
        """The name by which we find what the run calls `path`."""
        if self._elsewhere is None or not within(path, [self._elsewhere[0]]):
            return path
        return self._elsewhere[1] + path[len(self._elsewhere[0]) :]

    def _named(self, path: str) -> str:
        """What the run calls what we find by `path`."""
        if self._elsewhere is None or not within(path, [self._elsewhere[1]]):
            return path
        return self._elsewhere[0] + path[len(self._elsewhere[1]) :]

    def _place(self, path: str, exists: Exists = protected.exists) -> tuple[int, str]:
        """What protects `path`, (0, "") when nothing does or a rule lifts it."""
        if self._is_exempt(path):
            return 0, ""

        def is_repository(folder: str, name: str) -> bool:
            return protected.is_repository(folder, name, exists=exists)

        index, why = protected.place_of(path, homes=self._homes, is_repository=is_repository)
        own = path.startswith(self._exempt)
        while index and (
            (own and self._is_own_matter(path, why))
            or protected.is_lifted(path, index, self._roots, self._covering(path))
        ):
            index, why = protected.place_of(path, index, homes=self._homes, is_repository=is_repository)
        return index, why

    def _is_own_matter(self, path: str, why: str) -> bool:
        if self._limits_git and why == protected.CONFIG_REASON:
            return False
        return protected.is_own_matter(path, why)

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

    def _link_place(self, path: str, exists: Exists = protected.exists) -> tuple[int, str]:
        """What a link at `path` would lead elsewhere; (0, "") for nothing."""
        if self._is_exempt(path):
            return 0, ""
        parts = protected.folded(path).split("/")
        if parts[-1] == ".git":
            return len(parts) - 1, GIT_LINK_REASON
        names = (path, f"{path}/x", *(f"{path}/{name}" for name in _behind(parts[-1])))
        found = next((place for name in names if (place := self._place(name, exists))[0]), None)
        if found is None and gitdirs.is_part(path) and gitdirs.completes(path, exists):
            return len(parts) - 1, gitdirs.LINK_REASON
        return found or (0, "")

    def _module_reason(self, path: str, known: dict[str, list[str] | None] | None = None) -> str:
        """Why `path` may be no link that a submodule's files would follow."""
        from agentbox.guard.kernel import gitmodules

        if self._is_exempt(path) or not gitmodules.is_tree(path, known):
            return ""
        lifted = protected.is_lifted(path, path.count("/"), self._roots, self._covering(path))
        return "" if lifted else gitmodules.TREE_REASON

    def _tree_problem(self, move: Move) -> tuple[str, str]:
        """What in a folder would be protected under its new name and was not there, or protects no longer."""
        why = self.reason(move.target)
        if why:
            return move.target, why
        left = MOST_FILES
        pending = [""]
        while pending:
            inner = pending.pop()
            with os.scandir(move.source + inner) as found:
                for entry in found:
                    left -= 1
                    if left < 0:
                        return move.target, "the folder holds more files than can be looked through" + protected.BUILTIN
                    name = f"{inner}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(name)
                        continue
                    path, why = self._moved_problem(move, name, entry.is_symlink())
                    if why:
                        return path, why + protected.BUILTIN
        return move.target, ""

    def _moved_problem(self, move: Move, inner: str, link: bool) -> tuple[str, str]:
        """What is against a file or link `inner` of a folder that gets another name.

        It may go on protecting or being protected when all that makes it so goes with it, as `.git` does in the folder
        of a project: then nothing has come to be run that was not, and nothing that was is gone.
        """
        old, new = move.source + inner, move.target + inner
        place = self._link_place if link else self._place
        (before, was), (after, why) = place(old), place(new, move.exists)
        if why:
            shift = move.target.count("/") - move.source.count("/")
            if why == was and after == before + shift and move.carries(new, after, why):
                return new, ""
            return new, self._moved_content(old, new) if why == protected.CONFIG_REASON and not link else why
        if was and was != protected.CONFIG_REASON:
            return old, was
        if link and (why := self._module_reason(new, move.trees)):
            return new, why
        if self._is_exempt(new) or not gitdirs.leads_away(new, move.exists):
            return new, ""
        strayed = not self._is_exempt(old) and gitdirs.leads_away(old)
        carried = strayed and move.carries(new, new.count("/"), gitdirs.COMMON_REASON)
        return new, "" if carried else gitdirs.COMMON_REASON

    def _moved_content(self, source: str, target: str) -> str:
        """What is against the file `source` as git configuration, which the renaming of a folder makes of it."""
        try:
            descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return protected.CONFIG_REASON
        try:
            return gitdirs.configuration_problem(descriptor, target)
        except OSError:
            return protected.CONFIG_REASON
        finally:
            os.close(descriptor)


def _limits_git(policy: Policy) -> bool:
    """Whether each rule that allows git names arguments, and there is one."""
    rules = [rule.form for rule in policy.rules_of(("exec",))]
    ours = [form for form in rules if form["match"] == "any" or os.path.basename(form["file"] or "") == "git"]
    return bool(ours) and all(form["args"] for form in ours)


def _own_homes() -> tuple[str, ...]:
    """The user's home folders, as the environment and the user data base have them."""
    import pwd

    found = [os.environ.get("HOME", "")]
    try:
        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        pass
    resolved = [os.path.realpath(home) for home in found if home.startswith("/")]
    return tuple(home for home in dict.fromkeys(resolved) if home != "/")


def _root(rule: Rule) -> str:
    """The path that a rule names; "" for one with wildcards."""
    root: str = rule.form["root"]
    if rule.form["glob"] is None:
        return root
    patterns = glob_patterns(rule.form["glob"])
    return "/".join([root.rstrip("/"), *patterns]) if all(type(one) is str for one in patterns) else ""


def _glob(rule: Rule) -> tuple[str, tuple[Any, ...], frozenset[str]]:
    """The root with a slash, the patterns and the names without wildcards of a rule's glob."""
    patterns = glob_patterns(rule.form["glob"])
    names = frozenset(protected.folded(one) for one in patterns if type(one) is str)
    return rule.form["root"].rstrip("/") + "/", patterns, names
