"""The only file that calls the C library: calls by name, each number with its header and the first kernel that has it.

It never swallows an error: errno is read at once and raised as `OSError`. It knows nothing of policies or runs.
"""

from __future__ import annotations

import _ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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


class _Library:
    """The program's own symbols, the C library's among them, in the shape that `_ctypes.CFuncPtr` asks for."""

    _handle = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]


# `import ctypes` takes 2 ms of every agent's start to define dozens of types; these two are all that is needed.
class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "L"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


def _call(name: str, *arguments: Any) -> None:
    """Call a function that gives -1 for an error; an int goes as a C int, bytes as a pointer, None as null."""
    if _Function((name, _Library))(*arguments) < 0:  # type: ignore[arg-type]
        error = _ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def prctl(option: int, value: int = 0) -> None:
    """prctl(2) with one value and zeros after it; raises `OSError`."""
    zero = _Long(0)
    _call("prctl", option, _Long(value), zero, zero, zero)


def unshare(flags: int) -> None:
    """unshare(2): leave the namespaces that `flags` (`CLONE_NEW...`) names for new ones; raises `OSError`."""
    _call("unshare", flags)


def setns(descriptor: int, flags: int = 0) -> None:
    """setns(2): join the namespace behind an open /proc/PID/ns/... descriptor; raises `OSError`."""
    _call("setns", descriptor, flags)


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2): arguments as in the man page, None for a null pointer; raises `OSError`."""
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _call("mount", texts[0], texts[1], texts[2], _Long(flags), texts[3])
