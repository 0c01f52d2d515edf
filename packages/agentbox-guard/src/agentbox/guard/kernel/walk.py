"""Paths of waiting processes to objects: the supervisor's own look-up, in the run's tree, as the asking process would
see it.

What is found is held by a descriptor, so that it is the very object that is decided on and handed over. Nothing here
opens for reading or writing, and nothing is decided.
"""

from __future__ import annotations

import errno
import os
import stat

from agentbox.guard.kernel import shm, syscalls
from agentbox.guard.kernel.process import AT_FDCWD, Askers, Ids

MOST_LINKS = 40  # path_resolution(7)
_IN_ROOT = syscalls.RESOLVE_IN_ROOT | syscalls.RESOLVE_NO_MAGICLINKS
_PATH = os.O_PATH | os.O_CLOEXEC
_TRIES = 16
_MOST_PLAIN = 4096
_DELETED = b" (deleted)"
_SHM = os.fsencode(shm.PLACE)
_OWN = (b"/proc/", b"/dev/fd", b"/dev/std", b"/etc/mtab")
"""Where the asking process's own entries are behind names: these are walked by hand, part by part."""


class Found:
    """An object: its resolved `path` (bytes), an O_PATH descriptor `fd`, and whether it has `no_name` (pipe, memfd,
    deleted).

    A name that is not there has `fd` -1, and `folder` (an O_PATH descriptor) with `leaf` to make it by. `own` is the
    number of the asker's descriptor when the object was found through it, else -1; `held` is the access mode of that
    very descriptor, None if it is O_PATH or there is none. Close it after use.
    """

    __slots__ = ("fd", "folder", "held", "leaf", "no_name", "own", "path")

    def __init__(
        self, path: bytes, fd: int = -1, *, folder: int = -1, leaf: bytes = b"", no_name: bool = False
    ) -> None:
        self.path = path
        self.fd = fd
        self.folder = folder
        self.leaf = leaf
        self.no_name = no_name
        self.own = -1
        self.held: int | None = None

    @property
    def text(self) -> str:
        """The path as decisions take it."""
        return os.fsdecode(self.path)

    def close(self) -> None:
        """Give the descriptors back."""
        for descriptor in (self.fd, self.folder):
            if descriptor >= 0:
                os.close(descriptor)
        self.fd = self.folder = -1


