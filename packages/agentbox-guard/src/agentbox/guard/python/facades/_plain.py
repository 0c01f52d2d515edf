"""Sealed: what all stand-ins share: values made plain, so that what was judged is what is done, and a refusal raised.

Nothing here trusts the agent's own modules or the methods of its objects, and nothing here decides.
"""

from __future__ import annotations

import posix
from sys import audit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.report import Refusal
    from agentbox.guard.python.resolve import exact_text


def stop(refusal: Refusal | None, *, OSError=OSError) -> None:
    """Raise a refusal as the exception that the hook would raise."""
    if refusal is not None:
        raise OSError(*refusal) if refusal[2] is not None else OSError(refusal[0], refusal[1])


def hand_over(name: str, *values: Any, audit=audit) -> Any:
    """Have the hook judge and do an operation that has no audit event of its own; raises what it fails with."""
    box: list[Any] = []
    audit("agentbox.perform", name, values, box)
    done, outcome = box[0]
    if done:
        return outcome
    raise outcome


def native(name: str, *values: Any, audit=audit) -> Any:
    """The same for a C function that is held by name (events/natives.py)."""
    box: list[Any] = []
    audit("agentbox.native", name, values, box)
    done, outcome = box[0]
    if done:
        return outcome
    raise outcome


def plain_path(
    path: Any, *, fspath=posix.fspath, exact_text=exact_text, issubclass=issubclass, str=str, TypeError=TypeError
) -> str:
    """What the caller means by a path, converted once; from here on it cannot change."""
    text = exact_text(fspath(path))
    if text is None:
        raise TypeError("agentbox: a path must be text without NUL")
    return text


def arguments(
    argv: Any,
    *,
    plain_path=plain_path,
    issubclass=issubclass,
    type=type,
    list=list,
    tuple=tuple,
    TypeError=TypeError,
) -> tuple[str, ...]:
    """A program's arguments, made plain."""
    if not issubclass(type(argv), (list, tuple)):
        raise TypeError("agentbox: arguments must be a list or a tuple")
    words: tuple[str, ...] = ()
    for word in argv:
        words += (plain_path(word),)
    return words
