"""The arguments of programs as entries have them: the first of them, and of a long list its length and its hash.

It cuts what is recorded only: rules decide on all arguments, and a program gets all of them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MOST_WORDS = 64
MOST_BYTES = 8192


def recorded(args: dict[str, Any]) -> dict[str, Any]:
    """`args` of `proc.exec` with `argv` cut to `MOST_WORDS` words and `MOST_BYTES` bytes, where it is longer.

    Then `cut` is true, `argc` the number of words, and `argv_sha256` the hash of all of them, each ended by a NUL byte.
    """
    argv = args.get("argv")
    if not isinstance(argv, list) or "cut" in args:
        return args
    kept = _first(argv)
    if kept is argv:
        return args
    return {**args, "argv": kept, "cut": True, "argc": len(argv), "argv_sha256": _hash(argv)}


def _first(argv: list[Any]) -> list[Any]:
    """The words that are kept, the last one shortened; the very list when it is short enough."""
    left, kept = MOST_BYTES, []
    for word in argv[:MOST_WORDS]:
        size = len(_bytes(word))
        if size > left:
            kept.append(_bytes(word)[:left].decode("utf-8", "ignore"))
            return kept
        left -= size
        kept.append(word)
    return argv if len(argv) <= MOST_WORDS else kept


def _hash(argv: Sequence[Any]) -> str:
    import hashlib

    found = hashlib.sha256()
    for word in argv:
        found.update(_bytes(word) + b"\0")
    return found.hexdigest()


def _bytes(word: Any) -> bytes:
    return str(word).encode("utf-8", "surrogateescape")
