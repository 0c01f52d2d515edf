"""Reading: entries as they were written, errors that name the line, following, flat memory."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.waiting import PATIENCE, joined

from agentbox.trace import TraceError, TraceWriter, read, verify
from agentbox.trace.chain import ZERO, seal_sha

PREFIX = b'{"prev":"%s","seq":0,' % ZERO.encode()


def test_entry(tmp_path: Path) -> None:
    """An entry has the values that were given, and everything else in `extra`."""
    writer = TraceWriter.create(tmp_path / "run.jsonl")
    writer.append("meta", "run.start", src="supervisor", ts=1.25)
    writer.append(
        "effect", "net.é", args={"a": [1, None]}, result=7, lane="2.0", pid=3, src="kernel", ts=2.5, extra={"site": "x"}
    )
    writer.close()
    start, entry = read(writer.path)
    assert (start.prev, start.seq, start.args, start.result) == (ZERO, 0, {"format": "agentbox-trace/1"}, None)
    assert (entry.seq, entry.ts, entry.kind, entry.op, entry.lane, entry.pid, entry.src) == (
        1,
        2.5,
        "effect",
        "net._",
        "2.0",
        3,
        "kernel",
    )
    assert (entry.args, entry.result, entry.extra) == ({"a": [1, None]}, 7, {"site": "x"})
    assert repr(entry) == "<Entry 1 effect net._ {'a': [1, None]}>"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(args=st.dictionaries(st.text(st.characters()), values, max_size=3), result=values)
def test_round_trip(tmp_path: Path, args: dict[str, object], result: object) -> None:
    """Any JSON values, lone surrogates included, come back as they were, and the chain holds."""
    path = tmp_path / "run.jsonl"
    path.unlink(missing_ok=True)
    writer = TraceWriter.create(path)
    writer.append("meta", "run.start")
    writer.append("observe", "x", args=args, result=result)
    writer.seal(0, duration=0)
    writer.close()
    entry = list(read(path))[1]
    assert (entry.args, entry.result) == (args, result)
    assert verify(path).ok
    assert path.read_bytes().isascii()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"hello\n", 'line 1: begins with \'hello\\n\', expected {"prev":"<64 hex>","seq":N,'),
        (b"\x00\xff\n", "line 1: begins with '\\x00\\xff\\n', expected"),
        (b"\n", "line 1: begins with '\\n', expected"),
        (PREFIX + b"\n", "line 1: is not valid JSON: "),
        (PREFIX + b"[" * 100_000 + b"\n", "line 1: is not valid JSON: "),
        (PREFIX + b'"ts":1.0}\n', "line 1: `kind` is nothing, expected a string"),
        (PREFIX + b'"ts":true}\n', "line 1: `ts` is 'True', expected a number"),
        (
            PREFIX + b'"ts":1,"kind":"x","op":"","lane":"","pid":0,"src":"","args":{}}\n',
            "line 1: `kind` is 'x', expected one",
        ),
        (
            PREFIX + b'"ts":1,"kind":"meta","op":"","lane":"","pid":0,"src":"","args":[]}\n',
            "line 1: `args` is '[]', expected an object",
        ),
        (
            PREFIX + b'"ts":1,"kind":"meta","op":"","lane":"","pid":0,"src":"","args":{},"seq":5}\n',
            "line 1: holds `prev` or `seq` twice",
        ),
        (
            PREFIX + b'"ts":1.000000,"kind":"deny","op":"x","lane":"","pid":0,"src":"","args":{},"kind":"meta"}\n',
            "line 1: `kind` or `op` is not what follows `ts`",
        ),
    ],
)
def test_garbage(tmp_path: Path, data: bytes, text: str) -> None:
    """A line that is no entry is named, with what was expected."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    with pytest.raises(TraceError) as caught:
        list(read(path))
    assert str(caught.value).startswith(f"{path}: {text}") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (b'"args":{"path":"x"}', b'"args":null', "`args` is 'None'"),
        (b'"lane":"0.0"', b'"lane":5', "`lane` is '5'"),
        # What a terminal would obey: U+009B begins a control sequence there, and U+202E turns the text around.
        (b'"path":"x"', b'"path":"\xc2\x9b2J"', r"holds '\xc2\x9b2J"),
        (b'"path":"x"', b'"path":"\xe2\x80\xaex"', r"holds '\xe2\x80\xaex"),
        (b'"path":"x"', b'"path":\r"x"', r"holds '\r"),
    ],
)
def test_malformed(tmp_path: Path, old: bytes, new: bytes, text: str) -> None:
    """A chain that somebody else has made of lines that mean nothing is whole where its bytes are those of the format,
    and its reader says what is wrong, not that it was changed."""
    path = tmp_path / "run.jsonl"
    writer = TraceWriter.create(path)
    writer.append("meta", "run.start")
    writer.append("observe", "fs.read", args={"path": "x"})
    writer.seal(0, duration=0)
    start, entry, seal = path.read_bytes().splitlines(keepends=True)
    entry = entry.replace(old, new)
    seal = seal.replace(seal[9:73], hashlib.sha256(entry).hexdigest().encode(), 1)[:-75]
    path.write_bytes(start + entry + seal + seal_sha(seal))
    assert verify(path).status == ("malformed" if text.startswith("holds") else "sealed")
    with pytest.raises(TraceError) as caught:
        list(read(path))
    assert caught.value.code == "malformed" and f"line 2: {text}" in str(caught.value)
    assert "`agentbox verify`" in caught.value.hint


