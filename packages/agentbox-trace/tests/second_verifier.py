"""A second verifier, written from docs/spec/trace.md alone: slow, whole file in memory, one check after the other.

It must share no code with the product, so that where the two agree the specification is what they agree on.
Usage: python second_verifier.py TRACE [HEAD]
"""

from __future__ import annotations

import json
import re
import sys
from hashlib import sha256
from pathlib import Path

Verdict = tuple[str, int]
Claim = tuple[str, int]  # hash and number of a prefix

LONGEST = 67_108_864
NOTHING: Claim = ("", -1)
PREFIX = re.compile(rb'\{"prev":"([0-9a-f]{64})","seq":(0|[1-9][0-9]{0,18}),')
LINE = re.compile(
    PREFIX.pattern + rb'"ts":-?(?:0|[1-9][0-9]{0,11})\.[0-9]{6},"kind":"(meta|effect|observe|deny)",'
    rb'"op":"([A-Za-z0-9._-]{1,64})",[\x20-\x7e]*\}\n'
)
SEAL_END = re.compile(rb',"sha":"([0-9a-f]{64})"\}\n$')
REFERENCE = re.compile(rb'"blob":"([0-9a-f]{64})"')
START = b'{"prev":"' + b"0" * 64 + b'","seq":0,'
KINDS = ("meta", "effect", "observe", "deny")


def verdict(path: Path, head: str | None = None, *, blobs: bool = True) -> Verdict:
    """Return status and place (section 7)."""
    data = path.read_bytes()
    if not data:
        return "empty", 0
    lines = re.findall(rb"[^\n]*\n|[^\n]+$", data)
    found = first_line(lines) or each_line(lines) or seal(lines)
    if found is None and blobs:
        found = bodies(lines, path.resolve().parent / "blobs")
    if found is None and head is not None and digest(lines[-1]) != head:
        after = [place for place, line in enumerate(lines, 1) if place > 1 and claim(line)[0] == head]
        found = "head-mismatch", (after or [len(lines)])[0]
    if found is None:
        found = ("sealed" if is_seal(lines[-1]) else "unsealed"), 0
    return found


def digest(line: bytes) -> str:
    return sha256(line).hexdigest()


def claim(line: bytes) -> Claim:
    match = PREFIX.match(line)
    return (match[1].decode(), int(match[2])) if match else NOTHING


def is_seal(line: bytes) -> bool:
    match = LINE.fullmatch(line)
    return match is not None and (match[3], match[4]) == (b"meta", b"run.end")


def ends_wrong(line: bytes) -> bool:
    """It ends like a seal, with another hash than its own."""
    match = SEAL_END.search(line)
    return match is not None and digest(line[: match.start()]) != match[1].decode()


def is_broken_seal(line: bytes) -> bool:
    """Row 2 of the table: its end or its beginning is that of a seal, and it does not end with its own hash."""
    own = SEAL_END.search(line)
    return ends_wrong(line) or (own is None and b',"kind":"meta","op":"run.end",' in line)


