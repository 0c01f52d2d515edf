"""The connect broker: makes outside, for a process in the empty network namespace, the connections that the policy
allows.

It decides on its own copy of the address only, resolves and pins names itself, and never leads a name to this machine
or a private network unless a rule names that address. A socket that has left the namespace is never let go on by itself
again: "this machine" would mean the host to it.
"""

from __future__ import annotations

import errno
import select
from _socket import AF_UNSPEC, SOCK_DGRAM, SOCK_STREAM

from agentbox.guard.decisions._base import denial_of
from agentbox.guard.kernel import netns
from agentbox.guard.kernel.dial import Dial
from agentbox.guard.kernel.outside import endpoint, namespace_cookie, progress
from agentbox.guard.names import literal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket
    from collections.abc import Callable
    from typing import Any

    from agentbox.guard.decisions import Desk
    from agentbox.guard.jobs import Jobs
    from agentbox.guard.kernel.insiders import Insiders
    from agentbox.guard.kernel.synthetic import Synthetic
    from agentbox.guard.session import Denial

CONTINUE, FAIL, DENY, DIAL, DONE = "continue", "fail", "deny", "dial", "done"
"""What is to be done about a call: let the kernel go on with it, fail it, refuse it by the policy, `Broker.dial`, or
nothing, as what was begun before has come about.
"""


class Request:
    """One connect(2) or send with an address, as the supervisor has copied it.

    `op` is `net.connect` or `net.send`; `address` the sockaddr's bytes; `kind` (SOCK_STREAM or SOCK_DGRAM) and `family`
    are the socket's; `template` is a descriptor of the asker's socket, which stays the caller's; `payload` of a send.
    """

    __slots__ = ("address", "family", "kind", "nonblocking", "op", "payload", "pid", "template")

    def __init__(
        self, op: str, pid: int, address: bytes, *, kind: int, family: int, nonblocking: bool, template: int,
        payload: bytes = b"",
    ) -> None:  # fmt: skip
        self.op = op
        self.pid = pid
        self.address = address
        self.kind = kind
        self.family = family
        self.nonblocking = nonblocking
        self.template = template
        self.payload = payload


class Answer:
    """What is to be done: `action`; `args` as recorded (`host`, `address`, `port`); `errno` for FAIL and after a dial;
    `denial` for DENY, and for a CONTINUE that will fail and is worth an entry; `stub` for one to the name service,
    whose answers have entries of their own.

    After a dial: `socket` (put it over the asker's descriptor, then close it; None: nothing to put) and `sent`.
    """

    __slots__ = ("action", "args", "denial", "errno", "name", "request", "sent", "socket", "stub")

    def __init__(self, action: str, args: dict[str, Any], request: Request, *, number: int = 0) -> None:
        self.action = action
        self.args = args
        self.request = request
        self.errno = number
        self.denial: Denial | None = None
        self.name = ""
        self.socket: Socket | None = None
        self.sent = 0
        self.stub = False


