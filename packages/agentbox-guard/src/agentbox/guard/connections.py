"""The connections on the guard channel, the processes behind them, and the lanes that their threads and tasks are
numbered into.

A connection holds bytes and nothing else: it is told what to send, and hands out whole lines. Who is at the other end
comes from the kernel.
"""

from __future__ import annotations

import _socket
import os
import sys

from agentbox.guard import channel
from agentbox.guard.errors import ProtocolError
from agentbox.guard.family import parent_and_group
from agentbox.guard.procfs import life, started

_READ = 256 * 1024
"""More than a unix socket buffers (net.core.wmem_default, 208 KiB), so that one read takes all that was sent before it.
"""
_MOST_WAITING = 256 * 1024 * 1024
"""Bytes of unfinished lines that the whole run may have; one `call` line is at most 64 MiB."""
_MOST_UNREAD = 1024 * 1024
"""Bytes of answers that a connection may leave unread before its next question has to wait."""
_MOST_UNREAD_IN_ALL = 256 * 1024 * 1024
MOST_KNOWN = 4096
"""Processes that are remembered, about 700 bytes each, beyond those that lived when it was last looked."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Process:
    """A process: `number` in the order in which they are first heard of, `armed` when its guard is live, `told` when
    the session knows it.
    """

    __slots__ = (
        "_folder",
        "_started",
        "armed",
        "executable",
        "number",
        "parent",
        "pid",
        "runtime",
        "threads",
        "told",
        "version",
    )

    def __init__(self, number: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self._folder, self._started = _folder(pid), started(pid)
        self.armed = False
        self.told = False
        self.runtime = ""
        self.version = ""
        self.executable = ""
        self.parent: int | None = None
        self.threads: dict[int, int] = {}

    def is_gone(self) -> bool:
        """Whether the process has ended, whatever its pid stands for."""
        return _folder(self.pid) is None or self.is_replaced()

    def is_replaced(self) -> bool:
        """Whether the pid stands for another process by now."""
        # The folder in /proc is made anew for a new process, and also when the kernel has dropped an old one's.
        folder = _folder(self.pid)
        if folder is None or folder == self._folder:
            return False
        if started(self.pid) != self._started:
            return True
        self._folder = folder
        return False

    def lane(self, thread: int, task: int | None = None) -> str:
        """The lane of a thread and, for an asyncio task, of the task: the numbers are its guard's and its SDK's."""
        number = self.threads.setdefault(thread, len(self.threads))
        return f"{self.number}.{number}" if task is None else f"{self.number}.{number}.{task}"


class Processes:
    """The run's processes, by their present pids. `gone` is told each pid that stands for no process any more.

    A pid is given out again, and then means another process: what the kernel says of its start tells them apart. Those
    that have ended are forgotten once there are many; not at once, since what they did may be told later.
    """

    __slots__ = ("_by_pid", "_count", "_ended", "_most", "gone")

    def __init__(self) -> None:
        self._by_pid: dict[int, Process] = {}
        self._ended: set[int] = set()
        self._most = MOST_KNOWN
        self._count = 0
        self.gone: Callable[[int], None] = lambda pid: None

    def hello(self, pid: int, line: dict[str, object]) -> Process:
        """The process that says hello.

        A guard that starts is a new process, even in a pid that had one before (exec replaces a program); one that
        resumes has been heard of, unless it was forked since. The kernel may have told of a process before its guard.
        """
        known = self.check(pid)
        if known is not None and known.runtime and (line["role"] == "sdk" or line.get("resume") is True):
            return known
        process = self._add(pid) if known is None or known.runtime else known
        process.told = False
        process.runtime, process.version = str(line["runtime"]), str(line["version"])
        process.executable = str(line.get("executable", ""))
        parent = self.check(parent_and_group(pid)[0])
        process.parent = parent.number if parent is not None else None
        return process

    def seen(self, pid: int) -> Process:
        """The process `pid`, which may have no guard: then it is numbered when the kernel first tells of it."""
        known = self._by_pid.get(pid)
        if known is None:
            known = self._add(pid)
            known.told = True
        return known

    def check(self, pid: int) -> Process | None:
        """The process that `pid` means now, if it is known: to be called when a thread of it is first heard of."""
        known = self._by_pid.get(pid)
        if known is None:
            return None
        if known.is_replaced():
            self._drop(pid)
            return None
        return known

    def is_armed(self, pid: int) -> bool:
        """Whether the process has a guard that is live."""
        known = self._by_pid.get(pid)
        return known is not None and known.armed

    def __len__(self) -> int:
        return len(self._by_pid)

    def _add(self, pid: int) -> Process:
        if len(self._by_pid) >= self._most:
            self._forget_ended()
        process = self._by_pid[pid] = Process(self._count, pid)
        self._count += 1
        return process

    def _forget_ended(self) -> None:
        """Forget those that had ended when this was done last, and note those that have ended since."""
        ended = {pid for pid, known in self._by_pid.items() if known.is_gone()}
        for pid in ended & self._ended:
            self._drop(pid)
        self._ended = ended & self._by_pid.keys()
        self._most = MOST_KNOWN + len(self._by_pid)

    def _drop(self, pid: int) -> None:
        del self._by_pid[pid]
        self._ended.discard(pid)
        self.gone(pid)


def _folder(pid: int) -> tuple[int, int] | None:
    try:
        return life(pid)
    except OSError:
        return None


class Connection:
    """One accepted socket, by its descriptor `fd`. `process` is set by its hello."""

    __slots__ = ("_inbox", "_outbox", "_scanned", "closed", "fd", "pid", "process")

    waiting = 0
    """Bytes of unfinished lines over all connections."""
    unread = 0
    """Bytes of answers that are not sent yet, over all connections."""

    def __init__(self, fd: int, pid: int = 0) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.pid = pid or peer_pid(fd)
        self.process: Process | None = None
        self.closed = False
        self._inbox = bytearray()
        self._scanned = 0
        self._outbox = bytearray()

    def read(self) -> list[bytes]:
        """The whole lines that have arrived; `closed` is set at the end. Raises `ProtocolError` for one over the limit.

        What a process that was killed left unfinished is no line.
        """
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.closed = True
            Connection.waiting -= len(self._inbox)
            self._inbox.clear()
            return []
        if not self._inbox and data.endswith(b"\n"):
            return data[:-1].split(b"\n")
        return self._unfinished(data)

    def _unfinished(self, data: bytes) -> list[bytes]:
        Connection.waiting -= len(self._inbox)
        self._inbox += data
        end = self._inbox.rfind(b"\n", self._scanned)
        lines = []
        if end >= 0:
            lines = bytes(self._inbox[:end]).split(b"\n")
            del self._inbox[: end + 1]
        self._scanned = len(self._inbox)
        Connection.waiting += len(self._inbox)
        if self._scanned > channel.LINE_LIMIT or Connection.waiting > _MOST_WAITING:
            raise ProtocolError(f"channel: got a line of more than {channel.LINE_LIMIT} bytes from process {self.pid}")
        return lines

    def send(self, line: bytes) -> None:
        """Put a line up for sending; `flush` sends it."""
        if not self.closed:
            self._outbox += line
            Connection.unread += len(line)

    def must_wait(self, kind: str) -> bool:
        """True while a question of this `kind` (`ask`, `call`) must wait, since too many answers are unread.

        The answer to a call may be of 64 MiB, and costs the asker a line of a hundred bytes.
        """
        return len(self._outbox) > _MOST_UNREAD or (kind == "call" and Connection.unread > _MOST_UNREAD_IN_ALL)

    def flush(self) -> bool:
        """Send what the socket takes; False when some is left. A peer that is gone gets nothing, and may still have
        sent something.
        """
        if not self._outbox:
            return True
        try:
            sent = os.write(self.fd, self._outbox)
        except BlockingIOError:
            return False
        except OSError:
            sent = len(self._outbox)
        del self._outbox[:sent]
        Connection.unread -= sent
        return not self._outbox

    def close(self) -> None:
        """Close the descriptor."""
        self.closed = True
        Connection.waiting -= len(self._inbox)
        Connection.unread -= len(self._outbox)
        self._inbox.clear()
        self._outbox.clear()
        os.close(self.fd)


def peer_pid(fd: int) -> int:
    """The pid of the process that connected, as the kernel noted it then (unix(7), SO_PEERCRED: pid, uid, gid)."""
    sock = _socket.socket(fileno=fd)
    try:
        facts = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    finally:
        sock.detach()
    return int.from_bytes(facts[:4], sys.byteorder)
