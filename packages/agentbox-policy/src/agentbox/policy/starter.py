"""The policy that `agentbox init` writes: little is allowed, and the comments teach the rest.

Never lists the rule kinds itself: it is derived from the table, so a new kind teaches itself.
"""

from __future__ import annotations

from agentbox.policy.rules import KINDS

HEAD = """\
# What the agent may touch. Everything that no line here allows is refused, and the refusal names the line to add.
#
# One rule a line, `key: value`; several values are separated by commas. A comment starts with #.
# Relative paths start at the directory in which `agentbox run` is given; ~/ is your home.
"""

TAIL = """
# Several kinds on one line:
# allow: read ./src, net: api.example.com:443
"""


def starter_policy() -> str:
    """The text of a policy that allows reading ./data and writing ./out, with an example of every rule kind."""
    parts = [HEAD]
    for kind in KINDS.values():
        parts.append(f"\n# {kind.key}: {kind.summary}\n" + "".join(f"{line}\n" for line in kind.starter))
    parts.append(TAIL)
    return "".join(parts)
