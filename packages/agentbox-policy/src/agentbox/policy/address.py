"""IP addresses as text: reads every spelling that the C library takes, writes one, and names the special ranges.

Never resolves a name and never imports `socket` or `ipaddress`, which start-up cannot afford. Sources: inet_aton(3),
RFC 4291, RFC 5952, and the IANA IPv4 and IPv6 special-purpose address registries (RFC 6890).
"""

from __future__ import annotations

Groups = list[int]
"""The eight 16-bit groups of an IPv6 address."""

SPECIAL_V4 = (
    (0x00000000, 8, "unspecified"),  # RFC 791; connecting to 0.0.0.0 reaches this machine on Linux
    (0x0A000000, 8, "private"),  # RFC 1918
    (0x64400000, 10, "carrier-grade NAT"),  # RFC 6598
    (0x7F000000, 8, "loopback"),  # RFC 1122
    (0xA9FE0000, 16, "link-local"),  # RFC 3927; 169.254.169.254 is where clouds keep credentials
    (0xAC100000, 12, "private"),  # RFC 1918
    (0xC0000000, 24, "reserved"),  # RFC 6890
    (0xC0000200, 24, "documentation"),  # RFC 5737
    (0xC0586300, 24, "6to4 relay"),  # RFC 7526
    (0xC0A80000, 16, "private"),  # RFC 1918
    (0xC6120000, 15, "benchmarking"),  # RFC 2544
    (0xC6336400, 24, "documentation"),  # RFC 5737
    (0xCB007100, 24, "documentation"),  # RFC 5737
    (0xE0000000, 4, "multicast"),  # RFC 5771
    (0xF0000000, 4, "reserved"),  # RFC 1112, broadcast included
)

SPECIAL_V6 = (
    ((0x0064, 0xFF9B, 0x0001), 48, "local NAT64"),  # RFC 8215
    ((0x0100, 0, 0, 0), 64, "discard-only"),  # RFC 6666
    ((0x2001, 0x0000), 32, "Teredo tunnel"),  # RFC 4380
    ((0x2001, 0x0DB8), 32, "documentation"),  # RFC 3849
    ((0x2001, 0x0000), 23, "reserved"),  # RFC 2928
    ((0x2002,), 16, "6to4 tunnel"),  # RFC 3056
    ((0x3FFF, 0x0000), 20, "documentation"),  # RFC 9637
    ((0x5F00,), 16, "segment routing"),  # RFC 9602
    ((0xFC00,), 7, "private"),  # RFC 4193
    ((0xFE80,), 10, "link-local"),  # RFC 4291
    ((0xFEC0,), 10, "site-local"),  # RFC 3879
    ((0xFF00,), 8, "multicast"),  # RFC 4291
)

_GLOBAL_UNICAST = 0b001
"""The first three bits of what IANA gives out (RFC 4291 section 2.4, IPv6 address space registry): 2000::/3."""

CARRIERS_OF_V4 = (
    ((0, 0, 0, 0, 0, 0xFFFF), "mapped"),  # RFC 4291 2.5.5.2
    ((0, 0, 0, 0, 0xFFFF, 0), "translated"),  # RFC 2765
    ((0x0064, 0xFF9B, 0, 0, 0, 0), "NAT64"),  # RFC 6052
    ((0, 0, 0, 0, 0, 0), "compatible"),  # RFC 4291 2.5.5.1
)
"""IPv6 prefixes of 96 bits that are followed by an IPv4 address."""


def looks_like_v4(text: str) -> bool:
    """Whether the last label is a number, so that the text is an IPv4 address or nothing (the rule of the WHATWG URL
    standard).
    """
    last = text.rpartition(".")[2]
    return last.isascii() and (last.isdigit() or last[:2] in ("0x", "0X"))


def parse_v4(text: str) -> int | None:
    """The number behind any spelling of inet_aton(3): one to four parts, each decimal, octal or hexadecimal, the last
    filling the rest.
    """
    parts = text.split(".")
    if not 1 <= len(parts) <= 4:
        return None
    whole = 0
    for count, part in enumerate(parts):
        number = _v4_part(part)
        room = 8 * (5 - len(parts)) if count == len(parts) - 1 else 8
        if number is None or number >= 1 << room:
            return None
        whole = (whole << room) | number
    return whole


def _v4_part(part: str) -> int | None:
    if not part.isascii() or not 0 < len(part) <= 20:
        return None
    if part[:2] in ("0x", "0X"):
        digits, base, allowed = part[2:] or "0", 16, "0123456789abcdefABCDEF"
    elif part[0] == "0":
        digits, base, allowed = part, 8, "01234567"
    else:
        digits, base, allowed = part, 10, "0123456789"
    for digit in digits:
        if digit not in allowed:
            return None
    return int(digits, base)


