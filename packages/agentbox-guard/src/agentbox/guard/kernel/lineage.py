"""Who started whom: whether a process is still the agent's own program, or one that an `exec:` rule has let in.

Rules say what the agent may start; what such a program starts in turn is recorded and stays confined. Whoever cannot be
placed counts as the agent.
"""

from __future__ import annotations

import os

from agentbox.guard.kernel.process import stat_fields

_MOST_KNOWN = 8192
_DEPTH = 64


class Start:
    """An exec that was let through: what it must have become when the process is next heard of."""

    __slots__ = ("argv", "before", "image", "old")

    def __init__(
        self, old: tuple[int, int] | None, image: tuple[int, int] | None, argv: list[bytes], before: str
    ) -> None:
        self.old = old
        self.image = image
        self.argv = argv
        self.before = before


class Lineage:
    """The run's processes by what they have started. `agent` is the agent's process."""

    __slots__ = ("_own", "_programs", "_starts", "agent", "started")

    def __init__(self, agent: int) -> None:
        self.agent = agent
        self.started = False
        """True when the launcher's own exec, which the run's header tells of, has been let through."""
        self._own: tuple[int, int] | None = None
        self._programs: dict[int, str] = {}
        self._starts: dict[int, Start] = {}

    def is_agent(self, pid: int) -> bool:
        """True if the process runs the agent's own program by descent: no allowed exec lies between them."""
        if self._own is None:  # nothing else has been started yet, so this is still what the run was started with
            self._own = image(self.agent)
        if self._own is not None and image(pid) not in (self._own, None):
            return False
        for _ in range(_DEPTH):
            fields = _fields(pid)
            if fields is None:
                return True
            if self._programs.get(pid) == fields[19]:
                return False
            if pid == self.agent:
                return True
            pid = int(fields[1])
        return True

    def expect(self, pid: int, program: tuple[int, int] | None, argv: list[bytes]) -> None:
        """An exec of `pid` is let through: it becomes `program` (device, inode; None: what a script's first line
        says).
        """
        fields = _fields(pid)
        if fields is None:
            return
        if len(self._programs) >= _MOST_KNOWN:
            self._programs = {known: start for known, start in self._programs.items() if _fields(known) is not None}
            self._starts = {known: start for known, start in self._starts.items() if known in self._programs}
        self._programs[pid] = fields[19]
        self._starts[pid] = Start(image(pid), program, argv, fields[25])

    def surprise(self, pid: int) -> str:
        """Why the process is not what its last exec was let through as, or ""; asked at its next call.

        The path and arguments of an exec are read by the kernel itself, after they were decided on: a second thread may
        have rewritten them. The stack's start (field 28 of proc_pid_stat(5)) tells a new image from a failed exec.
        """
        start = self._starts.pop(pid, None)
        if start is None:
            return ""
        fields = _fields(pid)
        if fields is None:
            return ""
        now = image(pid)
        # 0: the kernel does not tell us of this process, so a failed exec is known by its program alone
        if fields[25] == start.before and (fields[25] != "0" or now == start.old):
            return ""
        if start.image is not None and now is not None and now != start.image:
            return "the program was another than the one that was decided on"
        argv = _arguments(pid)
        if argv is not None and not _same(argv, start):
            return "the arguments were others than those that were decided on"
        return ""

    @property
    def waiting(self) -> bool:
        """True while some exec has not been looked at again."""
        return bool(self._starts)


def image(pid: int) -> tuple[int, int] | None:
    """Device and inode of the file that a process runs; None when it is gone."""
    try:
        info = os.stat(f"/proc/{pid}/exe")
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _same(now: list[bytes], start: Start) -> bool:
    if start.image is None:  # a script: the kernel has put the interpreter and the file in front
        wanted = start.argv[1:]
        return not wanted or now[-len(wanted) :] == wanted
    return now == start.argv or not start.argv


def _arguments(pid: int) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            text = file.read()
    except OSError:
        return None
    return text[:-1].split(b"\0") if text else []


def _fields(pid: int) -> list[str] | None:
    try:
        return stat_fields(pid)
    except OSError:
        return None
