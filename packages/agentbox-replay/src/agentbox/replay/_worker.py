"""The process inside the scratch copy: makes the mounts, writes and hashes on request, and ends with its supervisor.

It never returns into the code that forked it, and never writes a file outside of the copy (but see `_backing`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import stat

from agentbox.guard.kernel import netns, shm, syscalls
from agentbox.guard.states import state_of
from agentbox.replay import _wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from typing import Any, BinaryIO, NoReturn

_MS_REMOUNT = 0x20  # <sys/mount.h>, Linux 1.0
_CAP_SYS_ADMIN = 21  # linux/capability.h
_KERNEL = ("/dev/", "/proc/", "/sys/")
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def run(sock: socket.socket, covers: list[str], supervisor: int, own_shm: bool, loopback: bool) -> NoReturn:
    """The whole life of the process: mounts, `ready`, requests until the channel closes."""
    status = 1
    try:
        channel = _wire.Channel(sock)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)  # Ctrl-C is for the agent; the final states are still wanted after it
        try:
            user = not is_mount_admin()
            network = isolate(user)
            if loopback and not network:
                with contextlib.suppress(OSError):  # root may lack CAP_NET_ADMIN in a container: listening fails then
                    netns.loopback_up()
            _die_with(supervisor)
            view = _View(covers, user=user)
            own_shm = own_shm and shm.cover()
        except OSError as error:
            channel.send({"error": _explain(error)})
        else:
            found = {"open": view.open, "fallback": view.fallback}
            channel.send({"user": user, "network": network, "shm": own_shm, **found})
            _serve(channel, view)
            status = 0
    finally:
        os._exit(status)


def _die_with(supervisor: int) -> None:
    """Have the kernel end this process with its supervisor; only now, as new credentials may clear it (prctl(2))."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)


def _serve(channel: _wire.Channel, view: _View) -> None:
    while (request := channel.receive()) is not None:
        try:
            answer = _HANDLERS[request["op"]](view, request)
        except OSError as error:
            answer = {"error": f"{error.filename or request['op']}: {error.strerror}"}
        channel.send(answer)


class _View:
    """The mounts of one copy: real directories by descriptor, what kind of namespace holds them, and what is `open`."""

    __slots__ = ("_count", "_real", "_store", "_user", "covers", "fallback", "open")

    def __init__(self, covers: list[str], *, user: bool) -> None:
        self._user = user
        self.covers = covers
        self._count = 0
        self._store = self.fallback = ""
        points = _mount_points()
        inner = [path for path in points if any(path.startswith(cover + "/") for cover in covers)]
        self._real = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in covers + inner}
        if covers:
            self._store, self.fallback = _backing(covers[0], user)
        for path in covers:
            self._overlay(path, inner)
        for path in inner:
            self._cover_inner(path, inner)
        # Only now: an upper directory must be on a writable mount, of which the overlay keeps a clone.
        self.open = [path for path in points if not self.is_covered(path) and not _lock(path)]

    def real(self, path: str) -> str:
        """`path` reached from its real directory, under every cover."""
        roots = [root for root in self._real if path == root or path.startswith(root + "/")]
        if not roots:
            return path
        root = max(roots, key=len)
        return f"/proc/self/fd/{self._real[root]}{path[len(root) :]}"

    def is_covered(self, path: str) -> bool:
        """True if `path` is a cover or lies below one."""
        return any(path == root or path.startswith(root + "/") for root in self._real)

    def _overlay(self, path: str, inner: list[str]) -> None:
        self._count += 1
        folder = f"{self._store}/{self._count}"
        # A descriptor, not the path: overlayfs reads `:` and `,` in its options as separators.
        lower = f"/proc/self/fd/{self._real[path]}"
        facts = os.stat(lower)
        for name in ("", "/upper", "/work"):
            os.mkdir(folder + name, 0o700)
        # The root of the copy takes owner and mode from the upper directory.
        os.chmod(f"{folder}/upper", stat.S_IMODE(facts.st_mode))
        if not self._user:
            os.chown(f"{folder}/upper", facts.st_uid, facts.st_gid)
        options = f"lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work"
        try:
            mount("overlay", path, "overlay", 0, options + (",userxattr" if self._user else ""))
        except OSError as error:
            below = [found for found in inner if found.startswith(path + "/")]
            if self._user and error.errno == errno.EINVAL and below:
                # clone_private_mount() refuses a tree with mounts that came from outside of the user namespace.
                text = f"{below[0]} is a mount point inside of it, which only root can cover"
                raise OSError(errno.EINVAL, text, path) from error
            raise

    def _cover_inner(self, path: str, inner: list[str]) -> None:
        """A mount inside a cover does not show through the overlay: cover it too, or else show it, read-only."""
        source = f"/proc/self/fd/{self._real[path]}"
        if os.path.isdir(source):
            try:
                self._overlay(path, inner)
            except OSError:
                pass  # a kernel or network file system that cannot be a lower layer
            else:
                return
        mount(source, path, None, syscalls.MS_BIND, None)
        _remount(path, syscalls.MS_RDONLY)


def _lock(path: str) -> bool:
    """Make a mount read-only; False if that fails. Kernel file systems stay, whose files are no content of anybody."""
    if path.startswith(_KERNEL) or path + "/" in _KERNEL:
        return True
    try:
        _remount(path, syscalls.MS_RDONLY)
    except OSError as error:
        # What this user cannot reach the agent cannot reach either.
        return error.errno in (errno.EACCES, errno.ENOENT, errno.ENOTDIR)
    return True


def _remount(path: str, flag: int) -> None:
    """Give a mount `flag` (0: writable) beside the others that it has: an ordinary user may not take those away."""
    kept = os.statvfs(path).f_flag & (syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)  # same numbers
    mount(None, path, None, syscalls.MS_BIND | _MS_REMOUNT | kept | flag, None)


