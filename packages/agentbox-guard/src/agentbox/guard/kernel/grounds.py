"""What the layers are planned from and the traps judge by: the guard's welcome, and what native programs need besides.

It looks at what is installed; it decides nothing.
"""

from __future__ import annotations

import os

from agentbox.guard import welcome
from agentbox.guard.kernel import system
from agentbox.guard.kernel.grown import grown_folders, identities
from agentbox.guard.paths import existing
from agentbox.guard.runtimes import python
from agentbox.guard.untrusted import LARGEST_TEXT, read_regular
from agentbox.policy.address import is_localhost, is_special_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from agentbox.guard.options import RunOptions
    from agentbox.guard.runtimes._base import Launch
    from agentbox.policy import Policy

_ALSO = (
    "/etc/alternatives", "/etc/gitconfig", "/etc/bash.bashrc", "/etc/profile", "/etc/profile.d", "/etc/ldap/ldap.conf",
    "/etc/openldap/ldap.conf", "/etc/java", "/etc/java-8-openjdk", "/etc/java-11-openjdk", "/etc/java-17-openjdk",
    "/etc/java-21-openjdk", "/etc/java-25-openjdk",
)  # fmt: skip
"""Configuration of programs that holds nothing of anybody: without it shells, git, curl and Java complain at their
start, or do not.
"""


class Grounds:
    """What is looked at once for a run, before the fork: both the layers' plan and the welcome are made from it."""

    __slots__ = ("_members",)

    def __init__(self, options: RunOptions, how: Launch, search: str, names: tuple[str, ...]) -> None:
        policy = options.policy
        programs = [how.file, *([how.script] if how.script else []), *python.environments(policy, search)]
        ruled = [rule.form["file"] for rule in policy.rules_of(("exec",)) if rule.form["file"]]
        trees_of = {program: system.program_trees(program, search) for program in dict.fromkeys([*programs, *ruled])}
        installed: dict[str, None] = {}
        for program, trees in trees_of.items():
            for tree in (*trees, os.path.realpath(program)):
                if not policy.is_writable(tree):
                    installed[tree] = None
        code = welcome.code_roots()
        grown = grown_folders(policy, names)
        there = [path for path in (*system.SYSTEM_TREES, *_ALSO) if os.path.exists(path)]
        self._members: dict[str, Any] = {
            "code": code,
            "listable": [*(os.path.dirname(root) for root in code), *_on_the_path(installed)],
            "installed": list(installed),
            "system": [*dict.fromkeys([*there, *existing(there)]), *installed, *code],
            "scratch": options.scratch is not None,
            "contained": "seccomp" in names,
            "grown": grown,
            "there": identities(policy, grown),
            "loopback_ruled": loopback_ruled(policy),
            "layers": names,
            "programs": programs,
            "search": search,
            "trees": trees_of,
        }

    def widen(self, message: dict[str, Any]) -> None:
        """Add to the welcome's members: `system` (trees that programs need to start), `installed` (those among them
        that may never be written), `code`, `loopback_ruled`, `layers`, `programs`, `search`, `trees`, `grown` and
        `there` (kernel/grown.py); `readable` then holds `system` as well.
        """
        found = self._members
        readable = [*message["readable"], *found["system"]]
        listable = [*message["listable"], *found["listable"]]
        message.update(found, readable=readable, listable=listable)


def _on_the_path(trees: Iterable[str]) -> list[str]:
    """The folders that Python installations among `trees` put on the import path by .pth files (site(3)): each import
    lists them, and what they hold is for the policy to say.
    """
    found: list[str] = []
    for tree in trees:
        if os.path.basename(tree) not in ("lib", "lib64"):
            continue
        for version in os.listdir(tree):
            folder = f"{tree}/{version}/site-packages"
            if version.startswith("python") and os.path.isdir(folder):
                for name in os.listdir(folder):
                    if name.endswith(".pth"):
                        found += _lines(f"{folder}/{name}")
    return found


def _lines(file: str) -> list[str]:
    try:
        lines = read_regular(file, LARGEST_TEXT, follow=True).decode("utf-8", "replace").split("\n")
    except OSError:
        return []
    return [os.path.realpath(line.strip()) for line in lines if line.startswith("/")]


def loopback_ruled(policy: Policy) -> bool:
    """Whether the rules speak of this machine's own addresses: then they say all that the run may do there.

    Without such a rule the loopback of the run's own network is its own: it reaches nobody outside, and programs that
    serve themselves (a test suite, a development server) work as they do anywhere.
    """
    for rule in policy.rules_of(("net",)):
        host = rule.form["host"]
        if rule.form["match"] == "name" and is_localhost(host):
            return True
        if rule.form["match"] == "address" and is_special_address(host) == "loopback":
            return True
    return False
