"""The writer: what its lines look like, what it refuses, and that nothing forks or loses the chain."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from agentbox.trace import TraceError, TraceWriter, read, rotate, verify
from agentbox.trace.chain import ZERO, line_hash


@pytest.fixture
def writer(tmp_path: Path) -> TraceWriter:
    """A writer whose trace has been begun."""
    writer = TraceWriter.create(tmp_path / "run.jsonl")
    writer.append("meta", "run.start", args={"run": "test"}, src="supervisor", ts=1.5)
    return writer


def test_bytes_of_a_line(writer: TraceWriter) -> None:
    """The members of a line come in the order of the spec, in compact ASCII JSON."""
    head = writer.head
    writer.append(
        "effect", "http.request", args={"url": "é"}, result={"status": 200}, lane="1.2", pid=9, ts=1764000000.5
    )
    writer.flush()
    assert Path(writer.path).read_bytes().splitlines(keepends=True)[1] == (
        b'{"prev":"%s","seq":1,"ts":1764000000.500000,"kind":"effect","op":"http.request","lane":"1.2","pid":9,"src":"guard",'
        b'"args":{"url":"\\u00e9"},"result":{"status":200}}\n' % head.encode()
    )


def test_first_line(writer: TraceWriter) -> None:
    """Line 0 has 64 zeros before it and names the format before everything else."""
    writer.flush()
    raw = Path(writer.path).read_bytes()
    assert raw.startswith(b'{"prev":"%s","seq":0,"ts":1.500000,"kind":"meta","op":"run.start"' % ZERO.encode())
    assert b'"args":{"format":"agentbox-trace/1","run":"test"}}' in raw
    assert writer.head == line_hash(raw)


def test_denial_has_all_its_members(writer: TraceWriter) -> None:
    """A denial always has rule, reason, fix and enforced; what else is given comes beside them."""
    writer.append("deny", "fs.read", args={"path": "/x"}, extra={"reason": "no rule", "site": "a.py:3"})
    writer.flush()
    entry = list(read(writer.path))[1]
    assert entry.extra == {"rule": None, "reason": "no rule", "fix": None, "enforced": True, "site": "a.py:3"}


def test_seal(writer: TraceWriter) -> None:
    """The seal counts its own line, carries the hash of its bytes, and its hash is the head that `seal` returns."""
    writer.append("deny", "fs.read")
    head = writer.seal(3, duration=0.25, signal=0, failure="a reason")
    raw = Path(writer.path).read_bytes().splitlines(keepends=True)[-1]
    doc = json.loads(raw)
    assert doc["args"] == {
        "lines": 3,
        "counts": {"meta": 2, "effect": 0, "observe": 0, "deny": 1},
        "blobs": 0,
        "status": 3,
        "signal": 0,
        "duration": 0.25,
        "failure": "a reason",
    }
    assert list(doc)[-1] == "sha" and doc["sha"] == line_hash(raw[:-75])
    assert head == writer.head == line_hash(raw)
    assert (writer.count, writer.counts["meta"]) == (3, 2)


def test_nothing_follows_the_seal(writer: TraceWriter) -> None:
    """After the seal the writer refuses entries and a second seal."""
    writer.seal(0, duration=0)
    for use in (lambda: writer.append("observe", "fs.read"), lambda: writer.seal(0, duration=0)):
        with pytest.raises(TraceError, match="is sealed, no entry can follow") as caught:
            use()
        assert caught.value.code == "sealed"
    assert verify(writer.path).ok


@pytest.mark.parametrize(
    ("use", "text", "code"),
    [
        (lambda w: w.append("effects", "x"), "kind is 'effects', expected one of meta, effect, observe, deny", "usage"),
        (lambda w: w.append("meta", "run.end"), "run.end is written by `seal`", "usage"),
        (
            lambda w: w.append("observe", "x", args={"a": b"b"}),
            "x: holds a bytes, expected what JSON can hold",
            "value",
        ),
        (lambda w: w.append("observe", "x", extra={"seq": 1}), "extra holds 'seq', which is a member", "usage"),
        (lambda w: w.append("observe", "x", args={"n": 10**5000}), "x: exceeds the limit", "value"),
        (lambda w: w.append("observe", "x", args={"a": "b" * (65 << 20)}), "bytes long, expected at most", "too-long"),
    ],
)
def test_refusals(writer: TraceWriter, use, text: str, code: str) -> None:
    """What cannot be written is refused with one line, and the trace goes on without it."""
    with pytest.raises(TraceError) as caught:
        use(writer)
    assert text in str(caught.value) and caught.value.code == code
    writer.append("observe", "fs.read")
    writer.seal(0, duration=0)
    assert verify(writer.path).entries == 3


def test_first_entry_must_be_the_start(tmp_path: Path) -> None:
    """A trace cannot begin with anything but run.start."""
    writer = TraceWriter.create(tmp_path / "run.jsonl")
    with pytest.raises(TraceError, match="the first entry is observe fs.read, expected meta run.start"):
        writer.append("observe", "fs.read")
    with pytest.raises(TraceError, match="expected meta run.start"):
        writer.seal(0, duration=0)


def test_nested_too_deeply(writer: TraceWriter) -> None:
    """A value nested without end is refused, not a crash."""
    value: list[object] = []
    value.append(value)
    with pytest.raises(TraceError, match="is nested too deeply"):
        writer.append("observe", "x", args={"a": value})


def test_not_a_number(writer: TraceWriter) -> None:
    """NaN and infinities, which JSON has not, are spelled as texts."""
    writer.append("observe", "x", args={"a": [float("nan"), float("inf")], "b": {"c": -float("inf")}, "d": 1.5})
    writer.flush()
    assert list(read(writer.path))[1].args == {"a": ["nan", "inf"], "b": {"c": "-inf"}, "d": 1.5}


def test_waits_in_memory(writer: TraceWriter) -> None:
    """Entries wait until `flush`, or until 64 KiB of them wait."""
    path = Path(writer.path)
    assert path.stat().st_size == 0
    writer.flush()
    size = path.stat().st_size
    assert size > 0
    writer.append("observe", "x", args={"a": "b" * 65536})
    assert path.stat().st_size > size + 65536


def test_mode_and_no_inheritance(writer: TraceWriter) -> None:
    """The file is for its owner only and no started program inherits it."""
    assert stat.S_IMODE(os.stat(writer.path).st_mode) == 0o600
    assert not os.get_inheritable(writer._fd)


def test_create_takes_an_empty_file(tmp_path: Path) -> None:
    """An empty file is taken over and its mode corrected."""
    path = tmp_path / "run.jsonl"
    path.touch(0o644)
    TraceWriter.create(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_create_refuses(tmp_path: Path, trace: Path) -> None:
    """Whatever is there and is not an empty file is left alone."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "one").touch()
    os.link(tmp_path / "one", tmp_path / "two")
    before = trace.read_bytes()
    for name, text, code in [
        (trace, "is there already, expected no file or an empty one", "exists"),
        (tmp_path / "link", "it is a symbolic link, expected a regular file", "io"),
        (tmp_path, "is a directory", "io"),
        (tmp_path / "pipe", "", "io"),
        (tmp_path / "two", "has 2 names, expected one", "io"),
        (tmp_path / "no" / "run.jsonl", "no such file or directory", "io"),
    ]:
        with pytest.raises(TraceError) as caught:
            TraceWriter.create(name)
        assert text in str(caught.value) and caught.value.code == code
        assert str(caught.value).startswith(str(name)) and "\n" not in str(caught.value)
    assert trace.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()


