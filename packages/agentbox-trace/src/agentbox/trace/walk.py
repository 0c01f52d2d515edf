"""The hot path of verification: hash every line of a byte range and compare whole blocks of prefixes at once.

It must never parse JSON and never hold more than one block and one line; the first block that does not fit is walked
again line by line to find the place.
"""

from __future__ import annotations

import os
from collections import Counter
from hashlib import sha256

from .chain import MAX_LINE, SEAL_MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 1 << 18
"""Bytes read at a time: a block and its lines stay in the second-level cache."""

_KINDS = {b',"kind":"%s","op":"' % kind: kind.decode() for kind in (b"meta", b"effect", b"observe", b"deny")}
_TS = b'"ts":0000000000.000000'  # any digits: every time from 2001 to 2286
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_KIND = len(b"," + SEAL_MARK)  # long enough for the longest kind with `,"op":"`, and for all of the seal's mark
_BLOB = b'"blob":"'
_STEP = '{"prev":"'
_TAILS = [f"{i:03d},{_STEP}" for i in range(1000)]
_SMALL = [f"{i},{_STEP}" for i in range(1000)]


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
        self.counts = dict.fromkeys(_KINDS.values(), 0)
        self.blobs: dict[str, int] = {}


def walk(fd: int, position: Walk, end: int, *, blobs: bool, progress: Callable[[int], None] | None = None) -> Walk:
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
        if not _block(position, block, blobs and _BLOB in block):
            return position
        if progress is not None:
            progress(position.offset)
    position.rest = len(rest)
    return position


def _block(position: Walk, block: bytes, blobs: bool) -> bool:
    """Advance through a block of whole lines; False at the first that does not fit."""
    # splitlines would also split at a CR, which no sound line holds.
    lines = block.splitlines(True) if b"\r" not in block else [line + b"\n" for line in block.split(b"\n")[:-1]]
    at = 0
    while at < len(lines):
        width = 10 ** len(str(position.seq)) - position.seq  # up to here all numbers have the same number of digits
        part = lines if not at and len(lines) <= width else lines[at : at + width]
        size = len(block) if part is lines else sum(map(len, part))
        if not _fast(position, part, size, blobs) and not _slow(position, part, blobs):
            return False
        at += len(part)
    return True


def _fast(position: Walk, lines: list[bytes], size: int, blobs: bool) -> bool:
    """Advance through lines whose numbers have the same number of digits, or leave everything as it was.

    The first comparison is of all `{"prev":"<64 hex>","seq":N,` at once. Slices that are too short hold an LF, so
    lengths cannot make up for each other.
    """
    seq = position.seq
    hashes = [sha256(line).hexdigest() for line in lines]
    before = hashes[-2] if len(hashes) > 1 else position.head
    end = 82 + len(str(seq))
    if _prefixes(position.head, hashes, seq) != b"".join([line[:end] for line in lines]):
        return False
    kind = end + len(_TS)
    if b"".join([line[end:kind] for line in lines]).translate(_ZEROS) != _TS * len(lines):
        return False
    tally = Counter([line[kind : kind + _KIND] for line in lines])
    if not _tally(position, tally):
        return False
    if position.seal < 0 and b"," + SEAL_MARK in tally:
        position.seal = seq + next(i for i, line in enumerate(lines) if line.startswith(SEAL_MARK, kind + 1))
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


def _tally(position: Walk, tally: dict[bytes, int]) -> bool:
    """Count the kinds that were found where they must be; False, with nothing counted, if one is not."""
    counts = dict(position.counts)
    for found, times in tally.items():
        kind = _KINDS.get(found[: found.find(b'"op":"') + 6])
        if kind is None:
            return False
        counts[kind] += times
    position.counts = counts
    return True


def _slow(position: Walk, lines: list[bytes], blobs: bool) -> bool:
    """Advance line by line and stop before the one that does not fit. Also the way for times before 2001 and after
    2286."""
    import re

    form = re.compile(rb'"ts":-?[0-9]+\.[0-9]{6},"kind":"(meta|effect|observe|deny)","op":"(run\.end")?')
    for line in lines:
        prefix = b'{"prev":"%s","seq":%d,' % (position.head.encode("ascii"), position.seq)
        if not line.startswith(prefix):
            position.bad = "chain"
            return False
        match = form.match(line, len(prefix))
        if match is None:
            position.bad = "form"
            return False
        kind = match[1].decode("ascii")
        position.counts[kind] += 1
        if kind == "meta" and match[2] and position.seal < 0:
            position.seal = position.seq
        if blobs:
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
