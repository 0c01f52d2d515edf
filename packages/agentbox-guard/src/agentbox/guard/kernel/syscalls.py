"""The only file that calls the C library: calls by name, each number with its header and the first kernel that has it.

It never swallows an error: errno is read at once and raised as `OSError`. It knows nothing of policies or runs.
"""

from __future__ import annotations

import _ctypes
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>, Linux 2.1.57
PR_SET_NO_NEW_PRIVS = 38  # <linux/prctl.h>, Linux 3.5
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>, Linux 3.4

PR_SET_DUMPABLE = 4  # <linux/prctl.h>, Linux 2.3.20
PR_CAPBSET_DROP = 24  # <linux/prctl.h>, Linux 2.6.25
PR_CAP_AMBIENT = 47  # <linux/prctl.h>, Linux 4.3
PR_CAP_AMBIENT_CLEAR_ALL = 4  # <linux/prctl.h>, Linux 4.3

LINUX_CAPABILITY_VERSION_3 = 0x20080522  # <linux/capability.h>, Linux 2.6.26

LANDLOCK_CREATE_RULESET_VERSION = 1  # <linux/landlock.h>, Linux 5.13
LANDLOCK_RULE_PATH_BENEATH = 1  # <linux/landlock.h>, Linux 5.13
SYS_LANDLOCK_CREATE_RULESET = 444  # <asm/unistd.h>, Linux 5.13; new calls have one number on every architecture
SYS_LANDLOCK_ADD_RULE = 445  # <asm/unistd.h>, Linux 5.13
SYS_LANDLOCK_RESTRICT_SELF = 446  # <asm/unistd.h>, Linux 5.13

CLONE_NEWNS = 0x00020000  # <linux/sched.h>, Linux 2.4.19
CLONE_NEWIPC = 0x08000000  # <linux/sched.h>, Linux 2.6.19
CLONE_NEWPID = 0x20000000  # <linux/sched.h>, Linux 2.6.24
CLONE_NEWUSER = 0x10000000  # <linux/sched.h>, Linux 3.8 (for ordinary users)
CLONE_NEWNET = 0x40000000  # <linux/sched.h>, Linux 2.6.24

MS_RDONLY = 0x1  # <sys/mount.h>, Linux 1.0
MS_NOSUID = 0x2  # <sys/mount.h>, Linux 1.0
MS_NODEV = 0x4  # <sys/mount.h>, Linux 1.0
MS_NOEXEC = 0x8  # <sys/mount.h>, Linux 1.0
MS_BIND = 0x1000  # <sys/mount.h>, Linux 2.4
MS_REC = 0x4000  # <sys/mount.h>, Linux 2.4.11
MS_SLAVE = 0x80000  # <sys/mount.h>, Linux 2.6.15
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


def function(name: str) -> Any:
    """A function of the C library that gives an int. Raises `AttributeError` if it has none of that name."""
    return _Function((name, _Library))  # type: ignore[arg-type]


def _call(name: str, *arguments: Any) -> int:
    """Call a function that gives -1 for an error; an int goes as a C int, bytes as a pointer, None as null."""
    return _done(name, function(name)(*arguments))


def _numbered(name: str, number: int, *arguments: Any) -> int:
    """The same for a system call for which C libraries may have no function."""
    return _done(name, function("syscall")(_Long(number), *arguments))


def _done(name: str, result: int) -> int:
    if result < 0:
        error = _ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def prctl(option: int, value: int = 0) -> None:
    """prctl(2) with one value and zeros after it, which newer options insist on; raises `OSError`."""
    zero = _Long(0)
    _call("prctl", option, _Long(value), zero, zero, zero)


def prctl2(option: int, first: int, second: int = 0) -> None:
    """prctl(2) with two values and zeros after them; raises `OSError`."""
    zero = _Long(0)
    _call("prctl", option, _Long(first), _Long(second), zero, zero)


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


def capset(effective: int, permitted: int, inheritable: int) -> None:
    """capset(2) of the calling thread, each set as a 64-bit mask; raises `OSError`."""
    head = LINUX_CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4)
    words = [(mask >> shift) & 0xFFFFFFFF for shift in (0, 32) for mask in (effective, permitted, inheritable)]
    _call("capset", head, b"".join(word.to_bytes(4, sys.byteorder) for word in words))


