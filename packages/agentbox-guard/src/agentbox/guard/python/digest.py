"""Sealed: the sha256 of what is about to be read, streamed at any size, and the other reads that the guard needs.

It is executed in a namespace of its own: the hook judges an `open` whose calling frame has that namespace, and records
it no second time. Small files use the interpreter's own SHA-256, as OpenSSL's costs 2.5 ms at every start; from 4 MiB
on OpenSSL's, five times faster, is loaded.
"""

from __future__ import annotations

from _imp import create_dynamic, exec_dynamic
from posix import O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_RDONLY, close, fstat, getpid, read
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