def test_torn(trace: Path) -> None:
    """All whole lines of a torn trace are read before the error."""
    trace.write_bytes(trace.read_bytes()[:-20])
    entries = read(trace)
    assert [next(entries).seq for _ in range(6)] == list(range(6))
    with pytest.raises(TraceError, match="line 7: is cut off after") as caught:
        next(entries)
    assert caught.value.code == "torn"


def test_follow(tmp_path: Path) -> None:
    """Following yields entries as they are written, half-written lines once they are whole, and ends at the seal."""
    path = tmp_path / "run.jsonl"
    writer = TraceWriter.create(path)
    writer.append("meta", "run.start")
    writer.append("observe", "fs.read")
    writer.seal(0, duration=0)
    whole = path.read_bytes()
    slow = tmp_path / "slow.jsonl"
    slow.write_bytes(whole[:20])
    seen: list[int] = []
    first = threading.Event()

    def follow() -> None:
        for entry in read(slow, follow=True):
            seen.append(entry.seq)
            first.set()

    thread = threading.Thread(target=follow)
    thread.start()
    line = whole.index(b"\n") + 1
    with open(slow, "ab") as file:
        file.write(whole[20:line])
        file.flush()
        assert first.wait(PATIENCE)
        file.write(whole[line:])
    assert joined(thread) and seen == [0, 1, 2]


def test_follow_a_file_that_is_cut(trace: Path) -> None:
    """A followed trace that becomes shorter is an error, not a wait without end."""
    trace.write_bytes(trace.read_bytes()[:-20])
    entries = read(trace, follow=True)
    for _ in range(6):
        next(entries)
    os.truncate(trace, 100)
    with pytest.raises(TraceError, match="became shorter while it was followed"):
        next(entries)


BIG = int(os.environ.get("AGENTBOX_TEST_TRACE_MB", "40"))
MEASURE = """
import resource, sys
from agentbox.trace import read, verify
from agentbox.trace import TraceWriter
path, megabytes, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if what == "write":
    writer = TraceWriter.create(path)
    writer.append("meta", "run.start")
    args = {"path": "/data/" + "x" * 900, "sha256": "a" * 64}
    for _ in range(megabytes * 900):
        writer.append("observe", "fs.read", args=args)
    writer.seal(0, duration=0)
elif what == "read":
    assert sum(1 for _ in read(path)) > megabytes * 800
else:
    report = verify(path, processes=int(what))
    assert report.ok, report.message
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_memory_is_flat(tmp_path: Path) -> None:
    """Writing, reading and verifying a large trace needs no more memory than a small one.

    AGENTBOX_TEST_TRACE_MB sets its size in megabytes: 40 by default, 1024 for the large test.
    """
    path = tmp_path / "run.jsonl"

    def peak(what: str, megabytes: int) -> int:
        command = [sys.executable, "-c", MEASURE, str(path), str(megabytes), what]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    peaks: dict[str, list[int]] = {}
    for megabytes in (1, BIG):
        path.unlink(missing_ok=True)
        for what in ("write", "read", "1", "2"):
            peaks.setdefault(what, []).append(peak(what, megabytes))
    assert path.stat().st_size > BIG * 900_000
    assert all(big <= small + 8 for small, big in peaks.values()), peaks
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0