def format_v4(number: int) -> str:
    """Dotted decimal."""
    return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def parse_v6(text: str) -> Groups | None:
    """The groups of an IPv6 address in any spelling of RFC 4291, section 2.2; None for anything else, zone ids
    included.
    """
    head, gap, tail = text.partition("::")
    if "::" in tail or not text.isascii():
        return None
    front = _groups(head, not gap)
    back = _groups(tail, True)
    if front is None or back is None:
        return None
    missing = 8 - len(front) - len(back)
    if gap:
        return front + [0] * missing + back if missing >= 1 else None
    return front if missing == 0 else None


def _groups(text: str, last: bool) -> Groups | None:
    """The groups of a part without `::`; only the last part of an address may end in dotted decimal."""
    groups: Groups = []
    if not text:
        return groups
    parts = text.split(":")
    for count, part in enumerate(parts):
        if "." in part and last and count == len(parts) - 1:
            number = parse_v4(part) if _strict_v4(part) else None
            if number is None:
                return None
            groups += [number >> 16, number & 0xFFFF]
        elif 1 <= len(part) <= 4 and all(digit in "0123456789abcdefABCDEF" for digit in part):
            groups.append(int(part, 16))
        else:
            return None
    return groups


def _strict_v4(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 4 and all(part.isdigit() and (part == "0" or part[0] != "0") for part in parts)


def format_v6(groups: Groups) -> str:
    """The spelling of RFC 5952: lower case, no leading zeros, the longest run of two or more zero groups as `::`."""
    best, length, at = 0, 1, 0
    while at < 8:
        end = at
        while end < 8 and groups[end] == 0:
            end += 1
        if end - at > length:
            best, length = at, end - at
        at = end + 1
    if length == 1:
        return ":".join(f"{group:x}" for group in groups)
    front = ":".join(f"{group:x}" for group in groups[:best])
    return front + "::" + ":".join(f"{group:x}" for group in groups[best + length :])


def canonical_address(text: str) -> str | None:
    """The one spelling of an IP address, or None if `text` is none. IPv4-mapped IPv6 is IPv4: that is what connects."""
    if ":" in text:
        groups = parse_v6(text)
        if groups is None:
            return None
        if tuple(groups[:6]) == CARRIERS_OF_V4[0][0]:
            return format_v4(groups[6] << 16 | groups[7])
        return format_v6(groups)
    number = parse_v4(text) if looks_like_v4(text) else None
    return None if number is None else format_v4(number)


def is_localhost(host: str) -> bool:
    """True for the name of this machine itself, in small letters and without a final dot, and names below it
    (RFC 6761, 6.3).
    """
    return host == "localhost" or host.endswith(".localhost")


def is_special_address(text: str) -> str | None:
    """The name of the special range that an address lies in ("loopback", "private", "link-local" ...), or None for a
    public one: what IANA's registries call globally reachable, AS112 (192.31.196.0/24, 192.175.48.0/24) and AMT
    (192.52.193.0/24) included.

    For checks against rebinding: an allowed name must not lead there. IPv4 inside IPv6 (mapped, translated, NAT64) is
    judged by the IPv4 address. Text that is no address gives "not an address", so that a caller who only tests for None
    fails closed.
    """
    address = canonical_address(text) if type(text) is str else None
    if address is None:
        return "not an address"
    if ":" not in address:
        return _special_v4(parse_v4(address) or 0)
    groups = parse_v6(address) or [0] * 8
    if groups == [0] * 8:
        return "unspecified"
    if groups == [0] * 7 + [1]:
        return "loopback"
    for prefix, kind in CARRIERS_OF_V4:
        if tuple(groups[:6]) == prefix:
            inner = _special_v4(groups[6] << 16 | groups[7])
            return f"{inner} ({kind} IPv4)" if inner else "IPv4-compatible" if kind == "compatible" else None
    if groups[4] & 0xFDFF == 0 and groups[5] == 0x5EFE:  # ISATAP, RFC 5214
        return "ISATAP tunnel"
    number = int("".join(f"{group:04x}" for group in groups), 16)
    for start, bits, kind in SPECIAL_V6:
        prefix_number = int("".join(f"{group:04x}" for group in (*start, *(0,) * (8 - len(start)))), 16)
        if number >> (128 - bits) == prefix_number >> (128 - bits):
            return kind
    return None if number >> 125 == _GLOBAL_UNICAST else "reserved"


def _special_v4(number: int) -> str | None:
    for start, bits, kind in SPECIAL_V4:
        if number >> (32 - bits) == start >> (32 - bits):
            return kind
    return None
