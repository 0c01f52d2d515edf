"""The run's own command as an entry of the record: the file that it led to and that file's hash, as for every program.

All but small programs are hashed in a thread while they boot. The entry follows the header at once, but for a program
so large that the run would have to wait for it.
"""

from __future__ import annotations

import os
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from agentbox.guard.hashes import Hashes
    from agentbox.guard.jobs import Jobs

_HASHED_HERE = 64 * 1024
"""Bytes that are hashed in a quarter of a millisecond, where a thread costs as much."""
_WAITED_FOR = 32 * 1024 * 1024
"""Bytes that are hashed before most programs come to their first act; 100 MB of Node take 0.15 s."""


class Command:
    """The start of `file` with `argv` in `cwd`. Make it when the child is forked; then, on the loop thread, `begin` and
    `finish` it, or neither when the start has failed.
    """

    __slots__ = ("_args", "_hashed", "_hashes", "_record", "_size")

    def __init__(self, file: str, argv: Sequence[str], cwd: str, hashes: Hashes, jobs: Jobs) -> None:
        real = os.path.realpath(file)
        self._args: dict[str, Any] = {"file": real, "argv": list(argv), "cwd": cwd}
        self._record: Callable[[dict[str, Any]], None] | None = None
        self._hashes = hashes
        self._size = os.stat(real).st_size if os.path.exists(real) else 0
        self._hashed = allocate_lock()
        if self._size > _HASHED_HERE:
            self._hashed.acquire()
            try:
                start_new_thread(self._work, (jobs,))
            except RuntimeError:  # no thread to be had: it is hashed when it is recorded
                self._hashed.release()

    def begin(self, record: Callable[[dict[str, Any]], None]) -> None:
        """The record has its header: `record` the entry's args now or, of a large program, when they are known."""
        self._record = record
        if self._size <= _WAITED_FOR:
            self.finish()

    def finish(self) -> None:
        """Record it at the latest now."""
        record, self._record = self._record, None
        if record is not None:
            with self._hashed:
                if "sha256" not in self._args:
                    self._hash()
                record(self._args)

    def _work(self, jobs: Jobs) -> None:
        try:
            self._hash()
        finally:
            self._hashed.release()
        jobs.post(lambda _: self.finish(), None)

    def _hash(self) -> None:
        try:
            self._args["sha256"] = self._hashes.file(self._args["file"])
        except OSError:
            self._args["sha256"] = None  # a program may be started and not read (mode 0111)
