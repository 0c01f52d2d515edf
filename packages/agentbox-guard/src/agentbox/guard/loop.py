"""The supervisor's loop: one thread that reads every connection, and sends an answer only after what led to it is in
the trace.

It knows bytes and order, and leaves meaning to the dispatcher. Before a question is answered, all that was announced
before it has been read.
"""

from __future__ import annotations

import errno
import os
import select
import time

from agentbox.guard import channel
from agentbox.guard.connections import Connection
from agentbox.guard.descriptors import Spare
from agentbox.guard.errors import GuardError, ProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket
    from collections.abc import Callable
    from typing import Any, Protocol

    from agentbox.guard.jobs import Jobs

    class Handler(Protocol):
        """What the loop hands over to."""

        def again(self, connection: Connection, raw: bytes) -> bool:
            """A line that may have been handled before; False if it must be parsed."""

        def tell(self, connection: Connection, line: dict[str, Any], raw: bytes) -> None:
            """A one-way line, or a hello, parsed and as it came."""

        def question(self, connection: Connection, line: dict[str, Any]) -> None:
            """An `ask` or a `call`."""

        def broken(self, connection: Connection, error: ProtocolError) -> None:
            """What came in is none of the channel's lines; the connection is closed next."""

        def flush(self) -> None:
            """A batch is over; answers go out next."""


# Reads of one connection before a question is answered: its whole buffer; what a busy writer adds is for later.
_DRAIN_READS = 4
_MOMENT = 0.05  # seconds of calls in one turn: longer than for the last of them nobody else waits
_SOON = 0.002
_MOST_PUT_OFF = 100
"""What programs only read is written when nothing more comes for two milliseconds, or after so many entries."""
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


_READ, _WRITE = select.POLLIN, select.POLLOUT  # EPOLLIN and EPOLLOUT are the same numbers (epoll_ctl(2))


