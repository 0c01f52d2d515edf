"""The writer: the only thing that numbers, hashes and appends the lines of a trace.

It must never rewrite a line, leave a torn one where it can help it, or lose an entry without raising; it imports
next to nothing until the first append.
"""

from __future__ import annotations

import os
import stat
from _thread import allocate_lock
from time import time

from .blobs import BlobStore, describe_body
from .chain import MAX_LINE, ZERO, quick_sha256, seal_sha
from .errors import TraceError, from_os, shown
from .files import create_file
from .record import FORMAT, KINDS, too_long
from .spell import Speller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .redact import Redactor

    Pending = list[tuple[bytes, str, str]]

BUFFER = 64 * 1024
"""Whole lines are handed to the kernel at the latest when this many bytes wait."""

_LATEST = 1e11
_MANY = 4000
"""Lines from which on `hashlib` pays for its loading."""


class TraceWriter:
    """Appends entries to one trace. Every method may be called from any thread, but not from a signal handler.

    All state is one tuple that is replaced in one step, so that an exception raised by a signal between two steps
    cannot fork the chain: the lines that wait are part of it, and `flush` learns from the file's size what has
    reached the kernel.
    """

    __slots__ = (
        "_blob_lock",
        "_blobs",
        "_error",
        "_fd",
        "_lock",
        "_regular",
        "_sealed",
        "_sha256",
        "_size",
        "_speller",
        "_state",
        "path",
    )

    def __init__(self, fd: int, path: str, *, redactor: Redactor | None = None) -> None:
        """Adopt `fd`, an empty file opened for appending. `path` names it in messages and tells where blobs go. See
        `create`."""
        self.path = path
        self._fd = fd
        self._regular = stat.S_ISREG(os.fstat(fd).st_mode)
        self._blobs = BlobStore(path)
        self._blob_lock = allocate_lock()
        self._lock = allocate_lock()
        self._speller = Speller(redactor, self._blobs)
        self._sha256: Callable[[bytes], Any]
        self._size = 0
        self._sealed = False
        self._error: TraceError | None = None
        # Of the file: hash of the last line, lines, lines per kind, bytes. Then the lines that wait: (raw, hash, kind).
        self._state: tuple[str, int, dict[str, int], int, Pending] = (ZERO, 0, dict.fromkeys(KINDS, 0), 0, [])

    @classmethod
    def create(cls, path: str | os.PathLike[str], *, redactor: Redactor | None = None) -> TraceWriter:
        """Make a new trace at `path`, mode 0600, locked against a second writer.

        Raises `TraceError`: `exists` when something that is not an empty file is there (see `rotate`), `io` for a
        link, a directory, a device or whatever the system refuses.
        """
        name = os.fspath(path)
        fd = create_file(name)
        try:
            return cls(fd, name, redactor=redactor)
        except OSError as error:
            os.close(fd)
            raise from_os(name, "the trace cannot be made", error) from None

    @property
    def head(self) -> str:
        """The hash of the last entry appended (64 hex digits; zeros before the first)."""
        head, _, _, _, pending = self._state
        return pending[-1][1] if pending else head

    @property
    def count(self) -> int:
        """How many entries were appended; the `seq` of the next."""
        state = self._state
        return state[1] + len(state[4])

    @property
    def counts(self) -> dict[str, int]:
        """How many entries of each kind were appended."""
        state = self._state
        counts = dict(state[2])
        for _, _, kind in state[4]:
            counts[kind] += 1
        return counts

    def append(
        self,
        kind: str,
        op: str,
        *,
        args: dict[str, Any] | None = None,
        result: Any = None,
        lane: str = "0.0",
        pid: int = 0,
        src: str = "guard",
        ts: float | None = None,
        extra: dict[str, Any] | None = None,
    ) -> int:
        """Add one entry and return its `seq`. It waits in memory until `flush`, or until 64 KiB wait.

        `kind` is one of `meta effect observe deny`; `ts` is in Unix seconds, now by default; `extra` holds further
        members of the line (of a denial `rule`, `reason`, `fix`, `enforced`). The first entry must be
        `meta`/`run.start`, whose `args` get the member `format`. Raises `TraceError`: `usage`, `value` for what JSON
        cannot hold, `too-long`, `sealed`, and `full`, `io` or `changed` for a file that cannot be written: the run
        must end then.
        """
        if op == "run.start":
            args = {"format": FORMAT, **(args or {})}
        elif op == "run.end":
            raise TraceError("trace: run.end is written by `seal`, not by `append`", code="usage")
        tail = self._speller.spell(kind, op, args or {}, result, lane, pid, src, extra)
        with self._lock:
            return self._chain(kind, op, tail + "}\n", ts)

    def _chain(self, kind: str, op: str, tail: str, ts: float | None, *, seal: bool = False) -> int:
        """Number and hash one line; the lock is held."""
        head, count, _, _, pending = self._state
        if pending:
            head = pending[-1][1]
            count += len(pending)
        if self._error is not None or self._sealed or not count:
            self._admit(kind, op, count)
            self._sha256 = quick_sha256()
        elif count == _MANY:
            from hashlib import sha256

            self._sha256 = sha256
        if ts is None:
            ts = time()
        elif not -_LATEST < ts < _LATEST:  # NaN is neither
            raise TraceError(f"trace: ts is {ts!a}, expected Unix seconds", code="value")
        raw = f'{{"prev":"{head}","seq":{count},"ts":{ts:.6f}{tail}'.encode("ascii")
        if seal:
            raw += seal_sha(raw)
        size = len(raw)
        if size > MAX_LINE:
            raise too_long(f"trace: an entry {op}", size)
        pending.append((raw, self._sha256(raw).hexdigest(), kind))
        self._size += size
        if self._size >= BUFFER:
            self._flush()
        return count

    def _admit(self, kind: str, op: str, count: int) -> None:
        if self._error is not None:
            raise TraceError(str(self._error), code=self._error.code, hint=self._error.hint)
        if self._sealed:
            raise TraceError(f"{shown(self.path)}: is sealed, no entry can follow", code="sealed")
        if not count and (kind, op) != ("meta", "run.start"):
            raise TraceError(f"trace: the first entry is {kind} {op}, expected meta run.start", code="usage")

    def body(self, data: bytes | str) -> dict[str, Any]:
        """Return the JSON form of a body to put into `args` or `result`, redacted; a body over 4 KiB is on disk when
        this returns.

        See `describe_body` for its members and `load_body` for the way back. Raises `TraceError` (`full`, `io`).
        """
        doc, raw = describe_body(data, self._speller.redactor)
        if "blob" in doc:
            with self._blob_lock:
                self._blobs.put(doc["blob"], raw)
        return doc

    def flush(self) -> None:
        """Hand all entries to the kernel in one write(2); after that a kill of this process loses none of them.
        Raises like `append`."""
        with self._lock:
            self._flush()

    def sync(self) -> None:
        """Flush, then wait until the entries are on the disk (fdatasync). Raises like `append`."""
        with self._lock:
            self._flush()
            self._sync()

    def _sync(self) -> None:
        try:
            getattr(os, "fdatasync", os.fsync)(self._fd)
        except OSError as error:
            if self._regular:
                raise self._fail(from_os(self.path, "the trace cannot be brought to the disk", error)) from None

    def _flush(self) -> None:
        if self._error is not None:
            raise TraceError(str(self._error), code=self._error.code, hint=self._error.hint)
        _, _, _, offset, pending = self._state
        if not pending:
            return
        data = b"".join([raw for raw, _, _ in pending])
        done = self._arrived(offset, len(data))
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:] if done else data)
        except OSError as error:
            whole = data.rfind(b"\n", 0, done) + 1
            if whole != done and self._regular:
                self._cut(offset + whole)
            self._commit(data.count(b"\n", 0, whole), whole)
            raise self._fail(from_os(self.path, "the trace cannot be written", error)) from None
        self._commit(len(pending), len(data))
        self._size = 0

    def _arrived(self, offset: int, size: int) -> int:
        """Return how many of the waiting bytes an interrupted flush has already written; notice a file that somebody
        else changed."""
        if not self._regular:
            return 0
        got = os.fstat(self._fd).st_size
        if not offset <= got <= offset + size:
            raise self._fail(
                TraceError(
                    f"{shown(self.path)}: has {got} bytes, expected {offset}: something else writes to it",
                    code="changed",
                    hint="the run must end: what it does cannot be recorded",
                )
            )
        return got - offset

    def _cut(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError:
            pass  # the torn line stays; `verify` reports it as torn

    def _commit(self, lines: int, size: int) -> None:
        head, count, counts, offset, pending = self._state
        if lines:
            counts = dict(counts)
            for _, _, kind in pending[:lines]:
                counts[kind] += 1
            head = pending[lines - 1][1]
        self._state = (head, count + lines, counts, offset + size, [])

    def _fail(self, error: TraceError) -> TraceError:
        self._error = error
        return error

    def seal(self, status: int, *, duration: float, signal: int = 0, failure: str = "", ts: float | None = None) -> str:
        """Write the last line and bring everything to the disk; return the head.

        `status` is the exit status of the run (0 to 255), `signal` what ended the agent (0 if none), `duration` in
        seconds, `failure` why agentbox ended the run, if it did. Raises like `append`, and `moved` when the file is
        sealed but its name was taken away meanwhile; `head` is right then, too.
        """
        with self._lock:
            counts = self.counts
            counts["meta"] += 1
            args = {
                "lines": self.count + 1,
                "counts": counts,
                "blobs": len(self._speller.named),
                "status": status,
                "signal": signal,
                "duration": round(duration, 6),
            }
            if failure:
                args["failure"] = failure
            tail = self._speller.spell("meta", "run.end", args, None, "0.0", 0, "supervisor", None)
            self._chain("meta", "run.end", tail, ts, seal=True)
            self._sealed = True
            self._flush()
            self._sync()
            self._sync_folder()
            self._check_name()
            return self.head

    def _check_name(self) -> None:
        """Raise `TraceError` (`moved`) when the name no longer leads to the sealed file: somebody took it away."""
        if not self._regular:
            return
        own = os.fstat(self._fd)
        try:
            named = os.lstat(self.path)
        except OSError:
            named = None
        if named is not None and (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino):
            return
        what = "is not there any more" if named is None else "is another file now"
        now = _place(self._fd) if own.st_nlink else ""
        raise TraceError(
            f"{shown(self.path)}: {what}: the trace was {'moved' if now else 'deleted'} while the run wrote it",
            code="moved",
            hint=f"the sealed trace is at {shown(now)}" if now else "the record of this run is lost",
        )

    def _sync_folder(self) -> None:
        """Make the file's name durable too (fsync(2), notes); some file systems refuse that, and lose nothing by it."""
        try:
            folder = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.fsync(folder)
        except OSError:
            pass
        finally:
            os.close(folder)

    def close(self) -> None:
        """Flush and close; an unsealed trace stays unsealed. May be called twice. Raises like `append`, once the
        file is closed."""
        with self._lock:
            if self._fd < 0:
                return
            try:
                if self._error is None:
                    self._flush()
            finally:
                os.close(self._fd)
                self._fd = -1
                self._blobs.close()
                self._error = self._error or TraceError(
                    f"{shown(self.path)}: is closed, no entry can follow", code="usage"
                )


def _place(fd: int) -> str:
    """Where an open file is now, or "" (proc(5), /proc/pid/fd)."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""
