"""Changes of names and of what files are: decided on the resolved object, and made by the supervisor on that very
object.

Nothing is followed or looked up again after the decision: names are changed below a folder that is held open, and
contents through /proc/self/fd of an object that is held open.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from agentbox.guard.kernel import syscalls
from agentbox.guard.kernel.judge import EXEMPT, NO_NAME, SET_USER
from agentbox.guard.kernel.process import AT_FDCWD
from agentbox.guard.kernel.protect import NOT_REGULAR
from agentbox.guard.kernel.traps._base import AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, Box, number, refused
from agentbox.guard.procfs import member, read_entry
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.guard.kernel.judge import Judge
    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.protect import Protection
    from agentbox.guard.kernel.traps._base import Handler
    from agentbox.guard.kernel.walk import Found

AT_REMOVEDIR, AT_SYMLINK_FOLLOW = 0x200, 0x400
"""<linux/fcntl.h>"""
NO_DEVICES = "a device node is a way past the file system, and making one takes a right that no program of the run has"
NOT_GIVEN = "giving a file to another user or group takes a right that no program of the run has"
PRIVILEGED = "attributes other than user.* and access lists take rights that no program of the run has"
_SET_ID = 0o6000
_KINDS = (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK)
"""What mknod(2) may make: no devices."""
_ATTRIBUTES = (b"user.", b"system.posix_acl_access", b"system.posix_acl_default")
_MOST_ATTRIBUTE = 65536  # XATTR_SIZE_MAX, <linux/limits.h>
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4  # <linux/fs.h>, Linux 3.15 to 3.18
_FD = b"/proc/self/fd/%d"


def _fd(argument: int) -> int:
    return argument & 0xFFFFFFFF


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


# --- names ---


def _leaf(box: Box, call: Call, address: int, base: int, otherwise: int = errno.EBUSY) -> Found:
    """The folder and name that a call acts on; `otherwise` is the errno for a path without a last name of its own."""
    found = box.tree.parent(call.pid, box.memory.text(call.pid, address), base)
    if found.leaf.rstrip(b"/") in (b"", b".", b".."):
        found.close()
        raise _error(otherwise)
    return found


def _state(found: Found) -> os.stat_result | None:
    try:
        return os.stat(found.leaf.rstrip(b"/"), dir_fd=found.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _make(box: Box, call: Call, op: str, address: int, base: int, make: Callable[[Found], None]) -> None:
    """A new name: mkdir, mknod."""
    found = _leaf(box, call, address, base, errno.EEXIST)
    try:
        if _state(found) is not None:
            raise _error(errno.EEXIST)
        judged = box.judge.named(found.text, lambda: box.judge.protection.reason(found.text))
        if type(judged) is not int and box.judge.is_own_cache(found.text):
            raise refused()
        _do(box, call, op, {"path": found.text}, (judged,), lambda: make(found))
    finally:
        found.close()


def _do(
    box: Box, call: Call, op: str, args: dict[str, str], judged: tuple[int | Denial, ...], act: Callable[[], None]
) -> None:
    if not box.allowed(call, op, args, *judged):
        raise refused()
    box.scribe.flush()
    act()
    box.listener.value(call, 0)


def _never(box: Box, call: Call, op: str, args: dict[str, str], reason: str) -> OSError:
    """Record what no rule allows; the error is the kernel's own for a process without capabilities (capabilities(7)),
    also while only observing.
    """
    box.allowed(call, op, args, Denial("write", args["path"], reason))
    return _error(errno.EPERM)


def _masked(box: Box, call: Call, act: Callable[[], None]) -> None:
    """Make something under the asker's umask."""
    previous = os.umask(box.askers.umask(call.pid))
    try:
        act()
    finally:
        os.umask(previous)


def _mkdir(box: Box, call: Call, base: int, address: int, mode: int) -> None:
    def make(found: Found) -> None:
        _masked(box, call, lambda: os.mkdir(found.leaf, mode & 0o1777, dir_fd=found.folder))

    _make(box, call, "fs.mkdir", address, base, make)


