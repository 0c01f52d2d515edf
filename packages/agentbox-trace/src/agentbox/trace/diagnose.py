"""The cold path of verification: what kind of damage a line that does not fit is, and in which line.

It looks at a few lines around the place, by the rules of docs/spec/trace.md, section 7, and must never say more than
they show; a wrong guess of the kind is possible, a wrong "it holds" is not.
"""

from __future__ import annotations

import os

from .chain import (
    MAX_LINE,
    PREFIX,
    PREV_END,
    SEAL_MARK,
    SEQ,
    START,
    ZERO,
    ends_like_seal,
    line_hash,
    seal_holds,
    split_prefix,
)
from .record import FORMAT, sample
from .strict import strict_object
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


def check_start(fd: int) -> Finding | None:
    """Judge the first line of a file; None where it begins a trace, or where the walk has to say what is wrong."""
    line, after, _ = _three_lines(fd, 0)
    parts, next_ = split_prefix(line), split_prefix(after)
    changed = next_ is not None and next_[1] != 0 and next_[0] != line_hash(line)
    if line.startswith(START) or START.startswith(line):
        whole = line.endswith(b"\n") and len(line) <= MAX_LINE
        wrong = _format_fault(line) if whole else ""
        if wrong and changed:
            return "edited", 1, f"line 1 was changed: {wrong}, and its hash is not the one that line 2 carries"
        return ("not-a-trace", 1, wrong) if wrong else None
    if line.startswith(_BOM + PREFIX):
        text = "line 1 begins with a byte order mark that the writer did not write: was the file saved by an editor?"
        return "edited", 1, text
    if parts is None:
        text = f'line 1 begins with {sample(line)}, expected {{"prev":"<64 zeros>","seq":0,{_reason(line)}'
        return "edited" if changed else "not-a-trace", 1, text
    if parts[0] == ZERO:
        return "edited", 1, f"line 1 says seq {parts[1]}, expected 0"
    if parts[1]:
        missing = "line is" if parts[1] == 1 else f"{parts[1]} lines are"
        return "deleted", 1, f"the first {missing} missing: line 1 says seq {parts[1]}, expected 0"
    return "edited", 1, f"line 1 says prev {parts[0][:16]}..., expected 64 zeros"


def _reason(data: bytes) -> str:
    for magic, text in _MAGIC.items():
        if data.startswith(magic):
            return f": {text}"
    return ""


def _format_fault(line: bytes) -> str:
    """Say what is wrong with a whole first line, or nothing; it is the one line besides the seal whose JSON is read."""
    doc = strict_object(line)
    args = doc.get("args") if doc is not None else None
    if doc is None or not isinstance(args, dict) or "format" not in args:
        return f"line 1 names no format, expected a run.start with {FORMAT}"
    if (doc.get("kind"), doc.get("op")) != ("meta", "run.start"):
        return f"line 1 is {doc.get('kind')!a} {doc.get('op')!a}, expected meta run.start"
    got = args["format"]
    return "" if got == FORMAT else f"the format is {sample(str(got).encode('utf-8', 'replace'))}, expected {FORMAT}"


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
        return _no_entry(number, line, after, next_)
    continued = next_ is not None and next_[:2] == (position.head, position.seq)
    if here is None:
        return _no_prefix(position, line, continued)
    prev, seq, _ = here
    if prev == position.head:
        return "edited", number, f"line {number} says seq {seq}, expected {position.seq}"
    if seq < position.seq:
        return _earlier(fd, position, line, prev, seq, continued)
    if seq == position.seq:
        return _inserted(number) if continued else _changed(position, line, after, next_)
    if continued:
        return _out_of_place(position, seq, split_prefix(third))
    return _later(fd, position, seq)


def _no_entry(number: int, line: bytes, after: bytes, next_: tuple[str, int, int] | None) -> Finding:
    """The line before leads here, but the rest is not that of an entry: written so, or changed afterwards."""
    if after and (next_ is None or next_[0] != line_hash(line)):
        note = ": lines end in CR LF, expected LF: was the file converted?" if line.endswith(b"\r\n") else ""
        text = f"line {number} was changed: its hash is not the one that line {number + 1} carries{note}"
        return "edited", number, text
    if not after and (SEAL_MARK in line or ends_like_seal(line)) and not seal_holds(line):
        return "edited", number, f"line {number}, the seal, was changed: it does not carry the hash of its own bytes"
    return (
        "malformed",
        number,
        f"line {number} is chained but is no entry: expected ts with six decimals, a known kind, an op, and printable "
        "ASCII up to the closing brace",
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


def _changed(position: Walk, line: bytes, after: bytes, next_: tuple[str, int, int] | None) -> Finding:
    """The number is right, the hash is not: this line was changed, or the one before."""
    number = position.seq + 1
    sound = not ends_like_seal(line) or seal_holds(line)
    confirmed = sound if not after else next_ is not None and next_[0] == line_hash(line)
    if confirmed:
        text = f"line {number - 1} was changed: its hash is not the one that line {number} carries"
        return "edited", number - 1, text
    text = f"line {number} was changed: its prev is not the hash of line {number - 1}, and "
    other = f"line {number + 1} does not carry its hash" if after else "it does not carry the hash of its own bytes"
    return "edited", number, text + other


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
    """A number that is too high: lines are missing, unless the expected one comes later, or two lines became one."""
    number = position.seq + 1
    place = f"line {number} says seq {seq}, expected {position.seq}"
    wanted = SEQ + b"%d," % position.seq
    if seq == position.seq + 1 and _holds_prefix(line_before(fd, position.offset), wanted):
        return (
            "edited",
            number - 1,
            f"line {number - 1} was changed: it is two lines in one, without the LF between them",
        )
    for ahead, raw in enumerate(_lines(fd, position.offset, os.fstat(fd).st_size), number):
        if raw.startswith(PREFIX) and raw.startswith(wanted, PREV_END):
            return "reordered", number, f"{place}, which is in line {ahead}"
    missing = seq - position.seq
    return "deleted", number, f"{'1 line is' if missing == 1 else f'{missing} lines are'} missing: {place}"


def _holds_prefix(line: bytes, seq: bytes) -> bool:
    """Say whether a second line, with this `seq`, begins inside of `line`."""
    at = line.find(seq, PREV_END + 1)
    while at >= 0:
        if line.startswith(PREFIX, at - PREV_END):
            return True
        at = line.find(seq, at + 1)
    return False


def line_before(fd: int, end: int) -> bytes:
    """Return the line that ends at the byte `end`, looking back in growing steps."""
    step = 1 << 14
    while True:
        begin = max(0, end - step)
        data = os.pread(fd, end - begin, begin)
        start = data.rfind(b"\n", 0, len(data) - 1) + 1
        if start or not begin:
            return data[start:]
        step *= 8


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
