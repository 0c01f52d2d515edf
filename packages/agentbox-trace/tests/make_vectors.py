"""Makes the vector files: valid traces by the real writer, each broken one from a valid one by the damage in its name.

It must give the same bytes every time, and never write an expectation that was read from the verifier.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from agentbox.trace import Redactor, TraceWriter
from agentbox.trace.chain import ZERO, line_hash, seal_sha

ROOT = Path(__file__).parent.parent / "vectors"
START = 1_764_000_000.0

Lines = list[bytes]
Damage = Callable[[Lines], Lines]


def small(path: Path) -> None:
    """One entry of every kind, and every meta op."""
    writer = TraceWriter.create(path)
    ts = iter(range(100))

    def append(kind: str, op: str, **members: object) -> None:
        writer.append(kind, op, ts=START + next(ts) / 8, **members)  # type: ignore[arg-type]

    append(
        "meta",
        "run.start",
        src="supervisor",
        args={
            "run": "0123456789abcdef",
            "argv": ["python", "agent.py"],
            "cwd": "/home/user/project",
            "policy": "read: ./data\n",
            "policy_sha256": line_hash(b"read: ./data\n"),
            "layers": ["guard"],
            "versions": {"agentbox": "0.1.0", "python": "3.12.1"},
            "platform": "Linux 6.18.5 x86_64",
        },
    )
    append("meta", "process.start", pid=4242, args={"executable": "/usr/bin/python3.12", "version": "3.12.1"})
    append("observe", "fs.read", pid=4242, args={"path": "/home/user/project/data/a.txt", "sha256": ZERO, "size": 12})
    append("effect", "clock.now", pid=4242, result={"value": 1764000000.5})
    append(
        "deny",
        "fs.read",
        pid=4242,
        args={"path": "/etc/passwd"},
        extra={
            "rule": None,
            "reason": "outside every read rule",
            "fix": "read: /etc/passwd",
            "enforced": True,
        },
    )
    append("meta", "effect.begin", pid=4242, args={"op": "proc.run", "args": {"argv": ["git", "status"]}})
    append("effect", "proc.run", pid=4242, lane="0.1", args={"argv": ["git", "status"]}, result={"status": 0})
    append("meta", "fs.state", src="supervisor", args={"path": "/home/user/project/out.txt", "sha256": "absent"})
    writer.seal(0, duration=1.25, ts=START + 12)
    writer.close()


def bodies(path: Path) -> None:
    """Bodies: text, base64, two different blobs of which one is named twice, and a redacted one."""
    writer = TraceWriter.create(path, redactor=Redactor({"API_TOKEN": "s3cr3t-value"}, key=b"vectors"))
    writer.append("meta", "run.start", ts=START, src="supervisor", args={"run": "b0d1e5"})
    samples = [
        "short",
        b"\x00\xff",
        "a" * 5000,
        bytes(range(256)) * 20,
        "a" * 5000,
        "Authorization: Bearer s3cr3t-value",
    ]
    for number, body in enumerate(samples, 1):
        args = {"method": "GET", "url": f"https://example.org/{number}"}
        result = {"status": 200, "body": writer.body(body)}
        writer.append("effect", "http.request", ts=START + number, args=args, result=result)
    writer.seal(0, duration=6.0, ts=START + 7)
    writer.close()


def odd(path: Path) -> None:
    """What JSON must escape, and members that look like the prefix, a blob or a seal."""
    writer = TraceWriter.create(path)
    writer.append("meta", "run.start", ts=START, src="supervisor", args={"run": "odd"})
    writer.append("observe", "fs.read", ts=5.5, args={"path": '/tmp/\udcff\ud800 \u00e9 \U0001f600 " \\ \n \r \x00'})
    writer.append(
        "observe", "fs.read", ts=START, args={"path": "/x", "prev": ZERO, "seq": 0, "kind": "meta", "blob": ZERO}
    )
    writer.append(
        "observe", "fs.read", ts=START, args={"x": {"kind": "meta", "op": "run.end"}, "n": [1e300, -0.0, 1 << 70]}
    )
    writer.append("observe", "net.connect", ts=2e10, args={"host": "example.org", "nan": float("nan")})
    writer.seal(137, signal=9, duration=0.0, failure="the agent was killed", ts=START)
    writer.close()


def longer(path: Path) -> None:
    """More than a thousand lines, so that numbers of one, two, three and four digits occur."""
    writer = TraceWriter.create(path)
    writer.append("meta", "run.start", ts=START, src="supervisor", args={"run": "longer"})
    for number in range(1, 1101):
        writer.append("observe", "fs.read", ts=START + number, args={"path": f"/data/{number}"})
    writer.seal(0, duration=1101.0, ts=START + 1101)
    writer.close()


VALID = {"small": small, "bodies": bodies, "odd": odd, "longer": longer}


def edit(number: int, old: bytes, new: bytes) -> Damage:
    """Replace bytes in line `number` (from 1)."""

    def damage(lines: Lines) -> Lines:
        assert old in lines[number - 1]
        return [*lines[: number - 1], lines[number - 1].replace(old, new, 1), *lines[number:]]

    return damage


def chained(lines: Lines) -> Lines:
    """Number and chain lines anew, the seal's own hash included: what a forger with the spec in hand would do."""
    out: Lines = []
    prev = ZERO
    for seq, line in enumerate(lines):
        rest = line.split(b",", 2)[2]
        raw = b'{"prev":"%s","seq":%d,' % (prev.encode(), seq) + rest
        if b'"op":"run.end"' in raw:
            raw = raw[:-75] + seal_sha(raw[:-75])
        prev = line_hash(raw)
        out.append(raw)
    return out


