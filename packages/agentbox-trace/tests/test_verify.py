"""`verify` on whole files: what passes, what it says, and what it does with files that are no traces."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from agentbox.trace import TraceError, TraceWriter, verify, verify_from
from agentbox.trace.chain import MAX_LINE, PREFIX, START, ZERO, line_hash
from agentbox.trace.parallel import usable_processes


def test_sealed(trace: Path) -> None:
    """An intact, sealed trace passes, and the report says what that does not prove."""
    report = verify(trace)
    assert (report.ok, report.status, report.entries, report.line, report.seq) == (True, "sealed", 7, 0, -1)
    assert report.message == f"{trace}: intact and sealed, 7 lines"
    assert report.counts == {"meta": 2, "effect": 0, "observe": 5, "deny": 0}
    assert report.not_proved == ["no anchor: a rewrite by someone who can write this file would not be seen"]
    assert report.as_dict()["head"] == report.head


def test_head(trace: Path) -> None:
    """With the right head the report calls a rewrite out of the question; capitals and a newline do not matter."""
    head = verify(trace).head
    report = verify(trace, head=f" {head.upper()}\n")
    assert report.ok and report.not_proved == []
    assert report.proved[-1] == "the head is the given one: no line was changed, added or removed since it was taken"


@pytest.mark.parametrize("head", ["", "12", "g" * 64, "a" * 65])
def test_head_that_is_none(trace: Path, head: str) -> None:
    """A head that is no hash is an error, not a mismatch."""
    with pytest.raises(TraceError, match="expected 64 hex digits"):
        verify(trace, head=head)


def test_head_of_an_earlier_line(trace: Path) -> None:
    """A head that the chain had before tells since which line the trace was continued."""
    lines = trace.read_bytes().splitlines(keepends=True)
    report = verify(trace, head=lines[4][9:73].decode())
    assert (report.status, report.line) == ("head-mismatch", 5)
    assert report.message == f"{trace}: the given head is that of line 4 of 7: lines were added after it was taken"


def test_unsealed(tmp_path: Path, write_trace) -> None:
    """A trace without seal fails unless that is asked for, and then says that lines may be missing."""
    path = write_trace(tmp_path / "run.jsonl", seal=False)
    assert not verify(path).ok
    report = verify(path, allow_unsealed=True)
    assert (report.ok, report.status) == (True, "unsealed")
    assert "no seal: lines may be missing at the end, and nothing confirms the last line" in report.not_proved


@pytest.mark.parametrize(
    ("data", "status", "text"),
    [
        (b"", "empty", "is empty"),
        (b"\x00" * 100_000, "not-a-trace", "begins with '\\x00\\x00"),
        (b"\x80\xff\xfe\x00" * 1000, "not-a-trace", "line 1 begins with"),
        (b"no newline at all" * 100_000, "not-a-trace", "no newline"),
        (b"\x1f\x8b\x08" + bytes(50), "not-a-trace", "it is gzip-compressed"),
        (b"{}\n", "not-a-trace", "begins with '{}\\n'"),
        (START, "torn", "line 1 is cut off"),
        (START + b"\n", "not-a-trace", "names no format"),
        (START + b"[" * 100_000 + b"\n", "not-a-trace", "names no format"),
        (START[:20], "torn", "line 1 is cut off after 20 bytes"),
    ],
)
def test_garbage(tmp_path: Path, data: bytes, status: str, text: str) -> None:
    """Whatever a file holds becomes a report with one short line."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    report = verify(path)
    assert report.status == status and not report.ok
    assert text in report.message and "\n" not in report.message and len(report.message) < 400


def test_what_cannot_be_read(tmp_path: Path) -> None:
    """A directory, a pipe, a device, a missing file, a name with a NUL: each an error of one line, and none waits."""
    os.mkfifo(tmp_path / "pipe")
    for name, text in [
        (tmp_path, "is a directory, expected a trace file"),
        (tmp_path / "pipe", "is a pipe, expected a trace file"),
        ("/dev/null", "is a device, expected a trace file"),
        (tmp_path / "missing", "cannot be opened: no such file or directory"),
        (tmp_path / "run.jsonl" / "x", "cannot be opened: no such file or directory"),
        ("a\0b", "cannot be opened: its name holds a NUL byte"),
    ]:
        with pytest.raises(TraceError) as caught:
            verify(name)
        assert text in str(caught.value) and "\n" not in str(caught.value) and caught.value.hint
        assert caught.value.hint.startswith("record one first" if "no such file" in text else "name the trace")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable(trace: Path) -> None:
    """A file without read permission is an error with one line."""
    trace.chmod(0)
    with pytest.raises(TraceError, match="cannot be opened: permission denied"):
        verify(trace)


