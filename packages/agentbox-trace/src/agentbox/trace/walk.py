"""The hot path of verification: hash every line of a byte range and compare whole blocks of prefixes at once.

It must never parse JSON and never hold more than one block and one line; the first block that does not fit is walked
again line by line to find the place.
"""

from __future__ import annotations

import os
from collections import Counter
from hashlib import sha256

from .chain import MAX_LINE, SEAL_MARK
from .record import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 1 << 18
"""Bytes read at a time: a block and its lines stay in the second-level cache."""

_TS = b'"ts":0000000000.000000'  # any digits, the first no zero: every time from 2001 to 2286
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_HEAD = 48  # bytes after `ts` that hold the kind and an operation of ordinary length, closed
_ENTRY = rb',"kind":"(%s)","op":"([A-Za-z0-9._-]{1,64})",' % "|".join(KINDS).encode("ascii")
_LINE = rb'"ts":-?(?:0|[1-9][0-9]{0,11})\.[0-9]{6}' + _ENTRY + rb"[ -~]*\}\n"
_CONTROLS = [bytes((code,)) for code in (*range(0x20), 0x7F) if code != 0x0A]
_BLOB = b'"blob":"'
_STEP = '{"prev":"'
_TAILS = [f"{i:03d},{_STEP}" for i in range(1000)]
_SMALL = [f"{i},{_STEP}" for i in range(1000)]
_MOST_HEADS = 10_000
_heads: dict[bytes, str] = {}
"""The kind by the bytes after `ts`, "" where they are not those of an entry."""


class Walk:
    """A position in a chain, and what was met on the way there.

    `offset`, `head` and `seq` say where the next line starts, what its `prev` must be and its number; `before` is
    the hash that the line before carries as its `prev`. `bad` is `chain` or `form` when that next line does not fit,
    `long` when it is over the limit; `rest` is how many bytes without an LF were left. `seal` is the `seq` of the
    first seal met, or -1; `blobs` maps each blob named to the `seq` that names it first.
    """

    __slots__ = ("bad", "before", "blobs", "counts", "head", "offset", "rest", "seal", "seq")

    def __init__(self, offset: int, head: str, seq: int) -> None:
        self.offset = offset
        self.head = head
        self.before = head
        self.seq = seq
        self.bad = ""
        self.rest = 0
        self.seal = -1
        self.counts = dict.fromkeys(KINDS, 0)
        self.blobs: dict[str, int] = {}


def walk(fd: int, position: Walk, end: int, *, progress: Callable[[int], None] | None = None) -> Walk:
    """Advance `position` through whole lines up to the byte `end`, or to the first line that does not fit.
    `progress` is told the bytes done per block."""
    at = position.offset
    rest = bytearray()
    while at < end:
        data = os.pread(fd, min(BLOCK, end - at), at)
        if not data:
            break  # the file became shorter: what is left counts as not there
        at += len(data)
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest += data
            if len(rest) > MAX_LINE:
                position.bad = "long"
                return position
            continue
        if rest and len(rest) + data.index(b"\n") >= MAX_LINE:
            position.bad = "long"
            return position
        block = b"".join((rest, data[:cut])) if rest else data[:cut]
        rest = bytearray(data[cut:])
        if not _block(position, block):
            return position
        if progress is not None:
            progress(position.offset)
    position.rest = len(rest)
    return position


def _block(position: Walk, block: bytes) -> bool:
    """Advance through a block of whole lines; False at the first that does not fit."""
    # One search for each control character: measured, a tenth of the time of one pattern for all of them.
    printable = block.isascii() and not any(control in block for control in _CONTROLS)
    # splitlines would also split at a CR, which no sound line holds.
    lines = block.splitlines(True) if printable else [line + b"\n" for line in block.split(b"\n")[:-1]]
    blobs = _BLOB in block
    at = 0
    while at < len(lines):
        width = 10 ** len(str(position.seq)) - position.seq  # up to here all numbers have the same number of digits
        part = lines if not at and len(lines) <= width else lines[at : at + width]
        size = len(block) if part is lines else sum(map(len, part))
        if not (printable and _fast(position, part, size, blobs)) and not _slow(position, part):
            return False
        at += len(part)
    return True


