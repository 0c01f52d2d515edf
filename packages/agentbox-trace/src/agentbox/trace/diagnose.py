"""The cold path of verification: what kind of damage a line that does not fit is, and in which line.

It looks at a few lines around the place and must never say more than they show; a wrong guess of the kind is
possible, a wrong "it holds" is not.
"""

from __future__ import annotations

import os

from .chain import MAX_LINE, PREFIX, PREV_END, SEQ, START, ZERO, line_hash, seal_holds, split_prefix
from .record import FORMAT, sample
from .walk import Walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Finding = tuple[str, int, str]  # status, line from 1, message

_BOM = b"\xef\xbb\xbf"
_MAGIC = {
    b"\x1f\x8b": "it is gzip-compressed",
    b"\x28\xb5\x2f\xfd": "it is zstd-compressed",
    b"PK\x03\x04": "it is a zip archive",
    b"SQLite format 3": "it is an SQLite database",
    b"\xff\xfe": "it is UTF-16",
    b"\xfe\xff": "it is UTF-16",
}


def check_start(data: bytes) -> Finding | None:
    """Judge the first bytes of a file, which hold its whole first line if that is not absurdly long; None where they
    are those of a trace."""
    line = data[: data.find(b"\n") + 1] or data
    if line.startswith(START) or START.startswith(line):
        return _check_format(line)
    if line.startswith(_BOM + PREFIX):
        return (
            "edited",
            1,
            "line 1 begins with a byte order mark that the writer did not write: was the file saved by an editor?",
        )
    parts = split_prefix(line)
    if parts is None:
        return (
            "not-a-trace",
            1,
            f'line 1 begins with {sample(data)}, expected {{"prev":"<64 zeros>","seq":0,{_reason(data)}',
        )
    if parts[1]:
        missing = "line is" if parts[1] == 1 else f"{parts[1]} lines are"
        return "deleted", 1, f"the first {missing} missing: line 1 says seq {parts[1]}, expected 0"
    return "edited", 1, f"line 1 says prev {parts[0][:16]}..., expected 64 zeros"


def _reason(data: bytes) -> str:
    for magic, text in _MAGIC.items():
        if data.startswith(magic):
            return f": {text}"
    return ""


