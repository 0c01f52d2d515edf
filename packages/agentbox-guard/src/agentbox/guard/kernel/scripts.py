"""Scripts whose start was recorded and whose interpreter has not read them yet: what it opens by their names must have
the content that the entry tells.

The kernel gives an interpreter the script's name, not the file that was decided on (execve(2), "Interpreter scripts").
It compares; it opens nothing by a name, and records nothing.
"""

from __future__ import annotations

import os

from agentbox.guard.procfs import started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.guard.hashes import Hashes

CHANGED = "the script is another than the one whose start was recorded"
_MOST_OPENS = 4
"""Python opens a script twice, once to see whether it is an archive; after that it is a file like any other."""
_LARGEST = 1 << 20
"""A changed script that is larger counts as another: hashing it would keep all other processes waiting."""


class _Script:
    __slots__ = ("digest", "info", "left", "life", "names", "release")

    def __init__(self, pid: int, names: frozenset[bytes], info: os.stat_result, digest: str) -> None:
        self.life = started(pid)
        self.names = names
        self.info = info
        self.digest = digest
        self.left = _MOST_OPENS
        self.release: Callable[[], None] = lambda: None


class Scripts:
    """By process. Until its interpreter has opened a script, or has ended, the run does not get that for writing."""

    __slots__ = ("_hashes", "_started")

    def __init__(self, hashes: Hashes) -> None:
        self._hashes = hashes
        self._started: dict[int, _Script] = {}

    def __contains__(self, pid: int) -> bool:
        return pid in self._started

    def expect(self, pid: int, names: frozenset[bytes], fd: int, digest: str) -> None:
        """A script, open as `fd`, is about to be started as `pid`; `names` are absolute paths of it."""
        self.purge()
        self._forget(pid)
        script = _Script(pid, names, os.fstat(fd), digest)
        script.release = self._hashes.hold(script.info)
        self._started[pid] = script

    def problem(self, pid: int, names: frozenset[bytes], fd: int) -> str:
        """Why what `pid` is about to open for reading, by one of `names`, is not the script that it was started with,
        or "". Raises `OSError`.
        """
        script = self._started[pid]
        if script.life != started(pid):
            self._forget(pid)
            return ""
        if not names & script.names:
            return ""
        if not self._is_same(script, fd):
            return CHANGED
        script.release()
        script.left -= 1
        if not script.left:
            self._forget(pid)
        return ""

    def purge(self) -> None:
        """Let go of what processes that have ended were started with."""
        for pid in [pid for pid, script in self._started.items() if started(pid) != script.life]:
            self._forget(pid)

    def _is_same(self, script: _Script, fd: int) -> bool:
        info = os.fstat(fd)
        if _state(info) == _state(script.info) and not self._hashes.is_written(info):
            return True
        return info.st_size <= _LARGEST and self._hashes.descriptor(fd) == script.digest

    def _forget(self, pid: int) -> None:
        script = self._started.pop(pid, None)
        if script is not None:
            script.release()


def _state(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns
