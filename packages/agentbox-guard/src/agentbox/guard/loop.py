"""The supervisor's loop: one thread that reads every connection, and sends an answer only after what led to it is in
the trace.

It knows bytes and order, and leaves meaning to the dispatcher. Before a question is answered, all that was announced
before it has been read.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket

from agentbox.guard import channel
from agentbox.guard.connections import Connection
from agentbox.guard.errors import GuardError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from agentbox.guard.jobs import Jobs

    class Handler(Protocol):
        """What the loop hands over to."""

        def tell(self, connection: Connection, line: dict[str, Any]) -> None:
            """A one-way line, or a hello."""

        def question(self, connection: Connection, line: dict[str, Any]) -> None:
            """An `ask` or a `call`."""

        def flush(self) -> None:
            """A batch is over; answers go out next."""


# Reads of one connection before a question is answered: its whole buffer; what a busy writer adds is for later.
_DRAIN_READS = 4
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Loop:
    """Serves the connections of `listener`. `ended` turns true when the descriptor `pidfd` (if it is one) becomes
    readable.
    """

    def __init__(self, listener: socket.socket, jobs: Jobs, handler: Handler, pidfd: int = -1) -> None:
        listener.setblocking(False)
        self.ended = False
        self._listener = listener
        self._jobs = jobs
        self._handler = handler
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(jobs.wake, selectors.EVENT_READ, jobs.collect)
        if pidfd >= 0:
            self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._agent_ended(pidfd))
        self._connections: set[Connection] = set()
        self._answering: set[Connection] = set()
        self._questions: list[tuple[Connection, dict[str, Any]]] = []
        self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def pids(self) -> list[int]:
        """The processes that are connected now."""
        return [connection.pid for connection in self._connections]

    def turn(self, timeout: float | None) -> bool:
        """Wait for something to happen, handle all of it, answer. False if nothing happened within `timeout` seconds."""
        happened = self._poll(timeout)
        if self._questions:
            self._drain()
            questions, self._questions = self._questions, []
            for connection, line in questions:
                self._handler.question(connection, line)
        self._handler.flush()
        self._answer()
        return happened

    def answer(self, connection: Connection, line: bytes) -> None:
        """Have a line sent at the end of this turn."""
        connection.send(line)
        self._answering.add(connection)

    def close(self) -> None:
        """Close every connection and the listener: what is still running finds its supervisor gone."""
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.close()
        self._listener.close()
        os.close(self._reserve)

    def _poll(self, timeout: float | None, reads: int = 1) -> bool:
        ready = self._selector.select(timeout)
        for key, mask in ready:
            if not isinstance(key.data, Connection):
                key.data()
                continue
            if mask & selectors.EVENT_READ:
                self._read(key.data, reads)
            if mask & selectors.EVENT_WRITE:
                self._answering.add(key.data)
        return bool(ready)

    def _drain(self) -> None:
        """Read all that was sent before now: a unix socket has it in its queue before `send` returns to the sender."""
        self._poll(0, _DRAIN_READS)

    def _read(self, connection: Connection, reads: int = 1) -> None:
        for _ in range(reads):
            lines = connection.read()
            for raw in lines:
                self._line(connection, raw)
            if connection.closed:
                self._drop(connection)
                return
            if not lines:
                return

    def _line(self, connection: Connection, raw: bytes) -> None:
        line = channel.parse(raw)
        if line["t"] in ("ask", "call"):
            self._questions.append((connection, line))
        else:
            self._handler.tell(connection, line)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise GuardError(f"channel: no connection can be accepted: {error.strerror}") from error
                if not self._turn_away():
                    return
                continue
            connection = Connection(sock)
            self._connections.add(connection)
            self._selector.register(sock, selectors.EVENT_READ, connection)
            self._read(connection)

    def _turn_away(self) -> bool:
        """Out of descriptors: close the next caller's connection, which ends that process, with the descriptor kept for
        this.
        """
        os.close(self._reserve)
        try:
            sock, _ = self._listener.accept()
            sock.close()
            return True
        except OSError:
            return False
        finally:
            self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _answer(self) -> None:
        waiting, self._answering = self._answering, set()
        for connection in waiting:
            if connection not in self._connections:
                continue
            sent = connection.flush()
            events = selectors.EVENT_READ if sent else selectors.EVENT_READ | selectors.EVENT_WRITE
            if self._selector.get_key(connection.sock).events != events:
                self._selector.modify(connection.sock, events, connection)

    def _drop(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._selector.unregister(connection.sock)
        connection.close()

    def _agent_ended(self, pidfd: int) -> None:
        self.ended = True
        self._selector.unregister(pidfd)
