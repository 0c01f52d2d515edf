"""The run's private folder: the channel's socket, TMPDIR and HOME, locked for as long as the supervisor lives.

Never removes a folder whose supervisor may still be alive: the lock, not the age, says who is dead.
"""

from __future__ import annotations

import fcntl
import os
import stat

from agentbox.guard.errors import CannotCreate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET_LIMIT = 107
"""Longest path of a unix socket in bytes: `sun_path` of unix(7) is 108 with its NUL."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SHARED = "/dev/shm"
_UNLOCKED_GRACE = 60.0  # seconds: between mkdir and flock of another run that is just starting


class RunDir:
    """One run's folder, mode 0700, in the system's temporary directory; `remove` it when every process of the run is
    gone.
    """

    __slots__ = ("_lock", "channel", "home", "path", "tmp")

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self.channel = path + "/channel"
        self.tmp = path + "/tmp"
        self.home = path + "/home"
        self._lock = lock

    @classmethod
    def make(cls, environ: Mapping[str, str]) -> RunDir:
        """Make and lock a new folder. Raises `CannotCreate` when no temporary directory takes one."""
        trouble = "no temporary directory"
        for base in _bases(environ):
            path = f"{base}/{_prefix()}{os.urandom(6).hex()}"
            if len(os.fsencode(path)) + len("/channel") > SOCKET_LIMIT:
                trouble = f"{base} is too long a path for a socket"
                continue
            lock = -1
            try:
                os.mkdir(path, 0o700)
                lock = os.open(path + "/lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.mkdir(path + "/tmp", 0o700)
                os.mkdir(path + "/home", 0o700)
            except OSError as error:
                trouble = f"{base}: {error.strerror}"
                remove_tree(path)  # a full disk may take the folder and not what is in it
                if lock >= 0:
                    os.close(lock)
                continue
            return cls(path, lock)
        raise CannotCreate(
            f"cannot make the run's private folder: {trouble}", "set TMPDIR to a directory that you can write in"
        )

    @property
    def private(self) -> dict[str, str]:
        """The folders that the agent may use freely, by the variable that names each."""
        return {"TMPDIR": self.tmp, "HOME": self.home}

    @property
    def own(self) -> tuple[str, str]:
        """What is in the folder beside those: not for the agent, whatever the rules say, also where they cover it.

        An agent that could put another socket in the channel's place would answer its children's questions itself.
        """
        return self.channel, self.path + "/lock"

    def remove(self) -> None:
        """Remove the folder with all that is in it; what cannot be removed is left for the next run's `sweep`."""
        remove_tree(self.path)
        _remove_shared(self.path)
        os.close(self._lock)

    def sweep(self) -> None:
        """Remove the folders that runs of this user left here when they were killed."""
        base, own = os.path.split(self.path)
        try:
            names = os.listdir(base)
        except OSError:
            return
        prefix = _prefix()
        for name in names:
            if name.startswith(prefix) and name != own:
                _remove_if_dead(base + "/" + name)


def _bases(environ: Mapping[str, str]) -> list[str]:
    wished = environ.get("TMPDIR", "")
    bases = [wished] if wished.startswith("/") else []
    return [os.path.realpath(base) for base in [*bases, "/tmp", "/var/tmp"]]


def _prefix() -> str:
    # With what follows it the shape of a name that no denial suggests (docs/spec/policy.md, 5.11).
    return f"agentbox-{os.getuid()}-"


def _remove_if_dead(path: str) -> None:
    try:
        info = os.lstat(path)
    except OSError:
        return  # another run has removed it by now
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        return
    try:
        lock = os.open(path + "/lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        import time

        if time.time() - info.st_mtime > _UNLOCKED_GRACE:
            remove_tree(path)
        return
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(path)
        _remove_shared(path)
    except OSError:
        pass  # its supervisor is alive
    finally:
        os.close(lock)


def _remove_shared(path: str) -> None:
    """Remove shared memory and semaphores (shm_overview(7), sem_overview(7)) of the run whose folder this was: a guard
    without kernel layers has their names begin with the folder's.
    """
    prefix = path.rpartition("/")[2] + "-"
    try:
        for name in os.listdir(_SHARED):
            if name.startswith((prefix, "sem." + prefix)):
                os.unlink(f"{_SHARED}/{name}")
    except OSError:
        pass  # no such folder, or nothing that is ours to remove


def remove_tree(path: str) -> None:
    """Remove a tree without following links, opening folders that their owner closed; errors are passed over."""
    for name in ("channel", "lock", "tmp", "home"):
        try:
            (os.unlink if name in ("channel", "lock") else os.rmdir)(f"{path}/{name}")
        except OSError:
            pass
    try:
        os.rmdir(path)
    except OSError:
        _remove_full(path)


def _remove_full(path: str) -> None:
    """Remove what a run has left, at any depth: what is in a folder is moved up, until all of it lies side by side."""
    try:
        top = os.open(path, _FOLDER)
    except OSError:
        return
    moved = 0
    prefix = os.urandom(8).hex()
    try:
        while names := os.listdir(top):
            before = len(names), moved
            for name in names:
                moved += _remove_one(top, name, f"{prefix}-{moved}-")
            if (len(os.listdir(top)), moved) == before:
                break  # nothing more can be removed: flags that only root sets, another file system
        os.rmdir(path)
    except OSError:
        pass
    finally:
        os.close(top)


def _remove_one(top: int, name: str, prefix: str) -> int:
    """Remove a name of the folder `top`; if it is a folder, its content goes to `top`: how much that was."""
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=top)
            return 0
        os.chmod(name, 0o700, dir_fd=top)
        folder = os.open(name, _FOLDER, dir_fd=top)
    except OSError:
        return 0
    moved = 0
    try:
        for inner in os.listdir(folder):
            if stat.S_ISDIR(os.stat(inner, dir_fd=folder, follow_symlinks=False).st_mode):
                os.chmod(inner, 0o700, dir_fd=folder)  # rename(2) changes its `..`
                os.rename(inner, f"{prefix}{moved}", src_dir_fd=folder, dst_dir_fd=top)
                moved += 1
            else:
                os.unlink(inner, dir_fd=folder)
        os.rmdir(name, dir_fd=top)
    except OSError:
        pass
    finally:
        os.close(folder)
    return moved
