"""Exporters: the table is complete, and the database holds what the trace holds."""

from __future__ import annotations

import json
import re
import sqlite3
import stat
from pathlib import Path

import pytest

from agentbox.trace import EXPORTERS, TraceError, TraceWriter, exporter, read
from agentbox.trace import exporters as folder

VALID = Path(__file__).parent.parent / "vectors" / "valid"


def test_table_is_complete() -> None:
    """Every file in the folder is in the table, and has what an exporter needs."""
    here = Path(folder.__file__).parent
    assert sorted(path.stem for path in here.glob("[!_]*.py")) == sorted(EXPORTERS)
    for name, text in EXPORTERS.items():
        module = exporter(name)
        assert module.suffix.startswith(".") and text and module.export.__doc__ and module.__doc__


def test_unknown_exporter() -> None:
    """An unknown name is an error that gives the known ones."""
    with pytest.raises(TraceError, match="exporter: is 'nope', expected one of sqlite"):
        exporter("nope")


@pytest.mark.parametrize("name", sorted(path.name for path in VALID.iterdir()))
def test_sqlite(tmp_path: Path, name: str) -> None:
    """The database has one row per line, with every value."""
    path = VALID / name / "run.jsonl"
    target = tmp_path / "run.sqlite"
    entries = list(read(path))
    assert exporter("sqlite").export(read(path), str(target)) == len(entries)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with sqlite3.connect(target) as database:
        rows = database.execute("SELECT seq, ts, kind, op, args, result, hash FROM entries ORDER BY seq").fetchall()
        run = dict(database.execute("SELECT name, value FROM run"))
        denials = database.execute("SELECT rule, reason, fix, enforced FROM denials").fetchall()
    database.close()
    for row, entry in zip(rows, entries, strict=True):
        assert row[:4] == (entry.seq, entry.ts, entry.kind, entry.op)
        assert json.loads(row[4]) == entry.args and (row[5] is None or json.loads(row[5]) == entry.result)
    assert [row[6] for row in rows[:-1]] == [entry.prev for entry in entries[1:]]
    assert json.loads(run["run.start.format"]) == "agentbox-trace/1"
    if name == "small":
        assert denials == [(None, "outside every read rule", "read: /etc/passwd", 1)]


def test_sqlite_keeps_other_files(tmp_path: Path, trace: Path) -> None:
    """A file that is there is not written over."""
    target = tmp_path / "run.sqlite"
    target.write_text("mine")
    with pytest.raises(TraceError, match="is there already, expected no file"):
        exporter("sqlite").export(read(trace), str(target))
    assert target.read_text() == "mine"
    with pytest.raises(TraceError, match="the database cannot be made: no such file or directory"):
        exporter("sqlite").export(read(trace), str(tmp_path / "no" / "x"))


def test_sqlite_leaves_nothing_half_made(tmp_path: Path) -> None:
    """An error in the middle leaves no file."""
    path = tmp_path / "run.jsonl"
    writer = TraceWriter.create(path)
    writer.append("meta", "run.start", args={"text": "\udcff"})
    writer.append("deny", "x", extra={"reason": "\udcff", "more": 1})
    writer.close()
    assert exporter("sqlite").export(read(path), str(tmp_path / "good.sqlite")) == 2
    path.write_bytes(path.read_bytes() + b"garbage\n")
    with pytest.raises(TraceError, match="line 3: begins with"):
        exporter("sqlite").export(read(path), str(tmp_path / "bad.sqlite"))
    path.write_bytes(path.read_bytes()[: -len(b"garbage\n")] * 2)
    with pytest.raises(TraceError, match="the database cannot be written: unique constraint failed"):
        exporter("sqlite").export(read(path), str(tmp_path / "bad.sqlite"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["good.sqlite", "run.jsonl"]


def test_sqlite_takes_what_json_can_hold(tmp_path: Path) -> None:
    """Numbers over 64 bits, NaN, and names that are not text fit the reader, so they fit the database."""
    path = tmp_path / "run.jsonl"
    writer = TraceWriter.create(path)
    writer.append("meta", "run.start", args={"\udcff": 1}, pid=(1 << 70) + 1)
    writer.append("deny", "x", extra={"rule": 1 << 63, "fix": -(1 << 63)})
    writer.close()
    path.write_bytes(re.sub(rb'"ts":[0-9.]+', b'"ts":NaN', path.read_bytes()))
    assert exporter("sqlite").export(read(path), str(tmp_path / "run.sqlite")) == 2
    with sqlite3.connect(tmp_path / "run.sqlite") as database:
        found = database.execute("SELECT ts, pid, rule, fix FROM entries ORDER BY seq").fetchall()
        names = [name for (name,) in database.execute("SELECT name FROM run")]
    database.close()
    assert found == [("NaN", b"%d" % ((1 << 70) + 1), None, None), ("NaN", 0, b"%d" % (1 << 63), str(-(1 << 63)))]
    assert "run.start.\\udcff" in names
