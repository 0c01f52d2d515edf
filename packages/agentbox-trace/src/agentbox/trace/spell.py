"""How the members of an entry become the bytes of its line: redacted, compact ASCII JSON (docs/spec/trace.md, section
4).

It must never number or hash anything, and never let a value pass that JSON or a reader could not take.
"""

from __future__ import annotations

from .chain import is_hash
from .errors import TraceError
from .record import KINDS, RESERVED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .blobs import BlobStore
    from .redact import Redactor

    Encoder = Callable[[Any, int], Sequence[str]]

_BLOB = '"blob":"'
_SHORT, _MOST_CLEAN = 512, 2048
_DENIAL = {"rule": None, "reason": "", "fix": None, "enforced": True}


class Speller:
    """Spells entries for one writer. `named` is the set of blobs that lines have named so far."""

    __slots__ = ("_blobs", "_clean", "_encoder", "_heads", "named", "redactor")

    def __init__(self, redactor: Redactor | None, blobs: BlobStore) -> None:
        self.redactor = redactor
        self.named: set[str] = set()
        self._blobs = blobs
        self._clean: set[str] = set()
        """Texts that hold nothing to redact: a program that reads a file often is told of in the same words."""
        self._encoder: Encoder | None = None
        self._heads: dict[tuple[str, str, str, int, str], str] = {}

    def spell(
        self,
        kind: str,
        op: str,
        args: dict[str, Any],
        result: Any,
        lane: str,
        pid: int,
        src: str,
        extra: dict[str, Any] | None,
    ) -> str:
        """Return all of a line after `ts`, from its comma on and without the closing brace."""
        if kind == "deny":
            extra = {**_DENIAL, **(extra or {})}
        head = self._heads.get((kind, op, lane, pid, src)) or self._head(kind, op, lane, pid, src)
        tail = self._tail(op, args, result, extra)
        redactor = self.redactor
        if redactor is not None and tail not in self._clean:
            if redactor.suspects(tail):
                tail = self._tail(op, redactor.doc(args), redactor.doc(result), redactor.doc(extra))
            elif len(tail) < _SHORT:
                if len(self._clean) >= _MOST_CLEAN:
                    self._clean.clear()
                self._clean.add(tail)
        return head + (self._check_blobs(tail) if _BLOB in tail else tail)

    def _tail(self, op: str, args: dict[str, Any], result: Any, extra: dict[str, Any] | None) -> str:
        encoder = self._encoder
        if encoder is None:
            encoder = self._encoder = make_encoder()
        tail = _encode(encoder, args, op)
        if result is not None:
            tail += ',"result":' + _encode(encoder, result, op)
        if extra:
            taken = RESERVED.intersection(extra)
            if taken:
                raise TraceError(f"{op}: extra holds {min(taken)!a}, which is a member of every entry", code="usage")
            tail += "," + _encode(encoder, extra, op)[1:-1]
        return tail

    def _head(self, kind: str, op: str, lane: str, pid: int, src: str) -> str:
        if kind not in KINDS:
            raise TraceError(f"{op}: kind is {kind!a}, expected one of {', '.join(KINDS)}", code="usage")
        members = {"kind": kind, "op": _plain(str(op)), "lane": str(lane), "pid": int(pid), "src": str(src)}
        text = _encode(make_encoder(), members, op)
        if len(self._heads) > 4096:
            self._heads.clear()
        head = self._heads[kind, op, lane, pid, src] = f',{text[1:-1]},"args":'
        return head

    def _check_blobs(self, tail: str) -> str:
        """Note the blobs that a line names; spell a name that only looks like one so that it is none (section 6)."""
        pieces = tail.split(_BLOB)
        out = [pieces[0]]
        for piece in pieces[1:]:
            name = piece[:64]
            if piece[64:65] != '"' or not is_hash(name):
                out += [_BLOB, piece]
            elif name in self._blobs:
                self.named.add(name)
                out += [_BLOB, piece]
            else:
                out += ['"\\u0062lob":"', piece]
        return "".join(out)


def _plain(op: str) -> str:
    """Return an operation as the format has it (section 4): a guard that was taken over may announce any text."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in op[:64]) or "_"


def make_encoder() -> Encoder:
    """Return a function (value, 0) -> pieces of compact ASCII JSON; it raises ValueError on NaN and infinities and
    TypeError on foreign types.

    The C encoder is held here directly because `json.JSONEncoder.encode` builds a new one on every call
    (Lib/json/encoder.py, `iterencode`); where a Python lacks it the public class does the same work.
    """
    try:
        from _json import encode_basestring_ascii, make_encoder

        encoder: Encoder = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, False)
        encoder([0], 0)
    except (ImportError, TypeError):
        from json import JSONEncoder

        encode = JSONEncoder(separators=(",", ":"), allow_nan=False, default=_refuse).encode
        return lambda value, level: (encode(value),)
    return encoder


def _refuse(value: object) -> Any:
    raise TypeError(f"a {type(value).__name__}")


def _encode(encoder: Encoder, value: Any, what: str) -> str:
    """Return `value` as ASCII JSON; `what` names it in the `TraceError` (`value`) that is raised for what JSON
    cannot hold."""
    try:
        try:
            return "".join(encoder(value, 0))
        except ValueError:
            return "".join(encoder(_finite(value), 0))
    except TypeError as error:
        raise TraceError(
            f"{what}: holds {error}, expected what JSON can hold",
            code="value",
            hint="give bytes to `body` and pass on what it returns",
        ) from None
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{what}: {_reason(error)}", code="value") from None


def _reason(error: Exception) -> str:
    return "is nested too deeply" if isinstance(error, RecursionError) else str(error).lower()


def _finite(value: Any) -> Any:
    """Spell NaN and infinities as strings: they are not JSON, and an agent may send them."""
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
