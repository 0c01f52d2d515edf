"""Variables by which the agent would make a program that a rule allows do what no rule allows: `LD_PRELOAD`,
`GIT_CONFIG_COUNT`, another `HOME`.

A rule for a program with any arguments trusts it with all that arguments can ask for, but not with code that is loaded
into it; one that names arguments says that the program is to do this and nothing else. It reads no memory and decides
on what it is given.
"""

from __future__ import annotations

import os

from agentbox.policy import never_passed
from agentbox.policy.forms.command import command_matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agentbox.policy import Policy

REASON = "the variable {} would make it run something else"
ARGUMENTS = "; a rule for this program without arguments allows it"
_LOADER = never_passed("LD_PRELOAD")
_HOMES = ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")
"""Where git and others look for their configuration (XDG base directories, git-config(1))."""


class Injected:
    """For one start: what its environment must not hold. `any` is true when nothing is forbidden."""

    __slots__ = ("_loader_only", "_own", "any")

    def __init__(self, policy: Policy, file: str, argv: list[str], environ: Mapping[str, str]) -> None:
        rules = [rule.form for rule in policy.rules_of(("exec",)) if command_matches(rule.form, file, tuple(argv))]
        self.any = not rules or any(form["match"] == "any" for form in rules)
        self._loader_only = any(not form["args"] for form in rules)
        self._own = environ

    def reason(self, environ: Iterable[bytes]) -> str:
        """Why a program must not be started with these variables (`NAME=value`), or "" when it may.

        What the run itself was started with is no choice of the agent's.
        """
        if self.any:
            return ""
        for one in environ:
            name, _, value = os.fsdecode(one).partition("=")
            if self._forbids(name) and self._own.get(name) != value:
                return REASON.format(name) + ("" if self._loader_only else ARGUMENTS)
        return ""

    def _forbids(self, name: str) -> bool:
        why = never_passed(name)
        return why == _LOADER if self._loader_only else why is not None or name in _HOMES
