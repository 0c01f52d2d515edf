"""The rule kind `write:`: files that may be made, changed and removed; it implies reading them.

Never opens what agentbox protects on its own account (the policy, the trace, its code): the guard refuses that before
any rule.
"""

from __future__ import annotations

from agentbox.policy.rules._files import Files


class Write(Files):
    """`write: PATH`: a file, everything under a folder, or what a glob matches."""

    key = "write"
    covers = ("write",)
    summary = "files the agent may make, change and remove; reading them is implied"
    starter = (
        "write: ./out/",
        "# The slash at the end has agentbox make the folder. Without it a path is made by the agent, file or folder:",
        "# write: ./notes.md",
    )
