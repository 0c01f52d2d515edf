"""The rule kind `read:`: files that may be read and folders that may be listed.

Never allows a change of anything.
"""

from __future__ import annotations

from agentbox.policy.rules._base import NOTHING, is_missing
from agentbox.policy.rules._files import Files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.policy.model import Policy, Rule


class Read(Files):
    """`read: PATH`: a file, everything under a folder, or what a glob matches."""

    key = "read"
    covers = ("read", "write")
    summary = "files the agent may read: a file, everything under a folder, or a glob (*, ?, [a-z], **)"
    starter = (
        "read: ./data",
        "# The agent's script itself is readable; modules of its own beside it need a rule:",
        "# read: ./src/**/*.py",
    )

    def absent(self, policy: Policy, rule: Rule) -> str:
        return NOTHING if is_missing(policy, rule.form["root"]) else ""
