"""Makes few lines of many: rules for files side by side become a glob, those below one folder become that folder.

It never opens a folder that lies above the workspace or is it, nor one of the system; each line says how much it opens.
"""

from __future__ import annotations

import os

from agentbox.policy import parse
from agentbox.policy.forms.path import path_fix, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SIDE_BY_SIDE = 5
"""So many names in one folder are written as a glob."""
BELOW = 8
"""So many lines below one folder are written as that folder."""
ANY_NAME = "  # any name of this form"
"""The comment of a line for names that each run chooses anew (docs/spec/policy.md, section 5)."""
_KEYS = ("read", "write")


class Workspace:
    """What may be opened as a whole: folders below the working directory `cwd` of the run, and for writing those that
    lie at least two folders below the user's `home` (`~/.tool/state`).
    """

    __slots__ = ("cwd", "home")

    def __init__(self, cwd: str, home: str) -> None:
        self.cwd = cwd.rstrip("/")
        self.home = home.rstrip("/")

    def may_open(self, key: str, folder: str) -> bool:
        """Whether a line for this folder may be suggested where only paths in it were asked for."""
        if self.cwd and folder.startswith(self.cwd + "/"):
            return not self.cwd.startswith(folder)
        below = folder[len(self.home) + 1 :] if self.home and folder.startswith(self.home + "/") else ""
        return key == "write" and below.count("/") >= 1 and not (self.cwd + "/").startswith(folder + "/")


def folded(lines: dict[str, str], workspace: Workspace) -> dict[str, str]:
    """The `lines` (rule to path), fewer of them; only rules for single paths are changed."""
    for key in _KEYS:
        lines = _of_one_form(lines, key, workspace)
        lines = _side_by_side(lines, key, workspace)
        lines = _below(lines, key, workspace)
    return lines


def _of_one_form(lines: dict[str, str], key: str, workspace: Workspace) -> dict[str, str]:
    """Where a line means any name of a form, have another for a name of that form mean all that is in such folders: the
    next run makes one of another name.
    """
    for form in [line for line in lines if line.startswith(f"{key}:") and line.endswith(ANY_NAME)]:
        policy = parse(f"{form}\n", cwd=workspace.cwd or "/")
        found = [
            line
            for line, path in lines.items()
            if line.startswith(f"{key}:") and "  # " not in line and policy.decide(key, path).allowed
        ]
        if found:
            value = form.removesuffix(ANY_NAME)
            value = f'{value[:-1]}/**"' if value.endswith('"') else f"{value}/**"
            lines = _replaced(lines, found, f"{value}  # all in any folder of this form", lines[found[0]])
    return lines


def _side_by_side(lines: dict[str, str], key: str, workspace: Workspace) -> dict[str, str]:
    groups: dict[str, list[str]] = {}
    for line, path in lines.items():
        folder, _, name = path.rpartition("/")
        if line.startswith(f"{key}:") and "  # " not in line and name[:1] != "." and workspace.may_open(key, folder):
            groups.setdefault(folder, []).append(line)
    for folder, found in groups.items():
        if len(found) >= SIDE_BY_SIDE:
            ends = {os.path.splitext(lines[line])[1] for line in found}
            path = f"{folder}/\0{ends.pop() if len(ends) == 1 else ''}"
            shown = "." + path[len(workspace.cwd) :] if path.startswith(workspace.cwd + "/") else path
            value = quoted(shown, False, wild=True)
            comment = f"# {len(found)} names in this folder were asked for"
            lines = _replaced(lines, found, f"{key}: {value}  {comment}", folder)
    return lines


def _below(lines: dict[str, str], key: str, workspace: Workspace) -> dict[str, str]:
    own = [line for line in lines if line.startswith(f"{key}:")]
    folders = {folder for line in own for folder in _above(lines[line])}
    for folder in sorted(folders, key=lambda one: (-one.count("/"), one)):
        found = [line for line in own if line in lines and lines[line].startswith(folder + "/")]
        if len(found) >= BELOW and workspace.may_open(key, folder):
            rule = path_fix(key, folder, workspace.cwd or "/", exact=True)
            lines = _replaced(lines, found, f"{rule}  # all below it: {len(found)} lines were asked for", folder)
            own = list(lines)
    return lines


def _above(path: str) -> Iterable[str]:
    return (path[:at] for at in range(1, len(path)) if path[at] == "/")


def _replaced(lines: dict[str, str], found: list[str], line: str, path: str) -> dict[str, str]:
    gone = frozenset(found)
    return {**{one: where for one, where in lines.items() if one not in gone}, line: path}
