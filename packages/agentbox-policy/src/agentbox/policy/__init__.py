"""The policy of agentbox: grammar, rules, decisions and explanations. This module is the public face.

Never holds code of its own, and loads on first use what starting an agent does not need.
"""

from __future__ import annotations

from agentbox.policy.errors import PolicyError
from agentbox.policy.model import FORMAT, Decision, Policy, Rule
from agentbox.policy.parse import load, parse
from agentbox.policy.rules import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.policy.address import canonical_address, is_special_address
    from agentbox.policy.rules.env import never_passed, never_passed_names, obeyed_by
    from agentbox.policy.starter import starter_policy

__all__ = [
    "FORMAT",
    "KINDS",
    "Decision",
    "Policy",
    "PolicyError",
    "Rule",
    "canonical_address",
    "is_special_address",
    "load",
    "never_passed",
    "never_passed_names",
    "obeyed_by",
    "parse",
    "starter_policy",
]

_LATER = {
    "canonical_address": "agentbox.policy.address",
    "is_special_address": "agentbox.policy.address",
    "never_passed": "agentbox.policy.rules.env",
    "never_passed_names": "agentbox.policy.rules.env",
    "obeyed_by": "agentbox.policy.rules.env",
    "starter_policy": "agentbox.policy.starter",
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(__import__(_LATER[name], fromlist=[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