def _mknod(box: Box, call: Call, base: int, address: int, mode: int) -> None:
    if stat.S_IFMT(mode & 0xFFFF) not in _KINDS:
        found = _leaf(box, call, address, base, errno.EEXIST)
        found.close()
        raise _never(box, call, "fs.mknod", {"path": found.text}, NO_DEVICES)

    def make(found: Found) -> None:
        _masked(box, call, lambda: os.mknod(found.leaf, mode & 0xFFFF & ~_SET_ID, 0, dir_fd=found.folder))

    _make(box, call, "fs.mknod", address, base, make)


def _symlink(box: Box, call: Call, target: int, base: int, address: int) -> None:
    text = box.memory.text(call.pid, target)
    found = _leaf(box, call, address, base, errno.EEXIST)
    try:
        if _state(found) is not None:
            raise _error(errno.EEXIST)
        judged = box.judge.named(found.text, lambda: box.judge.protection.symlink_reason(found.text))
        args = {"path": os.fsdecode(text), "to": found.text}
        _do(box, call, "fs.symlink", args, (judged,), lambda: os.symlink(text, found.leaf, dir_fd=found.folder))
    finally:
        found.close()


def _remove(box: Box, call: Call, base: int, address: int, folder: bool) -> None:
    found = _leaf(box, call, address, base, errno.EINVAL if folder else errno.EISDIR)
    try:
        if _state(found) is None:
            raise _error(errno.ENOENT)
        judged = box.judge.named(found.text, lambda: box.judge.protection.removal_reason(found.text))
        act = os.rmdir if folder else os.unlink
        op = "fs.rmdir" if folder else "fs.remove"
        _do(box, call, op, {"path": found.text}, (judged,), lambda: act(found.leaf, dir_fd=found.folder))
    finally:
        found.close()


def _rename(box: Box, call: Call, old_base: int, old: int, new_base: int, new: int, flags: int) -> None:
    source = _leaf(box, call, old, old_base)
    target = None
    held: list[int] = []
    try:
        target = _leaf(box, call, new, new_base)
        if _state(source) is None:
            raise _error(errno.ENOENT)
        args = {"path": source.text, "to": target.text}
        if flags & RENAME_WHITEOUT:
            raise _never(box, call, "fs.rename", args, NO_DEVICES)
        judged = _judge_rename(box.judge, source, target, held)
        if flags & RENAME_EXCHANGE:
            judged += _judge_rename(box.judge, target, source, held)
        here, there = source, target
        _do(
            box, call, "fs.rename", args, tuple(judged),
            lambda: syscalls.renameat2(here.folder, here.leaf, there.folder, there.leaf, flags),
        )  # fmt: skip
    finally:
        for descriptor in held:
            os.close(descriptor)
        source.close()
        if target is not None:
            target.close()


def _judge_rename(judge: Judge, source: Found, target: Found, held: list[int]) -> list[int | Denial]:
    """Whether what is called `source` may be called `target`. A new git configuration is kept from being written until
    what is added to `held` is closed.
    """
    state = _state(source)
    if state is None:
        return []
    tree = stat.S_ISDIR(state.st_mode)
    judged = [judge.renamed(one.text, tree=tree) for one in (source, target)]
    if all(type(one) is int for one in judged):
        judged.append(judge.protecting(judge.protection.rename_problem(source.text, target.text)))
    if all(type(one) is int for one in judged) and not tree and judge.protection.is_content(target.text):
        problem = _content_problem(judge.protection, source, state, target.text, held)
        judged.append(judge.protecting((target.text, problem)))
    return judged


def _content_problem(protection: Protection, source: Found, state: os.stat_result, path: str, held: list[int]) -> str:
    if not stat.S_ISREG(state.st_mode):
        return NOT_REGULAR
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    held.append(os.open(source.leaf, flags, dir_fd=source.folder))
    return protection.content_reason(held[-1], path)


