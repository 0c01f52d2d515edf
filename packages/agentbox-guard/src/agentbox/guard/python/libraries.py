"""Sealed: files that C libraries read because a variable names them. Judges the variable: nothing tells of the reading.

tzset(3), locale(7), terminfo(5), SSL_CTX_set_default_verify_paths(3); kernel layers see the files themselves opened.
"""

from __future__ import annotations

from posix import lstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.judge import judge_file
    from agentbox.guard.python.report import Refusal, refuse
    from agentbox.guard.python.resolve import exact_text, resolve
    from agentbox.policy.forms.path import path_fix

LIBRARY_FILES = frozenset(
    ("TZ", "TZDIR", "LOCPATH", "TERMINFO", "TERMINFO_DIRS", "TERMCAP", "SSL_CERT_FILE", "SSL_CERT_DIR")
)
FIXED = frozenset(("TZ", "TZDIR"))
"""What these name must lie where the agent puts no link later: it is read at any time, and shows as plain text."""
ZONES = "/usr/share/zoneinfo/"


def named_files(name: str, value: str, *, named=LIBRARY_FILES, zones=ZONES) -> list[str]:
    """The paths that a variable names."""
    found = []
    if name == "TZ":
        text = value[1:] if value[:1] == ":" else value
        if text != "":
            found.append(text if text[:1] == "/" else zones + text)
    elif name in named:
        for part in value.split(":"):
            if part[:1] == "/":
                found.append(part)
    return found


def on_library_variable(
    name: Any,
    value: Any,
    *,
    contained=False,
    given=frozenset(),
    exact_text=exact_text,
    named_files=named_files,
    resolve=resolve,
    judge_file=judge_file,
    refuse=refuse,
    path_fix=path_fix,
    lstat=lstat,
    fixed=FIXED,
    cwd="/",
    OSError=OSError,
    type=type,
    int=int,
) -> Refusal | None:
    """The refusal of a variable's value that has a C library read what the policy does not open, or None.

    What the process was started with (`given`) is not the agent's doing.
    """
    variable, text = exact_text(name), exact_text(value)
    if contained or variable is None or text is None or (variable, text) in given:
        return None
    for path in named_files(variable, text):
        resolved = resolve(path, True)
        if resolved is None:
            return refuse("fs.read", {"path": path}, "read", path, "its links lead in a circle", None)
        writable = type(judge_file("write", resolved, opening=False)) is int
        try:
            lstat(resolved)
        except OSError:
            if not writable:
                continue
        judged = judge_file("read", resolved)
        if type(judged) is not int:
            reason = f"{judged} ({variable} names it, which a C library reads)"
            return refuse("fs.read", {"path": resolved}, "read", resolved, reason, path_fix("read", resolved, cwd))
        if variable in fixed and writable:
            reason = f"{variable} names it, and the agent could put something else there before a C library reads it"
            return refuse("fs.read", {"path": resolved}, "read", resolved, reason, None)
    return None


def on_library_variables(env: Any, *, on_library_variable=on_library_variable) -> Refusal | None:
    """The same for all variables of a child; None stands for the process's own, which are judged when they are set."""
    if env is not None:
        for name, value in env.items():
            refusal = on_library_variable(name, value)
            if refusal is not None:
                return refusal
    return None
