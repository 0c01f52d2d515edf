"""The supervisor's end of docs/spec/channel.md: lines taken apart and checked, answers put together. It decides
nothing.

Everything that comes in is hostile until it has passed `parse`: a line that is not exactly as the spec says raises
`ProtocolError`.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

from agentbox.guard.errors import ProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Never

VERSION = 1
ONE_WAY_LIMIT = 32 * 1024
LINE_LIMIT = 64 * 1024 * 1024
"""Longest `event`, `deny`, `armed` and longest `ask`, `call`, in bytes (spec, Transport 4)."""
DEPTH_LIMIT = 64
"""Objects and lists within each other in one line (spec, Transport 4)."""

ANNOUNCED = frozenset({
    "fs.read", "fs.write", "fs.list", "fs.mkdir", "fs.rmdir", "fs.remove", "fs.truncate", "fs.chmod", "fs.chown",
    "fs.utime", "fs.xattr", "fs.mknod", "fs.rename", "fs.link", "fs.symlink", "code.load",
})  # fmt: skip
"""Operations that a guard decides itself. All others are asked, so an announcement of one is a forgery."""
WRITES = ANNOUNCED - {"fs.read", "fs.list", "code.load"}

_REFUSED = ("fs.", "net.", "proc.", "code.")
"""How the operations begin that a guard may refuse: none of those by which a trace speaks of itself."""

_TEXT, _NUMBER, _FLAG, _MAP = (str,), (int,), (bool,), (dict,)
_MAYBE_TEXT = (str, type(None))
_MEMBERS: dict[str, dict[str, tuple[type, ...]]] = {
    "hello": {"v": _NUMBER, "role": _TEXT, "runtime": _TEXT, "version": _TEXT},
    "armed": {},
    "event": {"op": _TEXT, "args": _MAP, "thread": _NUMBER},
    "deny": {
        "op": _TEXT, "args": _MAP, "key": _TEXT, "target": _TEXT, "reason": _TEXT, "rule": _MAYBE_TEXT,
        "fix": _MAYBE_TEXT, "enforced": _FLAG, "thread": _NUMBER,
    },
    "ask": {"id": _NUMBER, "op": _TEXT, "args": _MAP, "thread": _NUMBER},
    "call": {"id": _NUMBER, "op": _TEXT, "args": _MAP, "thread": _NUMBER},
}  # fmt: skip
"""The members that each line must have, with the types that it may be of."""
_OPTIONAL: dict[str, tuple[type, ...]] = {
    "site": _TEXT, "thread": _NUMBER, "task": (int, type(None)), "resume": _FLAG, "full": _FLAG, "ppid": _NUMBER,
    "executable": _TEXT,
}  # fmt: skip


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _refuse_type(value: object) -> Never:
    raise TypeError(f"{type(value).__name__} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise ValueError(f"{text[:20]} is too large a number")
    return value


class _Context:
    """What the C scanner of the `json` package reads its options from (CPython Lib/json/decoder.py, 3.11 to 3.14)."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = staticmethod(_finite)
    parse_int = int
    parse_constant = staticmethod(_refuse_constant)
    memo: ClassVar[dict[str, str]] = {}


# The C halves of `json` alone: the package around them loads `re`, and an agent that starts would wait for that.
_scan = make_scanner(_Context())  # type: ignore[arg-type]
_pieces = make_encoder(None, _refuse_type, encode_basestring_ascii, None, ":", ",", False, False, False)


def parse(line: bytes) -> dict[str, Any]:
    """One line, its LF taken off, as a checked object. Raises `ProtocolError`."""
    try:
        text = line.decode("utf-8")
        found, end = _scan(text, 0)
        if end != len(text):
            raise ValueError("something follows it")
        if line.count(b"{") + line.count(b"[") > DEPTH_LIMIT:
            _check_depth(found)
    except (ValueError, RecursionError, StopIteration) as error:
        raise ProtocolError(f"channel: got {_shown(line)}, expected a JSON object: {error}") from None
    kind = found.get("t") if type(found) is dict else None
    members = _MEMBERS.get(kind) if type(kind) is str else None
    if type(kind) is not str or members is None:
        raise ProtocolError(f"channel: got {_shown(line)}, expected a line of a known type")
    for name, types in members.items():
        if type(found.get(name, _MAP)) not in types:
            raise ProtocolError(f"channel: {kind}.{name}: got {_shown(line)}, expected {types[0].__name__}")
    for name, types in _OPTIONAL.items():
        if name in found and type(found[name]) not in types:
            raise ProtocolError(f"channel: {kind}.{name}: got {_shown(line)}, expected {types[0].__name__}")
    if len(line) >= ONE_WAY_LIMIT and kind not in ("ask", "call"):
        raise ProtocolError(f"channel: {kind}: got a line of {len(line)} bytes, expected at most {ONE_WAY_LIMIT}")
    _check_names(found, kind)
    return dict(found)


def _check_depth(found: Any) -> None:
    """Raise `ValueError` for what is nested deeper than `DEPTH_LIMIT`: whoever walks it later would run out of
    stack.
    """
    level = [found]
    for _ in range(DEPTH_LIMIT):
        level = [
            inner
            for value in level
            for inner in (value.values() if type(value) is dict else value)
            if type(inner) in (dict, list)
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {DEPTH_LIMIT} deep")


def _check_names(found: dict[str, Any], kind: str) -> None:
    if kind == "hello":
        if found["v"] != VERSION:
            raise ProtocolError(
                f"channel: hello: got version {found['v']}, expected {VERSION}", "agentbox is installed twice?"
            )
        if found["role"] not in ("guard", "sdk"):
            raise ProtocolError(f"channel: hello: got role {found['role']!r}, expected guard or sdk")
    elif kind == "event" and found["op"] not in ANNOUNCED:
        raise ProtocolError(f"channel: event: got the operation {found['op']!r}, expected one that is announced")
    elif kind == "deny" and not found["op"].startswith(_REFUSED):
        raise ProtocolError(f"channel: deny: got the operation {found['op']!r}, expected one that a guard refuses")


def welcome(role: str, members: dict[str, Any]) -> bytes:
    """The answer to `hello`; `members` are those of the spec's table, sent to guards only."""
    return encode({"t": "welcome", "v": VERSION, **(members if role == "guard" else {})})


def allowed(number: int, value: dict[str, Any]) -> bytes:
    """The verdict that lets an asked operation happen."""
    return encode({"t": "verdict", "id": number, "allow": True, "value": value})


def refused(number: int, text: str, code: int) -> bytes:
    """The verdict that refuses; `code` is the errno that the agent sees."""
    return encode({"t": "verdict", "id": number, "allow": False, "text": text, "errno": code})


def result(number: int, value: dict[str, Any]) -> bytes:
    """The result of an SDK call; `value` with a member `error` is a failed one, `bytes` become `text` or `base64`."""
    error = value.get("error")
    if error is not None:
        return encode({"t": "result", "id": number, "ok": False, "error": error})
    return encode({"t": "result", "id": number, "ok": True, "value": {k: _body(v) for k, v in value.items()}})


def encode(message: dict[str, Any]) -> bytes:
    """A message as a line of ASCII, LF included."""
    return "".join(_pieces(message, 0)).encode("ascii") + b"\n"


def _body(value: Any) -> Any:
    if type(value) is not bytes:
        return value
    try:
        return {"text": value.decode("utf-8")}
    except UnicodeDecodeError:
        import binascii

        return {"base64": binascii.b2a_base64(value, newline=False).decode("ascii")}


def _shown(line: bytes) -> str:
    return ascii(line[:60])[1:] + ("..." if len(line) > 60 else "")