def test_one_writer_at_a_time(writer: TraceWriter) -> None:
    """A trace that is being written can be neither written by a second writer nor moved away."""
    with pytest.raises(TraceError, match="another run is writing it"):
        TraceWriter.create(writer.path)
    writer.flush()
    with pytest.raises(TraceError, match="another run is writing it"):
        rotate(writer.path)
    writer.close()
    assert rotate(writer.path) is not None


def test_close(writer: TraceWriter) -> None:
    """Closing flushes, may be done twice, and ends the use of the writer."""
    writer.append("observe", "fs.read")
    writer.close()
    writer.close()
    assert verify(writer.path, allow_unsealed=True).entries == 2
    with pytest.raises(TraceError, match="is closed, no entry can follow"):
        writer.append("observe", "fs.read")


def test_threads(writer: TraceWriter) -> None:
    """Threads that append at the same time make one intact chain, and each gets the numbers of its own entries."""
    numbers: dict[int, list[int]] = {}
    barrier = threading.Barrier(8)

    def work(name: int) -> None:
        barrier.wait()
        numbers[name] = [writer.append("effect", "clock.now", pid=name, args={"n": n}) for n in range(500)]

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.seal(0, duration=1)
    assert verify(writer.path).entries == 8 * 500 + 2
    by_thread: dict[int, list[tuple[int, int]]] = {name: [] for name in range(8)}
    for entry in read(writer.path):
        if entry.kind == "effect":
            by_thread[entry.pid].append((entry.seq, entry.args["n"]))
    assert by_thread == {name: list(zip(seqs, range(500), strict=True)) for name, seqs in numbers.items()}


