"""The rule kind `list:`: folders whose names may be seen.

Never allows reading a file, nor listing a folder below the one that is named.
"""

from __future__ import annotations

from os.path import isdir, lexists

from agentbox.policy.rules._base import NOTHING, is_missing
from agentbox.policy.rules._files import Files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.policy.model import Policy, Rule


class List(Files):
    """`list: PATH`: the names in one folder, or in each folder that a glob matches."""

    key = "list"
    covers = ("list", "read", "write")
    summary = "folders the agent may list: their names, no file in them and no folder below"
    starter = ("# list: .",)

    def absent(self, policy: Policy, rule: Rule) -> str:
        root = rule.form["root"]
        if is_missing(policy, root):
            return NOTHING
        if rule.form["glob"] is None and lexists(root) and not isdir(root):
            return "it is no folder"
        return ""