def landlock_abi() -> int:
    """The version of Landlock that the running kernel has, landlock_create_ruleset(2); raises `OSError` if none."""
    version = _Long(LANDLOCK_CREATE_RULESET_VERSION)
    return _numbered("landlock_create_ruleset", SYS_LANDLOCK_CREATE_RULESET, None, _Long(0), version)


def landlock_create_ruleset(attributes: bytes) -> int:
    """A new ruleset's descriptor; `attributes` is a struct landlock_ruleset_attr; raises `OSError`."""
    size = _Long(len(attributes))
    return _numbered("landlock_create_ruleset", SYS_LANDLOCK_CREATE_RULESET, attributes, size, _Long(0))


def landlock_add_path(ruleset: int, access: int, descriptor: int) -> None:
    """landlock_add_rule(2) for all that lies beneath an open descriptor; raises `OSError`."""
    # struct landlock_path_beneath_attr is packed: 8 and 4 bytes
    attributes = access.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)
    kind = _Long(LANDLOCK_RULE_PATH_BENEATH)
    _numbered("landlock_add_rule", SYS_LANDLOCK_ADD_RULE, _Long(ruleset), kind, attributes, _Long(0))


def landlock_restrict_self(ruleset: int) -> None:
    """landlock_restrict_self(2): the calling thread and its children to come; raises `OSError`."""
    _numbered("landlock_restrict_self", SYS_LANDLOCK_RESTRICT_SELF, _Long(ruleset), _Long(0))


# --- seccomp, other processes' memory and descriptors, and look-ups below a root (numbers are the same on all
# machines) ---

SECCOMP_SET_MODE_FILTER = 1  # <linux/seccomp.h>, Linux 3.17
SECCOMP_GET_ACTION_AVAIL = 2  # <linux/seccomp.h>, Linux 4.14
SECCOMP_FILTER_FLAG_NEW_LISTENER = 1 << 3  # <linux/seccomp.h>, Linux 5.0
SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV = 1 << 5  # <linux/seccomp.h>, Linux 5.19
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}  # <asm/unistd.h>, Linux 3.17
SYS_PIDFD_GETFD = 438  # <asm/unistd.h>, Linux 5.6
SYS_TGKILL = {"x86_64": 234, "aarch64": 131}  # <asm/unistd.h>, Linux 2.5.75
SYS_KCMP = {"x86_64": 312, "aarch64": 272}  # <asm/unistd.h>, Linux 3.5
KCMP_FILES = 2  # <linux/kcmp.h>, Linux 3.5
SYS_OPENAT2 = 437  # <asm/unistd.h>, Linux 5.6
RESOLVE_NO_MAGICLINKS = 0x02  # <linux/openat2.h>, Linux 5.6
RESOLVE_NO_SYMLINKS = 0x04  # <linux/openat2.h>, Linux 5.6
RESOLVE_IN_ROOT = 0x10  # <linux/openat2.h>, Linux 5.6
PAGE = 4096
"""The unit in which memory of others is read: the smallest page of any machine, so that a read never straddles two."""