class Broker:
    """One for a run, used on the loop thread. Register `fileno()` for reading in the loop and call `ready` then.

    `inside` is the namespace's cookie (`namespace_cookie` of a socket in it), `served` the resolver's addresses there,
    `insiders` knows who listens there (None: nobody). `observing`: what is denied is to be dialled all the same.
    """

    def __init__(
        self,
        desk: Desk,
        synthetic: Synthetic,
        jobs: Jobs,
        *,
        inside: int,
        served: tuple[str, ...],
        insiders: Insiders | None = None,
        observing: bool = False,
    ) -> None:
        self._desk = desk
        self._synthetic = synthetic
        self._jobs = jobs
        self._inside = inside
        self._served = served
        self._insiders = insiders
        self.observing = observing
        self._epoll = select.epoll()
        self._dials: dict[int, Dial] = {}

    def fileno(self) -> int:
        """Readable when a connection that was begun has come to something."""
        return self._epoll.fileno()

    def close(self) -> None:
        """Give up what is under way."""
        for dial in self._dials.values():
            dial.close()
        self._dials = {}
        self._epoll.close()

    def judge(self, request: Request) -> Answer:
        """Decide at once; nothing is done yet and nobody asked."""
        outside = self._has_left(request.template)
        try:
            family, address, port = endpoint(request.address, request.family, request.kind)
        except OSError as error:
            return Answer(FAIL, {}, request, number=error.errno or errno.EINVAL)
        if family == AF_UNSPEC:
            return self._dissolve(request, outside)
        if request.kind == SOCK_STREAM and outside:
            number = progress(request.template)
            if number != errno.EINVAL:
                return Answer(FAIL if number else DONE, {}, request, number=number)
        return self._judge(request, address, port, outside)

    def judge_address(
        self, address: str, port: int, pid: int, *, datagram: bool = False
    ) -> tuple[str, Denial | None, str]:
        """For a guard that asks before the call: action, denial and the host's name for a canonical literal address."""
        kind = SOCK_DGRAM if datagram else SOCK_STREAM
        request = Request("net.connect", pid, b"", kind=kind, family=0, nonblocking=False, template=-1)
        answer = self._judge(request, address, port, False)
        return answer.action, answer.denial, str(answer.args["host"])

    def dial(self, answer: Answer, then: Callable[[Answer], None]) -> Dial:
        """Do what was judged DIAL, then call `then` on the loop thread, now or later."""
        dial = Dial(self, answer, then)
        dial.begin()
        return dial

    def ready(self) -> None:
        """Go on with the connections that have come to something."""
        for descriptor, _ in self._epoll.poll(0):
            dial = self._dials.pop(descriptor, None)
            if dial is not None:
                self._epoll.unregister(descriptor)
                dial.settled()

    def _judge(self, request: Request, address: str, port: int, outside: bool) -> Answer:
        args = {"host": address, "address": address, "port": port}
        answer = Answer(DIAL, args, request)
        decision = self._desk.policy.decide("net", address, port)
        if netns.is_local(address, self._served):
            answer.stub = not outside and port == netns.DNS_PORT and address in self._served
            if answer.stub or (not outside and self._is_heard(address, port, request.kind == SOCK_DGRAM)):
                answer.action = CONTINUE
            elif not decision.allowed:
                args["host"] = self._allowed_name(address, port) or address
                if args["host"] == address:
                    self._shut(answer, denial_of(decision, "net"), outside)
            return answer
        name = self._synthetic.name(address)
        if name:
            args["host"] = answer.name = name
            decision = self._desk.policy.decide("net", name, port)
        elif not decision.allowed:
            name = self._allowed_name(address, port)
            if name:
                args["host"] = name
                return answer
        if not decision.allowed:
            answer.action, answer.denial = DENY, denial_of(decision, "net")
        return answer

    def _is_heard(self, address: str, port: int, datagram: bool) -> bool:
        return self._insiders is not None and self._insiders.listens(address, port, datagram=datagram)

    def _shut(self, answer: Answer, denial: Denial, outside: bool) -> None:
        """An address of this machine at which nobody of the run listens and which no rule opens on the host.

        Inside, a connection is let go on, to fail as a closed port does, which is worth an entry. Datagrams would seem
        to be sent: they are refused, and so is the connecting of their socket. While only observing it means the host,
        as it does without agentbox.
        """
        datagram = answer.request.kind == SOCK_DGRAM
        if not self.observing:
            answer.action = DENY if outside or datagram else CONTINUE
        answer.denial = denial

    def _allowed_name(self, address: str, port: int) -> str:
        """An allowed name that has led to the address in this run, or to which hosts(5) gives it: programs read that
        file for themselves.
        """
        name = self._desk.names.behind(address, port)
        if name:
            return name
        for name in hosts_names(address):
            if self._desk.names.leads(name, port, address):
                return name
        return ""

    def _dissolve(self, request: Request, outside: bool) -> Answer:
        """connect(2) with AF_UNSPEC. A socket outside would be free to be bound there afterwards, and to listen.

        The C library does it between the addresses that it sorts (RFC 6724) and does not look at the outcome: its next
        connect(2) is given a new socket.
        """
        if outside:
            return Answer(FAIL, {}, request, number=errno.EOPNOTSUPP)
        return Answer(CONTINUE, {}, request)

    def _has_left(self, template: int) -> bool:
        return template >= 0 and namespace_cookie(template) != self._inside

    def watch(self, dial: Dial) -> None:
        """Have `dial.settled` called when its socket is connected or has failed."""
        self._epoll.register(dial.made.fileno(), select.EPOLLOUT)
        self._dials[dial.made.fileno()] = dial

    def unwatch(self, dial: Dial) -> None:
        """Undo `watch`, if it was called."""
        for descriptor in [number for number, one in self._dials.items() if one is dial]:
            del self._dials[descriptor]
            self._epoll.unregister(descriptor)

    @property
    def desk(self) -> Desk:
        """What decisions are made from."""
        return self._desk

    @property
    def jobs(self) -> Jobs:
        """Where waiting is done."""
        return self._jobs

    def is_inside(self, template: int) -> bool:
        """Whether the asker's socket is (still) in the run's namespace."""
        return not self._has_left(template)


def hosts_names(address: str, path: str = "/etc/hosts") -> list[str]:
    """The names that hosts(5) gives to a canonical address."""
    found: list[str] = []
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                words = line.partition("#")[0].split()
                if len(words) > 1 and literal(words[0]) == address:
                    found.extend(words[1:])
    except OSError:
        pass
    return found


__all__ = [
    "CONTINUE", "DENY", "DIAL", "DONE", "FAIL", "Answer", "Broker", "Request", "hosts_names", "namespace_cookie",
]  # fmt: skip
