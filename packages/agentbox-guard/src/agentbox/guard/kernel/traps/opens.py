"""Opens: the supervisor finds the object, decides, opens it itself and hands the descriptor over: nothing is looked
up twice.

What would wait (a pipe without a reader, a large file to be hashed) waits in a thread of its own, never in the loop.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from agentbox.guard.kernel import syscalls
from agentbox.guard.kernel.judge import EXEMPT, NO_NAME
from agentbox.guard.kernel.process import AT_FDCWD, is_full
from agentbox.guard.kernel.traps._base import KERNELS, Box, refused
from agentbox.guard.kernel.walk import is_plain
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler
    from agentbox.guard.kernel.walk import Found

_TMPFILE = os.O_TMPFILE & ~os.O_DIRECTORY
_WRITES = os.O_CREAT | os.O_TRUNC | os.O_APPEND | _TMPFILE
_ONCE = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_SIMPLE = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_DIRECTORY | os.O_NOFOLLOW | 0o100000
"""Flags of a plain open for reading; the last is O_LARGEFILE, which 64-bit kernels set by themselves."""
_ALWAYS = os.O_CLOEXEC | os.O_NOCTTY
_ALL = 0x7FFFFFFF
"""open(2) passes over flags that it does not know, and the highest bit of an int is none."""
_BY_LIBRARY = os.O_RDONLY | os.O_CLOEXEC
"""How name services open their files (nss/nss_files of glibc, "rce"; os/user of Go; musl)."""
_SET_ID = 0o6000
_HASH_HERE = 256 * 1024
"""Bytes up to which a file is hashed in the loop, about 0.2 ms; longer ones in a thread."""
_TRIES = 8


class Request:
    """An open(2) as it was asked for; `path` is absolute, and not resolved."""

    __slots__ = ("flags", "mode", "path")

    def __init__(self, path: bytes, flags: int, mode: int) -> None:
        self.path = path
        self.flags = flags
        self.mode = mode

    @property
    def writes(self) -> bool:
        """Whether anything of the file may change."""
        return bool(self.flags & (os.O_ACCMODE | _WRITES))


def _open(box: Box, call: Call, name: str) -> None:
    address, flags, mode = call.args[:3]
    _serve(box, call, _request(box, call, address, AT_FDCWD, flags & _ALL, mode))


def _creat(box: Box, call: Call, name: str) -> None:
    address, mode = call.args[:2]
    _serve(box, call, _request(box, call, address, AT_FDCWD, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode))


def _openat(box: Box, call: Call, name: str) -> None:
    base, address, flags, mode = call.args[:4]
    _serve(box, call, _request(box, call, address, base, flags & _ALL, mode))


def _openat2(box: Box, call: Call, name: str) -> None:
    base, address, how, size = call.args[:4]
    if size < 24:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    flags, mode, resolve = struct.unpack("=3Q", box.memory.block(call.pid, how, 24))
    # Walks with conditions are left to the programs' own way of doing without openat2 (Linux before 5.6).
    # A descriptor that is only a reference (O_PATH) cannot be handed over, and memory may change if the kernel goes on.
    if size > 24 or resolve or flags & os.O_PATH:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if flags >> 31:  # no flag that there is (openat2(2))
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    _serve(box, call, _request(box, call, address, base, flags, mode))


def _request(box: Box, call: Call, address: int, base: int, flags: int, mode: int) -> Request:
    path = box.memory.text(call.pid, address)
    return Request(box.tree.absolute(call.pid, path, base & 0xFFFFFFFF), flags, mode & 0o7777)


def _quickly(box: Box, call: Call, path: bytes, flags: int) -> bool:
    """Answer a plain open for reading without a look-up; False when it takes one."""
    if path.endswith(b"/"):  # a folder, or nothing (path_resolution(7))
        path = path.rstrip(b"/") or b"/"
        flags |= os.O_DIRECTORY
    return (_again if path in box.known else _system)(box, call, path, flags)


def _again(box: Box, call: Call, path: bytes, flags: int) -> bool:
    """Open for reading what was opened under this very path before; False when it must be looked at anew.

    A path that nothing of the run can change means what it meant. Any other must still lead to a file or folder of its
    kind, by itself and over no link, before that is opened: what else may be there (a pipe, a device) notices an open.
    A folder is always opened in the run's tree: one of the supervisor's would show its /proc, the machine's processes.
    """
    judged, immutable, kind, text = box.known[path]
    try:
        plain = immutable and kind == stat.S_IFREG
        fd = os.open(path, flags | _ALWAYS) if plain else _open_exactly(box, path, kind, flags)
    except OSError:
        return False
    try:
        if judged != EXEMPT and not _record_again(box, call, fd, kind, text):
            return False
        box.listener.give(call, fd, bool(flags & os.O_CLOEXEC))
        return True
    finally:
        os.close(fd)


def _system(box: Box, call: Call, path: bytes, flags: int) -> bool:
    """Open a file of the system, which every program may read and nothing of the run can change, in one go.

    False when it is none, or is reached over a link: then it must be looked at closely.
    """
    if path.startswith((b"/proc/", b"/dev/")) or not is_plain(path):
        return False
    text = os.fsdecode(path)
    if box.judge.judge("read", text, 0) != EXEMPT or not box.judge.immutable(text):
        return False
    try:
        fd = box.tree.exactly(path, flags | _ALWAYS)
    except OSError:
        return False
    try:
        kind = stat.S_IFMT(os.fstat(fd).st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFDIR):
            return False
        box.known[path] = EXEMPT, True, kind, text
        box.listener.give(call, fd, bool(flags & os.O_CLOEXEC))
        return True
    finally:
        os.close(fd)


def _open_exactly(box: Box, path: bytes, kind: int, flags: int) -> int:
    if kind == stat.S_IFDIR:
        return box.tree.exactly(path, flags | _ALWAYS | os.O_DIRECTORY)  # opens nothing else, whatever is there now
    held = box.tree.exactly(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if stat.S_IFMT(os.fstat(held).st_mode) != kind:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return _open_again(held, flags)
    finally:
        os.close(held)


def _record_again(box: Box, call: Call, fd: int, kind: int, text: str) -> bool:
    """Record the read of what is open; False if it is of another kind now, or its content is not known any more."""
    info = os.fstat(fd)
    if stat.S_IFMT(info.st_mode) != kind:
        return False
    pid = box.ids(call).process
    if kind == stat.S_IFDIR:
        box.scribe.observe(pid, "fs.list", {"path": text})
        return True
    if not box.scribe.tells_read(pid, text):
        return True
    digest = box.hashes.known(info)
    if digest:
        box.scribe.observe(pid, "fs.read", {"path": text, "sha256": digest, "size": info.st_size})
    return bool(digest)


def _serve(box: Box, call: Call, request: Request) -> None:
    flags = request.flags
    path = request.path
    scripted = box.scripts is not None and not request.writes and box.ids(call).process in box.scripts
    if not scripted and not flags & ~_SIMPLE and _quickly(box, call, path, flags):
        return
    if flags & (os.O_CREAT | os.O_TRUNC) and is_full(call.pid):  # else a file would be made or emptied for nothing
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    exclusive = bool(flags & os.O_CREAT and flags & os.O_EXCL) and flags & os.O_TMPFILE != os.O_TMPFILE
    follow = not (flags & os.O_NOFOLLOW or exclusive)
    for _ in range(_TRIES):
        if flags & os.O_CREAT:
            found = box.tree.place(call.pid, path, follow=follow)
        else:
            found = box.tree.find(call.pid, path, follow=follow)
        try:
            if found.fd >= 0:
                if exclusive:
                    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
                if scripted:
                    _check_script(box, call, path, found)
                _existing(box, call, request, found)
                return
            if _create(box, call, request, found):
                return
        finally:
            found.close()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _create(box: Box, call: Call, request: Request, found: Found) -> bool:
    """Make the file that is not there; False if somebody else has made it meanwhile."""
    judged = box.judge.judge("write", found.text, box.ids(call).inner)
    args = {"path": found.text, "flags": f"{request.flags & ~os.O_CLOEXEC:#o}", "absent": True}
    if type(judged) is not int and box.judge.is_own_cache(found.text):
        raise refused()
    if not box.allowed(call, "fs.write", args, judged):
        raise refused()
    box.scribe.flush()
    flags = request.flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | _ALWAYS
    previous = os.umask(box.askers.umask(call.pid))
    try:
        fd = os.open(found.leaf, flags, request.mode & ~_SET_ID, dir_fd=found.folder)
    except FileExistsError:
        return False
    finally:
        os.umask(previous)
    _hand_over(box, call, request, fd)
    return True


def _check_script(box: Box, call: Call, path: bytes, found: Found) -> None:
    """Refuse an interpreter another script than the one that its start is recorded with. Raises `OSError`."""
    pid = box.ids(call).process
    if box.scripts is None or box.lineage.is_starting(pid):
        return
    reason = box.scripts.problem(pid, frozenset((os.path.normpath(path), found.path)), found.fd)
    if reason and box.scribe.deny(pid, "proc.exec", {"file": found.text}, Denial("exec", found.text, reason)):
        raise refused()


def _existing(box: Box, call: Call, request: Request, found: Found) -> None:
    flags = request.flags
    info = os.fstat(found.fd)
    kind = stat.S_IFMT(info.st_mode)
    if kind == stat.S_IFLNK:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if flags & os.O_DIRECTORY and kind != stat.S_IFDIR:
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    unnamed = flags & os.O_TMPFILE == os.O_TMPFILE
    if kind == stat.S_IFDIR and request.writes and not unnamed:
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    access = "write" if request.writes else "read"
    op = "fs.write" if request.writes else "fs.list" if kind == stat.S_IFDIR else "fs.read"
    judged = _judge(box, call, request, found, access, kind == stat.S_IFDIR)
    if type(judged) is int and not request.writes and kind in (stat.S_IFREG, stat.S_IFDIR):
        if found.own < 0:  # what the asker already holds is open to nobody else
            _remember(box, request, found, judged, kind)
        if kind == stat.S_IFREG:
            _read(box, call, request, found, judged, info)
            return
    if type(judged) is not int and flags & _ALL == _BY_LIBRARY and _give_accounts(box, call, found):
        return
    args: dict[str, Any] = {"path": found.text}
    if op == "fs.write":
        args["flags"] = f"{flags & ~os.O_CLOEXEC:#o}"
        if kind != stat.S_IFDIR:  # where an unnamed file is made
            args["size"] = info.st_size
    if not box.allowed(call, op, args, judged):
        raise refused()
    if op == "fs.write":
        if box.scripts is not None:
            box.scripts.purge()
        box.hashes.written(info)  # before O_TRUNC: what is about to be executed stays what was hashed
        box.scribe.flush()
    if kind == stat.S_IFIFO and not flags & os.O_NONBLOCK and flags & os.O_ACCMODE != os.O_RDWR:
        _wait_for_pipe(box, call, request, found)
        return
    _hand_over(box, call, request, _reopen(box, call, request, found, unnamed))


def _give_accounts(box: Box, call: Call, found: Found) -> bool:
    """Answer the C library's own reading of /etc/passwd or /etc/group with what is the user's: each program that asks
    for its user's name or home does that. False for all else.
    """
    from agentbox.guard.kernel import ownentries

    if found.text not in ownentries.FILES:
        return False
    fd = ownentries.descriptor(found.text)
    try:
        box.listener.give(call, fd, True)
    finally:
        os.close(fd)
    return True


def _judge(box: Box, call: Call, request: Request, found: Found, access: str, listing: bool) -> int | Denial:
    ids = box.ids(call)
    if not request.flags & os.O_TRUNC and found.held in (request.flags & os.O_ACCMODE, os.O_RDWR):
        return EXEMPT  # the asker holds as much already, through the descriptor that it names
    if found.no_name:
        nameless = found.held is not None and found.path[:1] != b"/"
        return EXEMPT if nameless else Denial(access, found.text, NO_NAME)
    if found.path.startswith(b"/dev/pts/") and _is_own_terminal(box, call, found):
        return EXEMPT
    return box.judge.judge(access, found.text, ids.inner, listing=listing)


def _is_own_terminal(box: Box, call: Call, found: Found) -> bool:
    device = os.fstat(found.fd).st_rdev
    return box.askers.terminal(call.pid) == (os.major(device), os.minor(device))


def _remember(box: Box, request: Request, found: Found, judged: int, kind: int) -> None:
    """Note what was allowed for the next open of the same path, see `_again`."""
    text = found.text
    immutable = box.judge.immutable(text)
    if not immutable and judged == EXEMPT:
        return
    box.known[found.path] = judged, immutable, kind, text
    # What needs no entry may also be known by a name over links, as /lib is one to /usr/lib.
    if judged == EXEMPT and request.path != found.path and box.judge.leads(os.fsdecode(request.path), text):
        box.known[request.path] = judged, True, kind, text


def _read(box: Box, call: Call, request: Request, found: Found, judged: int, info: os.stat_result) -> None:
    """Hand over a regular file for reading, recorded with its content's hash."""
    if judged == EXEMPT or not box.scribe.tells_read(box.ids(call).process, found.text):
        _hand_over(box, call, request, _open_found(box, found, request.flags))
        return
    args: dict[str, Any] = {"path": found.text}
    made_up = found.path.startswith((b"/proc/", b"/sys/"))  # anew at each reading, some of it without an end (kmsg)
    digest = "" if made_up else box.hashes.known(info)
    if not made_up and not digest and info.st_size > _HASH_HERE:
        _later(box, call, request, found, args)
        return
    fd = _open_to_read(box, call, request, found)
    try:
        if not made_up:
            _describe(box, fd, request, args, info, digest=digest)
        box.scribe.observe(box.ids(call).process, "fs.read", args)
    except BaseException:
        os.close(fd)
        raise
    _hand_over(box, call, request, fd)