def test_line_without_end(tmp_path: Path, write_trace) -> None:
    """A line over 64 MiB ends the check with its own status, however large the file is."""
    path = write_trace(tmp_path / "run.jsonl", seal=False)
    with open(path, "ab") as file:
        file.truncate(os.path.getsize(path) + 16 * MAX_LINE)  # sparse: a gigabyte of NULs without a newline
    report = verify(path, processes=1)
    assert (report.status, report.line) == ("too-long", 7)


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_processes_agree(tmp_path: Path, write_trace, processes: int) -> None:
    """Any number of processes gives the same report, also where the damage is at a border between them."""
    path = write_trace(tmp_path / "run.jsonl", 3000)
    whole = path.read_bytes()
    assert verify(path, processes=processes).as_dict() == verify(path, processes=1).as_dict()
    for place in (0, len(whole) // 5, len(whole) // 2, len(whole) // 2 + 200, len(whole) - 100):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        got, wanted = verify(path, processes=processes), verify(path, processes=1)
        assert got.as_dict() == wanted.as_dict() and not got.ok


def test_processes_by_default(tmp_path: Path) -> None:
    """Small files are checked in one process, and large ones too where other threads run."""
    assert usable_processes(1000) == 1
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert usable_processes(1 << 40) == 1
    finally:
        stop.set()
        thread.join()


def test_progress(tmp_path: Path, write_trace) -> None:
    """Progress goes up to the size of the file."""
    path = write_trace(tmp_path / "run.jsonl", 3000)
    for processes in (1, 2):
        seen: list[tuple[int, int]] = []
        verify(path, processes=processes, progress=lambda done, size, seen=seen: seen.append((done, size)))
        assert seen and seen == sorted(seen) and all(done <= size == path.stat().st_size for done, size in seen)


def test_resume(tmp_path: Path) -> None:
    """A trace that grows is checked piece by piece, each from where the last ended; a half-written line waits."""
    path = tmp_path / "run.jsonl"
    writer = TraceWriter.create(path)
    writer.append("meta", "run.start")
    writer.flush()
    first = verify_from(path)
    assert (first.ok, first.status, first.entries, first.head) == (True, "unsealed", 1, writer.head)
    for _ in range(10):
        writer.append("observe", "fs.read")
    writer.flush()
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    second = verify_from(path, first.offset, first.head, first.entries)
    assert (second.ok, second.entries) == (True, 10)
    path.write_bytes(whole)
    writer.seal(0, duration=0)
    writer.close()
    third = verify_from(path, second.offset, second.head, second.entries)
    assert (third.ok, third.status, third.head, third.entries) == (True, "sealed", writer.head, 12)


def test_resume_sees_damage(trace: Path) -> None:
    """Damage after the place is found with its line in the whole file; a file that became shorter is cut."""
    lines = trace.read_bytes().splitlines(keepends=True)
    place = (len(b"".join(lines[:3])), lines[3][9:73].decode(), 3)
    assert verify_from(trace, *place).status == "sealed"
    trace.write_bytes(b"".join(lines).replace(b"/data/3", b"/data/9"))
    assert (verify_from(trace, *place).status, verify_from(trace, *place).line) == ("edited", 5)
    trace.write_bytes(b"".join(lines[:2]))
    assert verify_from(trace, *place).status == "deleted"


def test_resume_claims_only_what_it_looked_at(trace: Path) -> None:
    """The lines before the place are taken for granted, in words; the last of them must be the one given."""
    lines = trace.read_bytes().splitlines(keepends=True)
    place = (len(b"".join(lines[:3])), lines[3][9:73].decode(), 3)
    report = verify_from(trace, *place)
    assert report.message == f"{trace}: intact and sealed, 7 lines, the first 3 taken for granted"
    assert report.proved == [
        "each line from 4 to 7 carries the hash of the line before it and the next number",
        "the last line is a seal that carries the hash of its own bytes",
    ]
    assert report.not_proved[0] == "the first 3 lines: what was found before is taken for granted"
    trace.write_bytes(b"".join(lines).replace(b"/data/1", b"/data/9"))
    assert (verify_from(trace, *place).status, verify_from(trace, *place).line) == ("edited", 3)


@pytest.mark.parametrize(
    "more", [b"x", b"\0" * 100, b'{"prev":"%s","seq":7,"ts":1764000000.000000,"kind":"meta","op":"x"}\n']
)
def test_resume_sees_what_follows_the_seal(trace: Path, more: bytes) -> None:
    """Nothing follows a seal, whether it was met in this call or in the one before."""
    report = verify_from(trace)
    with open(trace, "ab") as file:
        file.write(more.replace(b"%s", report.head.encode()))
    for place in ((0, ZERO, 0), (report.offset, report.head, report.entries)):
        after = verify_from(trace, *place)
        assert (after.ok, after.status, after.line) == (False, "after-seal", 8)


def test_resume_at_a_seal(trace: Path) -> None:
    """A trace that was sealed before still is."""
    report = verify_from(trace)
    again = verify_from(trace, report.offset, report.head, report.entries)
    assert (again.ok, again.status, again.entries) == (True, "sealed", 7)


def test_resume_at_the_start_asks_for_the_format(trace: Path) -> None:
    """From the start the first line is judged as `verify` does."""
    first = trace.read_bytes().splitlines(keepends=True)[0]
    trace.write_bytes(first.replace(b"agentbox-trace/1", b"agentbox-trace/2", 1))
    assert verify_from(trace).status == verify(trace).status == "not-a-trace"


def test_time_of_another_form(trace: Path) -> None:
    """What stands where `ts` must be is looked at: also of the right width, in any line, by any number of processes."""
    lines = trace.read_bytes().splitlines(keepends=True)
    for number in (2, len(lines) - 2):
        chained, head = [], ZERO
        for at, line in enumerate(lines[:-1]):
            line = PREFIX + head.encode() + line[73:]
            chained.append(line.replace(b'"ts":', b'"xs":') if at == number else line)
            head = line_hash(chained[-1])
        trace.write_bytes(b"".join(chained))
        report = verify(trace, allow_unsealed=True)
        assert (report.ok, report.status, report.line) == (False, "malformed", number + 1)


def test_changed_time(trace: Path) -> None:
    """A line whose time was changed into none is a changed one, if the next line tells, and no malformed one."""
    lines = trace.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"ts":1', b'"ts":x')
    trace.write_bytes(b"".join(lines))
    assert (verify(trace).status, verify(trace).line) == ("edited", 3)


def test_sparse_growth_after_the_seal(trace: Path) -> None:
    """Whatever its length, what follows the seal follows the seal."""
    with open(trace, "ab") as file:
        file.truncate(2 * MAX_LINE)
    assert (verify(trace, processes=1).status, verify(trace).line) == ("after-seal", 8)


def test_start_of_another_trace(trace: Path) -> None:
    """A first line with a prev that is not zero is named."""
    trace.write_bytes(trace.read_bytes().replace(ZERO.encode(), b"1" + ZERO.encode()[1:], 1))
    assert (verify(trace).status, verify(trace).line) == ("edited", 1)


def test_forged_blob_count(tmp_path: Path) -> None:
    """With `blobs` off nothing beside the trace is looked at, and the report says so."""
    writer = TraceWriter.create(tmp_path / "run.jsonl")
    writer.append("meta", "run.start", args={"body": writer.body(b"x" * 5000)})
    writer.seal(0, duration=0)
    writer.close()
    for blob in (tmp_path / "blobs").iterdir():
        blob.unlink()
    assert verify(writer.path).status == "blob-missing"
    report = verify(writer.path, blobs=False)
    assert report.ok and "bodies beside the trace were not checked" in report.not_proved
