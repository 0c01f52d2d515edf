"""A trace as an SQLite database, for questions in SQL: `SELECT op, count(*) FROM entries GROUP BY op`.

It must never lose a value: members that have no column of their own are in `extra`, and `args`, `result` and `extra`
are JSON for `json_extract`.
"""

from __future__ import annotations

import os

from ..chain import line_hash
from ..errors import TraceError, from_os, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from typing import Any

    from ..record import Entry

suffix = ".sqlite"

_SCHEMA = """
CREATE TABLE run (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE entries (
  seq INTEGER PRIMARY KEY, ts REAL NOT NULL, kind TEXT NOT NULL, op TEXT NOT NULL,
  lane TEXT NOT NULL, pid INTEGER NOT NULL, src TEXT NOT NULL,
  args TEXT NOT NULL, result TEXT, rule TEXT, reason TEXT, fix TEXT, enforced INTEGER, extra TEXT, hash TEXT NOT NULL
);
CREATE INDEX entries_op ON entries (op);
CREATE VIEW effects AS SELECT seq, ts, op, lane, args, result FROM entries WHERE kind = 'effect';
CREATE VIEW observations AS SELECT seq, ts, op, lane, pid, args FROM entries WHERE kind = 'observe';
CREATE VIEW denials AS
  SELECT seq, ts, op, lane, pid, args, rule, reason, fix, enforced FROM entries WHERE kind = 'deny';
"""
_LARGEST = 1 << 63
_COLUMNS = ("rule", "reason", "fix", "enforced")


def export(entries: Iterable[Entry], target: str) -> int:
    """See `Exporter.export`."""
    import sqlite3

    temporary = f"{target}.{os.getpid()}.tmp"
    try:
        if os.path.lexists(target):
            raise TraceError(
                f"{shown(target)}: is there already, expected no file", code="exists", hint="name another file"
            )
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise from_os(target, "the database cannot be made", error) from None
    try:
        count = _fill(temporary, entries)
        os.link(temporary, target)  # unlike a rename this never replaces what somebody else has just made
        return count
    except (sqlite3.Error, OSError) as error:
        raise TraceError(
            f"{shown(target)}: the database cannot be written: {str(error).lower()}", code="export"
        ) from None
    finally:
        os.unlink(temporary)


def _fill(path: str, entries: Iterable[Entry]) -> int:
    import sqlite3

    connection = sqlite3.connect(path)
    try:
        connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
        places = ",".join("?" * 15)
        connection.executemany(f"INSERT OR ABORT INTO entries VALUES ({places})", _rows(entries, connection))
        count = int(connection.execute("SELECT count(*) FROM entries").fetchone()[0])
        connection.commit()
        return count
    finally:
        connection.close()


def _rows(entries: Iterable[Entry], connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    for entry in entries:
        if entry.op in ("run.start", "run.end"):
            connection.executemany(
                "INSERT OR REPLACE INTO run VALUES (?, ?)",
                [(_text(f"{entry.op}.{name}"), _json(value)) for name, value in entry.args.items()],
            )
        extra = {name: value for name, value in entry.extra.items() if name not in _COLUMNS}
        denial = [_text(entry.extra.get(name)) for name in _COLUMNS]
        result = None if entry.result is None else _json(entry.result)
        yield (
            _text(entry.seq),
            _text(entry.ts),
            entry.kind,
            _text(entry.op),
            _text(entry.lane),
            _text(entry.pid),
            _text(entry.src),
            _json(entry.args),
            result,
            *denial,
            _json(extra) if extra else None,
            line_hash(entry.raw),
        )


def _json(value: object) -> str:
    from json import dumps

    return dumps(value, separators=(",", ":"))


def _text(value: object) -> object:
    """Return a value for a column; lone surrogates, which UTF-8 cannot hold, become escapes, NaN its name, and integers
    of more than 64 bits a BLOB of digits: as text a column of numbers would round them (SQLite, Type Affinity)."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float):
        return value if value == value else _json(value)
    if isinstance(value, int):
        return value if -_LARGEST <= value < _LARGEST else str(value).encode("ascii")
    return value if value is None else _json(value)