def members(line: bytes) -> dict[str, object] | None:
    """The JSON of a line, as strict as section 7 wants it."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError
        return dict(pairs)

    def constant(text: str) -> object:
        raise ValueError

    def whole(digits: str) -> object:
        return int(digits) if len(digits) < 100 else digits  # Python refuses more than 4300

    def deep(value: object) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max(map(deep, inner), default=0)

    try:
        found = json.loads(line.decode("utf-8"), object_pairs_hook=once, parse_constant=constant, parse_int=whole)
        return found if isinstance(found, dict) and deep(found) <= 100 else None
    except (ValueError, RecursionError):
        return None


def first_line(lines: list[bytes]) -> Verdict | None:
    """Step 2."""
    line = lines[0]
    prev, number = claim(line)
    next_prev, next_number = claim(lines[1]) if len(lines) > 1 else NOTHING
    at_odds = next_number > 0 and next_prev != digest(line)
    if line.startswith(START) or START.startswith(line):
        if not line.endswith(b"\n") or len(line) > LONGEST:
            return None
        doc = members(line) or {}
        args = doc.get("args")
        started = (doc.get("kind"), doc.get("op")) == ("meta", "run.start")
        if started and isinstance(args, dict) and args.get("format") == "agentbox-trace/1":
            return None
        return ("edited" if at_odds else "not-a-trace"), 1
    if line.startswith(b'\xef\xbb\xbf{"prev":"') or prev == "0" * 64:
        return "edited", 1
    if prev:
        return ("deleted" if number else "edited"), 1
    return ("edited" if at_odds else "not-a-trace"), 1


def each_line(lines: list[bytes]) -> Verdict | None:
    """Step 3."""
    expected, sealed = "0" * 64, False
    for number, line in enumerate(lines):
        if sealed:
            return "after-seal", number + 1
        if len(line) > LONGEST:
            return "too-long", number + 1
        if not line.endswith(b"\n"):
            return "torn", number + 1
        if claim(line) != (expected, number) or not LINE.fullmatch(line):
            return misfit(lines, number, expected)
        expected, sealed = digest(line), is_seal(line)
    return None


def misfit(lines: list[bytes], q: int, h: str) -> Verdict:
    """The table of step 3."""
    line, place = lines[q], q + 1
    prev, number = claim(line)
    has_next = len(lines) > q + 1
    next_ = claim(lines[q + 1]) if has_next else NOTHING
    third = claim(lines[q + 2]) if len(lines) > q + 2 else NOTHING
    goes_on = next_ == (h, q)
    confirmed = next_[0] == digest(line)
    if (prev, number) == (h, q):
        changed = not confirmed if has_next else is_broken_seal(line)
        return ("edited" if changed else "malformed"), place
    if number < 0:
        return ("inserted" if goes_on else "edited"), place
    if prev == h:
        return "edited", place
    if number < q:
        if line == lines[number]:
            return "duplicate", place
        before = number == q - 1 and prev == claim(lines[q - 1])[0]
        return "inserted", place - 1 if before and not goes_on else place
    if number == q:
        if goes_on:
            return "inserted", place
        return "edited", place - 1 if (confirmed if has_next else not ends_wrong(line)) else place
    if goes_on:
        swapped = number == q + 1 and third[1] in (-1, q + 2)
        return ("reordered" if swapped else "inserted"), place
    if number == q + 1 and any(int(match[2]) == q for match in inner_prefixes(lines[q - 1]) if match.start()):
        return "edited", place - 1
    wanted = re.compile(rb'\{"prev":".{64}","seq":%d,' % q, re.DOTALL)
    return ("reordered" if any(map(wanted.match, lines[q + 1 :])) else "deleted"), place


def inner_prefixes(line: bytes) -> list[re.Match[bytes]]:
    return list(PREFIX.finditer(line))


def seal(lines: list[bytes]) -> Verdict | None:
    """Steps 4 and 5."""
    last = lines[-1]
    own = SEAL_END.search(last)
    if (is_seal(last) and not own) or ends_wrong(last):
        return "edited", len(lines)
    if not is_seal(last):
        return None
    args = (members(last) or {}).get("args")
    if isinstance(args, dict):
        found = [match[3].decode() for match in map(LINE.fullmatch, lines) if match]
        counts = {kind: found.count(kind) for kind in KINDS}
        named = {name for line in lines for name in REFERENCE.findall(line)}
        got = args.get("counts")
        numbers = [args.get("lines"), args.get("blobs"), *(got.values() if isinstance(got, dict) else ())]
        right = (args.get("lines"), args.get("blobs"), got) == (len(lines), len(named), counts)
        if right and all(type(value) is int for value in numbers):
            return None
    return "seal-mismatch", len(lines)


def bodies(lines: list[bytes], folder: Path) -> Verdict | None:
    """Step 6."""
    for place, line in enumerate(lines, 1):
        for name in REFERENCE.findall(line):
            blob = folder / name.decode()
            if blob.is_symlink() or not blob.is_file():
                return "blob-missing", place
            if digest(blob.read_bytes()) != name.decode():
                return "blob-edited", place
    return None


if __name__ == "__main__":
    print(*verdict(Path(sys.argv[1]), *sys.argv[2:3]))
