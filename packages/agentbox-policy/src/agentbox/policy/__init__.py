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
    from agentbox.policy.rules.env import carries_code, code_variables, loaded_by, obeyed_by
    from agentbox.policy.starter import starter_policy

__all__ = [
    "FORMAT",
    "KINDS",
    "Decision",
    "Policy",
    "PolicyError",
    "Rule",
    "canonical_address",
    "carries_code",
    "code_variables",
    "is_special_address",
    "load",
    "loaded_by",
    "obeyed_by",
    "parse",
    "starter_policy",
]

_LATER = {
    "canonical_address": "agentbox.policy.address",
    "carries_code": "agentbox.policy.rules.env",
    "code_variables": "agentbox.policy.rules.env",
    "is_special_address": "agentbox.policy.address",
    "loaded_by": "agentbox.policy.rules.env",
    "obeyed_by": "agentbox.policy.rules.env",
    "starter_policy": "agentbox.policy.starter",
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(__import__(_LATER[name], fromlist=[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
