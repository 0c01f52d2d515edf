"""Sealed: the sha256 of what is about to be read, streamed at any size, and the other reads that the guard needs.

It is executed in a namespace of its own: the hook judges an `open` whose calling frame has that namespace, and records
it no second time; modules that need the guard's stand-ins are loaded from there alone. Small files use the
interpreter's own SHA-256, as OpenSSL's costs 2.5 ms at every start; from 4 MiB on OpenSSL's, five times faster, is
loaded.
"""

from __future__ import annotations

from _frozen_importlib import ModuleSpec
from _imp import create_builtin, create_dynamic, exec_builtin, exec_dynamic
from posix import O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_RDONLY, close, fstat, getpid, listdir, read, readlink
from posix import open as posix_open

try:
    from _sha2 import sha256  # type: ignore[import-not-found]
except ImportError:  # Python 3.11
    from _sha256 import sha256  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHUNK = 256 * 1024
LARGE = 4 * 1024 * 1024
READ_FLAGS = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK


def hasher(
    size: int,
    *,
    sha256=sha256,
    large=LARGE,
    create_dynamic=create_dynamic,
    exec_dynamic=exec_dynamic,
    openssl=None,
    ImportError=ImportError,
) -> Any:
    """A SHA-256 object fit for `size` bytes.

    `openssl` is the import spec of `_hashlib` as found at arm time, or None.
    """
    if size >= large and openssl is not None:
        try:
            module = create_dynamic(openssl)  # a copy of our own: the one in sys.modules is the agent's to edit
            exec_dynamic(module)
            return module.openssl_sha256()
        except ImportError:
            pass
    return sha256()


def digest(
    path: str,
    *,
    posix_open=posix_open,
    fstat=fstat,
    read=read,
    close=close,
    hasher=hasher,
    flags=READ_FLAGS,
    chunk=CHUNK,
    OSError=OSError,
    len=len,
) -> tuple[str | None, int]:
    """(sha256, size) of a regular file; no hash for what has no fixed content.

    Size -1: not there or not to be opened, -2: a directory.
    """
    try:
        fd = posix_open(path, flags)
    except OSError:
        return None, -1
    try:
        status = fstat(fd)
        kind = status.st_mode & 0o170000
        if kind != 0o100000:
            return None, -2 if kind == 0o040000 else 0
        total = hasher(status.st_size)
        size = 0
        while data := read(fd, chunk):
            total.update(data)
            size += len(data)
        return total.hexdigest(), size
    except OSError:
        return None, -1
    finally:
        close(fd)


def descriptor_pid(
    fd: int,
    *,
    posix_open=posix_open,
    getpid=getpid,
    read=read,
    close=close,
    int=int,
    OSError=OSError,
    ValueError=ValueError,
    IndexError=IndexError,
) -> int:
    """The process that a pid descriptor stands for (pidfd_open(2): `Pid:` in its fdinfo), or -1."""
    try:
        info = posix_open(f"/proc/{getpid()}/fdinfo/{fd}", 0)
    except OSError:
        return -1
    try:
        return int(read(info, 4096).partition(b"\nPid:")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return -1
    finally:
        close(info)


def load_module(
    name: str,
    origin: str | None,
    *,
    ModuleSpec=ModuleSpec,
    create_builtin=create_builtin,
    create_dynamic=create_dynamic,
    exec_builtin=exec_builtin,
    exec_dynamic=exec_dynamic,
) -> Any:
    """A module of the standard library, from the file `origin` or builtin, with all that it defines."""
    spec = ModuleSpec(name, None, origin=origin)
    if origin is None:
        module = create_builtin(spec)
        exec_builtin(module)
    else:
        module = create_dynamic(spec)
        exec_dynamic(module)
    return module


def own_terminal(
    path: str,
    *,
    listdir=listdir,
    readlink=readlink,
    posix_open=posix_open,
    read=read,
    close=close,
    int=int,
    len=len,
    OSError=OSError,
) -> bool:
    """Whether a pseudo terminal's slave (/dev/pts/N) is this process's: its controlling terminal, or one that it holds
    open, or whose master it does (proc_pid_stat(5), `tty_nr`; proc_pid_fdinfo(5), `tty-index`).
    """
    number = path[9:].encode()
    if not number.isdigit():
        return False
    info = posix_open("/proc/self/stat", 0)
    try:
        device = int(read(info, 4096).rpartition(b")")[2].split()[4])
    finally:
        close(info)
    major, minor = (device >> 8) & 0xFFF, (device & 0xFF) | ((device >> 12) & 0xFFF00)
    if 136 <= major <= 143 and (major - 136) * 256 + minor == int(number):  # Unix98 slaves, 256 to a major number
        return True
    for fd in listdir("/proc/self/fd"):
        try:
            target = readlink("/proc/self/fd/" + fd)
            if target == path:
                return True
            if target == "/dev/ptmx" or target == "/dev/pts/ptmx":
                info = posix_open("/proc/self/fdinfo/" + fd, 0)
                try:
                    if read(info, 4096).partition(b"tty-index:")[2].split()[:1] == [number]:
                        return True
                finally:
                    close(info)
        except OSError:
            continue
    return False
