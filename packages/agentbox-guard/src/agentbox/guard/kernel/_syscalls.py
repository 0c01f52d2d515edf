"""The only file that calls the C library: each call by name, each number with its header and the first kernel that has
it.

It never swallows an error: errno is read at once and raised as `OSError`. It knows nothing of policies or runs.
"""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>, Linux 2.1.57
PR_SET_NO_NEW_PRIVS = 38  # <linux/prctl.h>, Linux 3.5
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>, Linux 3.4

CLONE_FS = 0x00000200  # <linux/sched.h>, Linux 2.0; unshare(2) takes it since 2.6.16
CLONE_NEWNS = 0x00020000  # <linux/sched.h>, Linux 2.4.19
CLONE_NEWUSER = 0x10000000  # <linux/sched.h>, Linux 3.8 (for ordinary users)
CLONE_NEWNET = 0x40000000  # <linux/sched.h>, Linux 2.6.24

MS_RDONLY = 0x1  # <sys/mount.h>, Linux 1.0
MS_NOSUID = 0x2  # <sys/mount.h>, Linux 1.0
MS_NODEV = 0x4  # <sys/mount.h>, Linux 1.0
MS_BIND = 0x1000  # <sys/mount.h>, Linux 2.4
MS_REC = 0x4000  # <sys/mount.h>, Linux 2.4.11
MS_PRIVATE = 0x40000  # <sys/mount.h>, Linux 2.6.15

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    result: int = getattr(_libc, name)(*arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def prctl(option: int, value: int = 0) -> None:
    """prctl(2) with one value and zeros after it; raises `OSError`."""
    zero = ctypes.c_ulong(0)
    _call("prctl", ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero)


def unshare(flags: int) -> None:
    """unshare(2): leave the namespaces that `flags` (`CLONE_NEW...`) names for new ones; raises `OSError`."""
    _call("unshare", ctypes.c_int(flags))


def setns(descriptor: int, flags: int = 0) -> None:
    """setns(2): join the namespace behind an open /proc/PID/ns/... descriptor; raises `OSError`."""
    _call("setns", ctypes.c_int(descriptor), ctypes.c_int(flags))


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2): arguments as in the man page, None for a null pointer; raises `OSError`."""
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _call("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
