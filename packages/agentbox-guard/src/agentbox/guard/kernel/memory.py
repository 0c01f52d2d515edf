"""Copies of what another process's memory holds: texts, addresses, message heads, argument lists.

A copy is taken once and everything is decided on it; nothing here is read twice. Addresses and sizes come from hostile
programs: what cannot be read raises `OSError` (EFAULT), as the kernel's own copying would.
"""

from __future__ import annotations

import errno
import os
import struct

from agentbox.guard.kernel.syscalls import PAGE, Window

PATH_MAX = 4096
"""<linux/limits.h>, the final NUL included."""
MOST_ARGUMENTS = 131072
MOST_ARGUMENT_BYTES = 2 * 1024 * 1024
"""What one execve(2) can pass at most with the usual stack limit: a quarter of 8 MiB."""
_CHUNK = 256


def fault() -> OSError:
    """The error of a bad address."""
    return OSError(errno.EFAULT, os.strerror(errno.EFAULT))


class Memory:
    """Reads the memory of processes by thread or process id, as one thread of the supervisor; in others make
    another.
    """

    __slots__ = ("_window",)

    def __init__(self) -> None:
        self._window = Window()

    def text(self, pid: int, address: int, most: int = PATH_MAX) -> bytes:
        """The bytes up to a NUL. Raises `OSError`: EFAULT, or ENAMETOOLONG when there is none within `most` bytes."""
        read = self._window.read
        if not address:
            raise fault()
        size = min(_CHUNK, PAGE - address % PAGE)
        found = read(pid, address, size)
        end = found.find(b"\0")
        if end >= 0:
            return found[:end]
        while len(found) < most:
            address += size
            size = min(PAGE - address % PAGE, most - len(found))
            piece = read(pid, address, size)
            end = piece.find(b"\0")
            if end >= 0:
                return found + piece[:end]
            if not piece:
                raise fault()
            found += piece
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    def block(self, pid: int, address: int, size: int) -> bytes:
        """Exactly `size` bytes. Raises `OSError` (EFAULT)."""
        pieces = []
        while size > 0:
            step = min(size, PAGE - address % PAGE)
            piece = self._window.read(pid, address, step)
            if len(piece) != step:
                raise fault()
            pieces.append(piece)
            address += step
            size -= step
        return b"".join(pieces)

    def words(self, pid: int, address: int) -> list[bytes]:
        """The texts of a null-terminated array of pointers (argv); a null array is empty, as for execve(2) on Linux."""
        found: list[bytes] = []
        left = MOST_ARGUMENT_BYTES
        start, page = 0, b""  # the texts mostly lie side by side: one reading for all that are in a page
        while address and len(found) < MOST_ARGUMENTS:
            count = min(64, (PAGE - address % PAGE) // 8) or 1
            pointers = struct.unpack(f"={count}Q", self.block(pid, address, 8 * count))
            for pointer in pointers:
                if not pointer:
                    return found
                if not start <= pointer < start + len(page):
                    start, page = pointer, self._window.read(pid, pointer, PAGE - pointer % PAGE)
                end = page.find(b"\0", pointer - start)
                word = page[pointer - start : end] if end >= 0 else self.text(pid, pointer, left)
                if len(word) >= left:
                    raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
                left -= len(word) + 1
                found.append(word)
            address += 8 * count
        if address:
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        return found

    def write(self, pid: int, address: int, data: bytes) -> None:
        """Put an answer (at most a page) where the program asked for it. Raises `OSError` (EFAULT)."""
        self._window.write(pid, address, data)


class Message:
    """A struct msghdr: the address (or b""), the payload's (address, size) pairs, and the control data."""

    __slots__ = ("control", "name", "parts")

    def __init__(self, name: bytes, parts: list[tuple[int, int]], control: bytes) -> None:
        self.name = name
        self.parts = parts
        self.control = control


MOST_PARTS = 1024
"""UIO_MAXIOV, <linux/uio.h>."""
MOST_NAME = 128
"""sizeof(struct sockaddr_storage), <linux/socket.h>."""
MOST_CONTROL = 65536


def message(memory: Memory, pid: int, address: int) -> Message:
    """Read the struct msghdr at `address` (recvmsg(2) has its layout). Raises `OSError`."""
    name, name_size, parts, count, control, control_size = struct.unpack("=QI4xQQQQ", memory.block(pid, address, 48))
    if count > MOST_PARTS:
        raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
    if control_size > MOST_CONTROL:
        raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
    pairs = struct.unpack(f"={2 * count}Q", memory.block(pid, parts, 16 * count))
    return Message(
        memory.block(pid, name, min(name_size, MOST_NAME)) if name else b"",
        list(zip(pairs[::2], pairs[1::2], strict=True)),
        memory.block(pid, control, control_size) if control else b"",
    )