def _link(box: Box, call: Call, old_base: int, old: int, new_base: int, new: int, flags: int) -> None:
    path = box.memory.text(call.pid, old)
    if not path and flags & AT_EMPTY_PATH:
        source = box.tree.behind(call.pid, old_base)
    else:
        source = box.tree.find(call.pid, path, old_base, follow=bool(flags & AT_SYMLINK_FOLLOW))
    target = None
    try:
        target = _leaf(box, call, new, new_base, errno.EEXIST)
        there = target
        if _state(there) is not None:
            raise _error(errno.EEXIST)
        if _mount(source.fd) != _mount(there.folder):  # link(2): as a link of /proc, which /proc/self/fd/N is itself
            raise _error(errno.EXDEV)
        # A file that was made without a name (O_TMPFILE) has its folder's name, and "#N (deleted)" for its own.
        name = os.fsdecode(source.path.removesuffix(b" (deleted)")) if source.no_name else source.text
        link = stat.S_ISLNK(os.fstat(source.fd).st_mode)
        judged = (
            box.judge.named(name, lambda: box.judge.protection.reason(name)),
            box.judge.named(there.text, lambda: box.judge.protection.link_reason(there.text, link=link)),
        )
        args = {"path": name, "to": there.text}
        _do(
            box, call, "fs.link", args, judged,
            lambda: os.link(_FD % source.fd, there.leaf, dst_dir_fd=there.folder, follow_symlinks=True),
        )  # fmt: skip
    finally:
        source.close()
        if target is not None:
            target.close()


def _mount(fd: int) -> bytes:
    """The mount that an object was found on: proc_pid_fdinfo(5), Linux 3.15. On one of overlayfs, devices differ."""
    return member(read_entry(f"/proc/self/fdinfo/{fd}"), b"mnt_id")


# --- what files are ---


def _at(box: Box, call: Call, base: int, address: int, flags: int) -> Found:
    """The object of a call that takes a folder, a path and AT_ flags."""
    path = box.memory.text(call.pid, address)
    if not path and flags & AT_EMPTY_PATH and base != AT_FDCWD:
        return box.tree.behind(call.pid, base)
    return box.tree.find(call.pid, path, base, follow=not flags & AT_SYMLINK_NOFOLLOW)


def _change(box: Box, call: Call, op: str, found: Found, act: Callable[[bytes], None], problem: str = "") -> None:
    """Change what `found` is; `act` gets a path that means this object and nothing else."""
    try:
        judged: int | Denial
        if not found.no_name:
            ask = box.judge.protection.reason if op == "fs.truncate" else box.judge.protection.removal_reason
            judged = box.judge.changed(found.text, lambda: ask(found.text))
        elif found.held is not None and _is_nobody_elses(found):
            judged = EXEMPT
        else:
            judged = Denial("write", found.text, NO_NAME)
        if type(judged) is int and problem:
            judged = Denial("write", found.text, problem)
        _do(box, call, op, {"path": found.text}, (judged,), lambda: act(_FD % found.fd))
    finally:
        found.close()


def _is_nobody_elses(found: Found) -> bool:
    """Whether an object without a name is a pipe, a socket or a file that has no other name either."""
    return found.path[:1] != b"/" or os.fstat(found.fd).st_nlink == 0


def _chmod(box: Box, call: Call, found: Found, mode: int) -> None:
    mode &= 0o7777
    kind = stat.S_IFMT(os.fstat(found.fd).st_mode)
    if kind == stat.S_IFLNK:
        found.close()
        raise _error(errno.EOPNOTSUPP)
    problem = SET_USER if mode & _SET_ID and kind != stat.S_IFDIR else ""
    _change(box, call, "fs.chmod", found, lambda path: os.chmod(path, mode), problem)


def _chown(box: Box, call: Call, found: Found, user: int, group: int) -> None:
    owner, info = number(user), os.fstat(found.fd)
    try:
        # What the kernel says to a process without CAP_CHOWN (fs/attr.c, setattr_prepare): we may have it, it has not.
        own, groups = box.askers.owner(call.pid)
        if (owner != -1 and (info.st_uid != own or owner != own)) or (
            number(group) != -1 and (info.st_uid != own or number(group) not in {*groups, info.st_gid})
        ):
            raise _never(box, call, "fs.chown", {"path": found.text}, NOT_GIVEN)
    except OSError:
        found.close()
        raise
    _change(box, call, "fs.chown", found, lambda path: os.chown(path, owner, number(group)))


