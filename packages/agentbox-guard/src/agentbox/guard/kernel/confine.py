"""The way of a run into its confinement: planned before the fork, applied in the child, taken over by the supervisor.

The child hands over what the supervisor needs (the DNS sockets, the filter's listener) and waits until it has it. What
fails to apply ends the child before the agent's program is executed.
"""

from __future__ import annotations

import _socket
import os
import struct

from agentbox.guard.errors import GuardFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Never

    from agentbox.guard.kernel._base import Layer
    from agentbox.policy import Policy

_TIMEOUT = 30.0
_CREDENTIALS = struct.Struct("=iII")  # struct ucred, unix(7)
_DNS, _READY = b"d", b"r"


class Confinement:
    """The live layers of a run, by name, and the two ends of the hand-over.

    `context` makes the planning context when it is called, in the child: the supervisor has other things to do
    meanwhile.
    """

    __slots__ = ("_context", "_inner", "_loaded", "_outer", "_plans", "_policy", "names")

    def __init__(self, names: tuple[str, ...], policy: Policy, context: Callable[[], Mapping[str, Any]]) -> None:
        self.names = names
        self._policy = policy
        self._context = context
        self._loaded: dict[str, Layer] = {}
        self._plans: dict[str, Any] = {}
        self._outer, self._inner = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self._outer.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
        self._outer.settimeout(_TIMEOUT)

    @property
    def kept(self) -> int:
        """The descriptor that the child must keep until `enter`."""
        return self._inner.fileno()

    def enter(self, start: Callable[[], Never]) -> Never:
        """In the forked child: go in, and call `start`, which executes the program, when the supervisor is ready.

        Raises `OSError`, its text beginning with the name of the layer that cannot be applied.
        """
        from agentbox.guard import kernel

        context = self._context()
        for name in self.names:
            self._loaded[name] = kernel.load(name)
            with _named(name):
                self._plans[name] = self._loaded[name].plan(self._policy, context)
        if "netns" not in self._plans:
            self._last_steps(start, False)
        from agentbox.guard.kernel import init, netns

        with _named("netns"):
            sockets = netns.enter(self._plans["netns"])
        _send_sockets(self._inner, sockets)
        fresh: list[bool] = []
        init.run(lambda: self._last_steps(start, fresh[0]), in_init=lambda: fresh.append(netns.fresh_proc()))

    def _last_steps(self, start: Callable[[], Never], fresh: bool) -> Never:
        from agentbox.guard.kernel.netns import drop_capabilities

        drop_capabilities()
        for name in ("landlock", "seccomp"):
            if name in self._plans:
                with _named(name):
                    self._loaded[name].apply(self._plans[name])
        listener = self._plans["seccomp"].listener if "seccomp" in self._plans else -1
        # write(2): a sendmsg(2) would wait for the very supervisor that does not have the listener yet
        os.write(self._inner.fileno(), _READY + struct.pack("=i?", listener, fresh))
        if os.read(self._inner.fileno(), 1) != b"g":
            os._exit(70)
        if listener >= 0:
            os.close(listener)
        os.close(self._inner.fileno())
        start()

    def take(self) -> Taken | None:
        """In the supervisor: what the child has handed over; None when it ended before, and has said why elsewhere.

        The child waits until `release`. Raises `GuardFailed`.
        """
        self._inner.close()
        taken = Taken()
        while True:
            try:
                data, ancillary, _, _ = self._outer.recvmsg(64, _socket.CMSG_SPACE(64 * 4) + _socket.CMSG_SPACE(12))
            except TimeoutError:
                raise GuardFailed(f"the confinement was not applied within {_TIMEOUT:g} seconds") from None
            except OSError:
                return None
            if not data:
                return None
            for _, kind, body in ancillary:
                if kind == _socket.SCM_RIGHTS:
                    numbers = struct.unpack(f"={len(body) // 4}i", body)
                    taken.dns += numbers
                else:
                    taken.agent = _CREDENTIALS.unpack(body)[0]
            if data[:1] != _DNS:
                number, taken.fresh_proc = struct.unpack("=i?", data[1:])
                if number >= 0:
                    taken.listener = _adopt(taken.agent, number)
                return taken

    def release(self) -> None:
        """Let the child go on to execute the agent's program."""
        self._outer.send(b"g")
        self._outer.close()


class _Named:
    """Puts a layer's name in front of the text of an `OSError`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise OSError(error.errno, f"{self._name}: {error.strerror or error}") from None


_named = _Named


def _send_sockets(inner: _socket.socket, sockets: list[_socket.socket]) -> None:
    numbers = struct.pack(f"={len(sockets)}i", *(one.fileno() for one in sockets))
    inner.sendmsg([_DNS], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    for one in sockets:
        one.close()


class Taken:
    """What was handed over: the agent's pid outside, DNS sockets, the listener's descriptor, and whether /proc is own."""

    __slots__ = ("agent", "dns", "fresh_proc", "listener")

    def __init__(self) -> None:
        self.agent = 0
        self.dns: list[int] = []
        self.listener = -1
        self.fresh_proc = False


def _adopt(agent: int, number: int) -> int:
    from agentbox.guard.kernel import _syscalls

    pidfd = os.pidfd_open(agent)
    try:
        return _syscalls.pidfd_getfd(pidfd, number)
    finally:
        os.close(pidfd)