def _fast(position: Walk, lines: list[bytes], size: int, blobs: bool) -> bool:
    """Advance through printable lines whose numbers have the same number of digits, or leave everything as it was.

    The first comparison is of all `{"prev":"<64 hex>","seq":N,` at once. Slices that are too short hold an LF, so
    lengths cannot make up for each other.
    """
    seq = position.seq
    hashes = [sha256(line).hexdigest() for line in lines]
    before = hashes[-2] if len(hashes) > 1 else position.head
    end = 82 + len(str(seq))
    if _prefixes(position.head, hashes, seq) != b"".join([line[:end] for line in lines]):
        return False
    head = end + len(_TS)
    times = b"".join([line[end:head] for line in lines])
    if times.translate(_ZEROS) != _TS * len(lines) or b'"ts":0' in times:
        return False
    if b"".join([line[-2:] for line in lines]) != b"}\n" * len(lines):
        return False
    tally = Counter([line[head : head + _HEAD] for line in lines])
    counts = _tally(position.counts, tally)
    if counts is None:
        return False
    position.counts = counts
    if position.seal < 0 and any(found.startswith(SEAL_MARK) for found in tally):
        position.seal = seq + next(i for i, line in enumerate(lines) if line.startswith(SEAL_MARK, head))
    if blobs:
        _note_blobs(position, lines, seq)
    position.before = before
    position.head = hashes[-1]
    position.seq = seq + len(lines)
    position.offset += size
    return True


def _prefixes(head: str, hashes: list[str], seq: int) -> bytes:
    """Return all prefixes that lines with these hashes must have, joined from pieces that are the same for a thousand
    numbers, because formatting each would cost as much as hashing."""
    count = len(hashes)
    pieces = [head] * (3 * count)
    pieces[3::3] = hashes[:-1]
    at = 0
    while at < count:
        high, low = divmod(seq + at, 1000)
        step = min(1000 - low, count - at)
        start, tails = (f'","seq":{high}', _TAILS) if high else ('","seq":', _SMALL)
        pieces[3 * at + 1 : 3 * (at + step) : 3] = [start] * step
        pieces[3 * at + 2 : 3 * (at + step) : 3] = tails[low : low + step]
        at += step
    pieces[0] = _STEP + head
    pieces[-1] = pieces[-1][: -len(_STEP)]
    return "".join(pieces).encode("ascii")


def _tally(counts: dict[str, int], tally: dict[bytes, int]) -> dict[str, int] | None:
    """Return the counts with those of the kinds that were found where they must be, or None if one is not."""
    counts = dict(counts)
    for found, times in tally.items():
        kind = _heads.get(found)
        if kind is None:
            kind = _learn(found)
        if not kind:
            return None
        counts[kind] += times
    return counts


def _learn(found: bytes) -> str:
    import re

    match = re.match(_ENTRY, found)
    if len(_heads) >= _MOST_HEADS:
        _heads.clear()
    kind = _heads[found] = match[1].decode("ascii") if match is not None else ""
    return kind


def _slow(position: Walk, lines: list[bytes]) -> bool:
    """Advance line by line, by the grammar of the specification, and stop before the one that does not fit. Also the
    way for times before 2001 and after 2286, and for long operations."""
    import re

    form = re.compile(_LINE)
    for line in lines:
        prefix = b'{"prev":"%s","seq":%d,' % (position.head.encode("ascii"), position.seq)
        if not line.startswith(prefix):
            position.bad = "chain"
            return False
        match = form.fullmatch(line, len(prefix))
        if match is None:
            position.bad = "form"
            return False
        position.counts[match[1].decode("ascii")] += 1
        if match[1] == b"meta" and match[2] == b"run.end" and position.seal < 0:
            position.seal = position.seq
        _note_blobs(position, [line], position.seq)
        position.before = position.head
        position.head = sha256(line).hexdigest()
        position.seq += 1
        position.offset += len(line)
    return True


def _note_blobs(position: Walk, lines: list[bytes], seq: int) -> None:
    for number, line in enumerate(lines, seq):
        at = line.find(_BLOB)
        while at >= 0:
            name = line[at + 8 : at + 73]
            if name.endswith(b'"') and len(name) == 65 and name[:64].strip(b"0123456789abcdef") == b"":
                position.blobs.setdefault(name[:64].decode("ascii"), number)
            at = line.find(_BLOB, at + len(_BLOB))
