"""Turns the paths of rules into resolved roots and globs, when a policy is loaded (docs/spec/policy.md, section 5).

Never runs at decision time: roots are frozen here, and decisions compare text only.
"""

from __future__ import annotations

from os.path import join, normpath, realpath

from agentbox.policy.errors import PolicyError
from agentbox.policy.forms.path import glob_segment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.policy.lexer import Value
    from agentbox.policy.rules._base import Scope

OWN_PROCESS = ("/proc/self/", "/proc/thread-self/", "/dev/fd/", "/dev/stdin/", "/dev/stdout/", "/dev/stderr/")
"""Names that mean another file for each process that asks (proc(5)); a root is resolved by agentbox, so they cannot be
one.
"""

LONGEST_PATH = 4095
LONGEST_NAME = 255
"""In bytes: PATH_MAX less its NUL and NAME_MAX, linux/limits.h."""


def root_and_glob(value: Value, scope: Scope) -> tuple[str, str | None]:
    """The resolved root of a path value and, when it has wildcards, the glob below that root."""
    start, text = _start(value, scope)
    names = [name for name in text.split("/") if name not in ("", ".")]
    literal: list[str] = []
    for count, name in enumerate(names):
        _check_segment(name, value.text)
        pattern = glob_segment(name)
        if type(pattern) is not str:
            return _root(start, literal, value.text), _glob(names[count:], value.text)
        literal.append(pattern)
    return _root(start, literal, value.text), None


def resolved(value: Value, scope: Scope) -> str:
    """The resolved path of a value in which nothing is a wildcard (the program of `exec:`)."""
    start, text = _start(value, scope)
    return _root(start, [name for name in text.split("/") if name not in ("", ".")], value.text)


def _start(value: Value, scope: Scope) -> tuple[str, str]:
    """Where a path begins, and what is left of it. Quoted values know neither `~` nor the mistakes that look like a
    shell's.
    """
    text = value.plain
    if not value.quoted:
        if text == "~" or text.startswith("~/"):
            return scope.home, text[1:]
        if text[0] == "~":
            raise PolicyError(
                f"got {text}, expected ~/... for your own home",
                code="bad-path",
                hint=f"write the folder's full path, or ./{text} for a file of that name",
            )
        if text[0] == "$":
            raise PolicyError(
                f"got {text}, but variables are not expanded",
                code="bad-path",
                hint=f"write ~/ for your home or the full path, or ./{text} in double quotes for a file of that name",
            )
        if "{" in text or "}" in text:
            raise PolicyError(
                f"got {text}, but braces are not expanded",
                code="bad-path",
                hint="write one rule for each, or put the value in double quotes if the name has braces",
            )
        if "://" in text:
            raise PolicyError(f"got {text}, expected a path", code="bad-path", hint="files by path, hosts by net:")
    return ("/" if text[0] == "/" else scope.cwd), text


def _root(start: str, names: list[str], shown: str) -> str:
    path = join(start, *names)
    if (normpath(path) + "/").startswith(OWN_PROCESS):
        raise PolicyError(
            f"got {shown}, which is another file for each process",
            code="bad-path",
            hint="a process may use its own /proc entries and standard streams without a rule",
        )
    try:
        root = realpath(path)
        sizes = [len(name) for name in root.encode("utf-8", "surrogateescape").split(b"/")]
    except (OSError, ValueError) as error:
        raise PolicyError(f"got {shown}, which cannot be resolved: {error}", code="bad-path") from error
    if sum(sizes) + len(sizes) - 1 > LONGEST_PATH or max(sizes) > LONGEST_NAME:
        raise PolicyError(
            f"got a path of {len(root)} characters, expected at most {LONGEST_PATH} bytes and {LONGEST_NAME} in a name",
            code="bad-path",
            hint="no file can have such a name",
        )
    return "/" + root.lstrip("/")  # POSIX lets "//" stand apart; Linux does not


def _glob(names: list[str], shown: str) -> str:
    for name in names:
        _check_segment(name, shown)
        if name == "..":
            raise PolicyError(
                f"got .. after a wildcard in {shown}", code="bad-glob", hint="put the .. before the first wildcard"
            )
    glob = "/".join(names)
    if len(glob) > LONGEST_PATH:
        raise PolicyError(f"got a glob of {len(glob)} characters, expected at most {LONGEST_PATH}", code="bad-glob")
    return glob


def _check_segment(name: str, shown: str) -> None:
    if "**" in name and name != "**":
        raise PolicyError(
            f"got {name} in {shown}, but ** stands for whole names",
            code="bad-glob",
            hint=f"write **/{name.replace('**', '*')} or {name.replace('**', '*')}",
        )
    check_sets(name, shown)


def check_sets(name: str, shown: str) -> None:
    """Raise when a `[...]` of a glob is not closed, empty, reversed, or of a class that the grammar does not have."""
    at = name.find("[")
    while at >= 0:
        start = at + (2 if name[at + 1 : at + 2] in ("!", "^") else 1)
        end = name.find("]", start + 1)
        if end < 0:
            raise PolicyError(
                f"got [ without ] in {shown}",
                code="bad-glob",
                hint='close the set, or write "\\[" in double quotes for the character itself',
            )
        if name[start : start + 1] == "[" and name[start + 1 : start + 2] in (":", ".", "="):
            raise PolicyError(
                f"got a named class in {shown}, which globs here do not have",
                code="bad-glob",
                hint="write ranges, such as [a-z] or [0-9]",
            )
        i = start
        while i + 2 < end:
            if name[i + 1] == "-" and name[i] > name[i + 2]:
                raise PolicyError(
                    f"got the reversed range {name[i : i + 3]} in {shown}",
                    code="bad-glob",
                    hint=f"write {name[i + 2]}-{name[i]}",
                )
            i += 3 if name[i + 1] == "-" else 1
        at = name.find("[", end + 1)
