"""The scratch copy: a private view of the file tree where a replayed agent's writes land, beside an empty network.

It never writes to the real tree, and what it holds is gone when the last process in it ends. It holds for every program
in it, whoever asks the kernel: native code too, which no interpreter's guard sees.
"""

from __future__ import annotations

import os
import signal
import socket

from agentbox.guard.kernel import syscalls
from agentbox.replay import _wire, _worker
from agentbox.replay.errors import ScratchFailed, ScratchUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

_GLOB = frozenset("*?[")
_UNCOVERED = ("/dev", "/proc", "/sys")
"""Kernel interfaces: a copy of them means nothing, and their files are devices or views of the asking process."""

_HINT = (
    "replay on a machine that allows user namespaces or as root with CAP_SYS_ADMIN, "
    "or write through the SDK (box.write_text), which needs no scratch copy"
)


class Scratch:
    """A mount namespace in which every directory of `covers` shows a writable copy of itself and all else is read-only
    (but /dev, /proc and /sys), and a network namespace without any network.

    `has_copy` is false when nothing is covered. `network` says why the network is the machine's own, "" when it is
    empty; `own_loopback` whether the agent may listen in it without a rule and `own_network` whether the recorded run
    had such a network, both as its maker says; `open_mounts` lists
    mount points that could not be made read-only; `own_shm` says whether /dev/shm is one
    of its own, empty at first. The agent is put into it by `enter`, called in the forked child before exec; a small
    process that was forked for it stays inside, keeps it alive, and does the work of `write`, `hide` and `states`.
    Sources: mount_namespaces(7), network_namespaces(7), user_namespaces(7), the kernel's filesystems/overlayfs
    (`userxattr`: Linux 5.11).
    """

    __slots__ = (
        "_channel",
        "_fallback",
        "_namespaces",
        "has_copy",
        "network",
        "open_mounts",
        "own_loopback",
        "own_network",
        "own_shm",
        "pid",
    )

    def __init__(self, pid: int, channel: _wire.Channel, *, has_copy: bool) -> None:
        self.pid = pid
        """The process inside: not one of the agent's, and to be spared when those are ended."""
        self.has_copy = has_copy
        self.network = ""
        self.open_mounts: list[str] = []
        self.own_loopback = False
        self.own_network = False
        self.own_shm = False
        self._channel = channel
        self._namespaces: list[tuple[int, int]] = []
        self._fallback = ""

    @classmethod
    def open(
        cls,
        covers: Iterable[str],
        *,
        make: Iterable[str] = (),
        hide: Iterable[str] = (),
        cut: Mapping[str, int] | None = None,
        own_shm: bool = False,
        loopback: bool = False,
    ) -> Scratch:
        """Make the copy. Call it while this process has one thread (it forks).

        `covers` (none: everything is read-only) are absolute, existing directories, none inside another (see
        `plan_covers`); `make` are directories that must exist in the copy; `hide` are paths that must not; `cut` are
        files with the size in bytes to which
        longer ones are cut. `own_shm`: with an empty /dev/shm, `loopback`: with a loopback in the empty network, each
        where that can be. Raises `ScratchUnavailable`.
        """
        covers = list(covers)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _worker.run(theirs, covers, supervisor, own_shm, loopback)
        theirs.close()
        channel = _wire.Channel(ours)
        scratch = cls(pid, channel, has_copy=bool(covers))
        try:
            answer = channel.receive()
            if answer is None or "error" in answer:
                why = "its process ended at once" if answer is None else str(answer["error"])
                raise ScratchUnavailable(why, hint=_HINT)
            scratch.network = str(answer["network"])
            scratch.own_shm = bool(answer["shm"])
            scratch.open_mounts = [str(path) for path in answer["open"]]
            scratch._fallback = str(answer["fallback"])
            scratch._namespaces = _open_namespaces(pid, user=bool(answer["user"]), network=not scratch.network)
            scratch._ask({"op": "make", "paths": list(make)})
            scratch._ask({"op": "hide", "paths": list(hide)})
            scratch._ask({"op": "cut", "sizes": dict(cut or {})})
        except BaseException:
            scratch.close()
            raise
        return scratch

    def enter(self) -> None:
        """Move the calling process (one thread, about to exec) into the copy; its working directory is then `/`.

        Raises `OSError`.
        """
        # The user namespace comes first: joining the others needs the capabilities that it gives (setns(2)).
        for descriptor, kind in self._namespaces:
            syscalls.setns(descriptor, kind)

    def expose(self, path: str) -> None:
        """Show the real directory `path`, writable: the run's private folder, whose socket must be the real one."""
        self._ask({"op": "expose", "path": path})

    def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """Write `data` to `path` in the copy, missing parent directories made. Raises `ScratchFailed`."""
        self._ask({"op": "write", "path": path, "data": data.hex(), "append": append})

    def states(self, paths: Iterable[str]) -> dict[str, str]:
        """What each path is in the copy: its sha256 in hex, `absent`, `directory`, or a word for what is no file."""
        answer = self._ask({"op": "states", "paths": list(paths)})
        return {str(path): str(state) for path, state in answer["states"].items()}

    def close(self) -> None:
        """End the process inside and remove what it may have left, when the agent is gone; twice does no harm."""
        self._channel.close()
        for descriptor, _ in self._namespaces:
            os.close(descriptor)
        self._namespaces = []
        try:
            # It ends by itself when its channel closes; the signal is for one that hangs in a dead file system.
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        if self._fallback:
            _remove_tree(self._fallback)
            self._fallback = ""

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            self._channel.send(request)
            answer = self._channel.receive()
        except OSError as error:
            raise ScratchFailed(f"the scratch copy's process is gone: {error.strerror}") from error
        if answer is None:
            raise ScratchFailed("the scratch copy's process is gone")
        if "error" in answer:
            raise ScratchFailed(f"the scratch copy failed: {answer['error']}")
        return answer


