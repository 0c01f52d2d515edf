"""Sealed: stand-ins for calls on files whose audit event says too little, or that have none. Opens nothing unjudged.

mkfifo, mknod, chroot, unshare and setns raise no audit event: around their stand-ins only the kernel layers contain.
"""

from __future__ import annotations

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.facades._plain import hand_over, plain_path, stop
    from agentbox.guard.python.report import refuse


def os_open(
    path: Any,
    flags: int,
    mode: int = 0o777,
    *,
    dir_fd: int | None = None,
    real=posix.open,
    plain_path=plain_path,
    getcwd=posix.getcwd,
    OSError=OSError,
) -> int:
    """Open a file for low level IO. Returns a file descriptor (integer)."""
    text = plain_path(path)
    if text[:1] != "/":  # the audit event has no dir_fd, so the path has to say it
        text = f"/proc/self/fd/{dir_fd}/{text}" if dir_fd is not None else f"{getcwd()}/{text}"
    try:
        return real(text, flags, mode)
    except OSError as error:
        if error.filename == text:
            error.filename = path
        raise


def os_listdir(path: Any = None, *, real=posix.listdir, InterruptedError=InterruptedError) -> Any:
    """Return a list containing the names of the files in the directory.

    Tried again when a signal interrupts it (PEP 475): where the kernel asks the supervisor, opening a folder waits.
    """
    while True:
        try:
            return real(path)
        except InterruptedError:
            continue


def os_scandir(path: Any = None, *, real=posix.scandir, InterruptedError=InterruptedError) -> Any:
    """Return an iterator of DirEntry objects for given path. Tried again when a signal interrupts it, as os.listdir."""
    while True:
        try:
            return real(path)
        except InterruptedError:
            continue


def os_mkfifo(
    path: Any,
    mode: int = 0o666,
    *,
    dir_fd: int | None = None,
    hand_over=hand_over,
    plain_path=plain_path,
    index=int.__index__,
) -> None:
    """Create a "fifo" (a POSIX named pipe)."""
    hand_over("mkfifo", plain_path(path), index(mode), None if dir_fd is None else index(dir_fd))


def os_mknod(
    path: Any,
    mode: int = 0o600,
    device: int = 0,
    *,
    dir_fd: int | None = None,
    hand_over=hand_over,
    plain_path=plain_path,
    index=int.__index__,
) -> None:
    """Create a node in the file system."""
    at = None if dir_fd is None else index(dir_fd)
    hand_over("mknod", plain_path(path), index(mode), index(device), at)


def os_chroot(path: Any, *, refuse=refuse, stop=stop) -> None:
    """Refused: it would change what every path means."""
    stop(refuse("code.load", {"name": "os.chroot"}, "code", "os.chroot", "it would change what every path means", None))


def os_unshare(flags: int, *, refuse=refuse, stop=stop) -> None:
    """Refused: it would change what every path means."""
    stop(
        refuse("code.load", {"name": "os.unshare"}, "code", "os.unshare", "it would change what every path means", None)
    )


def os_setns(fd: int, nstype: int = 0, *, refuse=refuse, stop=stop) -> None:
    """Refused: it would change what every path means."""
    stop(refuse("code.load", {"name": "os.setns"}, "code", "os.setns", "it would change what every path means", None))


def activate_stack_trampoline(backend: str, /, *, hand_over=hand_over) -> None:
    """Activate stack profiler trampoline *backend*: it makes a file in /tmp, without an audit event."""
    hand_over("activate_stack_trampoline", backend)