class Tree:
    """The run's file tree, from its root directory `root` (an O_PATH descriptor that it takes over). `own_shm`: it has
    a /dev/shm of its own.
    """

    __slots__ = ("_askers", "_exact", "_follow", "_keep", "_plain", "_shm", "_strict", "root")

    def __init__(self, root: int, askers: Askers, *, own_shm: bool = False) -> None:
        self.root = root
        self._askers = askers
        self._plain: set[bytes] = set()
        """Folders outside of /proc that were what their names say."""
        self._exact: dict[int, syscalls.Opener] = {}
        self._follow = syscalls.Opener(_PATH, _IN_ROOT)
        self._keep = syscalls.Opener(_PATH | os.O_NOFOLLOW, _IN_ROOT)
        self._strict = syscalls.Opener(_PATH | os.O_NOFOLLOW, _IN_ROOT | syscalls.RESOLVE_NO_SYMLINKS)
        self._shm = self._device(_SHM) if own_shm else -1
        """The file system that is the run's own in /dev/shm; -1 where the machine's is there."""

    def close(self) -> None:
        """Give the root back."""
        os.close(self.root)

    def absolute(self, thread: int, path: bytes, base: int) -> bytes:
        """`path` with the folder in front that it starts from; not resolved. Raises `OSError` (ENOENT, EBADF)."""
        if path[:1] == b"/":
            return path
        if not path:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        start = self._askers.base(thread, base)
        if start.endswith(_DELETED) and path.startswith(b"."):
            levels, path = _climb(path)
            start = self._askers.above(thread, base, levels) if levels else start
        return start.rstrip(b"/") + b"/" + path

    def find(self, thread: int, path: bytes, base: int = AT_FDCWD, *, follow: bool = True) -> Found:
        """What a path names for a thread; its last link is followed if `follow`. Raises `OSError`."""
        full = self.absolute(thread, path, base)
        if full.startswith(b"//"):
            full = b"/" + full.lstrip(b"/")
        if full.startswith(_OWN):
            return self._by_hand(thread, full, follow)
        try:
            fd = self._open(self._follow if follow else self._keep, full)
        except OSError as error:
            by_hand = error.errno in (errno.ELOOP, errno.EAGAIN)
            if by_hand or (error.errno == errno.ENOENT and self._may_be_own(full, follow)):
                return self._by_hand(thread, full, follow)
            raise
        found = _held(fd)
        if found.path.startswith(b"/proc/"):  # a link that led into the supervisor's own entries
            found.close()
            return self._by_hand(thread, full, follow)
        return self._checked(found)

    def place(self, thread: int, path: bytes, base: int = AT_FDCWD, *, follow: bool = False) -> Found:
        """What a path names, or the folder and name for what is not there yet. Raises `OSError` when there is no
        folder.
        """
        full = self.absolute(thread, path, base)
        for _ in range(MOST_LINKS):
            bare = full.rstrip(b"/")
            head, _, leaf = bare.rpartition(b"/")
            if leaf in (b"", b".", b".."):
                return self.find(thread, full, follow=follow)
            try:
                return self.find(thread, full, follow=follow)
            except FileNotFoundError:
                folder = self.find(thread, head or b"/")
            if not stat.S_ISDIR(os.fstat(folder.fd).st_mode):
                folder.close()
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            target = _link(folder.fd, leaf) if follow else b""
            if target:
                full = target if target[:1] == b"/" else folder.path + b"/" + target
                folder.close()
                continue
            name = leaf + (b"/" if bare != full else b"")
            path_found = (folder.path if folder.path != b"/" else b"") + b"/" + leaf
            return Found(path_found, folder=folder.fd, leaf=name)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def parent(self, thread: int, path: bytes, base: int = AT_FDCWD) -> Found:
        """The folder and last name of a path, whether it is there or not: for calls that act on names.

        `fd` is -1 in any case. Raises `OSError`: what the call would say to a path without a last name is the caller's.
        """
        full = self.absolute(thread, path, base)
        bare = full.rstrip(b"/")
        head, _, leaf = bare.rpartition(b"/")
        folder = self.find(thread, head or b"/")
        if not stat.S_ISDIR(os.fstat(folder.fd).st_mode):
            folder.close()
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        slash = b"/" if bare != full else b""
        joined = (folder.path if folder.path != b"/" else b"") + b"/" + leaf
        return Found(joined, folder=folder.fd, leaf=leaf + slash)

    def behind(self, thread: int, number: int) -> Found:
        """What a descriptor of the thread is. Raises `OSError` (EBADF)."""
        fd, held = self._askers.descriptor(thread, number)
        found = self._checked(_held(fd), keep=True)
        found.own = number
        found.held = held
        return found

    def exactly(self, path: bytes, flags: int) -> int:
        """Open what a plain path (see `is_plain`) names over no link at all. Raises `OSError` (ELOOP for a link)."""
        opener = self._exact.get(flags)
        if opener is None:
            opener = self._exact[flags] = syscalls.Opener(flags, _IN_ROOT | syscalls.RESOLVE_NO_SYMLINKS)
        return opener(self.root, path)

    def _device(self, folder: bytes) -> int:
        fd = self._strict(self.root, folder)
        try:
            return os.fstat(fd).st_dev
        finally:
            os.close(fd)

    def _open(self, opener: syscalls.Opener, full: bytes) -> int:
        """openat2(2) cannot tell where `..` leads while anything at all is renamed on the machine: it says EAGAIN."""
        for _ in range(_TRIES):
            try:
                return opener(self.root, full)
            except BlockingIOError:
                pass
        return opener(self.root, full)

    def _may_be_own(self, full: bytes, follow: bool) -> bool:
        """Whether a name that the supervisor does not find may be an asker's: /proc/self is nothing to who is outside.

        A name that is missing in a folder outside of /proc is just missing, unless it is a link; so is all below it.
        """
        if follow and self._is_link(full):
            return True
        folder = full.rstrip(b"/").rpartition(b"/")[0] or b"/"
        while folder not in self._plain:
            try:
                fd = self._open(self._follow, folder)
            except FileNotFoundError:
                if self._is_link(folder):
                    return True
                folder = folder.rpartition(b"/")[0] or b"/"
                continue
            except OSError:
                return True
            try:
                found = os.readlink(b"/proc/self/fd/%d" % fd)
            finally:
                os.close(fd)
            if found == folder:
                self._remember(folder)
            return (found + b"/").startswith(b"/proc/")
        return False

    def _remember(self, folder: bytes) -> None:
        if (folder + b"/").startswith(b"/proc/"):
            return
        if len(self._plain) >= _MOST_PLAIN:
            self._plain.clear()
        self._plain.add(folder)

    def _is_link(self, full: bytes) -> bool:
        try:
            fd = self._open(self._keep, full)
        except OSError as error:
            return error.errno == errno.EAGAIN
        try:
            return stat.S_ISLNK(os.fstat(fd).st_mode)
        finally:
            os.close(fd)

    def _by_hand(self, thread: int, full: bytes, follow: bool) -> Found:
        ids = self._askers.ids(thread)
        waiting = [part for part in reversed(full.split(b"/")) if part not in (b"", b".")]
        if full.endswith((b"/", b"/.")):
            follow = True
        done = b""
        links = 0
        while waiting:
            part = waiting.pop()
            if part == b"..":
                done = done.rpartition(b"/")[0]
                continue
            if done == b"/proc" and part == b"self":
                part = b"%d" % ids.inner
            elif done == b"/proc" and part == b"thread-self":
                waiting += [b"%d" % ids.inner_thread, b"task"]
                part = b"%d" % ids.inner
            here = done + b"/" + part
            if not waiting and not follow:
                done = here
                break
            if _is_magic(here):
                found = self._magic(thread, here, ids)
                if not waiting:
                    return found
                done = found.path if found.path != b"/" else b""
                found.close()
                if done[:1] not in (b"/", b""):
                    raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                continue
            target = self._target(here)
            if not target:
                done = here
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target[:1] == b"/":
                done = b""
            waiting += [part for part in reversed(target.split(b"/")) if part not in (b"", b".")]
        return self._checked(Found(done or b"/", self._strict(self.root, done or b"/")))

    def _target(self, here: bytes) -> bytes:
        fd = self._strict(self.root, here)
        try:
            return os.readlink(b"", dir_fd=fd)
        except OSError:
            return b""
        finally:
            os.close(fd)

    def _magic(self, thread: int, here: bytes, ids: Ids) -> Found:
        """The object behind a magic link (proc_pid_fd(5)); one without a name only through the asker's own entry.

        The asker's descriptors are those of the asking thread, also where the leader has a table of its own.
        """
        own = _own_descriptor(here, ids)
        if own >= 0:
            try:
                return self.behind(thread, own)
            except OSError as error:
                if error.errno == errno.EBADF:
                    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
                raise
        found = self._checked(_held(os.open(here[1:], _PATH, dir_fd=self.root)), keep=True)
        if found.no_name and not here.startswith(b"/proc/%d/" % ids.inner):
            found.close()
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return found

    def _checked(self, found: Found, keep: bool = False) -> Found:
        """`found`, unless its name was taken away meanwhile. With `keep` that only means that it has no name."""
        if found.path[:1] != b"/":
            found.no_name = True
        elif found.path.endswith(_DELETED):
            info = os.fstat(found.fd)
            try:
                again = self._strict(self.root, found.path)
            except OSError:
                again = -1
            if again >= 0:
                same = os.path.samestat(os.fstat(again), info)
                os.close(again)
                if same:
                    return found
            found.no_name = True
        elif self._shm >= 0 and _is_in_shm(found.path) and os.fstat(found.fd).st_dev != self._shm:
            found.no_name = True  # the machine's, by a descriptor that the run was given: its name is another's here
        if found.no_name and not keep:
            found.close()
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return found


