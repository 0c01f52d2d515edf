"""What a runtime is: how one family of interpreters is recognised, and how its guard gets into the process.

A runtime only looks at files and words; it starts nothing but, where it must ask an interpreter where it lives, that
interpreter.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Protocol

    class Runtime(Protocol):
        """One row of `agentbox.guard.runtimes.RUNTIMES`."""

        name: str
        guarded: bool
        """Does a guard run inside the interpreter?"""

        def recognise(self, command: Command) -> Launch | None:
            """How to start `command`, or None if it is not this runtime's.

            Raises `Unconfinable` when its guard could not arm; a runtime of another package raises an error of its own
            that has `unconfinable` (true) and `hint`.
            """

        def variables(self, hash_seed: int) -> dict[str, str]:
            """Environment variables that bring the guard into every process of the run."""

    class Guest(Runtime, Protocol):
        """A runtime of another package, given in `RunOptions.runtimes`; its guard comes up in programs that a guarded
        process starts, too.
        """

        def recognise(self, command: Command) -> Any:
            """A `Launch`, or an object of its own with the members of one."""

        def problem(self, file: str, argv: Sequence[str], cwd: str, path: str) -> str | None:
            """Why no guard would come up in `file` started with `argv`; "" if one would, None if it is not its own.

            `path` is the PATH that env(1) looks in.
            """


class Command:
    """What the user typed, resolved: `file` (absolute, links as written), `argv`, and where to look for others."""

    __slots__ = ("argv", "cwd", "environ", "file", "write_roots")

    def __init__(
        self,
        file: str,
        argv: Sequence[str],
        *,
        cwd: str,
        environ: Mapping[str, str],
        write_roots: Sequence[str] = (),
    ) -> None:
        self.file = file
        self.argv = list(argv)
        self.cwd = cwd
        self.environ = environ
        self.write_roots = tuple(write_roots)


class Launch:
    """How to start a command: the `file` to exec with `argv`, and what the guard must know of the program that the user
    named.

    `script` is the file that is run (empty for none); `listable` the folder that imports come from. `arms` is false for
    a command that ends before any user code, such as `python --version`, so no guard comes up. `readable` are trees of
    installed packages that need no rule.
    """

    __slots__ = ("argv", "arms", "extra", "file", "listable", "readable", "runtime", "script")

    def __init__(
        self,
        runtime: str,
        file: str,
        argv: Sequence[str],
        *,
        script: str = "",
        listable: str = "",
        arms: bool = True,
        extra: Mapping[str, str] | None = None,
        readable: Sequence[str] = (),
    ) -> None:
        self.runtime = runtime
        self.file = file
        self.argv = list(argv)
        self.script = script
        self.listable = listable
        self.arms = arms
        self.extra = dict(extra or {})
        self.readable = list(readable)
