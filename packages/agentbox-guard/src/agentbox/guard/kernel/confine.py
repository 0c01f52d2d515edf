"""The way of a run into its confinement: planned before the fork, applied in the child, taken over by the supervisor.

The child hands over what the supervisor needs (the DNS sockets, the filter's listener) and waits until it has it. What
fails to apply ends the child before the agent's program is executed.
"""

from __future__ import annotations

import _socket
import os
import struct
import sys

from agentbox.guard.errors import GuardFailed, Unconfinable
from agentbox.guard.kernel import netns, shm, spawner, syscalls  # both sides of the fork need them

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Never

    from agentbox.guard.kernel._base import Layer
    from agentbox.guard.kernel.spawner import Spawner
    from agentbox.policy import Policy

_TIMEOUT = 30.0
_CREDENTIALS = struct.Struct("=iII")  # struct ucred, unix(7)
_DNS, _READY, _FAILED = b"d", b"r", b"e"
_SAMPLE = 8
_STATE = struct.Struct(f"=i?Q{_SAMPLE}s")
"""What comes with `_READY`: the listener's number, whether /proc is own, and where in memory some bytes are."""


class Handover:
    """The two ends by which a child hands over what the supervisor needs, and then waits for its word."""

    __slots__ = ("_inner", "_outer", "_taken", "failed")

    def __init__(self) -> None:
        self._taken = Taken()
        self._outer, self._inner = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self._outer.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
        self._outer.settimeout(_TIMEOUT)
        self.failed = 0
        """The errno that a child has sent in place of what it should have."""

    @property
    def inner(self) -> int:
        """The child's end."""
        return self._inner.fileno()

    def own_shm(self) -> bool:
        """In the supervisor of a run with namespaces, before `take`: wait until the child is in them, and tell whether
        it has a /dev/shm of its own there. False as well when it has ended before. Raises `GuardFailed`.
        """
        self._inner.close()
        self._receive()
        return self._taken.own_shm

    def take(self) -> Taken | None:
        """In the supervisor: what the child has handed over; None when it ended before, and has said why elsewhere.

        The child waits until `release`. Raises `GuardFailed`, and `Unconfinable` where the machine keeps the child from
        us.
        """
        self._inner.close()
        taken = self._taken
        while data := self._receive():
            if data[:1] == _READY:
                number, taken.fresh_proc, address, content = _STATE.unpack(data[1:])
                try:
                    if number >= 0:
                        taken.listener = adopt(taken.agent, number)
                        _need_memory(taken.agent, address, content)
                except ProcessLookupError:
                    return None  # somebody has ended it meanwhile
                except OSError as error:
                    from agentbox.guard.launch import way_out

                    raise Unconfinable(f"cannot be confined: seccomp: {error.strerror}", way_out("seccomp")) from None
                return taken
        return None

    def _receive(self) -> bytes:
        """The next message, its descriptors and sender noted; b"" when there is none to come. Raises `GuardFailed`."""
        taken = self._taken
        try:
            data, ancillary, _, _ = self._outer.recvmsg(64, _socket.CMSG_SPACE(64 * 4) + _socket.CMSG_SPACE(12))
        except TimeoutError:
            raise GuardFailed(f"the confinement was not applied within {_TIMEOUT:g} seconds") from None
        except OSError:
            return b""
        if data[:1] == _FAILED:
            self.failed = int.from_bytes(data[1:5], sys.byteorder)
            return b""
        if data[:1] == _DNS:
            taken.own_shm = data[1:] == b"\1"
        for _, kind, body in ancillary:
            if kind == _socket.SCM_RIGHTS:
                taken.dns += struct.unpack(f"={len(body) // 4}i", body)
            else:
                taken.agent = _CREDENTIALS.unpack(body)[0]
        return data

    def release(self) -> None:
        """Let the child go on to execute its program."""
        try:
            self._outer.send(b"g")
        except OSError:
            pass  # it is gone; its end tells why
        self._outer.close()

    def close(self) -> None:
        """Nobody will hand over by this."""
        self._inner.close()
        self._outer.close()


