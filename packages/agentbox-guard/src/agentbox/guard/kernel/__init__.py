"""The table of kernel layers, and which of them a run can have.

A layer that is not live is never counted as enforcing anything: what it would hold is reported as held by the guard
alone.
"""

from __future__ import annotations

from agentbox.guard.errors import Unconfinable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel._base import Layer

LAYERS: tuple[Layer, ...] = ()
"""Every kernel layer of this build, in the order in which they are applied."""

CHOICES = ("auto", "kernel", "guard")
"""What `--layers` takes: all that the machine offers, refuse unless every kernel layer is live, or the interpreter's
guard only.
"""


def choose(wish: str, layers: tuple[Layer, ...] = LAYERS) -> tuple[Layer, ...]:
    """The layers that are live for a `--layers` wish.

    Raises `Unconfinable` when `kernel` is asked for and a layer is missing, naming it and why.
    """
    if wish not in CHOICES:
        raise Unconfinable(f"layers: got {wish!r}, expected one of {', '.join(CHOICES)}")
    if wish == "guard":
        return ()
    if wish == "kernel" and not layers:
        raise Unconfinable(
            "layers: kernel was asked for, and this build has no kernel layer",
            "use --layers guard to run a Python command under the interpreter's guard alone",
        )
    live = []
    for layer in layers:
        missing = layer.probe()
        if not missing:
            live.append(layer)
        elif wish == "kernel":
            raise Unconfinable(f"layers: kernel was asked for, and {layer.name} is not to be had: {missing}")
    return tuple(live)


def enforcement(layers: tuple[Layer, ...], guard: frozenset[str]) -> dict[str, list[str]]:
    """Which live part enforces each rule kind: kind to the names of parts (`guard` and layers), for the header and the
    report.
    """
    kinds = guard.union(*(layer.enforces for layer in layers))
    return {
        kind: (["guard"] if kind in guard else []) + [layer.name for layer in layers if kind in layer.enforces]
        for kind in sorted(kinds)
    }
