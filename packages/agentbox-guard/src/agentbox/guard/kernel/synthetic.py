"""Synthetic addresses: each name that the run may look up stands behind one, so that a connection tells the name.

They mean nothing outside of the run's network namespace, where nothing answers to them; no packet ever carries one.
"""

from __future__ import annotations

from agentbox.policy.address import canonical_address, format_v4, parse_v4

_FIRST, _SIZE = 0xC6120000, 1 << 17
"""198.18.0.0/15, reserved for benchmarks of network devices (RFC 2544): no service lives there."""


class Synthetic:
    """The run's table, in the order in which names were first asked for."""

    __slots__ = ("_names", "_numbers")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}

    def address(self, name: str) -> str:
        """The address that stands for `name` (lower case, no final dot); "" when all are given out."""
        number = self._numbers.get(name)
        if number is None:
            if len(self._names) >= _SIZE - 2:  # neither the first nor the last
                return ""
            self._names.append(name)
            number = self._numbers[name] = len(self._names)
        return format_v4(_FIRST + number)

    def name(self, address: str) -> str:
        """The name behind an address in any spelling, IPv4-mapped IPv6 included; "" for none."""
        plain = canonical_address(address) or ""
        number = (parse_v4(plain) or 0) - _FIRST if "." in plain else 0
        return self._names[number - 1] if 1 <= number <= len(self._names) else ""