def _times(box: Box, call: Call, times: bytes | None, found: Found) -> None:
    """The times come first, as all that is read of memory does: where that fails, nothing is held open yet."""
    _change(box, call, "fs.utime", found, lambda path: syscalls.utimensat(path, times))


def _truncate(box: Box, call: Call, name: str) -> None:
    address, length = call.args[:2]
    if length >> 63:
        raise _error(errno.EINVAL)
    found = box.tree.find(call.pid, box.memory.text(call.pid, address))
    if not stat.S_ISREG(os.fstat(found.fd).st_mode):
        kind = errno.EISDIR if stat.S_ISDIR(os.fstat(found.fd).st_mode) else errno.EINVAL
        found.close()
        raise _error(kind)

    def act(path: bytes) -> None:
        box.hashes.written(os.fstat(found.fd))
        os.truncate(path, length)

    _change(box, call, "fs.truncate", found, act)


def _specs(box: Box, call: Call, address: int) -> bytes | None:
    """struct timespec[2] as it is."""
    return box.memory.block(call.pid, address, 32) if address else None


def _values(box: Box, call: Call, address: int, form: str, scale: int) -> bytes | None:
    """struct timeval[2] or struct utimbuf as struct timespec[2]."""
    if not address:
        return None
    got = struct.unpack(form, box.memory.block(call.pid, address, struct.calcsize(form)))
    if len(got) == 2:
        return struct.pack("=4q", got[0], 0, got[1], 0)
    if not (0 <= got[1] < 1_000_000 and 0 <= got[3] < 1_000_000):
        raise _error(errno.EINVAL)
    return struct.pack("=4q", got[0], got[1] * scale, got[2], got[3] * scale)


def _setxattr(box: Box, call: Call, find: Callable[[], Found]) -> None:
    name = box.memory.text(call.pid, call.args[1], 256)
    size, flags = call.args[3], number(call.args[4])
    if size > _MOST_ATTRIBUTE:
        raise _error(errno.E2BIG)
    value = box.memory.block(call.pid, call.args[2], size) if size else b""
    _attribute(box, call, find(), name, lambda path: os.setxattr(path, name, value, flags))


def _removexattr(box: Box, call: Call, find: Callable[[], Found]) -> None:
    name = box.memory.text(call.pid, call.args[1], 256)
    _attribute(box, call, find(), name, lambda path: os.removexattr(path, name))


def _attribute(box: Box, call: Call, found: Found, name: bytes, act: Callable[[bytes], None]) -> None:
    if not name.startswith(_ATTRIBUTES):
        found.close()
        raise _never(box, call, "fs.xattr", {"path": found.text}, PRIVILEGED)
    _change(box, call, "fs.xattr", found, act)


def _path(box: Box, call: Call, follow: bool = True) -> Found:
    """The object of a call whose first argument is a path."""
    return box.tree.find(call.pid, box.memory.text(call.pid, call.args[0]), follow=follow)


def _held(box: Box, call: Call) -> Found:
    """The object of a call whose first argument is a descriptor."""
    found = box.tree.behind(call.pid, _fd(call.args[0]))
    if found.held is None:  # O_PATH: open(2) says what these may not do
        found.close()
        raise _error(errno.EBADF)
    return found


def _utimensat(box: Box, call: Call, name: str) -> None:
    base, address, times, flags = call.args[:4]
    given = _specs(box, call, times)
    _times(box, call, given, _at(box, call, _fd(base), address, flags) if address else _held(box, call))


def _futimesat(box: Box, call: Call, name: str) -> None:
    base, address, times = call.args[:3]
    given = _values(box, call, times, "=4q", 1000)
    _times(box, call, given, _at(box, call, _fd(base), address, 0) if address else _held(box, call))


