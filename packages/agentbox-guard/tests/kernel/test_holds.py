"""What is said of the layers fits what they declare."""

from __future__ import annotations

from agentbox.guard import kernel, welcome
from agentbox.guard.kernel.holds import HOLDS, NEEDS, UNHELD
from agentbox.guard.kernel.seatbelt import SEATBELT
from agentbox.policy import KINDS


def test_every_kind_of_rule_is_spoken_of() -> None:
    """A new kind of rule has to say who holds it, and what of it nobody does."""
    assert list(HOLDS) == list(UNHELD) == list(KINDS)


def test_no_layer_is_said_to_hold_what_it_does_not_declare() -> None:
    """`enforces` and the words agree, for every layer and the guard."""
    declared = {layer.name: layer.enforces for layer in (*map(kernel.load, kernel.LAYERS), SEATBELT)}
    declared["guard"] = welcome.GUARDED_KINDS
    said = {name: frozenset(kind for kind in HOLDS if name in HOLDS[kind]) for name in NEEDS}
    assert said == declared
