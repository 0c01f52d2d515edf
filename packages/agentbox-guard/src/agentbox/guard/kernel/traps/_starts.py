"""Why a program may not be started, and the line of a policy by which it may: a refusal suggests only what works.

It decides on resolved files and on what was read of a start; it looks at nothing itself.
"""

from __future__ import annotations

import os

from agentbox.guard.decisions import denial_of
from agentbox.guard.decisions._base import rule_text
from agentbox.guard.paths import within
from agentbox.guard.session import Denial
from agentbox.policy.forms.command import command_matches
from agentbox.policy.forms.path import path_fix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.traps._base import Box

LOADER = "the loader starts any file as a program, past the rules: a rule must name this very file"
UNREACHED = "Landlock holds the run to the folders that it was started with, and no read: or exec: rule led to this one"
"""Under `exec: *`, by which what may be read may be started."""
NAMED = "outside of the system's folders Landlock lets the run start only what exec: rules name, whatever it may read"
LATER = (
    "Landlock holds the run to the files and folders that were there when it began, and this came later; the next run "
    "can start it if it stays"
)
WRITABLE = "a program in a folder that the run may write needs an exec: rule that names it"
_LOADERS = ("ld-linux", "ld-musl", "ld.so", "ld64.so", "ld-2.")


def is_loader(file: str) -> bool:
    """True for the program loader of ld.so(8), by the names that C libraries give it."""
    return os.path.basename(file).startswith(_LOADERS)


def problem(box: Box, pid: int, file: str, argv: list[str]) -> Denial | None:
    """Why a process may not start the resolved `file` with these arguments, or None."""
    shown = target(file, argv)
    policy = box.desk.policy
    if within(file, box.desk.hidden):
        return Denial("exec", shown, "it is agentbox's own record of this run")
    decision = policy.decide("exec", file, argv)
    if decision.allowed:
        if is_loader(file) and not _is_named(box, file, argv):
            return Denial("exec", shown, LOADER, rule=rule_text(decision), fix=_line(box, file))
        return None
    if box.lineage.is_agent(pid):
        return denial_of(decision, "exec")
    if is_loader(file):
        return Denial("exec", shown, LOADER, fix=decision.fix)
    if is_writable(box, file):
        # No line could help where there is none: the policy's reason says what can.
        return Denial("exec", shown, WRITABLE if decision.fix else decision.reason, fix=decision.fix)
    return None


def _is_named(box: Box, file: str, argv: list[str]) -> bool:
    """Whether a rule allows this start by the program's name; `exec: *` may stand before it."""
    forms = [rule.form for rule in box.desk.policy.rules_of(("exec",))]
    return any(form["match"] != "any" and command_matches(form, file, argv) for form in forms)


def _line(box: Box, file: str) -> str | None:
    """The rule that names a program by its path."""
    line = path_fix("read", file, box.desk.cwd, exact=True)
    return f"exec{line[len('read') :]}" if line else None


def unreached(box: Box, files: list[str], argv: list[str]) -> Denial | None:
    """Why the kernel would not start a program that the rules allow, of which it opens these `files`, or None."""
    for file in files:
        if not box.reaches(file):
            return _unreached(box, file, target(files[0], argv))
    return None


def _unreached(box: Box, file: str, shown: str) -> Denial:
    rules = [rule.form for rule in box.desk.policy.rules_of(("exec",))]
    if any(form["file"] == file for form in rules):
        return Denial("exec", shown, LATER)
    is_any = any(form["match"] == "any" for form in rules)
    readable = box.desk.policy.decide("read", file).allowed
    reason = (LATER if readable else UNREACHED) if is_any else NAMED
    return Denial("exec", shown, reason, fix=_line(box, file))


def target(file: str, argv: list[str]) -> str:
    """What a denial shows of a start."""
    return " ".join([file, *argv[1:]])[:400]


def is_writable(box: Box, file: str) -> bool:
    """Whether the run may write a file, in its private folders too."""
    return box.desk.policy.is_writable(file) or within(file, list(box.desk.private.values()))