CALLS: dict[str, Handler] = {
    "mkdir": lambda box, call, _: _mkdir(box, call, AT_FDCWD, *call.args[:2]),
    "mkdirat": lambda box, call, _: _mkdir(box, call, _fd(call.args[0]), *call.args[1:3]),
    "mknod": lambda box, call, _: _mknod(box, call, AT_FDCWD, *call.args[:2]),
    "mknodat": lambda box, call, _: _mknod(box, call, _fd(call.args[0]), *call.args[1:3]),
    "symlink": lambda box, call, _: _symlink(box, call, call.args[0], AT_FDCWD, call.args[1]),
    "symlinkat": lambda box, call, _: _symlink(box, call, call.args[0], _fd(call.args[1]), call.args[2]),
    "unlink": lambda box, call, _: _remove(box, call, AT_FDCWD, call.args[0], False),
    "rmdir": lambda box, call, _: _remove(box, call, AT_FDCWD, call.args[0], True),
    "unlinkat": lambda box, call, _: _remove(
        box, call, _fd(call.args[0]), call.args[1], bool(call.args[2] & AT_REMOVEDIR)
    ),
    "rename": lambda box, call, _: _rename(box, call, AT_FDCWD, call.args[0], AT_FDCWD, call.args[1], 0),
    "renameat": lambda box, call, _: _rename(
        box, call, _fd(call.args[0]), call.args[1], _fd(call.args[2]), call.args[3], 0
    ),
    "renameat2": lambda box, call, _: _rename(
        box, call, _fd(call.args[0]), call.args[1], _fd(call.args[2]), call.args[3], _fd(call.args[4])
    ),
    "link": lambda box, call, _: _link(box, call, AT_FDCWD, call.args[0], AT_FDCWD, call.args[1], 0),
    "linkat": lambda box, call, _: _link(
        box, call, _fd(call.args[0]), call.args[1], _fd(call.args[2]), call.args[3], _fd(call.args[4])
    ),
    "chmod": lambda box, call, _: _chmod(box, call, _path(box, call), call.args[1]),
    "fchmod": lambda box, call, _: _chmod(box, call, _held(box, call), call.args[1]),
    "fchmodat": lambda box, call, _: _chmod(
        box, call, _at(box, call, _fd(call.args[0]), call.args[1], 0), call.args[2]
    ),
    "fchmodat2": lambda box, call, _: _chmod(
        box, call, _at(box, call, _fd(call.args[0]), call.args[1], call.args[3]), call.args[2]
    ),
    "chown": lambda box, call, _: _chown(box, call, _path(box, call), *call.args[1:3]),
    "lchown": lambda box, call, _: _chown(box, call, _path(box, call, follow=False), *call.args[1:3]),
    "fchown": lambda box, call, _: _chown(box, call, _held(box, call), *call.args[1:3]),
    "fchownat": lambda box, call, _: _chown(
        box, call, _at(box, call, _fd(call.args[0]), call.args[1], call.args[4]), *call.args[2:4]
    ),
    "utime": lambda box, call, _: _times(box, call, _values(box, call, call.args[1], "=2q", 0), _path(box, call)),
    "utimes": lambda box, call, _: _times(box, call, _values(box, call, call.args[1], "=4q", 1000), _path(box, call)),
    "futimesat": _futimesat,
    "utimensat": _utimensat,
    "truncate": _truncate,
    "setxattr": lambda box, call, _: _setxattr(box, call, lambda: _path(box, call)),
    "lsetxattr": lambda box, call, _: _setxattr(box, call, lambda: _path(box, call, follow=False)),
    "fsetxattr": lambda box, call, _: _setxattr(box, call, lambda: _held(box, call)),
    "removexattr": lambda box, call, _: _removexattr(box, call, lambda: _path(box, call)),
    "lremovexattr": lambda box, call, _: _removexattr(box, call, lambda: _path(box, call, follow=False)),
    "fremovexattr": lambda box, call, _: _removexattr(box, call, lambda: _held(box, call)),
}
