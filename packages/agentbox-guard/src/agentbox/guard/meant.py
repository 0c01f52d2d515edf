"""Where programs may be started that rules name with arguments: `exec: make test` means that of the policy's folder.

Arguments are texts, and the program takes them, and often what nobody names (a Makefile, a module), from the folder
that it is started in, which is the agent's to choose. Nothing is decided here but whether that folder was meant.
"""

from __future__ import annotations

import os

from agentbox.guard.paths import within
from agentbox.guard.session import Denial
from agentbox.policy.forms.command import base_name, command_matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from agentbox.policy import Policy

DATA_ONLY = frozenset(
    (
        "git",
        "arch",
        "b2sum",
        "base32",
        "base64",
        "basename",
        "basenc",
        "cat",
        "chmod",
        "cksum",
        "cmp",
        "comm",
        "cp",
        "curl",
    )
    + ("cut", "date", "dd", "df", "diff", "dirname", "du", "echo", "egrep", "expand", "expr", "false", "fgrep", "file")
    + ("fmt", "fold", "grep", "groups", "head", "hostname", "id", "jq", "join", "kill", "ln", "ls", "md5sum", "mkdir")
    + ("mkfifo", "mktemp", "mv", "nl", "nproc", "od", "paste", "pgrep", "printenv", "printf", "ps", "pwd", "readlink")
    + ("realpath", "rev", "rg", "rm", "rmdir", "seq", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum")
    + ("shuf", "sleep", "stat", "sum", "sync", "tac", "tail", "tee", "test", "touch", "tr", "tree", "true", "truncate")
    + ("tty", "uname", "unexpand", "uniq", "unlink", "uptime", "wc", "which", "whoami", "xxd", "yes")
)
"""Programs that take from their working directory nothing that they run or obey. git does, of git directories that the
built-in protection keeps harmless wherever the run may write.
"""
FILLED = (
    "{} is a folder that the run may fill, and the rule has arguments: {} could run or obey what lies there; "
    "start it in {}, or in a folder that the run cannot write"
)
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


def folder_problem(
    policy: Policy, file: str, argv: Sequence[str], cwd: str, private: Iterable[str] = ()
) -> Denial | None:
    """The refusal of a start by the agent in the folder `cwd`, or None (docs/spec/policy.md, section 7). `private` are
    the folders that the run may write besides those of rules.
    """
    if not depends_on_folder(policy, file, argv) or os.path.realpath(cwd) == os.path.realpath(policy.cwd):
        return None
    word = meant_file(policy, file, argv)
    if word:
        reason = REASON.format(os.path.join(policy.cwd, word), policy.cwd)
    elif _takes_data_only(policy, file, argv) or not _is_filled(policy, os.path.realpath(cwd), private):
        return None
    else:
        reason = FILLED.format(cwd, base_name(file), policy.cwd)
    return Denial("exec", " ".join([file, *argv[1:]])[:400], reason)


def depends_on_folder(policy: Policy, file: str, argv: Sequence[str]) -> bool:
    """Whether each rule for this start has arguments, and the folder that it is made in may matter."""
    forms = _forms(policy, file, argv)
    told = bool(forms) and all(form["args"] for form in forms)
    return told and (bool(meant_file(policy, file, argv)) or not _takes_data_only(policy, file, argv))


def _forms(policy: Policy, file: str, argv: Sequence[str]) -> list[dict[str, Any]]:
    return [rule.form for rule in policy.rules_of(("exec",)) if command_matches(rule.form, file, argv)]


def _takes_data_only(policy: Policy, file: str, argv: Sequence[str]) -> bool:
    """Whether it is a program of the system's that runs nothing that it finds in its working directory."""
    if within(file, [policy.cwd]):
        return False
    names = {base_name(form["program"]) for form in _forms(policy, file, argv) if form["program"]}
    return bool(names) and names <= DATA_ONLY


def _is_filled(policy: Policy, folder: str, private: Iterable[str]) -> bool:
    """Whether the run may make files in a folder, where it may not in the policy's own, of which it needs no other."""
    if policy.is_writable(policy.cwd):
        return False
    roots = [rule.form["root"] for rule in policy.rules_of(("write",))]
    single = [os.path.dirname(root) for root in policy.write_roots() if not os.path.isdir(root)]
    return within(folder, [*roots, *private]) or folder in single


def _is_meant(policy: Policy, word: str) -> bool:
    if word.startswith(("-", "/")):
        return False
    path = os.path.realpath(os.path.join(policy.cwd, word))
    return os.path.isfile(path) and not policy.is_writable(path)
