"""Where programs come into being that a rule lets the run start: what it builds, copies or installs by itself.

Landlock grants files and folders that are there when it is applied, by the object and not by the name; a program that
is made later is covered by a folder only. It looks at what exists, and decides nothing.
"""

from __future__ import annotations

import os

from agentbox.guard.paths import identity, within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from agentbox.policy import Policy


def grown_folders(policy: Policy, layers: Iterable[str]) -> list[str]:
    """The folders in which such programs lie: for each place, one that the run does not replace by building anew.

    That is the working directory, or the nearest folder in it that no write rule covers; elsewhere the uppermost that
    one covers. Where a rule covers single files, or what is not there yet, it is the nearest folder above, and nothing
    where the seccomp layer does not decide on each start; never "/".
    """
    decided = "seccomp" in layers
    found: dict[str, None] = {}
    for file in _places(policy):
        folder = _lasting(policy, file, decided)
        if folder != "/" and (decided or policy.is_writable(folder)):
            found[folder] = None
    return list(found)


def identities(policy: Policy, also: Iterable[str]) -> dict[str, tuple[int, int] | None]:
    """What the paths of rules, and others, are now (`identity`): Landlock grants these objects for the whole run."""
    rules = policy.rules_of(("exec", "read", "list", "write"))
    paths = [rule.form["file" if rule.key == "exec" else "root"] for rule in rules]
    return {path: identity(path) for path in dict.fromkeys([*paths, *also]) if path}


def _places(policy: Policy) -> list[str]:
    """Files, there or not, which the run may make and start."""
    found = []
    for rule in policy.rules_of(("exec",)):
        if rule.form["match"] == "any":
            made = [_made_in(one.form) for one in policy.rules_of(("write",))]
            # Elsewhere, files that may be written are hardly programs, and what lies beside them is somebody's own.
            return [file for file in made if within(file, [policy.cwd])]
        if rule.form["match"] == "path" and policy.is_writable(rule.form["file"]):
            found.append(rule.form["file"])
    return found


def _made_in(form: dict[str, Any]) -> str:
    """A file that a write rule covers: its root, or where that is a folder one in it."""
    root: str = form["root"]
    return f"{root}/new" if form["glob"] or os.path.isdir(root) else root


def _lasting(policy: Policy, file: str, decided: bool) -> str:
    folder = os.path.dirname(file)
    inside = decided and policy.cwd != "/" and within(file, [policy.cwd])
    while folder not in ("/", policy.cwd):
        above = os.path.dirname(folder)
        if os.path.isdir(folder) and not policy.is_writable(folder if inside else above):
            break
        folder = above
    return folder
