"""The hash chain of `agentbox-trace/1`: the prefix of every line, the hash of a line, and the seal's own hash.

It works on raw bytes and must never parse JSON, so that what it accepts does not depend on any parser
(docs/spec/trace.md, sections 2 and 3).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ZERO = "0" * 64
"""The `prev` of line 0."""

MAX_LINE = 64 * 1024 * 1024
"""The longest line in bytes, its LF included (docs/spec/trace.md, section 1)."""

PREFIX = b'{"prev":"'
PREV_END = 73  # len(PREFIX) + 64
SEQ = b'","seq":'
SEQ_START = 81  # PREV_END + len(SEQ)
SHA = b',"sha":"'
SEAL_TAIL = 75  # len(SHA) + 64 + len('"}\n')
SEAL_MARK = b',"kind":"meta","op":"run.end",'
START = PREFIX + ZERO.encode() + SEQ + b"0,"
HEX = frozenset(b"0123456789abcdef")


def quick_sha256() -> Callable[[bytes], Any]:
    """SHA-256 by the C module alone, whose name changed in 3.12: it takes twice as long for a line as `hashlib`, which
    takes 3 ms to load."""
    try:
        from _sha2 import sha256  # type: ignore[import-not-found]
    except ImportError:
        from _sha256 import sha256  # type: ignore[import-not-found]
    found: Callable[[bytes], Any] = sha256
    return found


def line_hash(raw: bytes) -> str:
    """Return the SHA-256 of a raw line, its LF included, as 64 hex digits."""
    from hashlib import sha256

    return sha256(raw).hexdigest()


def is_hash(text: object) -> bool:
    """Say whether `text` is 64 lower-case hex digits."""
    return isinstance(text, str) and len(text) == 64 and text.isascii() and HEX.issuperset(text.encode())


def split_prefix(raw: bytes) -> tuple[str, int, int] | None:
    """Read `{"prev":"<64 hex>","seq":N,` off the front: (prev, seq, offset after the comma), or None where it is not
    there."""
    if not raw.startswith(PREFIX) or raw[PREV_END:SEQ_START] != SEQ or not HEX.issuperset(raw[9:PREV_END]):
        return None
    end = raw.find(b",", SEQ_START, SEQ_START + 20)
    digits = raw[SEQ_START:end]
    if end < 0 or not digits.isdigit() or (digits[:1] == b"0" and len(digits) > 1):
        return None
    return raw[9:PREV_END].decode("ascii"), int(digits), end + 1


def is_seal(raw: bytes) -> bool:
    """Say whether a line is a `run.end`, by its bytes: the fixed members before `op` hold no nested object."""
    parts = split_prefix(raw)
    if parts is None:
        return False
    kind = raw.find(b',"kind":"', parts[2])
    return kind >= 0 and raw.startswith(SEAL_MARK, kind)


def seal_sha(body: bytes) -> bytes:
    """Return the fixed-width end of a seal, `,"sha":"<64 hex>"}` and LF, over `body`: all its bytes before that
    member (section 5)."""
    digest: str = quick_sha256()(body).hexdigest()
    return SHA + digest.encode("ascii") + b'"}\n'


def seal_holds(raw: bytes) -> bool:
    """Say whether a seal line carries the right hash of its own bytes."""
    return len(raw) > SEAL_TAIL and raw[-SEAL_TAIL:] == seal_sha(raw[:-SEAL_TAIL])


def ends_like_seal(raw: bytes) -> bool:
    """Say whether a line ends as only a seal does, `,"sha":"<64 hex>"}` and LF: whatever else of it was changed."""
    tail = raw[-SEAL_TAIL:]
    return (
        tail.startswith(SHA)
        and tail.endswith(b'"}\n')
        and HEX.issuperset(tail[len(SHA) : -3])
        and len(tail) == SEAL_TAIL
    )