def _check_format(line: bytes) -> Finding | None:
    """Only a whole first line can be asked for its format; it is the one line besides the seal whose JSON is read."""
    if not line.endswith(b"\n"):
        return None
    from json import loads

    try:
        doc = loads(line)
        op, got = doc["op"], doc["args"]["format"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return "not-a-trace", 1, f"line 1 names no format, expected a run.start with {FORMAT}"
    if op != "run.start":
        return "not-a-trace", 1, f"line 1 is {op!a}, expected run.start"
    if got != FORMAT:
        return "not-a-trace", 1, f"the format is {sample(str(got).encode('utf-8', 'replace'))}, expected {FORMAT}"
    return None


def diagnose(fd: int, position: Walk) -> Finding:
    """Name the damage at `position`, whose next line does not fit."""
    number = position.seq + 1
    if position.seal >= 0:
        return after_seal(position.seal)
    if position.bad == "long":
        return "too-long", number, f"line {number} is longer than {MAX_LINE} bytes"
    line, after, third = _three_lines(fd, position.offset)
    here, next_ = split_prefix(line), split_prefix(after)
    if position.bad == "form":
        return _no_entry(number, line, next_)
    continued = next_ is not None and next_[:2] == (position.head, position.seq)
    if here is None:
        return _no_prefix(position, line, continued)
    prev, seq, _ = here
    if prev == position.head:
        return "edited", number, f"line {number} says seq {seq}, expected {position.seq}"
    if seq < position.seq:
        return _earlier(fd, position, line, prev, seq, continued)
    if continued:
        return _out_of_place(position, seq, split_prefix(third))
    if seq > position.seq:
        return _later(fd, position, seq)
    return _changed(position, line, after, prev, next_)


def _no_entry(number: int, line: bytes, next_: tuple[str, int, int] | None) -> Finding:
    """The line before leads here, but `ts`, `kind` and `op` do not follow: written so, or changed afterwards."""
    if next_ is not None and next_[0] != line_hash(line):
        return (
            "edited",
            number,
            f"line {number} was changed: its hash is not the one that line {number + 1} carries",
        )
    return (
        "malformed",
        number,
        f"line {number} is chained but is no entry: expected ts with six decimals, then a known kind, then op",
    )


def _no_prefix(position: Walk, line: bytes, continued: bool) -> Finding:
    number = position.seq + 1
    if continued:
        return _inserted(number, "it is no entry, and ")
    return (
        "edited",
        number,
        f'line {number} begins with {sample(line)}, expected {{"prev":"{position.head[:8]}...","seq":{position.seq},',
    )


def _inserted(number: int, why: str = "") -> Finding:
    text = f"line {number} was inserted: {why}line {number + 1} continues line {number - 1}"
    return "inserted", number, text


def _out_of_place(position: Walk, seq: int, third: tuple[str, int, int] | None) -> Finding:
    """The next line belongs here: this one comes too early, or does not belong anywhere."""
    number = position.seq + 1
    if seq == position.seq + 1 and (third is None or third[1] == seq + 1):
        text = f"lines {number} and {number + 1} are swapped: line {number} says seq {seq}, expected {position.seq}"
        return "reordered", number, text
    return _inserted(number)


def after_seal(seal: int) -> Finding:
    """The finding for a trace whose seal, the entry `seal`, is not its last line."""
    return "after-seal", seal + 2, f"line {seal + 2} follows the seal in line {seal + 1}, expected the end of the file"


def _changed(position: Walk, line: bytes, after: bytes, prev: str, next_: tuple[str, int, int] | None) -> Finding:
    """The number is right, the hash is not: this line's `prev` was changed, or the line before."""
    number = position.seq + 1
    if prev == position.before:
        return "inserted", number - 1, f"line {number - 1} was inserted: line {number} continues line {number - 2}"
    confirmed = next_[0] == line_hash(line) if next_ is not None else not after and seal_holds(line)
    if confirmed or not after:
        note = ": lines end in CR LF, expected LF: was the file converted?" if line.endswith(b"\r\n") else ""
        return (
            "edited",
            number - 1,
            f"line {number - 1} was changed: its hash is not the one that line {number} carries{note}",
        )
    if line.endswith(b"\r\n"):
        return (
            "edited",
            number - 1,
            f"line {number - 1} was changed: lines end in CR LF, expected LF: was the file converted?",
        )
    return (
        "edited",
        number,
        f"line {number} was changed: its prev is not the hash of line {number - 1}, "
        f"and line {number + 1} does not carry its hash",
    )


def _earlier(fd: int, position: Walk, line: bytes, prev: str, seq: int, continued: bool) -> Finding:
    """A number that was there before: a copy, or what follows an insertion."""
    number = position.seq + 1
    for known, raw in enumerate(_lines(fd, 0, position.offset)):
        if known == seq:
            if raw == line:
                return "duplicate", number, f"line {number} is line {seq + 1} once more"
            break
    if continued:
        return _inserted(number)
    if prev == position.before and seq == position.seq - 1:
        return _inserted(number - 1)
    text = f"line {number} says seq {seq}, expected {position.seq}: a line was inserted here or before"
    return "inserted", number, text


def _later(fd: int, position: Walk, seq: int) -> Finding:
    """A number that is too high: lines are missing, unless the expected one comes later."""
    number = position.seq + 1
    place = f"line {number} says seq {seq}, expected {position.seq}"
    wanted = SEQ + b"%d," % position.seq
    for ahead, raw in enumerate(_lines(fd, position.offset, os.fstat(fd).st_size), number):
        if raw.startswith(PREFIX) and raw.startswith(wanted, PREV_END):
            return "reordered", number, f"{place}, which is in line {ahead}"
    missing = seq - position.seq
    return "deleted", number, f"{'1 line is' if missing == 1 else f'{missing} lines are'} missing: {place}"


def find_head(fd: int, end: int, head: str) -> int:
    """Return after which line (from 1) the chain had this head, or 0."""
    wanted = PREFIX + head.encode("ascii", "replace") + b'"'
    for number, raw in enumerate(_lines(fd, 0, end)):
        if raw.startswith(wanted):
            return number if head != ZERO else 0
    return 0


def _three_lines(fd: int, offset: int) -> tuple[bytes, bytes, bytes]:
    lines = _lines(fd, offset, os.fstat(fd).st_size)
    return next(lines, b""), next(lines, b""), next(lines, b"")


def _lines(fd: int, offset: int, end: int) -> Iterator[bytes]:
    """Yield raw lines of a byte range, each at most as long as the format allows."""
    with open(os.dup(fd), "rb", buffering=1 << 18) as file:
        file.seek(offset)
        while offset < end and (raw := file.readline(MAX_LINE + 1)):
            offset += len(raw)
            yield raw
