"""The table of rule kinds: the one list of what a policy can say. Help, errors, the starter policy and the docs are
derived from it.

Never filled by a scan: a new kind is one file here and one line below.
"""

from __future__ import annotations

from agentbox.policy.rules.env import Env
from agentbox.policy.rules.exec import Exec
from agentbox.policy.rules.list import List
from agentbox.policy.rules.net import Net
from agentbox.policy.rules.read import Read
from agentbox.policy.rules.write import Write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.policy.rules._base import Kind

KINDS: dict[str, Kind] = {
    "read": Read(),
    "list": List(),
    "write": Write(),
    "net": Net(),
    "exec": Exec(),
    "env": Env(),
}
"""Every kind by its key, in the order in which they are explained."""

ALIAS = "allow"
"""The key that stands for none: `allow: read ./src, net: example.com` (docs/spec/policy.md, section 2)."""
