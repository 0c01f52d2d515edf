"""How a step is shown to a reader: one line, a JSON object, and the diff of two steps' arguments.

It never shortens what is compared, only what is shown, and lets no control character through to a terminal.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import shlex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_DIFF_LINES = 16
_LINE_WIDTH = 160
_AROUND = 40  # characters of a long line that are shown before those which differ
_COMPARED = 2000  # characters of a step's arguments that its likeness to another is judged by
_SHORTLIST = 8
_DOERS = {"effect": "SDK", "deny": "denied", "let-pass": "let pass"}


class StepView:
    """A step for the reader: its `number` (from 1; 0 for a live one) and what it is; args hold JSON values only."""

    __slots__ = ("args", "kind", "lane", "number", "op", "seq", "site")

    def __init__(
        self,
        kind: str,
        op: str,
        args: dict[str, Any],
        *,
        number: int = 0,
        seq: int = -1,
        lane: str = "",
        site: str = "",
    ) -> None:
        self.kind = kind
        self.op = op
        self.args = {name: readable(value) for name, value in args.items()}
        self.number = number
        self.seq = seq
        self.lane = lane
        self.site = site

    def as_json(self) -> dict[str, Any]:
        """The view as a JSON object; `step` and `seq` only for a recorded one."""
        facts: dict[str, Any] = {"step": self.number, "seq": self.seq} if self.number else {}
        return {**facts, "kind": self.kind, "op": self.op, "args": self.args, "lane": self.lane}


def readable(value: object) -> object:
    """A value as JSON; bytes become their text or, when they are not UTF-8, their size and hash."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"<{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()}>"
    if isinstance(value, dict):
        return {str(name): readable(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [readable(inner) for inner in value]
    return value


def describe(view: StepView) -> str:
    """A step in one line: the op, what it is about, and whether the SDK or the agent itself did it."""
    return f"{view.op} {target(view.op, view.args)}".rstrip() + f" ({_DOERS.get(view.kind, 'direct')})"


def target(op: str, args: dict[str, Any]) -> str:
    """What a step is about: its path, URL, command or address; empty when it has none."""
    if "url" in args:
        return f"{args.get('method', 'GET')} {args['url']}"
    if isinstance(args.get("argv"), list):
        return shlex.join(str(word) for word in args["argv"])
    if "path" in args:
        return f"{args['path']} -> {args['to']}" if "to" in args else str(args["path"])
    if "host" in args or "address" in args:
        host = args.get("host") or args.get("address")
        return f"{host}:{args['port']}" if args.get("port") else str(host)
    return _compact(args) if args else ""


def likeness(one: StepView, other: StepView) -> float:
    """How alike two steps are, 0 to 1; the op counts more than any argument."""
    ratio = difflib.SequenceMatcher(
        None, _compact(one.args)[:_COMPARED], _compact(other.args)[:_COMPARED], False
    ).ratio()
    return ratio + (1.0 if one.op == other.op else 0.0) + (0.5 if one.kind == other.kind else 0.0)


def nearest(live: StepView, candidates: Iterable[StepView], count: int) -> list[StepView]:
    """The `count` candidates that are most like `live`, best first; only steps with its op, unless there is none."""
    pool = list(candidates)
    pool = [view for view in pool if view.op == live.op] or pool
    matcher = difflib.SequenceMatcher(None, "", _compact(live.args)[:_COMPARED], False)

    def quick(view: StepView) -> float:
        matcher.set_seq1(_compact(view.args)[:_COMPARED])
        return matcher.quick_ratio() + (1.0 if view.kind == live.kind else 0.0)

    shortlist = sorted(pool, key=quick, reverse=True)[:_SHORTLIST]
    return sorted(shortlist, key=lambda view: likeness(live, view), reverse=True)[:count]


def diff(recorded: object, now: object) -> list[str]:
    """The difference of two values as `-` and `+` lines with context, at most a screenful; empty if they are equal.

    Texts that hold the same JSON and are spelled in two ways differ, since a server gets their bytes: a first line says
    in what.
    """
    changed = _changes(_lines(recorded), _lines(now))
    if not changed and recorded != now:
        changed = _changes(_lines(recorded, in_order=True), _lines(now, in_order=True))
        if changed:
            changed.insert(0, "the values are equal, the order of the keys differs:")
        else:
            spelled = [json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) for value in (recorded, now)]
            changed = _changes(*(text.splitlines() for text in spelled))
            changed.insert(0, "the values are equal, the bytes differ (blanks, escapes or numbers):")
    if len(changed) > _DIFF_LINES:
        changed = [*changed[:_DIFF_LINES], f"... {len(changed) - _DIFF_LINES} more lines"]
    return changed


def _changes(recorded: list[str], now: list[str]) -> list[str]:
    """A unified diff without its headers, each line short enough to show."""
    found = difflib.unified_diff(recorded, now, lineterm="", n=1)
    lines = [line for line in found if not line.startswith(("---", "+++", "@@"))]
    removed = [line for line in lines if line.startswith("-")]
    added = [line for line in lines if line.startswith("+")]
    if len(removed) == len(added):
        for one, other in zip(removed, added, strict=True):
            place = _first_difference(one[1:], other[1:])
            if place >= _LINE_WIDTH - _AROUND:
                lines[lines.index(one)] = _window(one, place)
                lines[lines.index(other)] = _window(other, place)
    return [line[:_LINE_WIDTH] for line in lines]


def _first_difference(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _window(line: str, place: int) -> str:
    """The part of a long line from shortly before the character in which it differs from its counterpart."""
    return f"{line[0]}… {line[1:][place - _AROUND // 2 :]}"


def escape(text: str) -> str:
    r"""`text` with what could drive a terminal (control, direction and line characters) written as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode("ascii")
        for char in text
    )


def _lines(value: object, *, in_order: bool = False) -> list[str]:
    return json.dumps(_open(value), indent=1, sort_keys=not in_order, ensure_ascii=False).splitlines()


def _open(value: object) -> object:
    """Texts that hold JSON, or several lines, taken apart: a diff of one long line helps nobody."""
    if isinstance(value, dict):
        return {name: _open(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_open(inner) for inner in value]
    if isinstance(value, str) and value[:1] in "{[" and value:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass
    if isinstance(value, str) and "\n" in value:
        return value.split("\n")
    return value


def _compact(args: dict[str, Any]) -> str:
    return json.dumps(args, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