class Confinement:
    """The live layers of a run, by name, with the hand-over of its agent and the starter of programs for SDK calls.

    `context` makes the planning context when it is called, in the child: the supervisor has other things to do
    meanwhile.
    """

    __slots__ = ("_context", "_loaded", "_plans", "_policy", "_requests", "_starter", "hand_over", "names")

    def __init__(self, names: tuple[str, ...], policy: Policy, context: Callable[[], Mapping[str, Any]]) -> None:
        self.names = names
        self._policy = policy
        self._context = context
        self._loaded: dict[str, Layer] = {}
        self._plans: dict[str, Any] = {}
        self.hand_over = Handover()
        self._requests, self._starter = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._requests.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)

    @property
    def kept(self) -> tuple[int, ...]:
        """The descriptors that the child must keep until `enter`."""
        return self.hand_over.inner, self._starter.fileno()

    def spawner(self, post: Callable[[Callable[[], None]], None]) -> Spawner:
        """In the supervisor: what starts programs inside; `post` has the loop call a function."""
        self._starter.close()
        return spawner.Spawner(self._requests, Handover, post)

    def enter(self, start: Callable[[], Never], failed: Callable[[OSError], object]) -> Never:
        """In the forked child: go in, and call `start`, which executes the program, when the supervisor is ready.

        Raises `OSError`, its text beginning with the name of the layer that cannot be applied; `failed` is given it
        where that shows in a process that was forked on the way.
        """
        context = dict(self._context())
        if "netns" in self.names:  # first: the others are planned for what it shows
            self._plan("netns", context)
            with _named("netns"):
                self._enter_namespaces(context)
        for name in self.names:
            if name != "netns":
                self._plan(name, context)
        if "netns" not in self._plans:
            self._last_steps(start, False)
        from agentbox.guard.kernel import init

        fresh: list[bool] = []

        init.run(
            lambda: self._last_steps(start, fresh[0]),
            in_init=lambda: fresh.append(_own_proc()),
            beside=self._fork_starter,
            failed=failed,
        )

    def _plan(self, name: str, context: Mapping[str, Any]) -> None:
        from agentbox.guard import kernel

        self._loaded[name] = kernel.load(name)
        with _named(name):
            self._plans[name] = self._loaded[name].plan(self._policy, context)

    def _enter_namespaces(self, context: dict[str, Any]) -> None:
        """`context` then knows of a /dev/shm of its own: where the seccomp layer tells it from the machine's."""
        sockets = netns.enter(self._plans["netns"])
        own_shm = "seccomp" in self.names and context.get("free_shm", False) and shm.cover()
        if own_shm:
            context["writable"] = {**context["writable"], shm.NAME: shm.PLACE}
        _send_sockets(self.hand_over.inner, sockets, own_shm)

    def _last_steps(self, start: Callable[[], Never], fresh: bool) -> Never:
        if "netns" not in self._plans:
            # A starter that is the agent's own child would surprise its wait(2): it gets another parent at once.
            child = os.fork()
            if child == 0:
                self._fork_starter()
                os._exit(0)
            os.waitpid(child, 0)
        self._starter.close()
        self._confine(self.hand_over.inner, start, fresh)

    def _fork_starter(self) -> None:
        if os.fork() == 0:
            try:
                spawner.serve(self._starter, self._confine)
            finally:
                os._exit(70)

    def _confine(self, inner: int, start: Callable[[], Never], fresh: bool = False) -> Never:
        """Apply what is for each program, hand over, and start it when the supervisor says so. Raises `OSError`."""
        netns.drop_capabilities()
        listener = -1
        content = os.urandom(_SAMPLE)
        sample = syscalls.Sample(content)
        for name in ("landlock", "seccomp"):
            if name in self._plans:
                with _named(name):
                    self._loaded[name].apply(self._plans[name])
        if "seccomp" in self._plans:
            listener = self._plans["seccomp"].listener
        # write(2): a sendmsg(2) would wait for the very supervisor that does not have the listener yet
        os.write(inner, _READY + _STATE.pack(listener, fresh, sample.address, content))
        if os.read(inner, 1) != b"g":
            os._exit(70)
        if listener >= 0:
            os.close(listener)
        os.close(inner)
        start()


def _own_proc() -> bool:
    with _named("netns"):
        return netns.fresh_proc()


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


def _send_sockets(inner: int, sockets: list[_socket.socket], own_shm: bool) -> None:
    numbers = struct.pack(f"={len(sockets)}i", *(one.fileno() for one in sockets))
    one = _socket.socket(fileno=inner)
    one.sendmsg([_DNS, bytes([own_shm])], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    one.detach()
    for one in sockets:
        one.close()


class Taken:
    """What was handed over: the agent's pid outside, DNS sockets, the listener's descriptor, and whether /proc and
    /dev/shm are own.
    """

    __slots__ = ("agent", "dns", "fresh_proc", "listener", "own_shm")

    def __init__(self) -> None:
        self.agent = 0
        self.dns: list[int] = []
        self.listener = -1
        self.fresh_proc = False
        self.own_shm = False


def adopt(process: int, number: int) -> int:
    """A duplicate of another process's descriptor. Raises `OSError`, its text beginning with the call that failed."""
    try:
        pidfd = os.pidfd_open(process)
    except OSError as error:
        raise OSError(error.errno, f"pidfd_open: {error.strerror}") from None
    try:
        return syscalls.pidfd_getfd(pidfd, number)
    finally:
        os.close(pidfd)


def _need_memory(process: int, address: int, content: bytes) -> None:
    """Have it known at once if calls could be neither read nor answered. Raises `OSError`."""
    from agentbox.guard.kernel.memory import Memory

    memory = Memory()
    found = memory.block(process, address, len(content))
    memory.write(process, address, found)
    if found != content:
        raise OSError(0, "process_vm_readv: what was read is not what is there")
