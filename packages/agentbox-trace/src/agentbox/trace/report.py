"""What `verify` found: one status, the place, and in words what was proved and what was not.

It must never claim more than the checks behind it.
"""

from __future__ import annotations

STATUSES = {
    "sealed": "every line is chained and the seal holds",
    "unsealed": "every line is chained, but the last is not a seal: a crash, a run still going, or a cut tail",
    "edited": "a line was changed after it was written",
    "deleted": "lines are missing",
    "inserted": "a line was put in that the writer did not write there",
    "reordered": "a line is not in its place",
    "duplicate": "a line is there twice",
    "after-seal": "something follows the seal",
    "torn": "the last line has no end",
    "empty": "the file has no bytes",
    "not-a-trace": "the file does not begin like a trace of a version that is known",
    "malformed": "a line is chained but is not an entry",
    "too-long": "a line is longer than the format allows",
    "seal-mismatch": "the seal says something else than the lines before it",
    "head-mismatch": "the chain is whole but does not end in the given head",
    "blob-missing": "a blob that a line names is not there",
    "blob-edited": "a blob does not have the hash that names it",
}
"""Every status of a report and what it means (docs/spec/trace.md, section 7)."""


class Report:
    """The result of `verify`.

    `status` is a key of `STATUSES`, `ok` whether that passes, `line` (from 1) and `seq` the place (0 and -1 where
    there is none), `message` one sentence for the user, `entries` how many lines hold, `head` the hash of the last
    of them, `counts` those lines per kind, `offset` the byte after them. `proved` and `not_proved` are lists of
    sentences.
    """

    __slots__ = (
        "counts",
        "entries",
        "head",
        "line",
        "message",
        "not_proved",
        "offset",
        "ok",
        "path",
        "proved",
        "seq",
        "status",
    )

    def __init__(self, path: str, status: str, message: str, *, ok: bool = False, line: int = 0) -> None:
        if status not in STATUSES:
            raise ValueError(f"report: status is {status!a}, expected one of {', '.join(STATUSES)}")
        self.path = path
        self.status = status
        self.message = message
        self.ok = ok
        self.line = line
        self.seq = line - 1
        self.entries = 0
        self.head = ""
        self.offset = 0
        self.counts: dict[str, int] = {}
        self.proved: list[str] = []
        self.not_proved: list[str] = []

    def __repr__(self) -> str:
        return f"<Report {self.status} {self.message!r}>"

    def as_dict(self) -> dict[str, object]:
        """Return all members as plain values, for JSON output."""
        return {name: getattr(self, name) for name in sorted(self.__slots__)}
