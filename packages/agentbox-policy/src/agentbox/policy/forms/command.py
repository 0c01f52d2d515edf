"""The command form: a resolved program file and the first of its arguments (docs/spec/policy.md, section 7).

Never looks at the spelling of a program, except where one file holds many programs and picks by it.
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
    return not is_multi_call(file) or (len(argv) > 0 and base_name(argv[0]) == base_name(form["program"]))


def command_matches(form: dict[str, Any], file: str, argv: Sequence[str]) -> bool:
    """Whether a compiled command rule matches the resolved `file` started with `argv` (its first member is the name it
    is called by).
    """
    wanted = form["args"]
    return program_matches(form, file, argv) and list(argv[1 : 1 + len(wanted)]) == wanted
