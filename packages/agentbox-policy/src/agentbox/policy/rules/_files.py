"""What the rules for files share: a path or a glob, compiled to the path form (docs/spec/policy.md, section 5).

Never compares a path itself: the sealed matcher does, in the agent and here alike.
"""

from __future__ import annotations

from agentbox.policy import place
from agentbox.policy.forms.path import path_decide, path_fix, path_is_plain, path_reason
from agentbox.policy.rules._base import Kind, Unusable, arity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.policy.lexer import Value
    from agentbox.policy.model import Policy, Rule
    from agentbox.policy.rules._base import Form, Scope


def plain_path(given: object) -> str:
    """The target as a resolved path that the system could hold. Raises `Unusable` otherwise."""
    if type(given) is not str:
        raise Unusable(f"the path is not text but {type(given).__name__}")
    if not path_is_plain(given):
        raise Unusable("it is not a resolved absolute path")
    try:
        encoded = given.encode("utf-8", "surrogateescape")
        canonical = encoded.decode("utf-8", "surrogateescape") == given
    except UnicodeError:
        canonical = False
    if not canonical:
        raise Unusable("the path holds characters that no file name can have")
    if len(encoded) > place.LONGEST_PATH or max(map(len, encoded.split(b"/"))) > place.LONGEST_NAME:
        raise Unusable("the path is longer than any file's")
    return given


class Files(Kind):
    """The base of the three kinds; `key` is also the access that is asked for."""

    members = (("root", (str,)), ("glob", (str, type(None))))

    def compile(self, value: Value, scope: Scope) -> Form:
        root, glob = place.root_and_glob(value, scope)
        return {"root": root, "glob": glob}

    def target(self, given: tuple[object, ...]) -> str:
        arity(given, 1)
        return plain_path(given[0])

    def show(self, target: str) -> str:
        return target

    def find(self, policy: Policy, target: str) -> Rule | None:
        index = path_decide(self.key, target, policy.paths)
        return policy.rules[index] if index >= 0 else None

    def explain(self, policy: Policy, target: str) -> tuple[str, Rule | None]:
        readable = path_decide("read", target, policy.paths)
        return path_reason(self.key, target, policy.paths), policy.rules[readable] if readable >= 0 else None

    def fix(self, policy: Policy, target: str) -> str:
        return path_fix(self.key, target, policy.cwd)
