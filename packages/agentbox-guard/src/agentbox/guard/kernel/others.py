"""The filter's rows for calls that name a process by its number, or another object that belongs to the whole user.

In a process namespace of the run's own no number means anybody else. Without one, whatever one process of a user may do
to another, short of reading its memory, needs no right but the user's: limits, priorities, processors, signals that
follow I/O.
"""

from __future__ import annotations

import errno

from agentbox.guard.kernel.bpf import ERRNO, NOTIFY, Row, Test

BY_NUMBER = {
    "prlimit64": 0, "sched_setaffinity": 0, "sched_setparam": 0, "sched_setscheduler": 0, "sched_setattr": 0,
    "get_robust_list": 0, "setpriority": 1, "ioprio_set": 1,
}  # fmt: skip
"""Call to the argument that is a process's number, 0 for the caller's own; those that only tell are left out."""
PRIO_PROCESS, IOPRIO_WHO_PROCESS = 0, 1  # <linux/resource.h>, <linux/ioprio.h>; others mean groups and users
F_SETFL, F_SETOWN, F_SETOWN_EX = 4, 8, 15  # <asm-generic/fcntl.h>, Linux 1.0 and 2.6.32
O_ASYNC = 0o20000  # <asm-generic/fcntl.h>, Linux 1.0

SHARED_OBJECTS = (
    "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink",
)  # fmt: skip
"""Calls for objects of System V and POSIX that have no file: others of the same user have them too, by numbers that
anybody can guess, but for an own namespace.
"""
_NEW_LISTENER = 1 << 3  # SECCOMP_FILTER_FLAG_NEW_LISTENER, <linux/seccomp.h>, Linux 5.0
_PR_SCHED_CORE = 62  # <linux/prctl.h>, Linux 5.14: shares a core with the process that it names


def rows(*, pidns: bool, ipcns: bool) -> tuple[Row, ...]:
    """The rows for a run with or without its own process and IPC namespaces."""
    asynchronous = Row("fcntl", NOTIFY, Test(1, (F_SETFL,)), Test(2, (O_ASYNC,), mask=O_ASYNC))
    # What the kernel says while the run's own listener is there. Without it a program that has outlived the supervisor
    # could answer its own calls, and let through what nobody answers any more.
    listener = Row("seccomp", ERRNO | errno.EBUSY, Test(1, (_NEW_LISTENER,), mask=_NEW_LISTENER))
    shared = () if ipcns else tuple(Row(name, NOTIFY) for name in SHARED_OBJECTS)
    if pidns:
        return (asynchronous, listener, *shared)
    return (
        asynchronous,
        listener,
        *shared,
        *(Row(name, NOTIFY, Test(place, (0,), wanted=False)) for name, place in BY_NUMBER.items()),
        Row("fcntl", NOTIFY, Test(1, (F_SETOWN, F_SETOWN_EX))),
        Row("prctl", ERRNO | errno.EPERM, Test(0, (_PR_SCHED_CORE,)), Test(2, (0,), wanted=False)),
        *(
            Row(name, NOTIFY)
            for name in ("tkill", "tgkill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
        ),
    )
