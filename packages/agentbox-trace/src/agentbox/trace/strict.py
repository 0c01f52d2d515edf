"""JSON as a verifier reads line 0 and the seal: strictly, so that every parser comes to the same members.

It must never take a text that another parser may refuse or read in another way (docs/spec/trace.md, section 7).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DEEPEST = 100
_MOST_DIGITS = 19


def strict_object(raw: bytes) -> dict[str, Any] | None:
    """Return the object that a line holds, or None where it holds none: no valid JSON, a member twice, `NaN` and its
    like, or nested deeper than 100. A number of more than 19 digits comes back as None."""
    from json import loads

    try:
        doc = loads(raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=_refuse, parse_int=_integer)
    except (ValueError, RecursionError):
        return None
    return doc if isinstance(doc, dict) and _is_flat(doc, _DEEPEST) else None


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a member occurs twice")
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= _MOST_DIGITS else None


def _is_flat(value: object, levels: int) -> bool:
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return levels > 0 and all(_is_flat(item, levels - 1) for item in items)
    return True