def flip_prev(lines: Lines) -> Lines:
    """Change the last digit of line 4's `prev`."""
    digit = lines[3][72:73]
    return edit(4, lines[3][9:73], lines[3][9:72] + (b"0" if digit != b"0" else b"1"))(lines)


def renumbered(lines: Lines) -> Lines:
    """Delete line 4 and make the numbers after it fit, without touching the hashes."""
    kept = [*lines[:3], *lines[4:]]
    return [re.sub(rb'"seq":\d+', b'"seq":%d' % seq, line, count=1) for seq, line in enumerate(kept)]


def forged(lines: Lines) -> bytes:
    """A line that continues line 3 as the writer would have."""
    return b'{"prev":"%s","seq":3,%s' % (line_hash(lines[2]).encode(), lines[2].split(b",", 2)[2])


def late(lines: Lines) -> bytes:
    """A line that continues the seal as if it were no seal."""
    return b'{"prev":"%s","seq":%d,%s' % (line_hash(lines[-1]).encode(), len(lines), lines[2].split(b",", 2)[2])


# name: (from, damage, status, line, what was done)
BROKEN: dict[str, tuple[str, Damage, str, int, str]] = {
    "edited-body": ("small", edit(3, b"a.txt", b"b.txt"), "edited", 3, "one byte of line 3's args was changed"),
    "edited-prev": ("small", flip_prev, "edited", 4, "one digit of line 4's prev was changed"),
    "edited-seq": ("small", edit(4, b'"seq":3', b'"seq":4'), "edited", 4, "line 4's seq was changed"),
    "edited-first": ("small", edit(1, b"agent.py", b"other.py"), "edited", 1, "the argv in line 1 was changed"),
    "edited-before-seal": (
        "small",
        edit(8, b"absent", b"abseNt"),
        "edited",
        8,
        "the last line before the seal was changed",
    ),
    "edited-seal": (
        "small",
        edit(9, b'"status":0', b'"status":1'),
        "edited",
        9,
        "the exit status in the seal was changed",
    ),
    "edited-seal-sha": ("small", edit(9, b'"sha":"', b'"sha":" '), "edited", 9, "a space was put into the seal's sha"),
    "edited-to-bytes": (
        "small",
        lambda x: [*x[:4], b"\x00\xff\xfe" + x[4][3:], *x[5:]],
        "edited",
        5,
        "line 5 begins with binary bytes",
    ),
    "deleted": ("small", lambda x: [*x[:3], *x[4:]], "deleted", 4, "line 4 was deleted"),
    "deleted-two": ("small", lambda x: [*x[:3], *x[5:]], "deleted", 4, "lines 4 and 5 were deleted"),
    "deleted-first": ("small", lambda x: x[1:], "deleted", 1, "line 1 was deleted"),
    "deleted-rechained": (
        "small",
        lambda x: chained([*x[:3], *x[4:]]),
        "seal-mismatch",
        8,
        "line 4 was deleted and the chain made to fit, but not the seal's counts",
    ),
    "renumbered": ("small", renumbered, "edited", 4, "line 4 was deleted and the numbers after it made to fit"),
    "swapped": ("small", lambda x: [*x[:3], x[4], x[3], *x[5:]], "reordered", 4, "lines 4 and 5 were swapped"),
    "moved": ("small", lambda x: [*x[:3], *x[4:7], x[3], *x[7:]], "reordered", 4, "line 4 was moved behind line 7"),
    "duplicated": ("small", lambda x: [*x[:4], x[3], *x[4:]], "duplicate", 5, "line 4 is there twice in a row"),
    "duplicated-later": ("small", lambda x: [*x[:6], x[2], *x[6:]], "duplicate", 7, "line 3 was copied behind line 6"),
    "inserted": (
        "small",
        lambda x: [*x[:3], forged(x), *x[3:]],
        "inserted",
        4,
        "a line that continues line 3 was put behind it",
    ),
    "inserted-foreign": (
        "small",
        lambda x: [*x[:3], b'{"note":"hello"}\n', *x[3:]],
        "inserted",
        4,
        "a line without prefix was put behind line 3",
    ),
    "appended": (
        "small",
        lambda x: [*x, b'{"note":"hello"}\n'],
        "after-seal",
        10,
        "a line was appended after the seal",
    ),
    "appended-chained": (
        "small",
        lambda x: [*x, late(x)],
        "after-seal",
        10,
        "a line that continues the chain was appended after the seal",
    ),
    "appended-part": ("small", lambda x: [*x, b"x"], "after-seal", 10, "one byte was appended after the seal"),
    "cut-tail": ("small", lambda x: x[:-2], "unsealed", 0, "the last two lines were cut off"),
    "torn": ("small", lambda x: [*x[:4], x[4][:40]], "torn", 5, "the file ends inside of line 5"),
    "torn-seal": ("small", lambda x: [*x[:-1], x[-1][:-1]], "torn", 9, "the LF of the seal is missing"),
    "torn-first": ("small", lambda x: [x[0][:90]], "torn", 1, "the file ends inside of line 1"),
    "empty": ("small", lambda x: [], "empty", 0, "the file was emptied"),
    "crlf": ("small", lambda x: [line[:-1] + b"\r\n" for line in x], "edited", 1, "all lines were given CR LF ends"),
    "bom": ("small", lambda x: [b"\xef\xbb\xbf" + x[0], *x[1:]], "edited", 1, "a byte order mark was put in front"),
    "not-a-trace": ("small", lambda x: [b"hello\n", *x], "not-a-trace", 1, "another text was put in front"),
    "format": (
        "small",
        lambda x: chained([x[0].replace(b"-trace/1", b"-trace/9"), *x[1:]]),
        "not-a-trace",
        1,
        "the chain is whole but the format is not known",
    ),
    "malformed": (
        "small",
        lambda x: chained([*x[:3], x[3].replace(b'"kind":"effect"', b'"kind":"affect"'), *x[4:]]),
        "malformed",
        4,
        "the chain is whole but line 4 has an unknown kind",
    ),
    "malformed-time": (
        "small",
        lambda x: chained([*x[:3], x[3].replace(b'"ts":1', b'"ts":01'), *x[4:]]),
        "malformed",
        4,
        "the chain is whole but the time of line 4 has a leading zero",
    ),
    "malformed-op": (
        "small",
        lambda x: chained([*x[:2], x[2].replace(b'"fs.read",', b'"fs.read,'), *x[3:]]),
        "malformed",
        3,
        "the chain is whole but the op of line 3 is not closed",
    ),
    "malformed-end": (
        "small",
        lambda x: chained([*x[:2], x[2][:-3] + b"\n", *x[3:]]),
        "malformed",
        3,
        "the chain is whole but line 3 is not closed",
    ),
    "malformed-byte": (
        "small",
        lambda x: chained([*x[:2], x[2].replace(b"a.txt", b"\x1b[2J"), *x[3:]]),
        "malformed",
        3,
        "the chain is whole but line 3 holds a control character",
    ),
    "edited-kind": (
        "small",
        edit(4, b'"kind":"effect"', b'"kind":"affect"'),
        "edited",
        4,
        "the kind of line 4 was changed: line 5 does not carry its hash",
    ),
    "edited-format": (
        "small",
        edit(1, b"-trace/1", b"-trace/9"),
        "edited",
        1,
        "the format was changed: line 2 does not carry the hash of line 1",
    ),
    "edited-lf": (
        "small",
        lambda x: [*x[:3], x[3][:-1] + b" " + x[4], *x[5:]],
        "edited",
        4,
        "the LF of line 4 was made a blank: two lines are one",
    ),
    "edited-seal-op": (
        "small",
        edit(9, b"run.end", b"run.fin"),
        "edited",
        9,
        "the op of the seal was changed: only its sha tells",
    ),
    "first-op": (
        "small",
        lambda x: chained([x[0].replace(b"run.start", b"run.begin"), *x[1:]]),
        "not-a-trace",
        1,
        "the chain is whole but line 1 is no run.start",
    ),
    "first-twice": (
        "small",
        lambda x: chained([x[0].replace(b'"format":', b'"format":"x","format":'), *x[1:]]),
        "not-a-trace",
        1,
        "the chain is whole but line 1 holds its format twice",
    ),
    "seal-kinds": (
        "small",
        lambda x: chained([*x[:-1], x[-1].replace(b'"deny":1', b'"deny":1,"later":0')]),
        "seal-mismatch",
        9,
        "the seal counts a fifth kind",
    ),
    "seal-number": (
        "small",
        lambda x: chained([*x[:-1], x[-1].replace(b'"lines":9', b'"lines":9.0')]),
        "seal-mismatch",
        9,
        "the seal counts the lines with a fraction",
    ),
    "seal-blobs-zero": (
        "bodies",
        lambda x: chained([*x[:-1], x[-1].replace(b'"blobs":2', b'"blobs":0')]),
        "seal-mismatch",
        8,
        "the seal counts no blobs, the lines name two, and one of them is gone",
    ),
    "torn-before-after-seal": (
        "small",
        lambda x: [*x, *x[:3], x[3][:50]],
        "after-seal",
        10,
        "what follows the seal is cut off, too: the first fault is the verdict",
    ),
    "sealed-twice": ("small", lambda x: chained([*x, x[-1]]), "after-seal", 10, "the seal is there twice, chained"),
    "blob-missing": ("bodies", lambda x: x, "blob-missing", 4, "the first blob was deleted"),
    "blob-edited": ("bodies", lambda x: x, "blob-edited", 4, "one byte of the first blob was changed"),
    "blob-other-size": (
        "bodies",
        lambda x: chained([line.replace(b'"size":5000', b'"size":5001') for line in x]),
        "blob-missing",
        4,
        "the size in the lines is another, which no verifier looks at, and the first blob was deleted",
    ),
    "rewritten": (
        "small",
        lambda x: chained([*x[:2], x[2].replace(b"a.txt", b"b.txt"), *x[3:]]),
        "head-mismatch",
        9,
        "line 3 was changed and the chain computed anew: only the head tells",
    ),
    "deep-edit": (
        "longer",
        edit(1005, b"/data/1004", b"/data/1OO4"),
        "edited",
        1005,
        "one byte of line 1005 was changed",
    ),
}


