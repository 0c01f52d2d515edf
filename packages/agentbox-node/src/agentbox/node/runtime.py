"""Recognises JavaScript programs among commands, in the form that agentbox.guard asks of a runtime.

Never starts anything and never trusts a name alone: a script is known by the interpreter that its `#!` line names.
"""

from __future__ import annotations

import os

from agentbox.node.errors import NodeUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    class Command(Protocol):
        """What the guard hands over: the `file` that would be executed (absolute) and the words typed."""

        file: str
        argv: list[str]


INTERPRETERS = frozenset({"node", "nodejs", "deno", "bun", "bunx", "tsx", "ts-node"})
"""Programs that run JavaScript; launchers such as npm and npx are scripts of one of these."""
LAUNCHERS = frozenset({"npm", "npx", "pnpm", "pnpx", "yarn", "corepack"})
"""Programs that start one of the interpreters, however they are written themselves."""

_HEAD = 256  # bytes of a `#!` line that the kernel reads (execve(2))
_DEPTH = 4  # scripts whose interpreter is a script in turn: the kernel allows five levels (execve(2))


class NodeRuntime:
    """The JavaScript row of the guard's runtimes."""

    name = "node"
    guarded = False

    def recognise(self, command: Command) -> None:
        """None if `command` (`file`, `argv`) is no JavaScript program. Raises `NodeUnsupported` if it is."""
        interpreter = javascript(command.file, command.argv[1:])
        if not interpreter:
            return
        shown = os.path.basename(command.argv[0])
        behind = "" if interpreter == shown else f" (run by {interpreter})"
        raise NodeUnsupported(
            f"{shown}{behind}: JavaScript programs cannot be guarded by agentbox-node 0.1, so nothing was run",
            "this version runs Python agents",
        )

    def variables(self, hash_seed: int) -> dict[str, str]:
        """None: there is no guard to bring in."""
        return {}


RUNTIME = NodeRuntime()
"""What `agentbox run` gives to the guard as an additional runtime."""


def javascript(file: str, words: Sequence[str], depth: int = _DEPTH) -> str:
    """The name of the JavaScript interpreter behind `file` (with `words` after it), or ""."""
    for name in (os.path.basename(file), os.path.basename(os.path.realpath(file))):
        if name in INTERPRETERS or name in LAUNCHERS:
            return name
        if name == "env":
            return _behind_env(words)
    shebang = _shebang(file)
    if not shebang or depth == 0:
        return ""
    return javascript(shebang[0], shebang[1:], depth - 1)


def _behind_env(words: Sequence[str]) -> str:
    """The interpreter that env(1) would start; its options and assignments are passed over."""
    for word in words:
        for part in word.removeprefix("-S").split():
            if not part.startswith("-") and "=" not in part:
                name = os.path.basename(part)
                return name if name in INTERPRETERS or name in LAUNCHERS else ""
    return ""


def _shebang(file: str) -> list[str]:
    """Interpreter and argument of the `#!` line of `file`, split at blanks; empty if it has none or cannot be read."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            head = os.read(descriptor, _HEAD)
        finally:
            os.close(descriptor)
    except OSError:
        return []
    line = os.fsdecode(head.partition(b"\n")[0])
    return line[2:].split() if line.startswith("#!") else []
