"""The DNS stub of a run: answers allowed names with a synthetic address each, and every other name with "no such name".

It never sends a query anywhere: allowed names are handed to the supervisor's resolver, others are told as denied.
"""

from __future__ import annotations

import os
from _socket import AF_INET, EAI_AGAIN, SOCK_STREAM, gaierror, inet_pton
from _socket import socket as Socket

from agentbox.guard import shortage
from agentbox.guard.decisions._base import denial_of
from agentbox.guard.descriptors import Spare
from agentbox.guard.kernel import dnswire
from agentbox.guard.kernel.dnswire import Malformed, Question
from agentbox.guard.twins import owned
from agentbox.policy.address import is_localhost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from agentbox.guard.kernel.synthetic import Synthetic
    from agentbox.guard.session import Denial
    from agentbox.policy import Policy

    Then = Callable[[tuple[str, ...] | BaseException], None]
    LookUp = Callable[[str, Then], None]
    Told = Callable[[str, Denial | None, tuple[str, ...]], None]
    Send = Callable[[bytes], None]

TTL = 300
"""Seconds; a name keeps its address for the whole run, and asking again costs time."""
MOST_WAITING = 1000
"""Queries that may wait for the resolver; more are told to try again."""
MOST_STREAMS = 64
_MOST_REMEMBERED = 65536  # names that were told once; after that every query is told
_BATCH = 64  # datagrams in one turn: other sources of events get theirs
_LOCAL = {dnswire.A: b"\x7f\0\0\x01", dnswire.AAAA: bytes(15) + b"\x01"}


