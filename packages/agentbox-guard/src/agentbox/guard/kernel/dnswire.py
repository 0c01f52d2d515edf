"""DNS messages as far as a stub needs them: one question in, one answer out (RFC 1035, 6891, 8914).

It trusts no byte: every length is checked, compression in a question is refused, and a name that is no plain host name
is shown but never passed on.
"""

from __future__ import annotations

HEADER = 12
A, PTR, AAAA, OPT = 1, 12, 28, 41
"""Record types, RFC 1035, 3596 and 6891."""
INTERNET = 1
"""The class IN."""
NO_ERROR, FORMAT_ERROR, SERVER_FAILURE, NO_SUCH_NAME, NOT_IMPLEMENTED, REFUSED = range(6)
"""Response codes, RFC 1035, section 4.1.1."""
PROHIBITED = 18
"""Extended error of RFC 8914: the client may not ask this."""
SMALLEST_EDNS, LONGEST = 512, 4096
"""What a UDP answer may have without EDNS, and the most that is taken or sent."""

_LONGEST_NAME = 255
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_RESPONSE, _TRUNCATED, _RECURSION_WANTED, _RECURSION_GIVEN = 0x8000, 0x0200, 0x0100, 0x0080
_OPCODE, _CHECKING_DISABLED = 0x7800, 0x0010


class Malformed(Exception):
    """A message that cannot be read; `reply` is what to answer, b"" for nothing."""

    def __init__(self, text: str, reply: bytes = b"") -> None:
        super().__init__(text)
        self.reply = reply


class Question:
    """A query: `name` in lower case without the final dot ("" for the root and for what is no plain host name), `shown`
    for a reader, `kind` and `space` (the class), and whether it speaks EDNS.
    """

    __slots__ = ("edns", "flags", "ident", "kind", "name", "raw", "shown", "space")

    def __init__(self, ident: bytes, flags: int, raw: bytes, labels: list[bytes], kind: int, space: int) -> None:
        self.ident = ident
        self.flags = flags
        self.raw = raw
        self.kind = kind
        self.space = space
        self.edns = False
        plain = all(label and set(label) <= _PLAIN for label in labels)
        self.name = b".".join(labels).decode("ascii").lower() if plain else ""
        self.shown = self.name if plain else ".".join(_escaped(label) for label in labels)


def parse(data: bytes) -> Question:
    """Read a query. Raises `Malformed`, with a reply where the sender can be told."""
    if len(data) < HEADER:
        raise Malformed("shorter than a header")
    flags = int.from_bytes(data[2:4], "big")
    if flags & _RESPONSE:
        raise Malformed("an answer, not a query")  # answering it could start a loop
    counts = [int.from_bytes(data[at : at + 2], "big") for at in (4, 6, 8, 10)]
    if flags & _OPCODE:
        raise Malformed("not a standard query", _bare(data, flags, NOT_IMPLEMENTED))
    if len(data) > LONGEST or counts[:3] != [1, 0, 0]:
        raise Malformed("not one question alone", _bare(data, flags, FORMAT_ERROR))
    labels, at = _labels(data, flags)
    if len(data) < at + 4:
        raise Malformed("the question is cut", _bare(data, flags, FORMAT_ERROR))
    kind, space = int.from_bytes(data[at : at + 2], "big"), int.from_bytes(data[at + 2 : at + 4], "big")
    question = Question(data[:2], flags, data[HEADER : at + 4], labels, kind, space)
    # The pseudo record of EDNS belongs to the root and comes first in practice; anything else there is passed over.
    question.edns = counts[3] > 0 and data[at + 4 : at + 7] == b"\0" + OPT.to_bytes(2, "big")
    return question


def reply(
    question: Question, code: int, answers: tuple[tuple[int, bytes], ...] = (), *, ttl: int = 0, why: str = ""
) -> bytes:
    """An answer: records of (type, data) for the question's own name, and for those who speak EDNS why it was refused.

    It stays within what UDP carries without EDNS, as there is never more than one address and a short text.
    """
    body = question.raw
    for kind, data in answers:
        body += b"\xc0\x0c" + _numbers(kind, INTERNET) + ttl.to_bytes(4, "big") + _numbers(len(data)) + data
    if question.edns:
        option = b""
        if why:
            text = why.encode("utf-8")[:120]
            option = _numbers(15, 2 + len(text), PROHIBITED) + text
        body += b"\0" + _numbers(OPT, LONGEST) + bytes(4) + _numbers(len(option)) + option
    flags = _answered(question.flags, code)
    return question.ident + _numbers(flags, 1, len(answers), 0, int(question.edns)) + body


def encode_name(name: str) -> bytes:
    """A plain host name as labels."""
    return b"".join(bytes((len(label),)) + label.encode("ascii") for label in name.split(".") if label) + b"\0"


def reverse_address(name: str) -> str:
    """The IPv4 or IPv6 address that a name below in-addr.arpa or ip6.arpa stands for, "" for any other name."""
    labels = name.split(".")
    if labels[-2:] == ["in-addr", "arpa"] and len(labels) == 6:
        parts = labels[3::-1]
        return ".".join(parts) if all(part.isdigit() and len(part) <= 3 and int(part) < 256 for part in parts) else ""
    if labels[-2:] == ["ip6", "arpa"] and len(labels) == 34 and all(len(label) == 1 for label in labels[:32]):
        digits = "".join(labels[31::-1])
        return ":".join(digits[at : at + 4] for at in range(0, 32, 4)) if set(digits) <= set("0123456789abcdef") else ""
    return ""


def _labels(data: bytes, flags: int) -> tuple[list[bytes], int]:
    """The labels of the question's name and the index after them."""
    labels: list[bytes] = []
    at = HEADER
    while True:
        if at >= len(data):
            raise Malformed("the name is cut", _bare(data, flags, FORMAT_ERROR))
        length = data[at]
        at += 1
        if length == 0:
            return labels, at
        if length > 63 or at + length > len(data) or at + length - HEADER >= _LONGEST_NAME:
            raise Malformed("a label that cannot be", _bare(data, flags, FORMAT_ERROR))
        labels.append(data[at : at + length])
        at += length


def _bare(data: bytes, flags: int, code: int) -> bytes:
    """A header that says what is wrong, without the question that could not be read."""
    return data[:2] + _numbers(_answered(flags, code), 0, 0, 0, 0)


def _answered(flags: int, code: int) -> int:
    kept = flags & (_OPCODE | _RECURSION_WANTED | _CHECKING_DISABLED)
    return _RESPONSE | _RECURSION_GIVEN | kept | code


def _numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(2, "big") for value in values)


def _escaped(label: bytes) -> str:
    """A label as master files write it (RFC 1035, section 5.1)."""
    return "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03d}" for byte in label)
