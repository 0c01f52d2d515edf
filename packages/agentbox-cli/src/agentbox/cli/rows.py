"""One trace entry as a row of `agentbox show`: number, time, kind, operation, what it is about, how it ended.

Never trusts what an entry holds: types are checked before use, and every text that came from the agent is escaped.
"""

from __future__ import annotations

import os
import signal
import time

from agentbox.cli import output
from agentbox.replay.describe import target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.trace import Entry

COLOURS = {"effect": output.GREEN, "observe": "", "deny": output.RED, "meta": output.DIM}


class Rows:
    """Makes rows; remembers the run's working directory, below which paths are shown relative."""

    __slots__ = ("_colour", "_cwd")

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour
        self._cwd = ""

    def note(self, entry: Entry) -> None:
        """Learn what later rows need; to be called for every entry, shown or not."""
        if entry.op == "run.start":
            self._cwd = str(entry.args.get("cwd", "")).rstrip("/") + "/"

    def row(self, entry: Entry) -> str:
        """The row of `entry`: one line, and for a denial a second one with the rule that would allow it."""
        cells = [f"{entry.seq:>5}", _clock(entry.ts), f"{entry.kind:<7}", f"{output.escape(entry.op):<15}"]
        cells += [output.escape(cell) for cell in (self._about(entry), _outcome(entry)) if cell]
        text = "  ".join(cells)
        if self._colour and COLOURS[entry.kind]:
            text = output.paint(text, COLOURS[entry.kind])
        fix = entry.extra.get("fix")
        if entry.kind == "deny" and fix:
            text += f"\n{'':>45}  to allow it: {output.escape(str(fix))}"
        return text.rstrip()

    def _about(self, entry: Entry) -> str:
        try:
            text = _ABOUT.get(entry.op, _target)(entry.op, entry.args)
        except (AttributeError, KeyError, TypeError, ValueError):
            text = str(entry.args)  # not as the specification says, so as it is
        return f" {text}".replace(f" {self._cwd}", " ")[1:] if len(self._cwd) > 1 else text


def _clock(ts: float) -> str:
    """The local time of day, to the millisecond."""
    try:
        moment = time.localtime(ts)
    except (OverflowError, ValueError, OSError):
        return f"{ts!s:.12}".ljust(12)
    return f"{time.strftime('%H:%M:%S', moment)}.{int(ts % 1 * 1000):03d}"


def _outcome(entry: Entry) -> str:
    """How it ended, after the target: the result of an effect, the size of what was read, the reason of a denial."""
    if entry.kind == "deny":
        word = "would be denied" if entry.extra.get("enforced") is False else "denied"
        return f"{word}: {entry.extra.get('reason') or 'no rule allows it'}"
    if entry.kind == "meta":
        return ""
    if entry.kind == "observe" and entry.op in _FACTS:
        parts = _FACTS[entry.op](entry.args)
    else:
        parts = _result(entry.result if isinstance(entry.result, dict) else entry.args)
    return "= " + ", ".join(parts) if parts else ""


def _result(facts: dict[str, Any]) -> list[str]:
    error = facts.get("error")
    if isinstance(error, dict):
        return [f"error: {error.get('text', '')}"]
    parts = [str(facts[name]) for name in ("status", "value", "id") if isinstance(facts.get(name), int | float | str)]
    if facts.get("absent") is True:
        parts.append("not there")
    body = facts.get("body", facts.get("stdout"))
    size = body.get("size") if isinstance(body, dict) else facts.get("size")
    if isinstance(size, int):
        parts.append(f"{size} bytes")
    return parts


def _before(facts: dict[str, Any]) -> list[str]:
    """Of a file opened for writing: what was there."""
    if facts.get("absent") is True:
        return ["new"]
    return [f"over {facts['size']} bytes"] if isinstance(facts.get("size"), int) else []


def _carried(facts: dict[str, Any]) -> list[str]:
    """Of a connection that has ended: its bytes, where the kernel has told them."""
    counts = [(name, facts.get(name)) for name in ("sent", "received")]
    if all(isinstance(count, int) for _, count in counts):
        return [f"{count} bytes {name}" for name, count in counts]
    return ["bytes unknown"]


