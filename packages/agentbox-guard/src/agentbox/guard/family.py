"""The processes of a run: everything that descends from the supervisor, found in /proc, and ended when the run ends.

It never signals a process that is not the supervisor's descendant, nor a child that the supervisor had before, nor the
supervisor.
"""

from __future__ import annotations

import os
import sys
import time
from _signal import SIGKILL  # type: ignore[import-not-found]
from _thread import allocate_lock

from agentbox.guard.procfs import read_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

AWAITED: set[int] = set()
"""Children of ours that a thread waits for, and nobody else may collect."""
_PATIENCE = 5.0  # seconds that killed processes get to disappear; only a hung device keeps one longer


def adopt_orphans() -> None:
    """Become the parent of processes whose parent ends (`PR_SET_CHILD_SUBREAPER`), so that none slips out of the
    family.
    """
    if sys.platform == "linux":
        from agentbox.guard.kernel import syscalls

        try:
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        except OSError:
            pass  # before Linux 3.4: orphans that hold no channel are then left to the system


def parent_and_group(pid: int) -> tuple[int, int]:
    """Parent and process group of a live process, (0, 0) when it is not to be found. Source: proc_pid_stat(5)."""
    try:
        fields = read_stat(pid)
        return int(fields[1]), int(fields[2])
    except (OSError, ValueError, IndexError):
        return 0, 0


def _state(pid: int) -> str:
    try:
        return read_stat(pid)[0]
    except (OSError, IndexError):
        return ""


class Family:
    """The run's processes. Make it right after the `agent` was forked: other children that are there already are not
    the run's.
    """

    __slots__ = ("_agent", "_collected", "_collecting", "_spared", "ending", "is_kept", "keepers")

    def __init__(self, agent: int) -> None:
        self._agent = agent
        self.keepers: tuple[int, ...] = ()
        """Processes of ours among them, which end with the others but are not the agent's to signal."""
        self.is_kept: Callable[[int], bool] = lambda pid: False
        """The same of those that come and go."""
        self.ending = False
        """Whether all of them are being ended: then there is to be no new one."""
        self._spared = set(_children()) - {agent}
        self._collected: dict[int, int] = {}
        self._collecting = allocate_lock()

    def has(self, pid: int) -> bool:
        """True if `pid` is a process of the run."""
        own = os.getpid()
        for _ in range(10000):
            if pid in self._spared or pid == own:
                return False
            parent = parent_and_group(pid)[0]
            if parent == own:
                return True
            if parent <= 1:
                return False
            pid = parent
        return False

    def may_reach(self, pid: int) -> bool:
        """True if the run's processes may signal or change the process `pid`: one of them, and none of ours."""
        return not self.is_ours(pid) and self.has(pid)

    def is_ours(self, pid: int) -> bool:
        """True for a process that works for the run and is not of it, though it ends with it."""
        return pid in self.keepers or pid in AWAITED or self.is_kept(pid)

    def has_group(self, group: int) -> bool:
        """True if the process group has members and all of them are the run's."""
        try:
            members = [pid for pid in _pids() if parent_and_group(pid)[1] == group]
        except OSError:
            return False
        return bool(members) and all(self.may_reach(pid) for pid in members)

    def end_tree(self, pid: int) -> None:
        """Kill one process of the run and all that descends from it; its parent collects it. Does nothing when the
        number is of no process of the run: it may have ended, and the number be another's.
        """
        for member in (pid, *self.all(pid)) if self.has(pid) else ():
            _kill(member)

    def all(self, root: int = 0) -> list[int]:
        """Every process of the run, or only those that descend from the process `root`. Raises `OSError`."""
        parents = {pid: parent_and_group(pid)[0] for pid in _pids()}
        known = {root or os.getpid()}
        found: list[int] = []
        while True:
            new = [
                pid
                for pid, parent in parents.items()
                if parent in known and pid not in known and pid not in self._spared
            ]
            if not new:
                return found
            known.update(new)
            found.extend(new)

    def children(self) -> list[int]:
        """Our own children that are the run's: the agent until it is collected, orphans that were adopted."""
        return [pid for pid in _children() if pid not in self._spared]

    def is_at_work(self) -> bool:
        """Whether one of those runs, or waits for a processor or a disk, by the state in proc_pid_stat(5)."""
        return any(_state(pid) in ("R", "D") for pid in self.children())

    def reap(self) -> None:
        """Collect adopted orphans that have ended; not while a thread waits for a child that is not `AWAITED`."""
        try:
            ended = _children()
        except OSError:
            return  # at the next one's end
        for pid in ended:
            if pid != self._agent and pid not in self._spared and pid not in AWAITED:
                _collect(pid)

    def wait(self, pid: int) -> int:
        """The wait status of our child `pid` when it has ended, also if `end` was first to collect it; from any thread.

        Raises `ChildProcessError` for what is none.
        """
        try:
            return os.waitpid(pid, 0)[1]
        except ChildProcessError:
            with self._collecting:
                if pid not in self._collected:
                    raise
                return self._collected[pid]

    def end(self, connected: list[int], keep_reading: Callable[[], None]) -> int:
        """Kill every process of the run, again until none is left; returns how many were still running.

        `connected` are pids on the channel, used where there is no /proc. `keep_reading` is called while it waits.

        Children alone are looked at, since those of a child that ends become ours (`adopt_orphans`): quicker than a
        process can fork and end, and none of them can be another's by now.
        """
        self.ending = True
        if not _HAS_PROC:
            running = [pid for pid in connected if _collect(pid) is None]
            for pid in running:
                _kill(pid)
            return len(running)
        known: set[int] = set()
        killed = 0
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            left = self._left()
            if left == []:
                break
            fresh = [pid for pid in left or () if pid not in known]
            for pid in fresh:
                _kill(pid)
            known.update(fresh)
            for pid in left or ():
                status = self._collect_for_others(pid)
                if status is not None:
                    known.discard(pid)
                    killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == SIGKILL
            if not fresh:
                keep_reading()
                time.sleep(0.001)
        return killed

    def _collect_for_others(self, pid: int) -> int | None:
        """Collect a child that a thread may be waiting for, and keep its status for that one (`wait`)."""
        with self._collecting:
            status = _collect(pid)
            if status is not None:
                self._collected[pid] = status
        return status

    def _left(self) -> list[int] | None:
        """Who is to be killed and collected; None while there is no descriptor to look with."""
        try:
            return self.children()
        except OSError:  # what the agent had is free when it has ended, and then the others are seen
            return [self._agent] if _is_child(self._agent) else None


_HAS_PROC = os.path.isdir("/proc/self")


def _is_child(pid: int) -> bool:
    """Whether a number still is a child's, alive or not yet collected."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except ChildProcessError:
        return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, SIGKILL)
    except OSError:
        pass


def _collect(pid: int) -> int | None:
    """Take the status of a child that has ended; None when it is alive or not a child."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if found == pid else None


def _children() -> list[int]:
    """The children of this process: by its threads' lists (proc_pid_task_children(5)), else by the parents of all
    processes. Raises `OSError` where there is /proc and nothing to read it with.
    """
    found: list[int] = []
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", "rb") as file:
                found.extend(int(pid) for pid in file.read().split())
        return found
    except FileNotFoundError:  # a thread ended just now, or a kernel without CONFIG_PROC_CHILDREN
        own = os.getpid()
        return [pid for pid in _pids() if parent_and_group(pid)[0] == own]


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return []
