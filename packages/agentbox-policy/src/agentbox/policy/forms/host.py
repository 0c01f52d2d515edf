"""The host form: one canonical spelling for host names and addresses, and matching on it (docs/spec/policy.md, section
6).

Never resolves a name: what a name leads to is the supervisor's to decide and to pin.
"""

from __future__ import annotations

from agentbox.policy.address import canonical_address, looks_like_v4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LONGEST_HOST = 253
LONGEST_LABEL = 63
"""RFC 1035, section 2.3.4, in the textual form without the dot at the end."""

LABEL = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
DEVIATIONS = "\u00df\u03c2\u200c\u200d"
"""Characters that IDNA 2003 and IDNA 2008 map to different names (UTS 46, section 7), so that no answer would be safe.
"""


class HostFault(ValueError):
    """A text that is neither a host name nor an address; the message says why."""


def canonical_host(text: str) -> tuple[str, str]:
    """("address", text) or ("name", text) in the one spelling that rules and targets are compared in.

    Names: ASCII lower case, IDNA to `xn--`, no dot at the end. Addresses: every spelling of inet_aton(3) to dotted
    decimal, IPv6 as RFC 5952 writes it, IPv4-mapped IPv6 as IPv4, brackets off. Raises `HostFault` for everything else.
    """
    if not text:
        raise HostFault("the host is empty")
    if len(text) > 1024:
        raise HostFault("the host is longer than any name")
    if text[0] == "[" and text[-1] == "]":
        if ":" not in text:
            raise HostFault("brackets hold an IPv6 address only")
        text = text[1:-1]
    if not text.isascii():
        text = _to_ascii(text)
    for char in text:
        if char == "\0" or not char.isprintable() or char in " /\\@%?#[]":
            raise HostFault(_unfit(char))
    if ":" in text or looks_like_v4(text.rstrip(".")):
        address = canonical_address(text if ":" in text else text.removesuffix("."))
        if address is None:
            raise HostFault("it is no address in any spelling")
        return "address", address
    return "name", _name(text.lower().removesuffix("."))


def _unfit(char: str) -> str:
    if char == "@":
        return "user information (`user@`) does not belong in a host"
    if char == "%":
        return "zone ids and escapes are not accepted in a host"
    if char == "\0":
        return "the host holds a NUL"
    return f"the host holds {char!r}"


def _name(text: str) -> str:
    if len(text) > LONGEST_HOST:
        raise HostFault("the host is longer than any name")
    for label in text.split("."):
        if not 1 <= len(label) <= LONGEST_LABEL:
            raise HostFault(
                "the host has an empty label" if not label else "a label of the host is longer than 63 characters"
            )
        if not LABEL.issuperset(label) or label[0] == "-" or label[-1] == "-":
            raise HostFault(f"{label!r} cannot be part of a host name")
    return text


def _to_ascii(text: str) -> str:
    """IDNA; the codec is the one that CPython's own `socket` applies to a host (RFC 3490)."""
    for char in text:
        if char in DEVIATIONS:
            raise HostFault("IDNA 2003 and 2008 disagree on this name; write its xn-- form")
    try:
        return text.encode("idna").decode("ascii")
    except (UnicodeError, ValueError):
        raise HostFault("the name cannot be written in IDNA") from None


def host_matches(form: dict[str, Any], kind: str, host: str, port: int | None) -> bool:
    """Whether a compiled host rule matches a canonical host and a port; port None (a look-up) matches any pin.

    A rule for a name never matches an address, and a rule for an address never matches a name.
    """
    if port is not None and form["port"] is not None and form["port"] != port:
        return False
    match = form["match"]
    if match == "any":
        return True
    if match == "suffix":
        return kind == "name" and host.endswith("." + form["host"])
    return bool(match == kind and form["host"] == host)