def make(root: Path) -> None:
    """Write all vectors below `root`."""
    for name, write in VALID.items():
        folder = root / "valid" / name
        folder.mkdir(parents=True)
        write(folder / "run.jsonl")
        lines = (folder / "run.jsonl").read_bytes().splitlines(keepends=True)
        kinds = [json.loads(line)["kind"] for line in lines]
        expect(
            folder,
            {
                "status": "sealed",
                "line": 0,
                "entries": len(lines),
                "head": line_hash(lines[-1]),
                "counts": {kind: kinds.count(kind) for kind in ("meta", "effect", "observe", "deny")},
            },
        )
    for name, (source, damage, status, line, what) in BROKEN.items():
        folder = root / "broken" / name
        folder.mkdir(parents=True)
        origin = root / "valid" / source
        lines = (origin / "run.jsonl").read_bytes().splitlines(keepends=True)
        (folder / "run.jsonl").write_bytes(b"".join(damage(lines)))
        options = {"head": line_hash(lines[-1])} if status == "head-mismatch" else {}
        if (origin / "blobs").exists():
            shutil.copytree(origin / "blobs", folder / "blobs")
            damage_blob(folder / "blobs" / line_hash(b"a" * 5000), status)
        expect(folder, {"status": status, "line": line, "options": options, "from": source, "damage": what})
    for path in sorted(root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # what a checkout gives


def damage_blob(blob: Path, status: str) -> None:
    """Do to the blob what the status says."""
    if status != "blob-edited":
        blob.unlink()
    else:
        blob.write_bytes(b"b" + blob.read_bytes()[1:])


def expect(folder: Path, doc: dict[str, object]) -> None:
    """Write the expectation of one case."""
    (folder / "expect.json").write_text(json.dumps(doc, indent=2) + "\n")


def main() -> None:
    """Replace the vectors in the checkout."""
    with tempfile.TemporaryDirectory() as scratch:
        make(Path(scratch))
        for kind in ("valid", "broken"):
            shutil.rmtree(ROOT / kind, ignore_errors=True)
            shutil.copytree(Path(scratch) / kind, ROOT / kind)
    print(f"{len(VALID)} valid and {len(BROKEN)} broken traces in {ROOT}", file=sys.stderr)


if __name__ == "__main__":
    main()