class Char(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "c"


class _Page(_ctypes.Array):  # type: ignore[type-arg]
    _type_ = Char
    _length_ = PAGE


class _Quads(_ctypes.Array):  # type: ignore[type-arg]
    _type_ = _Long
    _length_ = 3


_syscall = function("syscall")
_read_memory = function("process_vm_readv")
_write_memory = function("process_vm_writev")


def seccomp(flags: int, program: bytes, count: int) -> int:
    """seccomp(2), SECCOMP_SET_MODE_FILTER with `count` instructions; the listener's descriptor if `flags` asks for one.

    Raises `OSError`; EBUSY when a filter of this process has a listener already.
    """
    text = (Char * len(program)).from_buffer_copy(program)
    # struct sock_fprog: a short, padding, a pointer
    head = count.to_bytes(8, sys.byteorder) + _ctypes.addressof(text).to_bytes(8, sys.byteorder)
    number = SYS_SECCOMP[os.uname().machine]
    return _numbered("seccomp", number, _Long(SECCOMP_SET_MODE_FILTER), _Long(flags), head)


def pidfd_getfd(pidfd: int, descriptor: int) -> int:
    """pidfd_getfd(2): a duplicate (close-on-exec) of another process's descriptor; raises `OSError`."""
    return _numbered("pidfd_getfd", SYS_PIDFD_GETFD, _Long(pidfd), _Long(descriptor), _Long(0))


def tgkill(process: int, thread: int, signal: int) -> None:
    """tgkill(2): a signal to one thread. Raises `OSError` (ESRCH)."""
    _numbered("tgkill", SYS_TGKILL[os.uname().machine], process, thread, signal)


def same_descriptors(one: int, other: int) -> bool:
    """Whether two threads share one table of descriptors; kcmp(2), Linux 3.5. False where the kernel has no kcmp."""
    try:
        return not _numbered("kcmp", SYS_KCMP[os.uname().machine], one, other, KCMP_FILES, _Long(0), _Long(0))
    except OSError:
        return False


class Opener:
    """openat2(2) with one set of flags, made once for many calls. Not for several threads at a time."""

    __slots__ = ("_how",)

    def __init__(self, flags: int, resolve: int, mode: int = 0) -> None:
        self._how = _Quads(flags, mode, resolve)

    def __call__(self, folder: int, path: bytes) -> int:
        """A descriptor of what `path` names below the open directory `folder`; raises `OSError`."""
        found: int = _syscall(_OPENAT2, folder, path, self._how, _HOW_SIZE)
        if found < 0:
            error = _ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return found


_OPENAT2, _HOW_SIZE = _Long(SYS_OPENAT2), _Long(24)


class Sample:
    """Some bytes of this process's memory: who can read them by `address` can read what its calls name."""

    __slots__ = ("_kept", "address")

    def __init__(self, content: bytes) -> None:
        self._kept = (Char * len(content)).from_buffer_copy(content)
        self.address = _ctypes.addressof(self._kept)


class Window:
    """Reads and writes other processes' memory, at most a page at a time. Not for several threads at a time."""

    __slots__ = ("_local", "_page", "_remote", "_view")

    def __init__(self) -> None:
        self._page = _Page()
        self._view = memoryview(self._page).cast("B")
        self._local = _Quads(_ctypes.addressof(self._page), PAGE, 0)
        self._remote = _Quads(0, 0, 0)

    def read(self, pid: int, address: int, size: int) -> bytes:
        """Up to `size` bytes, which must not reach over a page's end; process_vm_readv(2); raises `OSError`
        (EFAULT).
        """
        self._local[1] = self._remote[1] = size
        self._remote[0] = address
        got: int = _read_memory(pid, self._local, _ONE, self._remote, _ONE, _ZERO)
        if got < 0:
            error = _ctypes.get_errno()
            raise OSError(error, f"process_vm_readv: {os.strerror(error)}")
        return bytes(self._view[:got])

    def write(self, pid: int, address: int, data: bytes) -> None:
        """Write at most a page; process_vm_writev(2); raises `OSError`."""
        self._view[: len(data)] = data
        self._local[1] = self._remote[1] = len(data)
        self._remote[0] = address
        got: int = _write_memory(pid, self._local, _ONE, self._remote, _ONE, _ZERO)
        if got < 0:
            error = _ctypes.get_errno()
            raise OSError(error, f"process_vm_writev: {os.strerror(error)}")


_ONE, _ZERO = _Long(1), _Long(0)


def renameat2(old_folder: int, old: bytes, new_folder: int, new: bytes, flags: int) -> None:
    """renameat2(2), Linux 3.15; raises `OSError`."""
    _call("renameat2", old_folder, old, new_folder, new, flags)


def inotify_add_watch(descriptor: int, path: bytes, mask: int) -> int:
    """inotify_add_watch(2), Linux 2.6.13: the watch's number; raises `OSError`."""
    return _call("inotify_add_watch", descriptor, path, _Long(mask))


def utimensat(path: bytes, times: bytes | None) -> None:
    """utimensat(2) of what `path` leads to; `times` is a struct timespec[2], None for now; raises `OSError`."""
    _call("utimensat", -100, path, times, 0)


def connect(descriptor: int, address: bytes) -> int:
    """connect(2) with a struct sockaddr of any family: 0; raises `OSError` (EINPROGRESS among others)."""
    return _call("connect", descriptor, address, len(address))


def bind(descriptor: int, address: bytes) -> int:
    """bind(2) with a struct sockaddr of any family: 0; raises `OSError`."""
    return _call("bind", descriptor, address, len(address))


class _Place(_ctypes._SimpleCData):  # type: ignore[type-arg]
    """A pointer to bytes; its own bytes are the address. (An array type for each length would stay for good.)"""

    _type_ = "z"


def _address(data: bytes | memoryview) -> int:
    """Where data lies that the caller keeps; 0 for no data."""
    if not data:
        return 0
    if isinstance(data, memoryview):
        return _ctypes.addressof(Char.from_buffer(data))
    return int.from_bytes(bytes(_Place(data)), sys.byteorder)


def sendmsg(descriptor: int, data: bytes | memoryview, control: bytes, flags: int, address: bytes) -> int:
    """sendmsg(2) with one piece of data, control messages as cmsg(3) has them, and an address as for `sendto`.

    All of it is sent from its place.
    """
    at = [_address(part) for part in (address, data, control)]
    parts = _Quads(at[1], len(data), 0)  # a struct iovec
    # struct msghdr: name and its size, the parts and their number, control and its size, flags
    head = struct.pack("=QI4xQQQQi4x", at[0], len(address), _ctypes.addressof(parts), 1, at[2], len(control), 0)
    return _call("sendmsg", descriptor, head, flags)


def waitpid(pid: int) -> int:
    """waitpid(2) without options: the wait status; raises `OSError`, also when a signal comes (EINTR)."""
    status = (Char * 4)()
    _call("waitpid", pid, status, 0)
    return int.from_bytes(bytes(status), sys.byteorder)


def reopen(descriptor: int, flags: int) -> int:
    """open(2) of what an O_PATH descriptor refers to, close-on-exec; raises `OSError` (EINTR among others)."""
    return _call("open", b"/proc/self/fd/%d" % descriptor, flags | os.O_CLOEXEC)


def sendto(descriptor: int, data: bytes, flags: int, address: bytes) -> int:
    """sendto(2); `address` is a struct sockaddr of any family, or b"" for none; raises `OSError`."""
    return _call("sendto", descriptor, data, _Long(len(data)), flags, address or None, len(address))


def setsockopt(descriptor: int, level: int, option: int, value: bytes) -> int:
    """setsockopt(2): 0; raises `OSError`."""
    return _call("setsockopt", descriptor, level, option, value, len(value))


EPOLL_CTL_ADD, EPOLL_CTL_DEL = 1, 2  # <linux/eventpoll.h>, Linux 2.5.44


def epoll_ctl(descriptor: int, act: int, one: int, events: int = 0, data: int = 0) -> int:
    """epoll_ctl(2): 0; raises `OSError`. A struct epoll_event has no padding on x86_64."""
    padding = b"" if os.uname().machine == "x86_64" else bytes(4)
    event = events.to_bytes(4, sys.byteorder) + padding + data.to_bytes(8, sys.byteorder)
    return _call("epoll_ctl", descriptor, act, one, event)


SO_ATTACH_FILTER = 26  # <asm-generic/socket.h>, Linux 2.2; SO_GET_FILTER, Linux 3.8, is another name for it
SO_DETACH_FILTER = 27  # <asm-generic/socket.h>, Linux 2.2


def attach_filter(descriptor: int, program: bytes, option: int = SO_ATTACH_FILTER) -> int:
    """Give a socket the classic BPF `program` (socket(7)): 0; raises `OSError`."""
    head = (len(program) // 8).to_bytes(8, sys.byteorder) + bytes(_Place(program))  # struct sock_fprog
    return _call("setsockopt", descriptor, 1, option, head, len(head))


def attached_filter(descriptor: int) -> bytes:
    """The classic BPF program that a socket has (SO_GET_FILTER), of at most a page; b"" for none; raises `OSError`."""
    text, size = _Page(), _Int(PAGE // 8)  # the size counts instructions, not bytes (sk_get_filter)
    _call("getsockopt", descriptor, 1, SO_ATTACH_FILTER, text, _ctypes.byref(size))
    return bytes(memoryview(text).cast("B")[: 8 * int(size.value)])


def interfaces(descriptor: int, room: int) -> bytes:
    """SIOCGIFCONF of netdevice(7): as many struct ifreq as `room` bytes hold, at most a page; raises `OSError`."""
    text = _Page()
    head = _Quads(min(room, PAGE), _ctypes.addressof(text), 0)  # struct ifconf: an int, padding, a pointer
    _call("ioctl", descriptor, _Long(0x8912), _ctypes.byref(head))
    return bytes(memoryview(text).cast("B")[: int(head[0]) & 0x7FFFFFFF])


def sandbox_init(profile: str) -> None:
    """sandbox_init(3) of macOS with a profile's text; raises `OSError`. Unverified: it has never been called."""
    message = _Long(0)
    _call("sandbox_init", os.fsencode(profile), _Long(0), _ctypes.byref(message))
