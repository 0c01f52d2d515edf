"""What a process keeps over exec and the program that it starts is steered by: seccomp filters, the execution domain,
an ignored SIGCHLD. The agent must have none of it besides what the run was started with.

It reads /proc and compares; it decides on no rule. docs/reference/layers.md has the table of all that survives exec.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]

from agentbox.guard.procfs import member, read_entry, started

WAY_OUT = "; start it from a process without them"
FILTERS = "the caller's own seccomp filters stay in force over exec and could forge the results of its system calls"
PERSONALITY = "the caller's personality(2) flags stay over exec and change how memory is laid out and protected"
CHILDREN = "the caller ignores SIGCHLD, which stays so over exec: the program could not tell how its children end"
UNKNOWN = "nobody can tell what the program would keep of its caller over exec"
_NAMES_ONLY = 0x0008 | 0x20000
"""PER_LINUX32 and UNAME26, <linux/personality.h>, Linux 2.6 and 3.1: they change what uname(2) says, and nothing else
here.
"""


class Inherited:
    """What the agent's process had when its program was started, as what any later caller is compared with."""

    __slots__ = ("_at_start",)

    def __init__(self, agent: int) -> None:
        self._at_start = _read(agent)

    def problem(self, thread: int) -> str:
        """Why a program that a thread starts would be steered by what it keeps, or "". Seccomp filters, flags and
        dispositions are the thread's own or its process's: they may change only where another thread is there.
        """
        now = _read(thread)
        if now is None or self._at_start is None:
            return UNKNOWN if started(thread) else ""  # else it is gone, and starts nothing
        filters, flags, ignores = now
        filters_before, flags_before, ignored_before = self._at_start
        if filters != filters_before:
            return FILTERS + WAY_OUT
        if flags != flags_before:
            return PERSONALITY + WAY_OUT
        return CHILDREN if ignores and not ignored_before else ""


def _read(thread: int) -> tuple[int, int, bool] | None:
    """How many filters a thread has (Linux 5.9), its personality, and whether SIGCHLD is ignored; None when the kernel
    does not tell. Source: proc_pid_status(5), proc_pid_personality(5).
    """
    try:
        status = read_entry(f"/proc/{thread}/status")
        flags = int(read_entry(f"/proc/{thread}/personality"), 16) & ~_NAMES_ONLY
        ignored = int(member(status, b"SigIgn"), 16)
        return int(member(status, b"Seccomp_filters")), flags, bool(ignored >> (_signal.SIGCHLD - 1) & 1)
    except (OSError, ValueError):
        return None
