"""Sealed: stand-ins by which children inherit what their own guard needs. Never leaves it to the agent to pass that on.

What a program of the agent's is given by the variable PYTHONPATH it gets under another name, once it is guarded.
"""

from __future__ import annotations

import os
import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.events.process import LOADS
    from agentbox.guard.python.facades._plain import plain_path

EXTRA_PATH = "AGENTBOX_PYTHONPATH"


def extra_path(value: str, shim: str) -> str:
    """A PYTHONPATH as the agent wishes it, without the guard's own folder: what a child adds once its guard is live."""
    kept = []
    for entry in value.split(":"):
        if entry != shim and entry != "":
            kept.append(entry)
    return ":".join(kept)


def with_required(
    pairs: list[tuple[str, str]], *, required=(), extra_path=extra_path, EXTRA_PATH=EXTRA_PATH
) -> dict[str, str]:
    """An environment with what every guarded child must carry.

    The caller's own PYTHONPATH goes by another name: modules found there before the guard is live (`encodings`) would
    run without it.
    """
    found = {}
    for name, value in pairs:
        found[name] = value
    for name, value in required:
        given = found.get(name, value)
        if name == "PYTHONPATH" and given != value:
            found[EXTRA_PATH] = extra_path(given, value)
        found[name] = value
    return found


def environment(env: Any, *, plain_path=plain_path, with_required=with_required, os=os) -> dict[str, str]:
    """A mapping given for a child, made plain and complete; None stands for the process's own, as Python knows it."""
    if env is None:
        env = os.environ
    pairs = []
    for name in env:
        pairs.append((plain_path(name), plain_path(env[name])))
    return with_required(pairs)


def os_putenv(
    name: Any,
    value: Any,
    /,
    *,
    real=posix.putenv,
    required=(),
    plain_path=plain_path,
    extra_path=extra_path,
    EXTRA_PATH=EXTRA_PATH,
    contained=False,
    loads=LOADS,
) -> None:
    """Change or add an environment variable. What children need for their own guard keeps its value in them, and what
    libraries load code by is kept from those of this process: programs that it starts get it from os.environ.
    """
    text = plain_path(name)
    for fixed, content in required:
        if fixed == text:
            if fixed == "PYTHONPATH":
                real(EXTRA_PATH, extra_path(plain_path(value), content))
            return
    content = plain_path(value)
    if contained or not (text in loads[0] or text.startswith(loads[1])):
        real(text, content)


def os_unsetenv(
    name: Any, /, *, real=posix.unsetenv, required=(), plain_path=plain_path, EXTRA_PATH=EXTRA_PATH
) -> None:
    """Delete an environment variable. What children need for their own guard stays in them."""
    text = plain_path(name)
    for fixed, _ in required:
        if fixed == text:
            if fixed == "PYTHONPATH":
                real(EXTRA_PATH)
            return
    real(text)
