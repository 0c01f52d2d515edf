"""What a rule kind is: it parses values, compiles them to a form, and explains and suggests. One kind a file, one line
in the table.

Never holds a decision of its own: matching is the forms' business, so that other languages need the forms only.
"""

from __future__ import annotations

import os

from agentbox.policy.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agentbox.policy.lexer import Value
    from agentbox.policy.model import Policy, Rule

    Form = dict[str, Any]
    """The compiled members of a rule, as they stand in the normal form."""


NOTHING = "nothing is there"
"""What is said of a rule whose path does not exist."""


class Scope:
    """What values are resolved against, frozen at load: `cwd` and `home` (absolute, resolved), `search` (a PATH)."""

    __slots__ = ("cwd", "home", "search")

    def __init__(self, cwd: str, home: str, search: str) -> None:
        self.cwd = cwd
        self.home = home
        self.search = search


class Unusable(Exception):
    """A target that no rule could ever allow; the message is the reason of the denial."""


class Kind:
    """One kind of rule. Subclasses are listed in `agentbox.policy.rules.KINDS`; all that names a kind is derived from
    there.
    """

    key: str
    """The word before the colon."""
    covers: tuple[str, ...]
    """The keys whose rules can allow this kind's targets: `read` is also allowed by `write:`."""
    summary: str
    """What a rule of this kind allows: one line, for help and the starter policy."""
    starter: tuple[str, ...]
    """Lines of the starter policy: a live rule, or a comment that teaches one."""
    members: tuple[tuple[str, tuple[type, ...]], ...]
    """The members of the form and the types that they may have."""

    def compile(self, value: Value, scope: Scope) -> Form:
        """The form of a written value. Raises `PolicyError` without a place; the parser knows it."""
        raise NotImplementedError

    def settle(self, form: Form, scope: Scope, writable: Callable[[str], bool]) -> Form:
        """Finish a form once every rule of the policy is known; `writable` tells whether a write rule covers a path."""
        return form

    def absent(self, policy: Policy, rule: Rule) -> str:
        """Why a rule names nothing that exists, nor the agent can make, or no program: most often a mistake; "" when
        it does.
        """
        return ""

    def restore(self, members: Form) -> Form:
        """The form out of a normal form. Raises `PolicyError` when a member is missing, unknown or of a wrong type."""
        known = dict(self.members)
        if members.keys() != known.keys():
            raise PolicyError(
                f"got the members {sorted(members)} in a {self.key} rule, expected {sorted(known)}",
                code="normal-form",
            )
        for name, types in self.members:
            if type(members[name]) not in types:
                raise PolicyError(f"got {members[name]!r} as {name} of a {self.key} rule", code="normal-form")
        return members

    def target(self, given: tuple[object, ...]) -> Any:
        """The target as `find` takes it. Raises `Unusable` for anything that no rule could allow."""
        raise NotImplementedError

    def show(self, target: Any) -> str:
        """The target as a reader sees it."""
        raise NotImplementedError

    def find(self, policy: Policy, target: Any) -> Rule | None:
        """The first rule that allows the target."""
        raise NotImplementedError

    def explain(self, policy: Policy, target: Any) -> tuple[str, Rule | None]:
        """Why no rule allows the target, and the rule that came nearest."""
        raise NotImplementedError

    def fix(self, policy: Policy, target: Any) -> str:
        """The policy line that would allow the target, or "" if there is none."""
        raise NotImplementedError


def is_missing(policy: Policy, path: str) -> bool:
    """Whether nothing is at a rule's resolved path, and the agent cannot put something there."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return not policy.is_writable(path)
    except (OSError, ValueError):
        pass  # it cannot be told
    return False


def arity(given: tuple[object, ...], *counts: int) -> None:
    """Raise `Unusable` unless the target has one of the `counts` of parts."""
    if len(given) not in counts:
        raise Unusable(f"the target has {len(given)} parts, expected {' or '.join(str(count) for count in counts)}")