def test_time(writer: TraceWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a time the entry gets the present one."""
    monkeypatch.setattr("agentbox.trace.writer.time", lambda: 1234567890.25)
    writer.append("observe", "fs.read")
    writer.flush()
    assert list(read(writer.path))[1].ts == 1234567890.25


def test_interrupted_flush(writer: TraceWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception out of a signal handler in the middle of a write neither loses nor doubles a line."""
    real = os.write

    def interrupted(fd: int, data: bytes) -> int:
        real(fd, bytes(data[:50]))
        raise KeyboardInterrupt

    writer.append("observe", "fs.read")
    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.flush()
    monkeypatch.undo()
    writer.append("observe", "fs.read")
    writer.seal(0, duration=0)
    assert verify(writer.path).entries == 4


def test_foreign_write(writer: TraceWriter) -> None:
    """When something else has written to the file the writer stops, and says so."""
    writer.flush()
    with open(writer.path, "ab") as file:
        file.write(b"x" * 1000)
    writer.append("observe", "fs.read")
    for _ in range(2):
        with pytest.raises(TraceError, match="something else writes to it") as caught:
            writer.flush()
        assert caught.value.code == "changed"


@pytest.mark.parametrize(
    ("take", "text", "hint"),
    [
        (os.unlink, "is not there any more: the trace was deleted while the run wrote it", "is lost"),
        (lambda path: os.rename(path, path + ".away"), "is not there any more: the trace was moved", "run.jsonl.away"),
        (lambda path: os.replace(_other(path), path), "is another file now: the trace was deleted", "is lost"),
    ],
)
def test_a_name_that_was_taken_away_is_noticed_at_the_seal(writer: TraceWriter, take, text: str, hint: str) -> None:
    """The seal is written and the head right, and the error says what became of the file and where it is."""
    take(writer.path)
    with pytest.raises(TraceError, match="run.jsonl: ") as caught:
        writer.seal(0, duration=1.0)
    assert text in str(caught.value) and caught.value.code == "moved" and hint in caught.value.hint
    away = Path(writer.path + ".away")
    if away.exists():
        result = verify(away)
        assert (result.status, result.head) == ("sealed", writer.head)


def _other(path: str) -> str:
    Path(path + ".other").write_text("{}")
    return path + ".other"


def test_a_trace_that_cannot_be_made_says_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another name helps; where a file of somebody else is in the way, it is named."""
    with pytest.raises(TraceError) as caught:
        TraceWriter.create(tmp_path / "none" / "run.jsonl")
    assert caught.value.hint == "name another trace: -t FILE"
    path = tmp_path / "run.jsonl"
    path.touch()

    def refuse(*args: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    for make in (rotate, TraceWriter.create):
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid)
        with pytest.raises(TraceError, match="permission denied") as caught:
            make(path)
        assert caught.value.hint == "name another trace: -t FILE"
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
        with pytest.raises(TraceError, match="permission denied") as caught:
            make(path)
        assert caught.value.hint == (
            f"{path} belongs to another user and is in the way; have it removed or name another trace: -t FILE"
        )