def mount(source: str | None, target: str, fstype: str | None, flags: int, data: str | None) -> None:
    """mount(2); an error carries the target's path, which the report shows."""
    try:
        syscalls.mount(source, target, fstype, flags, data)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), target) from error


def isolate(user: bool) -> str:
    """Give this process mounts of its own, which neither come from nor go to anybody else's, and an empty network.

    Returns why the network is still the machine's, or "".
    """
    uid, gid = os.geteuid(), os.getegid()
    spaces, problem = (syscalls.CLONE_NEWUSER if user else 0) | syscalls.CLONE_NEWNS, ""
    try:
        syscalls.unshare(spaces | syscalls.CLONE_NEWNET)
    except OSError as error:
        syscalls.unshare(spaces)
        problem = f"network namespaces are refused here ({error.strerror})"
    if user:
        # One id, mapped to itself, is all that an ordinary user may map; and a group only when setgroups(2) is off.
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "wb") as file:
                file.write(text.encode())
    mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE, None)
    return problem


def _backing(mount_point: str, user: bool) -> tuple[str, str]:
    """Where the copy's own files live: (path to it, folder to remove afterwards or "").

    A tmpfs that only this namespace sees leaves nothing behind, whatever is killed. Before Linux 6.6 it has no `user.`
    attributes, which an unprivileged overlay needs: then a private folder on the disk does.
    """
    mount("agentbox-scratch", mount_point, "tmpfs", 0, "mode=0700")
    store = f"/proc/self/fd/{os.open(mount_point, os.O_PATH | os.O_CLOEXEC)}"
    if user and not keeps_attributes(store):
        import tempfile

        folder = tempfile.mkdtemp(prefix="agentbox-scratch-")
        return folder, folder
    return store, ""


def keeps_attributes(folder: str) -> bool:
    """True if files in `folder` can have `user.` extended attributes."""
    try:
        os.setxattr(folder, "user.agentbox", b"1")
        os.removexattr(folder, "user.agentbox")
    except OSError:
        return False
    return True


def is_mount_admin() -> bool:
    """True for root with CAP_SYS_ADMIN, who needs no user namespace (capabilities(7))."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/status", "rb") as lines:
        for line in lines:
            if line.startswith(b"CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


def _mount_points() -> list[str]:
    """Every mount point of this namespace, outer before inner (proc_pid_mountinfo(5): field 5, with octal escapes)."""
    with open("/proc/self/mountinfo", "rb") as lines:
        escaped = {line.split(b" ")[4] for line in lines}
    found = (os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]), path)) for path in escaped)
    return sorted(found, key=lambda path: (path.count("/"), path))


def _explain(error: OSError) -> str:
    if error.filename is None:
        return f"user or mount namespaces are refused here ({error.strerror})"
    return f"{error.filename} cannot be covered ({error.strerror})"


def _expose(view: _View, request: dict[str, Any]) -> dict[str, Any]:
    path = request["path"]
    source = view.real(path)
    os.makedirs(path, mode=0o700, exist_ok=True)
    mount(source, path, None, syscalls.MS_BIND, None)
    _remount(path, 0)
    return {}


def _make(view: _View, request: dict[str, Any]) -> dict[str, Any]:
    for path in request["paths"]:
        os.makedirs(path, mode=0o700, exist_ok=True)
    return {}


def _hide(view: _View, request: dict[str, Any]) -> dict[str, Any]:
    """Remove paths from the copy (never from below it: only what a cover shows is touched)."""
    for path in request["paths"]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), _inside(view, path) as (folder, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
    return {}


def _cut(view: _View, request: dict[str, Any]) -> dict[str, Any]:
    """Shorten files in the copy to what they held before the recorded run appended to them."""
    for path, size in request["sizes"].items():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), _inside(view, path) as (folder, name):
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(info.st_mode) and 0 <= size < info.st_size:
                with _opened(folder, name, 0) as file:
                    file.truncate(size)
    return {}


def _write(view: _View, request: dict[str, Any]) -> dict[str, Any]:
    path = request["path"]
    with _inside(view, path, make=True) as (folder, name), _opened(folder, name, os.O_CREAT) as file:
        file.seek(0, os.SEEK_END if request["append"] else os.SEEK_SET)
        file.write(bytes.fromhex(request["data"]))
        file.truncate()
    return {}


@contextlib.contextmanager
def _inside(view: _View, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The folder of `path`, open, and the last name; raises `FileNotFoundError` for what is in no cover.

    It goes down from the cover one name at a time, over no link and no `..`: paths are as the trace or the agent has
    them, /dev, /proc and /sys are the machine's own in the copy too, and this process has the power to change them.
    """
    roots = [root for root in view.covers if path.startswith(root + "/")]
    parts = path[len(roots[0]) + 1 :].split("/") if roots else []
    if not parts or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise FileNotFoundError(errno.ENOENT, "not inside the scratch copy", path)
    folder = os.open(roots[0], _FOLDER)
    try:
        for part in parts[:-1]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder, parts[-1]
    finally:
        os.close(folder)


def _opened(folder: int, name: str, flags: int) -> BinaryIO:
    """A regular file in an open folder, for writing."""
    safe = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = open(os.open(name, safe | flags, 0o666, dir_fd=folder), "wb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "no regular file", name)
    return file


def _states(view: _View, request: dict[str, Any]) -> dict[str, Any]:
    return {"states": {path: state_of(path) for path in request["paths"]}}


_HANDLERS = {"expose": _expose, "make": _make, "hide": _hide, "cut": _cut, "write": _write, "states": _states}
