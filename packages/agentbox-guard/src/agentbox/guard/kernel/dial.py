"""One connection, or one datagram, made outside for a process inside: from an allowed request to a socket or an errno.

It decides only what it learns itself: whether the addresses that an allowed name leads to may be used.
"""

from __future__ import annotations

import errno
import os
import select
from _socket import SO_ERROR, SOCK_DGRAM, SOL_SOCKET
from _socket import socket as Socket

from agentbox.guard.decisions._base import astray
from agentbox.guard.kernel import peers_only
from agentbox.guard.kernel.outside import outside_socket, target
from agentbox.guard.twins import twin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agentbox.guard.kernel.broker import Answer, Broker

HEAD_START = 0.05
"""Seconds that a non-blocking asker waits, where a name has several addresses, to learn whether one answers."""

_MSG_DONTWAIT = 0x40  # <linux/socket.h>
_DENY = "deny"


class Dial:
    """One connection, or one datagram, being made."""

    __slots__ = ("_answer", "_broker", "_left", "_then", "is_over", "socket")

    def __init__(self, broker: Broker, answer: Answer, then: Callable[[Answer], None]) -> None:
        self._broker = broker
        self._answer = answer
        self._then = then
        self._left: list[str] = []
        self.is_over = False
        self.socket: Socket | None = None

    def give_up(self, number: int) -> None:
        """Of a blocking asker, on the loop thread: it waits no more, and what is under way goes on as its own."""
        if self.is_over:
            return
        self._broker.unwatch(self)
        self.is_over = True
        self._answer.errno = number
        if self._answer.socket is not None:
            self._answer.socket.setblocking(True)
        self._then(self._answer)

    def begin(self) -> None:
        name = self._answer.name
        if self._broker.observing:
            self._answer.denial = None  # it is in the record already, and the outcome is no second one
        if not name:
            self._left = [self._answer.args["address"]]
            self._go()
        else:
            self._broker.jobs.run(lambda: self._broker.desk.names.look_up(name), self._resolved)

    def _resolved(self, found: Any) -> None:
        if self.is_over:
            return
        answer, port = self._answer, self._answer.args["port"]
        if isinstance(found, Exception) or not found:
            self._end(errno.EHOSTUNREACH)
            return
        policy = self._broker.desk.policy
        usable = self._broker.desk.names.usable(answer.name, port, found)
        self._left = list(found) if self._broker.observing else usable
        if not self._left:
            answer.action = _DENY
            answer.args["address"] = found[0]
            answer.denial = astray(policy, answer.name, port, found[0])
            self._end(errno.EACCES)
            return
        self._go()

    def _go(self) -> None:
        request = self._answer.request
        if request.op == "net.send":
            self._end(self._send())
        elif request.kind == SOCK_DGRAM or not request.nonblocking or len(self._left) == 1:
            self._next(errno.EHOSTUNREACH)
        else:
            self._broker.jobs.run(self._race, self._raced)

    def _next(self, number: int) -> None:
        """Begin with the next address; `number` is what the one before has failed with."""
        request = self._answer.request
        while self._left:
            number = self._connect()
            if number == 0 or (number == errno.EINPROGRESS and request.nonblocking):
                self._end(number)
                return
            if number == errno.EINPROGRESS:
                self._broker.watch(self)
                return
            self.close()
        self._end(number)

    def settled(self) -> None:
        """A blocking asker's connection is made, or has failed."""
        number = self.made.getsockopt(SOL_SOCKET, SO_ERROR)
        if number == 0:
            self.made.setblocking(True)
            self._end(0)
            return
        self.close()
        self._next(number)

    @property
    def made(self) -> Socket:
        """The socket of the present attempt, which has come as far as to have one."""
        if self.socket is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self.socket

    def close(self) -> None:
        """Close the socket of the present attempt, if there is one."""
        if self.socket is not None:
            self.socket.close()

    def _connect(self) -> int:
        """A new socket, and the errno of its connect(2) to the next address, which then is the recorded one."""
        address = self._left.pop(0)
        self._answer.args["address"] = address
        self.socket = self._answer.socket = None
        try:
            made = self.socket = self._answer.socket = outside_socket(self._answer.request, address)
            self._hear_only(made, address)
            number = made.connect_ex(target(made, address, self._answer.args["port"]))
        except OSError as error:
            return error.errno or errno.EACCES
        if number == 0 and not self._answer.request.nonblocking:
            made.setblocking(True)
        return number

    def _hear_only(self, made: Socket, address: str) -> None:
        """Have a datagram socket hear nobody but whom it sends to. Raises `OSError`."""
        if self._answer.request.kind == SOCK_DGRAM and not self._broker.observing:
            peers_only.admit(made.fileno(), address, self._answer.args["port"])

    def _race(self) -> int:
        """In a worker: give each address a head start; the last one may still be under way afterwards."""
        number = errno.EHOSTUNREACH
        while self._left:
            number = self._connect()
            if number == errno.EINPROGRESS:
                poll = select.poll()
                poll.register(self.made.fileno(), select.POLLOUT)
                if poll.poll(HEAD_START * 1000):
                    number = self.made.getsockopt(SOL_SOCKET, SO_ERROR)
            if number in (0, errno.EINPROGRESS):
                return number
            self.close()
        return number

    def _raced(self, number: Any) -> None:
        self._end(errno.EIO if isinstance(number, Exception) else number)

    def _send(self) -> int:
        """One datagram to the first address: by the asker's own socket if it is outside already, else by a new one."""
        answer, request = self._answer, self._answer.request
        address = answer.args["address"] = self._left[0]
        try:
            if self._broker.is_inside(request.template):
                made = self.socket = answer.socket = outside_socket(request, address)
            else:
                made = self.socket = twin(request.template)
            self._hear_only(made, address)
            answer.sent = made.sendto(request.payload, _MSG_DONTWAIT, target(made, address, answer.args["port"]))
        except OSError as error:
            self.close()
            return error.errno or errno.EACCES
        if answer.socket is None:
            self.close()
        elif not request.nonblocking:
            made.setblocking(True)
        return 0

    def _end(self, number: int) -> None:
        self.is_over = True
        self._answer.errno = number
        if number not in (0, errno.EINPROGRESS) and self._answer.socket is not None:
            self._answer.socket.close()
            self._answer.socket = None
        self._then(self._answer)