class DnsStub:
    """Serves the sockets that `netns.enter` made; all on the loop thread.

    `look_up(name, then)` resolves an allowed name and calls `then`, at once or later, with its addresses or the error.
    `told(name, denial, addresses)` is called once for each name: with the denial, or with what an allowed name led to.
    `suffixes` are the resolver's search domains: a name with one behind it that would be allowed without is the C
    library's own trying, and nobody is told. With `observing` what is denied is told and answered all the same.
    """

    def __init__(
        self,
        synthetic: Synthetic,
        policy: Policy,
        look_up: LookUp,
        told: Told,
        *,
        suffixes: tuple[str, ...] = (),
        observing: bool = False,
    ) -> None:
        self._synthetic = synthetic
        self._policy = policy
        self._look_up = look_up
        self._told = told
        self._suffixes = suffixes
        self._observing = observing
        self._waiting = 0
        self._seen: set[str] = set()
        self._sockets: list[Socket] = []
        self._streams: dict[int, _Stream] = {}
        self._register: Callable[[int, Callable[[], None]], None]
        self._forget: Callable[[int], None]

    def attach(
        self,
        sockets: Iterable[Socket],
        register: Callable[[int, Callable[[], None]], None],
        forget: Callable[[int], None],
    ) -> None:
        """Serve non-blocking sockets (UDP, and TCP that listen): `register` has the loop call when one is readable."""
        self._register, self._forget = register, forget
        for one in sockets:
            self._sockets.append(one)
            serve = self._accept if one.type == SOCK_STREAM else self._receive
            register(one.fileno(), _bound(serve, one))

    def close(self) -> None:
        """Close every socket; queries that wait get no answer."""
        for stream in list(self._streams.values()):
            self._drop(stream)
        for one in self._sockets:
            self._forget(one.fileno())
            one.close()
        self._sockets = []

    def answer(self, data: bytes, send: Send) -> None:
        """Answer one message by `send(reply)`, at once or when the name is resolved; what deserves none gets none."""
        try:
            question = dnswire.parse(data)
        except Malformed as fault:
            if fault.reply:
                send(fault.reply)
            return
        if question.space != dnswire.INTERNET:
            send(dnswire.reply(question, dnswire.REFUSED))
        elif not question.shown:
            send(dnswire.reply(question, dnswire.NO_ERROR))
        elif is_localhost(question.name):
            send(_found(question, _LOCAL.get(question.kind)))  # RFC 6761: never asked of anybody
        elif question.kind == dnswire.PTR and dnswire.reverse_address(question.name):
            send(self._reverse(question))
        else:
            self._decide(question, send)

    def _decide(self, question: Question, send: Send) -> None:
        decision = self._policy.decide("net", question.name or question.shown, None)
        if not decision.allowed:
            if self._is_trying(question.name):
                send(dnswire.reply(question, dnswire.NO_SUCH_NAME))
                return
            self._tell(question.name or question.shown, denial_of(decision, "net"), ())
            if not (self._observing and question.name):
                send(_refused(question, decision.reason))
                return
        if self._waiting >= MOST_WAITING:
            send(dnswire.reply(question, dnswire.SERVER_FAILURE))
            return
        self._waiting += 1
        self._look_up(question.name, lambda found: self._resolved(question, send, found))

    def _resolved(self, question: Question, send: Send, found: tuple[str, ...] | BaseException) -> None:
        self._waiting -= 1
        if isinstance(found, BaseException):
            passing = not isinstance(found, gaierror) or found.errno == EAI_AGAIN
            if not passing:
                self._tell(question.name, None, ())
            send(dnswire.reply(question, dnswire.SERVER_FAILURE if passing else dnswire.NO_SUCH_NAME))
            return
        usable = [one for one in found if self._policy.decide("net", question.name, None, one).allowed]
        if found and not usable:
            denial = denial_of(self._policy.decide("net", question.name, None, found[0]), "net")
            self._tell(question.name, denial, found)
            if not self._observing:
                send(_refused(question, denial.reason))
                return
        self._tell(question.name, None, tuple(usable) or found)
        if question.kind != dnswire.A:
            send(dnswire.reply(question, dnswire.NO_ERROR))  # the name is there, and has nothing else to tell
            return
        address = self._synthetic.address(question.name)
        if address:
            send(_found(question, inet_pton(AF_INET, address)))
        else:
            send(dnswire.reply(question, dnswire.SERVER_FAILURE))

    def _is_trying(self, name: str) -> bool:
        """Whether the C library has put a search domain behind a name that it also asks for as it is."""
        for suffix in self._suffixes:
            if name.endswith("." + suffix):
                bare = name[: -len(suffix) - 1]
                if bare in self._seen or bare == "localhost" or self._policy.decide("net", bare, None).allowed:
                    return True
        return False

    def _tell(self, name: str, denial: Denial | None, addresses: tuple[str, ...]) -> None:
        if name not in self._seen:
            if len(self._seen) < _MOST_REMEMBERED:
                self._seen.add(name)
            self._told(name, denial, addresses)

    def _reverse(self, question: Question) -> bytes:
        name = self._synthetic.name(dnswire.reverse_address(question.name))
        if not name:
            return dnswire.reply(question, dnswire.NO_SUCH_NAME)
        return dnswire.reply(question, dnswire.NO_ERROR, ((dnswire.PTR, dnswire.encode_name(name)),), ttl=TTL)

    def _receive(self, one: Socket) -> None:
        for _ in range(_BATCH):
            try:
                data, peer = one.recvfrom(dnswire.LONGEST)
            except OSError:
                return
            self.answer(data, _datagram(one, peer))

    def _accept(self, one: Socket) -> None:
        try:
            descriptor, _ = one._accept()  # type: ignore[attr-defined]
        except OSError as error:
            if shortage.met(error):
                _turn_away(one)
            return
        if len(self._streams) >= MOST_STREAMS:
            self._drop(next(iter(self._streams.values())))  # the oldest
        stream = _Stream(owned(descriptor))
        stream.socket.setblocking(False)
        self._streams[descriptor] = stream
        self._register(descriptor, lambda: self._read(stream))

    def _read(self, stream: _Stream) -> None:
        """Over TCP each message has its length before it (RFC 1035, section 4.2.2); several may come at once (RFC
        7766).
        """
        try:
            data = stream.socket.recv(dnswire.LONGEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        stream.buffer += data
        while len(stream.buffer) >= 2 and stream.is_open:
            end = 2 + int.from_bytes(stream.buffer[:2], "big")
            if end > 2 + dnswire.LONGEST:
                data = b""
                break
            if len(stream.buffer) < end:
                break
            message, stream.buffer = stream.buffer[2:end], stream.buffer[end:]
            self.answer(message, lambda reply: self._send(stream, reply))
        if not data and stream.is_open:
            self._drop(stream)

    def _send(self, stream: _Stream, reply: bytes) -> None:
        if not stream.is_open:
            return
        message = len(reply).to_bytes(2, "big") + reply
        try:
            whole = stream.socket.send(message) == len(message)
        except OSError:
            whole = False
        if not whole:  # it asks and does not read
            self._drop(stream)

    def _drop(self, stream: _Stream) -> None:
        stream.is_open = False
        descriptor = stream.socket.fileno()
        del self._streams[descriptor]
        self._forget(descriptor)
        stream.socket.close()


class _Stream:
    """One TCP connection of a querier."""

    __slots__ = ("buffer", "is_open", "socket")

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.buffer = b""
        self.is_open = True


def _turn_away(one: Socket) -> None:
    """Without a descriptor left: end the next connection, which would else be told of again and again."""
    with Spare():
        try:
            os.close(one._accept()[0])  # type: ignore[attr-defined]
        except OSError:
            pass


def _bound(serve: Callable[[Socket], None], one: Socket) -> Callable[[], None]:
    return lambda: serve(one)


def _datagram(one: Socket, peer: Any) -> Send:
    def send(reply: bytes) -> None:
        try:
            one.sendto(reply, peer)
        except OSError:
            pass  # the asker is gone, or does not read: as on any network

    return send


def _found(question: Question, data: bytes | None) -> bytes:
    answers = ((question.kind, data),) if data else ()
    return dnswire.reply(question, dnswire.NO_ERROR, answers, ttl=TTL)


def _refused(question: Question, reason: str) -> bytes:
    return dnswire.reply(question, dnswire.NO_SUCH_NAME, why=f"agentbox: {reason}")
