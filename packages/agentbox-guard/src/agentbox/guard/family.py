"""The processes of a run: everything that descends from the supervisor, found in /proc, and ended when the run ends.

It never signals a process that is not the supervisor's descendant, nor a child that the supervisor had before, nor the
supervisor.
"""

from __future__ import annotations

import os
import sys
import time
from _signal import SIGKILL  # type: ignore[import-not-found]

from agentbox.guard.procfs import read_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

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


class Family:
    """The run's processes. Make it right after the `agent` was forked: other children that are there already are not
    the run's.
    """

    __slots__ = ("_agent", "_spared", "is_kept", "keepers")

    def __init__(self, agent: int) -> None:
        self._agent = agent
        self.keepers: tuple[int, ...] = ()
        """Processes of ours among them, which end with the others but are not the agent's to signal."""
        self.is_kept: Callable[[int], bool] = lambda pid: False
        """The same of those that come and go."""
        self._spared = set(_children()) - {agent}

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
        return pid not in self.keepers and self.has(pid) and not self.is_kept(pid)

    def has_group(self, group: int) -> bool:
        """True if the process group has members and all of them are the run's."""
        members = [pid for pid in _pids() if parent_and_group(pid)[1] == group]
        return bool(members) and all(self.may_reach(pid) for pid in members)

    def end_tree(self, pid: int) -> None:
        """Kill one process of the run and all that descends from it; its parent collects it. Does nothing when the
        number is of no process of the run: it may have ended, and the number be another's.
        """
        for member in (pid, *self.all(pid)) if self.has(pid) else ():
            try:
                os.kill(member, SIGKILL)
            except OSError:
                pass

    def all(self, root: int = 0) -> list[int]:
        """Every process of the run, or only those that descend from the process `root`."""
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

    def reap(self) -> None:
        """Collect adopted orphans that have ended; not while a thread waits for a child of its own."""
        for pid in _children():
            if pid != self._agent and pid not in self._spared:
                _collect(pid)

    def end(self, connected: list[int], keep_reading: Callable[[], None]) -> int:
        """Kill every process of the run, again until none is left; returns how many were still running.

        `connected` are pids on the channel, used where there is no /proc. `keep_reading` is called between rounds.
        """
        killed: set[int] = set()
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if _HAS_PROC:
                live = self.all() if set(_children()) - self._spared else []
            else:
                live = [pid for pid in connected if pid not in killed]
            if not live:
                break
            for pid in live:
                if _collect(pid):
                    continue
                killed.add(pid)
                try:
                    os.kill(pid, SIGKILL)
                except OSError:
                    pass
            keep_reading()
            time.sleep(0.001)
        return len(killed)


_HAS_PROC = os.path.isdir("/proc/self")


def _collect(pid: int) -> bool:
    """Take the status of a child that has ended; False when it is alive or not a child."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False


def _children() -> list[int]:
    """The children of this process: by its threads' lists (proc_pid_task_children(5)), else by the parents of all
    processes.
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
    except OSError:
        return []
