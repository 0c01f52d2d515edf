"""The effect `fs.write`: one regular file gets this content. It must never replace a link or a device.

A new file appears whole or not at all. An old one is overwritten in place, as plain Python does, so that its mode,
owner and other names stay; the space is reserved first, so that a full disk leaves the old content.
"""

from __future__ import annotations

import errno
import os

from agentbox.guard.effects import _base, _files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.guard.context import EffectContext
    from agentbox.guard.effects._base import Args, Result

_MODE = 0o644
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FsWrite:
    """Args: `path`, `body`; recorded as `path`, `sha256`, `size`. Result: `size`. A new file has mode 0644 & ~umask."""

    op = "fs.write"
    irreversible = True
    mutates = True
    slow = False

    def normalise(self, args: Args, context: EffectContext) -> Args:
        data = _base.body(args, "body", self.op) or b""
        spelled = _base.path(args, "path", self.op, context.cwd)
        resolved = context.file("write", spelled)
        facts = {"path": context.show(resolved), "sha256": _base.sha256(data), "size": len(data)}
        return {**facts, "_path": resolved, "_data": data, "_folder": spelled.endswith("/")}

    def identity(self, args: Args) -> Args:
        return {"path": args["path"], "sha256": args["sha256"]}

    def perform(self, args: Args, context: EffectContext) -> Result:
        try:
            if args["_folder"]:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            _write(args["_path"], args["_data"], context)
        except OSError as error:
            return _base.os_error(error)
        return {"size": args["size"]}


def _write(path: str, data: bytes, context: EffectContext) -> None:
    if not put(path, data, context.services.changing):
        raise _files.refuse_moved("write", path, context)


def put(path: str, data: bytes, changing: Callable[[int], None] = lambda fd: None) -> bool:
    """Make `data` the whole content of a resolved path, over no link; `changing` is told a file that is there before.

    False where the path leads elsewhere by now. Raises `OSError`.
    """
    for _ in _files.tries():
        try:
            folder, name = _files.open_folder(path)
        except _files.Moved:
            continue
        try:
            fd = _files.open_regular(folder, name, os.O_WRONLY)
        except _files.Moved:
            continue
        except FileNotFoundError:
            if _create(folder, name, data):
                return True
            continue
        finally:
            os.close(folder)
        try:
            changing(fd)
            _overwrite(fd, data)
            return True
        finally:
            os.close(fd)
    return False


def _overwrite(fd: int, data: bytes) -> None:
    """Put `data` in the place of the content: first the room, then the bytes, and only then the new length."""
    size = os.fstat(fd).st_size
    if len(data) > size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, len(data))
        except OSError as error:
            if error.errno in _NO_ROOM:
                os.ftruncate(fd, size)
                raise
    _put(fd, data)
    os.ftruncate(fd, len(data))


def _create(folder: int, name: str, data: bytes) -> bool:
    """Make the file with its whole content; False when somebody else made that name first."""
    try:
        return _create_whole(folder, name, data)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        # Else filesystem or kernel have no unnamed files, which each says in its own way; a real reason comes up again.
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE, dir_fd=folder)
    except FileExistsError:
        return False
    try:
        _put(fd, data)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(fd)
    return True


def _create_whole(folder: int, name: str, data: bytes) -> bool:
    """The same without a moment in which the file is there but empty: written unnamed, then linked (O_TMPFILE)."""
    unnamed = getattr(os, "O_TMPFILE", None)
    if unnamed is None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    fd = os.open(".", unnamed | os.O_WRONLY | os.O_CLOEXEC, _MODE, dir_fd=folder)
    try:
        _put(fd, data)
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder, follow_symlinks=True)
    except FileExistsError:
        return False
    finally:
        os.close(fd)
    return True


def _put(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
