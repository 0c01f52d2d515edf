"""The filter's rows for calls that name a process by its number, or another object that belongs to the whole user.

Whatever one process of a user may do to another, short of reading its memory, needs no right but the user's: limits,
priorities, processors, signals, those that follow I/O too. In a process namespace of the run's own, numbers mean
besides the run's processes those that keep it, process 1 and the starter of programs.
"""

from __future__ import annotations

import errno

from agentbox.guard.kernel import ioctls
from agentbox.guard.kernel.bpf import ALLOW, ERRNO, NOTIFY, Row, Same, Test

BY_NUMBER = {
    "prlimit64": 0, "sched_setaffinity": 0, "sched_setparam": 0, "sched_setscheduler": 0, "sched_setattr": 0,
    "get_robust_list": 0, "setpriority": 1, "ioprio_set": 1,
}  # fmt: skip
"""Call to the argument that is a process's number, 0 for the caller's own; those that only tell are left out."""
PRIO_PROCESS, IOPRIO_WHO_PROCESS = 0, 1  # <linux/resource.h>, <linux/ioprio.h>; others mean groups and users
F_SETFL, F_SETOWN, F_SETOWN_EX = 4, 8, 15  # <asm-generic/fcntl.h>, Linux 1.0 and 2.6.32
O_ASYNC = 0o20000  # <asm-generic/fcntl.h>, Linux 1.0
RLIMIT_CORE = 4  # <asm-generic/resource.h>, Linux 1.0

SIGNALS = ("kill", "tkill", "tgkill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
SHARED_OBJECTS = (
    "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink",
)  # fmt: skip
"""Calls for objects of System V and POSIX that have no file: others of the same user have them too, by numbers that
anybody can guess, but for an own namespace.
"""
CLONE_FS, CLONE_FILES, CLONE_THREAD = 0x200, 0x400, 0x10000  # <linux/sched.h>, Linux 2.0 and 2.4
_NEW_LISTENER = 1 << 3  # SECCOMP_FILTER_FLAG_NEW_LISTENER, <linux/seccomp.h>, Linux 5.0
_PR_SCHED_CORE = 62  # <linux/prctl.h>, Linux 5.14: who shares a core with whom
_CORE_OF_PROCESS = (0, 1)
"""PR_SCHED_CORE_SCOPE_THREAD and THREAD_GROUP, <linux/prctl.h>, Linux 5.17: the other one is the process group."""


def rows(*, pidns: bool, ipcns: bool) -> tuple[Row, ...]:
    """The rows for a run with or without its own process and IPC namespaces."""
    asynchronous = Row("fcntl", NOTIFY, Test(1, (F_SETFL,)), Test(2, (O_ASYNC,), mask=O_ASYNC))
    # What the kernel says while the run's own listener is there. Without it a program that has outlived the supervisor
    # could answer its own calls, and let through what nobody answers any more.
    listener = Row("seccomp", ERRNO | errno.EBUSY, Test(1, (_NEW_LISTENER,), mask=_NEW_LISTENER))
    # The caller's group is the supervisor's as well, in an own process namespace too, as for kill(2).
    together = Row("prctl", ERRNO | errno.EPERM, Test(0, (_PR_SCHED_CORE,)), Test(3, _CORE_OF_PROCESS, wanted=False))
    cores = Test(1, (RLIMIT_CORE,))
    limits = (
        Row("setrlimit", NOTIFY, Test(0, (RLIMIT_CORE,))),
        *(Row("prlimit64", NOTIFY, cores, Test(2, (0,), high=high, wanted=False)) for high in (False, True)),
    )
    shared = () if ipcns else tuple(Row(name, NOTIFY) for name in SHARED_OBJECTS)
    numbered = (
        *(Row(name, NOTIFY, Test(place, (0,), wanted=False)) for name, place in BY_NUMBER.items()),
        Row("fcntl", NOTIFY, Test(1, (F_SETOWN, F_SETOWN_EX))),
        *(Row(name, NOTIFY) for name in SIGNALS),
    )
    # The supervisor is not in the foreground group of a job, and hears of its Ctrl-C by a child in that group.
    terminal = Row("ioctl", NOTIFY, Test(1, (ioctls.TIOCSPGRP,)))
    always = (asynchronous, listener, together, terminal, *limits, *shared)
    if pidns:
        # A thread that is not its process's first is of none that keeps the run: those have one thread each. Go and
        # others that collect garbage stop their threads so.
        return (*always, Row("tgkill", ALLOW, Same(0, 1, wanted=False)), *numbered)
    return (
        *always,
        *numbered,
        # Where one process of a group reads from a terminal in the background, the kernel stops all of them.
        Row("setpgid", NOTIFY, Test(1, (0,), wanted=False)),
        # No process comes to be without the supervisor: what outlives it does not multiply, and what it is about to end
        # does not grow meanwhile. In a process namespace of the run's own all end at once.
        Row("fork", NOTIFY),
        Row("vfork", NOTIFY),
        Row("clone", NOTIFY, Test(0, (0,), mask=CLONE_THREAD)),
        Row("prctl", ERRNO | errno.EPERM, Test(0, (_PR_SCHED_CORE,)), Test(2, (0,), wanted=False)),
    )
