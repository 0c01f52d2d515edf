"""The command form: a resolved program file and the first of its arguments (docs/spec/policy.md, section 7).

Never takes a name for a program. It looks at argv[0] where the program may pick by it what to do: in a file that holds
many programs, and under a rule that says which arguments come first.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MULTI_CALL = ("busybox", "coreutils", "rustup", "sbase-box", "toybox", "ubase-box", "uutils", "volta-shim")
"""Programs that become another one by the name they are called by; version and libc suffixes follow the name
(`busybox-static`).
"""


def base_name(path: str) -> str:
    """What follows the last slash."""
    return path.rpartition("/")[2]


def is_multi_call(file: str) -> bool:
    """Whether `file` chooses what to be by argv[0]."""
    name = base_name(file)
    return any(name == known or (name.startswith(known) and not name[len(known)].isalnum()) for known in MULTI_CALL)


def program_matches(form: dict[str, Any], file: str, argv: Sequence[str]) -> bool:
    """Whether the program is the rule's, its arguments aside."""
    if form["match"] == "any":
        return True
    if form["file"] != file:
        return False
    program: str = form["program"]
    return not is_multi_call(file) or called(argv) == base_name(program)


def called(argv: Sequence[str]) -> str | None:
    """The last name of argv[0]; None without one."""
    return base_name(argv[0]) if argv else None


def name_matches(form: dict[str, Any], file: str, argv: Sequence[str]) -> bool:
    """Whether the program is called by a name of its own, where the rule has arguments.

    Programs may take a part of their command line from argv[0]: git called `git-clone` clones (git.c), a shell called
    `-sh` reads its start-up files (sh(1)).
    """
    return not form["args"] or called(argv) in (base_name(form["program"]), base_name(file))


def command_matches(form: dict[str, Any], file: str, argv: Sequence[str]) -> bool:
    """Whether a compiled command rule matches the resolved `file` started with `argv` (its first member is the name it
    is called by).
    """
    wanted = form["args"]
    if not program_matches(form, file, argv) or not name_matches(form, file, argv):
        return False
    return list(argv[1 : 1 + len(wanted)]) == list(wanted)