class Loop:
    """Serves the connections of `listener`. `ended` turns true when `pidfd` (if there is one) is readable."""

    def __init__(self, listener: Socket, jobs: Jobs, handler: Handler, pidfd: int = -1) -> None:
        listener.setblocking(False)
        self.ended = False
        self._listener = listener
        self._handler = handler
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[], None]] = {listener.fileno(): self._accept, jobs.wake: jobs.collect}
        if pidfd >= 0:
            self._calls[pidfd] = lambda: self._agent_ended(pidfd)
        for descriptor in self._calls:
            self._epoll.register(descriptor, _READ)
        self.lazy = False
        """Set during a turn in which nothing was done that must be written before anything else happens."""
        self._put_off = 0
        self._ending: set[int] = set()
        self._connections: dict[int, Connection] = {}
        self._by_pid: dict[int, list[Connection]] = {}
        self._answering: dict[int, Connection] = {}
        self._blocked: set[int] = set()
        self._questions: list[tuple[Connection, dict[str, Any]]] = []
        self._held: list[tuple[Connection, dict[str, Any]]] = []
        self._paused: set[Connection] = set()
        self._broken: set[Connection] = set()
        self._spare = Spare()

    @property
    def pids(self) -> list[int]:
        """The processes that are connected now."""
        return [connection.pid for connection in self._connections.values()]

    def turn(self, timeout: float | None) -> bool:
        """Wait for something to happen, handle all of it, answer. False if `timeout` seconds passed without."""
        is_due = any(not connection.must_wait(line["t"]) for connection, line in self._held)
        happened = self._poll(0 if is_due else timeout)
        if self.lazy and not self._questions and not is_due and not self._answering and self._put_off < _MOST_PUT_OFF:
            self.lazy = False
            self._put_off += 1
            return happened
        self.lazy = False
        self._put_off = 0
        if self._questions or is_due:
            self._drain()
            self._ask()
        self._broken.clear()
        self._handler.flush()
        self._answer()
        return happened or is_due

    def _ask(self) -> None:
        """Hand over the questions that may be answered now, each connection's in its order.

        A call may take long: what is asked beside it is answered first, and only as many calls follow as fit into a
        moment.
        """
        waiting = [*self._held, *self._questions]
        self._held, self._questions = [], []
        calls: list[tuple[Connection, dict[str, Any]]] = []
        calling: set[Connection] = set()
        for connection, line in waiting:
            if line["t"] == "call" or connection in calling or connection.must_wait("ask"):
                calls.append((connection, line))
                calling.add(connection)
            else:
                self._question(connection, line)
        if calls:
            self._handler.flush()
            self._answer()
        end = time.monotonic() + _MOMENT
        held: set[Connection] = set()
        for number, (connection, line) in enumerate(calls):
            if connection in held or connection.must_wait(line["t"]) or (number and time.monotonic() > end):
                self._held.append((connection, line))
                held.add(connection)
            else:
                self._question(connection, line)
        if held or self._paused:
            self._pause({connection for connection in held if self._connections.get(connection.fd) is connection})

    def _question(self, connection: Connection, line: dict[str, Any]) -> None:
        if connection in self._broken:
            return
        try:
            self._handler.question(connection, line)
        except ProtocolError as error:
            self._break(connection, error)

    def _break(self, connection: Connection, error: ProtocolError) -> None:
        """Nothing of what a connection says can be trusted any more: it is over, and so is the process behind it."""
        self._broken.add(connection)
        self._handler.broken(connection, error)
        if self._connections.get(connection.fd) is connection:
            self._drop(connection)

    def _pause(self, held: set[Connection]) -> None:
        """Read nothing more from connections with questions that wait: their senders wait, too."""
        changed, self._paused = held ^ self._paused, held
        for connection in changed:
            self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        reads = 0 if connection in self._paused else _READ
        self._epoll.modify(connection.fd, reads | (_WRITE if connection.fd in self._blocked else 0))

    def register(self, descriptor: int, call: Callable[[], None], *, ends: bool = False) -> None:
        """Have `call` called in each turn in which `descriptor` is readable, after connections have been read.

        With `ends` it is forgotten when it hangs up, since then a read would wait for ever.
        """
        self._calls[descriptor] = call
        if ends:
            self._ending.add(descriptor)
        self._epoll.register(descriptor, _READ)

    def forget(self, descriptor: int) -> None:
        """Undo `register`; before the descriptor is closed."""
        if self._calls.pop(descriptor, None) is not None:
            self._ending.discard(descriptor)
            self._epoll.unregister(descriptor)

    def adopt(self, descriptor: int, pid: int) -> None:
        """Serve one end of a socket pair whose other end the process `pid` has."""
        self._serve(Connection(descriptor, pid))

    def drain(self, pid: int) -> None:
        """Read all that the process `pid` has sent before now."""
        for connection in self._by_pid.get(pid, ())[:]:
            if connection not in self._paused:
                self._read(connection, _DRAIN_READS)

    @property
    def connected(self) -> bool:
        """True while any process has a connection."""
        return bool(self._connections)

    def answer(self, connection: Connection, line: bytes) -> None:
        """Have a line sent at the end of this turn."""
        connection.send(line)
        self._answering[connection.fd] = connection

    def close(self) -> None:
        """Close every connection and the listener: what is still running finds its supervisor gone."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._epoll.close()
        self._listener.close()

    def _poll(self, timeout: float | None, reads: int = 1) -> bool:
        ready = self._epoll.poll(_SOON if self._put_off else timeout)
        if self._put_off and not ready:
            self._put_off = 0
            self._handler.flush()
            ready = self._epoll.poll(timeout)
        calls = []
        for descriptor, mask in ready:
            connection = self._connections.get(descriptor)
            if connection is None:
                if mask & _READ or descriptor not in self._ending:
                    calls.append(descriptor)
                else:
                    self.forget(descriptor)
                continue
            if mask & _WRITE:
                self._answering[descriptor] = connection
            if mask & ~_WRITE:
                self._read(connection, reads)
        for descriptor in calls:
            call = self._calls.get(descriptor)  # an earlier one may have ended it
            if call is not None:
                call()
        return bool(ready)

    def _drain(self) -> None:
        """Read all that was sent before now: a unix socket has it in its queue before `send` returns to the sender."""
        self._poll(0, _DRAIN_READS)

    def _read(self, connection: Connection, reads: int = 1) -> None:
        for _ in range(reads):
            try:
                lines = connection.read()
                for raw in lines:
                    self._line(connection, raw)
            except ProtocolError as error:
                self._break(connection, error)
                return
            if connection.closed:
                self._drop(connection)
                return
            if not lines:
                return

    def _line(self, connection: Connection, raw: bytes) -> None:
        if self._handler.again(connection, raw):
            self.lazy = True
            return
        line = channel.parse(raw)
        if line["t"] in ("ask", "call"):
            self._questions.append((connection, line))
        else:
            self._handler.tell(connection, line, raw)

    def _accept(self) -> None:
        while True:
            try:
                descriptor, _ = self._listener._accept()  # type: ignore[attr-defined]
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise GuardError(f"channel: no connection can be accepted: {error.strerror}") from error
                if not self._turn_away():
                    return
                continue
            self._read(self._serve(Connection(descriptor)))

    def _serve(self, connection: Connection) -> Connection:
        self._connections[connection.fd] = connection
        self._by_pid.setdefault(connection.pid, []).append(connection)
        self._epoll.register(connection.fd, _READ)
        return connection

    def _turn_away(self) -> bool:
        """Out of descriptors: close the next caller's connection, which ends that process."""
        with self._spare:
            try:
                descriptor, _ = self._listener._accept()  # type: ignore[attr-defined]
                os.close(descriptor)
                return True
            except OSError:
                return False

    def _answer(self) -> None:
        waiting, self._answering = self._answering, {}
        for descriptor, connection in waiting.items():
            if self._connections.get(descriptor) is not connection:
                continue
            if connection.flush():
                if descriptor in self._blocked:
                    self._blocked.discard(descriptor)
                    self._watch(connection)
            elif descriptor not in self._blocked:
                self._blocked.add(descriptor)
                self._watch(connection)

    def _drop(self, connection: Connection) -> None:
        del self._connections[connection.fd]
        own = self._by_pid[connection.pid]
        own.remove(connection)
        if not own:
            del self._by_pid[connection.pid]
        self._blocked.discard(connection.fd)
        self._paused.discard(connection)
        self._held = [question for question in self._held if question[0] is not connection]
        self._epoll.unregister(connection.fd)
        connection.close()

    def _agent_ended(self, pidfd: int) -> None:
        self.ended = True
        self._epoll.unregister(pidfd)
