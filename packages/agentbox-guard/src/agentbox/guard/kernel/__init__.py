"""The table of kernel layers, and which of them a run has.

A layer that is not live is never counted as enforcing anything: what it would hold is reported as held by the guard
alone. Rows are loaded when they are used, since start-up waits for every import.
"""

from __future__ import annotations

import sys

from agentbox.guard.errors import Unconfinable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentbox.guard.kernel._base import Layer

LAYERS: dict[str, tuple[str, str]] = {
    "netns": ("agentbox.guard.kernel.netns", "NETNS"),
    "landlock": ("agentbox.guard.kernel.landlock", "LANDLOCK"),
    "seccomp": ("agentbox.guard.kernel.seccomp", "SECCOMP"),
}
"""Every kernel layer of Linux, by name, in the order in which they are applied: its module, and its object there."""

ENFORCES = {
    "netns": frozenset({"net"}),
    "landlock": frozenset({"exec", "list", "read", "write"}),
    "seccomp": frozenset({"exec", "list", "net", "read", "write"}),
}
"""The rule kinds that each holds for every program of the run: the header says so before a layer's own code is loaded.
"""

CHOICES = ("auto", "kernel", "guard")
"""What `--layers` takes: all layers of this system but those that the user does without, all of them, or the
interpreter's guard only.
"""
NEEDS = {"netns": ("seccomp",)}
"""What a layer is of no use without: nothing leaves an empty network without the broker behind the filter."""


def load(name: str) -> Layer:
    """A layer of the table. Raises `KeyError` for another name."""
    module, member = LAYERS[name]
    layer: Layer = getattr(__import__(module, fromlist=[member]), member)
    return layer


def choose(wish: str, without: Sequence[str] = (), *, platform: str = sys.platform) -> tuple[str, ...]:
    """The names of the layers that a run must have, for a `--layers` wish; what cannot be applied then ends the run.

    `without` are those that may be missing (`--allow-degraded`): they are tried, and left out where they do not work.
    Within another run of agentbox none can be had (see `nested`). Raises `Unconfinable`.
    """
    if wish not in CHOICES:
        raise Unconfinable(f"layers: got {wish!r}, expected one of {', '.join(CHOICES)}")
    for name in without:
        if name not in LAYERS:
            raise Unconfinable(f"allow-degraded: got {name!r}, expected one of {', '.join(LAYERS)}")
    if wish == "guard":
        return ()
    if platform != "linux":
        if wish == "kernel":
            raise Unconfinable(
                f"layers: kernel was asked for, and this build has no kernel layer for {platform}",
                "use --layers guard to run a Python command under the interpreter's guard alone",
            )
        return ()
    live = [name for name in LAYERS if name not in without or not load(name).probe()]
    return tuple(name for name in live if all(needed in live for needed in NEEDS.get(name, ())))


def missing(prepare: Callable[[], object]) -> str:
    """The first layer that does not work here, and why, in one clause; "" when all do. They are tried in a forked
    child, which calls `prepare` before.
    """
    from agentbox.guard.kernel._attempt import tried

    layers = [load(name) for name in LAYERS]  # here, so that the run's own child has them too

    def attempt() -> None:
        prepare()
        for layer in layers:
            if problem := layer.probe():
                raise OSError(0, f"{layer.name}: {problem}")

    return tried(attempt)


def nested() -> bool:
    """Whether this process is inside a run of agentbox whose filter has a supervisor already.

    There can be only one: seccomp(2) answers EBUSY to a second one (Linux 5.0), which is the proof, as anybody may have
    set the variable. Landlock could be stacked and would prove nothing: the outer supervisor opens files in the name of
    the program, and is under no rule of the program's. Raises `Unconfinable` inside a run that has a guard only.
    """
    import errno
    import os

    if "AGENTBOX_CHANNEL" not in os.environ:
        return False
    try:
        return load("seccomp").probe().endswith(os.strerror(errno.EBUSY))
    except ImportError:  # native code, which a guard without kernel layers refuses to load
        raise Unconfinable(
            "inside another run of agentbox that has no kernel layers, so nothing was run: its guard refuses the native"
            " calls of a supervisor",
            "start the outer run without --layers guard, or the command without agentbox run",
        ) from None


def advice(name: str) -> str:
    """How a user gets a layer that did not work; "" when nothing is known to be in its way."""
    return load(name).advice()


def enforcement(names: Sequence[str], guard: frozenset[str]) -> dict[str, list[str]]:
    """Which live part enforces each rule kind: kind to the names of parts (`guard` and layers), for the header and the
    report.
    """
    kinds = guard.union(*(ENFORCES[name] for name in names))
    return {
        kind: (["guard"] if kind in guard else []) + [name for name in names if kind in ENFORCES[name]]
        for kind in sorted(kinds)
    }
