"""Files that rules for programs name among the arguments: `exec: python3 build.py` means that of the policy's folder.

An argument is a text, and the program takes it for a name in the folder that it is started in, which is the agent's to
choose. Nothing is decided here but whether that is the folder that was meant.
"""

from __future__ import annotations

import os

from agentbox.guard.session import Denial
from agentbox.policy.forms.command import command_matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbox.policy import Policy

REASON = "the rule means {}, and in another folder the program would take another file for it; start it in {}"


def meant_file(policy: Policy, file: str, argv: Sequence[str]) -> str:
    """A file that each rule for this start names among its arguments, relative to the policy's folder; "" for none.

    What the run may write has the content that the run gives it, in whatever folder.
    """
    found = ""
    for rule in policy.rules_of(("exec",)):
        if command_matches(rule.form, file, argv):
            found = next((word for word in rule.form["args"] or () if _is_meant(policy, word)), "")
            if not found:
                return ""
    return found


def folder_problem(policy: Policy, file: str, argv: Sequence[str], cwd: str) -> Denial | None:
    """The refusal of a start in the folder `cwd`, or None."""
    word = meant_file(policy, file, argv)
    if not word or os.path.realpath(cwd) == os.path.realpath(policy.cwd):
        return None
    reason = REASON.format(os.path.join(policy.cwd, word), policy.cwd)
    return Denial("exec", " ".join([file, *argv[1:]])[:400], reason)


def _is_meant(policy: Policy, word: str) -> bool:
    if word.startswith(("-", "/")):
        return False
    path = os.path.realpath(os.path.join(policy.cwd, word))
    return os.path.isfile(path) and not policy.is_writable(path)