def plan_covers(roots: Iterable[str]) -> list[str]:
    """The directories to cover so that nothing under `roots` can be written for real.

    `roots` are absolute paths, which may hold glob characters, name single files or name nothing yet: each gives its
    deepest existing directory without a glob. Kernel file systems are left out. Raises `ScratchUnavailable` for `/`.
    """
    wanted = set()
    for root in roots:
        directory = _literal(root)
        while not os.path.isdir(directory):
            directory = os.path.dirname(directory)
        if not is_under(directory, _UNCOVERED):
            wanted.add(os.path.realpath(directory))
    if "/" in wanted:
        raise ScratchUnavailable(
            "a write rule or a recorded write concerns what is directly under /, which cannot be covered", hint=_HINT
        )
    return sorted(path for path in wanted if not is_under(os.path.dirname(path), wanted))


def is_under(path: str, roots: Iterable[str]) -> bool:
    """True if `path` is one of `roots` or lies below one; all absolute, without `..`."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _literal(root: str) -> str:
    parts = root.split("/")
    for index, part in enumerate(parts):
        if not _GLOB.isdisjoint(part):
            return "/".join(parts[:index]) or "/"
    return root


def _open_namespaces(pid: int, *, user: bool, network: bool) -> list[tuple[int, int]]:
    kinds = [("user", syscalls.CLONE_NEWUSER)] if user else []
    kinds.append(("mnt", syscalls.CLONE_NEWNS))
    if network:
        kinds.append(("net", syscalls.CLONE_NEWNET))
    return [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind) for name, kind in kinds]


def _remove_tree(root: str) -> None:
    """Remove a scratch folder; overlayfs leaves its work directory without any permission bits."""
    for parent, folders, files in os.walk(root, topdown=True):
        for folder in folders:
            if not os.path.islink(os.path.join(parent, folder)):
                os.chmod(os.path.join(parent, folder), 0o700)
        for name in files:
            os.unlink(os.path.join(parent, name))
    for parent, folders, _ in os.walk(root, topdown=False):
        for folder in folders:
            path = os.path.join(parent, folder)
            os.unlink(path) if os.path.islink(path) else os.rmdir(path)
    os.rmdir(root)
