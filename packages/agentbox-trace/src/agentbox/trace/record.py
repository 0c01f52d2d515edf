"""One entry of a trace: its names, and how a raw line becomes an `Entry` again.

It must never touch a file, and never decide whether a chain holds.
"""

from __future__ import annotations

from .chain import MAX_LINE, split_prefix
from .errors import TraceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = "agentbox-trace/1"
KINDS = ("meta", "effect", "observe", "deny")
FIXED = ("prev", "seq", "ts", "kind", "op", "lane", "pid", "src", "args", "result")
RESERVED = frozenset((*FIXED, "sha"))


class Entry:
    """One line of a trace. `raw` is the line with its LF; `extra` holds every member that has no attribute of its
    own (of a denial: `rule`, `reason`, `fix`, `enforced`); `result` is None where the line has none; `ts` is in Unix
    seconds."""

    __slots__ = ("args", "extra", "kind", "lane", "op", "pid", "prev", "raw", "result", "seq", "src", "ts")

    def __init__(self, raw: bytes, doc: dict[str, Any]) -> None:
        self.raw = raw
        self.prev: str = doc["prev"]
        self.seq: int = doc["seq"]
        self.ts: float = doc["ts"]
        self.kind: str = doc["kind"]
        self.op: str = doc["op"]
        self.lane: str = doc["lane"]
        self.pid: int = doc["pid"]
        self.src: str = doc["src"]
        self.args: dict[str, Any] = doc["args"]
        self.result: Any = doc.get("result")
        self.extra: dict[str, Any] = {name: value for name, value in doc.items() if name not in FIXED}

    def __repr__(self) -> str:
        return f"<Entry {self.seq} {self.kind} {self.op} {self.args!r}>"


_TYPES: dict[str, tuple[type, ...]] = {
    "ts": (float, int),
    "kind": (str,),
    "op": (str,),
    "lane": (str,),
    "pid": (int,),
    "src": (str,),
    "args": (dict,),
}
_NAMES = {float: "a number", str: "a string", int: "an integer", dict: "an object"}


def parse(raw: bytes, number: int, place: str) -> Entry:
    """Return the `Entry` of one raw line.

    `number` is the line's number from 1 and `place` the file's name, both for the message. Raises `TraceError`
    (`not-a-trace` for a line without the prefix, `malformed`, or `torn` for a line without its LF) that says what was
    expected. The chain is not checked here: that is `verify`.
    """
    where = f"{place}: line {number}"
    if not raw.endswith(b"\n"):
        raise TraceError(
            f"{where}: is cut off after {len(raw)} bytes, expected a whole line",
            code="torn",
            hint="the writer was killed or the disk was full; the lines before it can be read",
        )
    head = split_prefix(raw)
    if head is None:
        raise TraceError(
            f'{where}: begins with {sample(raw)}, expected {{"prev":"<64 hex>","seq":N,',
            code="not-a-trace",
            hint="was this file written by agentbox?",
        )
    if not raw.isascii() or not raw[:-1].decode("ascii").isprintable():  # it may go to a terminal as it is
        raise _malformed(f"{where}: holds {sample(_unprintable(raw))}, expected printable ASCII")
    doc = _loads(raw, where)
    for name, types in _TYPES.items():
        value = doc.get(name)
        if not isinstance(value, types) or isinstance(value, bool):
            got = "nothing" if name not in doc else f"{sample(repr(value).encode('utf-8', 'replace'))}"
            raise _malformed(f"{where}: `{name}` is {got}, expected {_NAMES[types[0]]}")
    if doc["kind"] not in KINDS:
        raise _malformed(f"{where}: `kind` is {doc['kind']!a}, expected one of {', '.join(KINDS)}")
    if (doc["prev"], doc["seq"]) != head[:2]:
        raise _malformed(f"{where}: holds `prev` or `seq` twice, expected each once")
    at = raw.find(b',"kind":"', head[2])
    if not raw.startswith(f',"kind":"{doc["kind"]}","op":"{doc["op"]}",'.encode("ascii", "replace"), at):
        raise _malformed(f"{where}: `kind` or `op` is not what follows `ts`, expected each once")
    return Entry(raw, doc)


def _unprintable(raw: bytes) -> bytes:
    """A line from its first byte on that is no printable ASCII."""
    return raw.lstrip(bytes(range(0x20, 0x7F)))


def _loads(raw: bytes, where: str) -> dict[str, Any]:
    import json

    try:
        doc = json.loads(raw)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).lower()
        raise _malformed(f"{where}: is not valid JSON: {reason}") from None
    if not isinstance(doc, dict):
        raise _malformed(f"{where}: is not a JSON object")
    return doc


def _malformed(text: str) -> TraceError:
    """The error for a line that begins like one of a trace and is no entry (docs/spec/trace.md, section 7)."""
    return TraceError(
        text,
        code="malformed",
        hint="`agentbox verify` tells whether it was changed; a line that was not was written so, and not by agentbox",
    )


def sample(raw: bytes, limit: int = 40) -> str:
    """Return the first bytes of anything as a short printable quotation."""
    text = ascii(raw[:limit].decode("latin-1"))
    return text if len(raw) <= limit else f"{text[:-1]}...'"


def too_long(where: str, size: int) -> TraceError:
    """The error for a line over the limit of the format."""
    return TraceError(
        f"{where}: is {size} bytes long, expected at most {MAX_LINE}",
        code="too-long",
        hint="give large contents to `body`, which stores them beside the trace",
    )
