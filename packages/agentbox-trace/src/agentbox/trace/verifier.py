"""`verify`: whether a trace is what its writer wrote, and what that is worth (docs/spec/trace.md, section 7).

It must never change anything, never raise on the contents of a file, and never call something proved that was not
checked.
"""

from __future__ import annotations

import os

from .blobs import check_blob, folder_of
from .chain import ZERO, ends_like_seal, is_hash, is_seal, line_hash, seal_holds
from .diagnose import after_seal, check_start, diagnose, find_head, line_before
from .errors import TraceError, from_os, shown
from .files import open_trace
from .parallel import usable_processes, walk_together
from .report import Report
from .strict import strict_object
from .walk import Walk, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .diagnose import Finding

_CHAIN_HOLDS = ("sealed", "unsealed", "seal-mismatch", "head-mismatch", "blob-missing", "blob-edited")
"""What is only found where every line is chained."""


def verify(
    path: str | os.PathLike[str],
    *,
    head: str | None = None,
    allow_unsealed: bool = False,
    blobs: bool = True,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Check a whole trace and report.

    `head` is the hash (64 hex digits) that the run printed at its end, kept where nobody could change it;
    `allow_unsealed` lets a trace without seal pass; `blobs` checks the bodies beside the trace; `processes` is how
    many may work (default: what the machine and the file's size are worth); `progress` is called with (bytes done,
    bytes in all). Whatever the file holds becomes a report. Raises `TraceError` for a file that cannot be read and a
    `head` that is none.
    """
    name = os.fspath(path)
    if head is not None and not is_hash(head := head.strip().lower()):
        raise TraceError(
            f"head: is {head!a}, expected 64 hex digits", code="usage", hint="the run prints it at its end"
        )
    fd = open_trace(name)
    try:
        return _Check(fd, name, head, allow_unsealed, blobs).run(processes, progress)
    except OSError as error:
        raise from_os(name, "cannot be read", error) from None
    finally:
        os.close(fd)


def verify_from(path: str | os.PathLike[str], offset: int = 0, prev: str = ZERO, seq: int = 0) -> Report:
    """Check the whole lines from byte `offset` on, where `prev` is the hash of the line before and `seq` the number of
    lines before.

    To go on later, call again with `offset`, `head` and `entries` of the report. A last line without LF is left for
    the next call. The status is `sealed` when the seal was met, `unsealed` (and `ok`) as long as it was not. Of the
    lines before `offset` only the last is looked at; `counts` are of the lines from there on. Blobs are not checked.
    Raises `TraceError` like `verify`.
    """
    name = os.fspath(path)
    fd = open_trace(name)
    try:
        size = os.fstat(fd).st_size
        if size < offset:
            report = Report(
                name, "deleted", f"{shown(name)}: has {size} bytes, expected at least {offset}: it was cut", line=seq
            )
            report.head, report.entries, report.offset = prev, seq, offset
            return report
        return _Check(fd, name, None, True, False, first=seq).go_on(Walk(offset, prev, seq))
    except OSError as error:
        raise from_os(name, "cannot be read", error) from None
    finally:
        os.close(fd)


class _Check:
    """One verification, in the order in which its steps depend on each other. `first` lines were checked before."""

    def __init__(
        self, fd: int, name: str, head: str | None, allow_unsealed: bool, blobs: bool, *, first: int = 0
    ) -> None:
        self.fd = fd
        self.name = name
        self.head = head
        self.allow_unsealed = allow_unsealed
        self.blobs = blobs
        self.first = first
        self.size = os.fstat(fd).st_size
        self.folder = folder_of(name)

    def run(self, processes: int | None, progress: Callable[[int, int], None] | None) -> Report:
        # (1) There is something, and it begins like a trace.
        if not self.size:
            return Report(self.name, "empty", f"{shown(self.name)}: is empty, expected at least a run.start")
        found = check_start(self.fd)
        if found is not None:
            return self._failed(found, Walk(0, ZERO, 0))
        # (2) Every line carries the hash of the line before and the next number.
        position = Walk(0, ZERO, 0)
        count = usable_processes(self.size) if processes is None else max(1, processes)
        tell = None if progress is None else lambda done: progress(min(done, self.size), self.size)
        if count > 1:
            walk_together(self.fd, position, self.size, count, progress=tell)
        else:
            walk(self.fd, position, self.size, progress=tell)
        return self.finish(position)

    def go_on(self, position: Walk) -> Report:
        """Check what follows a place that was reached before."""
        if position.offset:
            line, number = line_before(self.fd, position.offset), position.seq
            if line_hash(line) != position.head:
                return self._failed(
                    ("edited", number, f"line {number} was changed: its hash is not the one given for it"),
                    Walk(0, ZERO, 0),
                )
            if is_seal(line):
                position.seal = number - 1
        else:
            found = check_start(self.fd) if self.size else None
            if found is not None:
                return self._failed(found, position)
        walk(self.fd, position, self.size)
        if position.seal < 0:
            position.rest = 0  # it may be whole in the next call
        return self.finish(position)

    def finish(self, position: Walk) -> Report:
        """Judge a finished walk."""
        if position.bad:
            return self._failed(diagnose(self.fd, position), position)
        # (3) Nothing follows the seal, and the last line is whole.
        if 0 <= position.seal < position.seq - 1 or (position.seal >= 0 and position.rest):
            return self._failed(after_seal(position.seal), position)
        if position.rest:
            number = position.seq + 1
            return self._failed(
                (
                    "torn",
                    number,
                    f"line {number} is cut off after {position.rest} bytes: a crash, a full disk or a cut tail",
                ),
                position,
            )
        # (4) The seal holds its own hash and agrees with what was counted.
        found = self._seal_fault(position)
        if found is not None:
            return self._failed(found, position)
        # (5) The bodies beside the trace have the hashes that name them.
        found = self._blob_fault(position)
        if found is not None:
            return self._failed(found, position)
        # (6) The chain ends where it ended when its head was written down.
        if self.head is not None and position.head != self.head:
            return self._failed(self._head_fault(position), position)
        return self._passed(position)

    def _seal_fault(self, position: Walk) -> Finding | None:
        raw = line_before(self.fd, position.offset)
        number = position.seq
        if (position.seal >= 0 or ends_like_seal(raw)) and not seal_holds(raw):
            text = f"line {number}, the seal, was changed: it does not carry the hash of its own bytes"
            return "edited", number, text
        if position.seal < 0 or self.first:  # then the kinds of the lines before are not known
            return None
        args = (strict_object(raw) or {}).get("args")
        if not isinstance(args, dict) or not {"lines", "counts", "blobs"}.issubset(args):
            return "seal-mismatch", number, f"line {number}, the seal, holds no lines, counts and blobs"
        wanted = {"lines": position.seq, "counts": position.counts, "blobs": len(position.blobs)}
        for name, value in wanted.items():
            if not _same(args[name], value):
                what = "" if name == "counts" else f" {name}"
                text = f"the seal in line {number} counts {args[name]!a}{what}, expected {value}"
                return "seal-mismatch", number, text
        return None

    def _blob_fault(self, position: Walk) -> Finding | None:
        if not self.blobs:
            return None
        for name, seq in position.blobs.items():
            wrong = check_blob(self.folder, name)
            if wrong is not None:
                status, reason = wrong
                what = "is missing" if status == "blob-missing" else "was changed"
                return status, seq + 1, f"the blob {name} that line {seq + 1} names {what}: {reason}"
        return None

    def _head_fault(self, position: Walk) -> Finding:
        assert self.head is not None
        after = find_head(self.fd, position.offset, self.head)
        if after:
            return (
                "head-mismatch",
                after + 1,
                f"the given head is that of line {after} of {position.seq}: lines were added after it was taken",
            )
        return (
            "head-mismatch",
            position.seq,
            f"the head is {position.head}, expected {self.head}: "
            "the trace was rewritten or cut, or the head is of another run",
        )

    def _fill(self, report: Report, position: Walk) -> Report:
        report.entries = position.seq
        report.head = position.head
        report.counts = position.counts
        report.offset = position.offset
        # A line that was changed may well carry the right hash of the one before: it must not be among what is proved.
        chained = position.seq if report.status in _CHAIN_HOLDS else min(position.seq, report.line - 1)
        if self.first:
            report.not_proved.append(f"the first {self.first} lines: what was found before is taken for granted")
            if chained > self.first:
                report.proved.append(
                    f"each line from {self.first + 1} to {chained} carries the hash of the line before it "
                    "and the next number"
                )
        elif chained == 1:
            report.proved.append("the first line begins a chain")
        elif chained > 1:
            report.proved.append(
                f"each of the first {chained} lines carries the hash of the line before it and the next number"
            )
        return report

    def _failed(self, found: Finding, position: Walk) -> Report:
        status, line, message = found
        report = self._fill(Report(self.name, status, f"{shown(self.name)}: {message}", line=line), position)
        report.not_proved.append("everything else: the check ended at the first fault")
        return report

    def _passed(self, position: Walk) -> Report:
        sealed = position.seal >= 0
        lines = f"{position.seq} {'line' if position.seq == 1 else 'lines'}"
        if self.first:
            lines += f", the first {self.first} taken for granted"
        if sealed:
            message = f"{shown(self.name)}: intact and sealed, {lines}"
        else:
            message = (
                f"{shown(self.name)}: intact but unsealed after {lines}: a crash, a run that is not over, or a cut tail"
            )
        report = self._fill(
            Report(self.name, "sealed" if sealed else "unsealed", message, ok=sealed or self.allow_unsealed), position
        )
        if sealed:
            report.proved.append(
                "the last line is a seal that carries the hash of its own bytes"
                + ("" if self.first else ", and its counts agree with the lines")
            )
        elif self.head is None:
            report.not_proved.append("no seal: lines may be missing at the end, and nothing confirms the last line")
        if self.head is not None:
            report.proved.append("the head is the given one: no line was changed, added or removed since it was taken")
        else:
            report.not_proved.append("no anchor: a rewrite by someone who can write this file would not be seen")
        self._fill_blobs(report, position)
        return report

    def _fill_blobs(self, report: Report, position: Walk) -> None:
        if not self.blobs:
            report.not_proved.append("bodies beside the trace were not checked")
        elif position.blobs:
            report.proved.append(f"all bodies beside the trace, {len(position.blobs)}, have the hashes that name them")


def _same(got: object, wanted: object) -> bool:
    """Compare what a seal counts; `true` and `1.0` are no counts."""
    values = got.values() if isinstance(got, dict) else (got,)
    return got == wanted and all(type(value) is int for value in values)