def _held(fd: int) -> Found:
    """What an O_PATH descriptor, which is taken over, holds. Raises `OSError`: a path may be too long to be told."""
    try:
        return Found(os.readlink(b"/proc/self/fd/%d" % fd), fd)
    except OSError:
        os.close(fd)
        raise


def _climb(path: bytes) -> tuple[int, bytes]:
    """How many levels a relative path goes up first, and what is left of it."""
    parts = path.split(b"/")
    levels = 0
    while parts and parts[0] in (b"..", b".", b""):
        levels += parts.pop(0) == b".."
    return levels, b"/".join(parts) or b"."


def is_plain(path: bytes) -> bool:
    """True for an absolute path that says what it means: no part of it is empty, `.` or `..`."""
    return not (b"//" in path or b"/./" in path or b"/../" in path or path.endswith((b"/", b"/.", b"/..")))


def _is_in_shm(path: bytes) -> bool:
    return path == _SHM or path.startswith(_SHM + b"/")


def _link(folder: int, leaf: bytes) -> bytes:
    try:
        return os.readlink(leaf, dir_fd=folder)
    except OSError:
        return b""


def _own_descriptor(path: bytes, ids: Ids) -> int:
    """The number in /proc/N/fd/M and /proc/N/task/T/fd/M if it is one of the asking thread's descriptors, else -1."""
    parts = path.split(b"/")[2:]
    mine = [b"%d" % ids.inner, b"%d" % ids.inner_thread]
    if parts[0] not in mine or parts[-2] != b"fd":
        return -1
    if len(parts) != 3 and (len(parts) != 5 or parts[1:3] != [b"task", mine[1]]):
        return -1
    name = parts[-1]
    if not name.isdigit() or len(name) > 9 or (name[:1] == b"0" and name != b"0"):
        return -1
    return int(name)


def _is_magic(path: bytes) -> bool:
    """True for /proc/N/{cwd,root,exe}, /proc/N/fd/M and the like of /proc/N/task/M: links that lead to an object, not
    a name.
    """
    parts = path.split(b"/")
    if len(parts) < 4 or parts[1] != b"proc" or not parts[2].isdigit():
        return False
    rest = parts[3:]
    if len(rest) > 2 and rest[0] == b"task":
        rest = rest[2:]
    if len(rest) == 1:
        return rest[0] in (b"cwd", b"root", b"exe")
    return len(rest) == 2 and rest[0] in (b"fd", b"map_files", b"ns") and rest[1] not in (b".", b"..")