_FACTS = {"fs.write": _before, "net.close": _carried}
"""Observations whose end is told by other members than those that all others have."""


def _target(op: str, args: dict[str, Any]) -> str:
    if _NAMES.isdisjoint(args):
        return ", ".join(f"{name} {value}" for name, value in args.items())
    return target(op, args)


def _exec(op: str, args: dict[str, Any]) -> str:
    """The command, and which file it was where the name, which its starter chooses, is not that file's."""
    file, argv = args.get("file"), args.get("argv")
    if not isinstance(file, str) or not isinstance(argv, list):
        return _target(op, args)
    command = target(op, args)
    same = bool(argv) and _without_version(str(argv[0])) == _without_version(file)
    return command if same else f"{file} as {command or 'nothing'}"


def _without_version(path: str) -> str:
    """The last name, `python` of `python3.12`: versions are where links lead."""
    return os.path.basename(path).rstrip("0123456789.-")


def _load(op: str, args: dict[str, Any]) -> str:
    return str(args["path"] if "path" in args else args["name"])


def _checkpoint(op: str, args: dict[str, Any]) -> str:
    return str(args["tool"])


def _signal(op: str, args: dict[str, Any]) -> str:
    number = args["target"]
    whom = f"process {number}" if number > 0 else f"process group {-number}" if number else "its process group"
    return f"signal {args['signal']} to {whom}"


def _process(op: str, args: dict[str, Any]) -> str:
    parent = "" if args["parent"] is None else f", started by process {args['parent']}"
    return f"process {args['process']}: {args['runtime']} {args['version']}{parent}"


def _begin(op: str, args: dict[str, Any]) -> str:
    return f"{args['op']} {_target(args['op'], args['args'])}".rstrip()


def _broken(op: str, args: dict[str, Any]) -> str:
    return f"the process was ended: {args['reason']}"


def _claim(op: str, args: dict[str, Any]) -> str:
    return f"{_begin(op, args)}  (the guard's word alone: the kernel showed no such act)"


def _start(op: str, args: dict[str, Any]) -> str:
    """The command, and the layers where not all of them were live."""
    from agentbox.guard.report import layers

    command = _target(op, args)
    live, platform = args.get("layers"), args.get("platform")
    if not isinstance(live, list) or not str(platform).startswith("Linux "):
        return command
    missing = layers([str(name) for name in live])
    return f"{command}, {missing}" if missing else command


def _end(op: str, args: dict[str, Any]) -> str:
    failure = f", {args['failure']}" if args.get("failure") else ""
    return f"exit status {args['status']}{_ended_by(args.get('signal'))}, {args['duration']:.3f} s{failure}"


def _ended_by(number: Any) -> str:
    if not isinstance(number, int) or not number:
        return ""
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:  # a real-time signal, or one of another system
        return f" (signal {number})"


def _state(op: str, args: dict[str, Any]) -> str:
    """What a file holds at the end: the beginning of its hash, or the words that stand for it."""
    if args.get("cut"):
        return f"more than {args['most']} files were written, the others are not listed"
    held = str(args["sha256"])
    return f"{args['path']}  = {f'sha256 {held[:_SHORT]}…' if len(held) == 64 else held}"


def _call(op: str, args: dict[str, Any]) -> str:
    return f"{args['name']}: the kernel is said to lack it" if args.get("absent") else _target(op, args)


_SHORT = 12
"""Digits of a hash that tell files apart in a table; the trace has all of them."""
_NAMES = frozenset(("url", "argv", "path", "host", "address"))
"""Members that say alone what an operation is about."""
_ABOUT = {
    "process.start": _process,
    "effect.begin": _begin,
    "guard.claim": _claim,
    "channel.broken": _broken,
    "proc.exec": _exec,
    "run.start": _start,
    "run.end": _end,
    "fs.state": _state,
    "code.load": _load,
    "proc.signal": _signal,
    "sys.call": _call,
    "hook.checkpoint": _checkpoint,
}
"""Operations whose members say more than the target that all others have."""
