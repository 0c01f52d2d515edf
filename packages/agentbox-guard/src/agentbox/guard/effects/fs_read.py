"""The effect `fs.read`: the whole content of one regular file. It must never follow a link that was not decided."""

from __future__ import annotations

import errno
import os

from agentbox.guard.effects import _base, _files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.context import EffectContext
    from agentbox.guard.effects._base import Args, Result

_CHUNK = 4096
_KERNELS = ("/proc/", "/sys/")


class FsRead:
    """Args: `path`. Result: `body`, `sha256`, `size` (bytes); errors as of open(2) and read(2), EFBIG above 64 MiB."""

    op = "fs.read"
    irreversible = False
    mutates = False
    slow = False

    def normalise(self, args: Args, context: EffectContext) -> Args:
        resolved = context.file("read", _base.path(args, "path", self.op, context.cwd))
        return {"path": context.show(resolved), "_path": resolved}

    def identity(self, args: Args) -> Args:
        return {"path": args["path"]}

    def perform(self, args: Args, context: EffectContext) -> Result:
        try:
            data = (_read_of_kernel if args["_path"].startswith(_KERNELS) else _read)(args["_path"], context)
        except OSError as error:
            return _base.os_error(error)
        return {"body": data, "sha256": _base.sha256(data), "size": len(data)}


def _read_of_kernel(path: str, context: EffectContext) -> bytes:
    """What the kernel makes up is told as a program of the run would be told it, which has no capability."""
    from agentbox.guard.kernel.powers import Lowered

    with Lowered():
        return _read(path, context)


def _read(path: str, context: EffectContext) -> bytes:
    for _ in _files.tries():
        try:
            folder, name = _files.open_folder(path)
        except _files.Moved:
            continue
        try:
            fd = _files.open_regular(folder, name, os.O_RDONLY)
        except _files.Moved:
            continue
        finally:
            os.close(folder)
        try:
            return _content(fd)
        finally:
            os.close(fd)
    raise _files.refuse_moved("read", path, context)


def _content(fd: int) -> bytes:
    """All bytes up to the end, whatever the size claims to be: /proc files say 0, and a file may grow."""
    size = os.fstat(fd).st_size
    parts: list[bytes] = []
    total = 0
    while total <= _base.LIMIT and size <= _base.LIMIT:
        # One more than the size, so that the end is seen with the first read.
        data = os.read(fd, max(_CHUNK, size - total + 1))
        if not data:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        parts.append(data)
        total += len(data)
    raise OSError(errno.EFBIG, f"the file has {max(size, total)} bytes, one effect carries at most {_base.LIMIT}")