def _open_to_read(box: Box, call: Call, request: Request, found: Found) -> int:
    try:
        return _open_found(box, found, request.flags)
    except OSError:
        box.scribe.unread(box.ids(call).process, found.text)
        raise


def _describe(
    box: Box,
    fd: int,
    request: Request,
    args: dict[str, Any],
    info: os.stat_result,
    *,
    digest: str = "",
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Add hash (`digest`, if it is known) and size of what is open for reading to an entry's `args`."""
    # Reads of an O_DIRECT descriptor must be aligned (open(2)), which ours are not.
    try:
        args["sha256"] = digest or (
            box.hashes.descriptor(fd) if request.flags & os.O_DIRECT else box.hashes.opened(fd, wanted)
        )
        args["size"] = info.st_size
    except OSError:
        pass  # it cannot be read: the program is told so as well


def _later(box: Box, call: Call, request: Request, found: Found, args: dict[str, Any]) -> None:
    """Hash a large file in a thread; it is then recorded and handed over on the loop."""
    fd = _open_to_read(box, call, request, found)
    pid = box.ids(call).process

    def work() -> None:
        _describe(box, fd, request, args, os.fstat(fd), wanted=lambda: box.listener.stands(call))

    def done(outcome: Any) -> None:
        try:
            if isinstance(outcome, Exception):
                raise outcome
            box.scribe.observe(pid, "fs.read", args)
            box.listener.give(call, fd, bool(request.flags & os.O_CLOEXEC))
        except OSError as error:
            box.listener.fail(call, error.errno or errno.EIO)
        finally:
            os.close(fd)

    box.jobs.run(work, done)


def _reopen(box: Box, call: Call, request: Request, found: Found, unnamed: bool) -> int:
    if found.path == b"/dev/tty":
        return _terminal(box, call, request)
    if unnamed:
        previous = os.umask(box.askers.umask(call.pid))
        try:
            return _open_found(box, found, request.flags, request.mode & ~_SET_ID)
        finally:
            os.umask(previous)
    fd = _open_found(box, found, request.flags)
    if found.path in (b"/dev/ptmx", b"/dev/pts/ptmx"):
        _note_terminal(box, call, fd)
    return fd


def _open_found(box: Box, found: Found, flags: int, mode: int = 0) -> int:
    """Open what was decided on; what is the kernel's own, with no more power than a program of the run has."""
    if found.path.startswith(KERNELS) or not stat.S_ISREG(os.fstat(found.fd).st_mode):
        with box.lowered:
            return _open_again(found.fd, flags, mode)
    return _open_again(found.fd, flags, mode)


def _open_again(fd: int, flags: int, mode: int = 0) -> int:
    return os.open(b"/proc/self/fd/%d" % fd, flags & ~_ONCE | _ALWAYS, mode)


def _terminal(box: Box, call: Call, request: Request) -> int:
    """/dev/tty is the asker's controlling terminal (tty(4)), not the supervisor's."""
    device = box.askers.terminal(call.pid)
    if device is None:
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
    major, minor = device
    # Documentation/admin-guide/devices.txt: 136 to 143 are Unix98 terminals, 4 the consoles and serial lines
    if 136 <= major <= 143:
        path = f"/dev/pts/{(major - 136) * 256 + minor}"
    else:
        path = os.path.realpath(f"/sys/dev/char/{major}:{minor}").rpartition("/")[2]
        path = f"/dev/{path}"
    fd = os.open(path, request.flags & ~_ONCE | _ALWAYS)
    if os.fstat(fd).st_rdev != os.makedev(major, minor):
        os.close(fd)
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
    return fd


def _note_terminal(box: Box, call: Call, fd: int) -> None:
    import fcntl

    # TIOCGPTN, <asm-generic/ioctls.h>
    terminal = int.from_bytes(fcntl.ioctl(fd, 0x80045430, bytes(4)), "little")
    try:
        found = box.tree.find(call.pid, b"/dev/pts/%d" % terminal)
    except OSError:
        return  # of another instance of the file system, which the run does not see
    try:
        if os.minor(os.fstat(found.fd).st_rdev) == terminal:
            box.judge.terminals.add(found.text, found.fd)
            found.fd = -1
    finally:
        found.close()


def _wait_for_pipe(box: Box, call: Call, request: Request, found: Found) -> None:
    """Opening one end of a FIFO waits for the other (fifo(7)): in a thread, until the asker wants it no more."""
    fd, found.fd = found.fd, -1
    pid = box.ids(call).process
    flags = request.flags & ~_ONCE | _ALWAYS

    def work() -> int:
        return box.waits.blocking(call, pid, lambda: syscalls.reopen(fd, flags))  # `done` closes fd, after this

    def done(outcome: Any) -> None:
        os.close(fd)
        if isinstance(outcome, int):
            _hand_over(box, call, request, outcome)
        elif isinstance(outcome, OSError):
            box.listener.fail(call, outcome.errno or errno.EIO)
        else:
            raise outcome

    box.jobs.wait(work, done)


def _hand_over(box: Box, call: Call, request: Request, fd: int) -> None:
    try:
        if request.writes:
            box.hashes.written(os.fstat(fd))
        box.listener.give(call, fd, bool(request.flags & os.O_CLOEXEC))
    finally:
        os.close(fd)


CALLS: dict[str, Handler] = {"open": _open, "creat": _creat, "openat": _openat, "openat2": _openat2}
