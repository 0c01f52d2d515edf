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

_READ = 256 * 1024
"""More than a unix socket buffers (net.core.wmem_default, 208 KiB), so that one read takes all that was sent before it.
"""
_MOST_WAITING = 256 * 1024 * 1024
"""Bytes of unfinished lines that the whole run may have; one `call` line is at most 64 MiB."""
_MOST_UNREAD = 1024 * 1024
"""Bytes of answers that a connection may leave unread before its next question has to wait."""
_MOST_UNREAD_IN_ALL = 256 * 1024 * 1024


class Process:
    """A guarded process: `number` in the order of the first hello, `armed` when its guard is live, `told` when the
    session knows it.
    """

    __slots__ = ("armed", "executable", "number", "parent", "pid", "runtime", "threads", "told", "version")

    def __init__(self, number: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self.armed = False
        self.told = False
        self.runtime = ""
        self.version = ""
        self.executable = ""
        self.parent: int | None = None
        self.threads: dict[int, int] = {}

    def lane(self, thread: int, task: int | None = None) -> str:
        """The lane of a thread (its raw ident) and, for an asyncio task, of the task (the SDK's own number for it)."""
        number = self.threads.setdefault(thread, len(self.threads))
        return f"{self.number}.{number}" if task is None else f"{self.number}.{number}.{task}"


class Processes:
    """All processes that ever said hello in this run."""

    __slots__ = ("_by_pid", "_count")

    def __init__(self) -> None:
        self._by_pid: dict[int, Process] = {}
        self._count = 0

    def hello(self, pid: int, line: dict[str, object]) -> Process:
        """The process that says hello.

        A guard that starts is a new process, even in a pid that is known (exec replaces a program); one that resumes
        has been heard of, unless it was forked since.
        """
        known = self._by_pid.get(pid)
        if known is not None and (line["role"] == "sdk" or line.get("resume") is True):
            return known
        process = Process(self._count, pid)
        process.runtime, process.version = str(line["runtime"]), str(line["version"])
        process.executable = str(line.get("executable", ""))
        parent = self._by_pid.get(parent_and_group(pid)[0])
        process.parent = parent.number if parent is not None else None
        self._count += 1
        self._by_pid[pid] = process
        return process

    def seen(self, pid: int) -> Process:
        """The process `pid`, which may have no guard: then it is numbered when the kernel first tells of it."""
        known = self._by_pid.get(pid)
        if known is None:
            known = self._by_pid[pid] = Process(self._count, pid)
            known.told = True
            self._count += 1
        return known


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
