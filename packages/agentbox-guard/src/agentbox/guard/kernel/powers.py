"""The supervisor's capabilities, which root's has and no program of the run: for whom the kernel would let them count,
what it makes up itself is opened without them.

The log, the addresses and the memory of the kernel are files whose open(2) asks for one (CAP_SYSLOG, CAP_SYS_RAWIO,
capabilities(7)), and root's mode bits say nothing of it. It decides nothing.
"""

from __future__ import annotations

from agentbox.guard.kernel import syscalls
from agentbox.guard.procfs import member, read_entry

_KEPT = 0x1F | 1 << 19
"""CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER and FSETID, since owners and modes are for the rules to overrule,
and SYS_PTRACE, without which the supervisor could not open what a program that hides may open of itself
(<linux/capability.h>, Linux 2.2).
"""


class Lowered:
    """While it is entered the calling thread, the loop's, has no other capability. Raises `OSError`."""

    __slots__ = ("_sets",)

    def __init__(self) -> None:
        self._sets: tuple[int, ...] = ()

    def __enter__(self) -> None:
        if not self._sets:
            status = read_entry("/proc/thread-self/status")
            self._sets = tuple(int(member(status, name), 16) for name in (b"CapEff", b"CapPrm", b"CapInh"))
        self._set(self._sets[0] & _KEPT)

    def __exit__(self, *ended: object) -> None:
        self._set(self._sets[0])

    def _set(self, effective: int) -> None:
        if self._sets[0] & ~_KEPT:  # else there is nothing to give up, as for an ordinary user
            syscalls.capset(effective, *self._sets[1:])
