"""The table of runtimes: who recognises a command, and brings which guard into it.

The first row that recognises a command wins; `native` is last and takes what nobody else does. Never scans for more.
"""

from __future__ import annotations

from agentbox.guard.errors import Unconfinable
from agentbox.guard.runtimes._base import Command, Launch
from agentbox.guard.runtimes.native import NATIVE
from agentbox.guard.runtimes.python import PYTHON

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbox.guard.runtimes._base import Guest as Guest
    from agentbox.guard.runtimes._base import Runtime

RUNTIMES: tuple[Runtime, ...] = (PYTHON, NATIVE)


def recognise(command: Command, extra: Sequence[Runtime] = ()) -> Launch:
    """How to start `command`; `extra` runtimes (of other packages) are asked first. Raises `Unconfinable`."""
    for runtime in (*extra, *RUNTIMES):
        try:
            launch = runtime.recognise(command)
        except Exception as error:
            if not getattr(error, "unconfinable", False):
                raise
            raise Unconfinable(str(error), getattr(error, "hint", "")) from error
        if launch is not None:
            return launch
    raise AssertionError("the last runtime takes everything")


def is_guarded(name: str, extra: Sequence[Runtime] = ()) -> bool:
    """True if a guard runs inside the programs of the runtime `name`."""
    return _named(name, extra).guarded


def variables(name: str, extra: Sequence[Runtime], hash_seed: int) -> dict[str, str]:
    """The environment variables that bring the guards into a run: those of every guarded runtime, since one starts the
    other.
    """
    found: dict[str, str] = {}
    for runtime in (*extra, *RUNTIMES):
        if runtime.guarded or runtime.name == name:
            found.update(runtime.variables(hash_seed))
    return found


def _named(name: str, extra: Sequence[Runtime]) -> Runtime:
    return next(runtime for runtime in (*extra, *RUNTIMES) if runtime.name == name)


__all__ = ["RUNTIMES", "Command", "Launch", "is_guarded", "recognise", "variables"]
