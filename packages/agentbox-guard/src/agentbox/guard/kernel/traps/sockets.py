"""connect(2), and what all calls with an address share: the supervisor makes the call itself, on its own copy of the
address and a duplicate of the socket.

So neither the address nor the descriptor can be another when the kernel looks. Internet addresses outside of an empty
network go through the broker.
"""

from __future__ import annotations

import _socket as socket  # the module around it loads enum and selectors, 3 ms of a start
import errno
import os
import struct

from agentbox.guard.decisions import decider
from agentbox.guard.kernel import peers_only, syscalls
from agentbox.guard.kernel.traps import _replaced, peers
from agentbox.guard.kernel.traps._base import Box, number, refused
from agentbox.guard.kernel.waits import RESTART
from agentbox.guard.twins import twin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agentbox.guard.kernel.notify import Call
    from agentbox.guard.kernel.traps._base import Handler
    from agentbox.guard.kernel.walk import Found

_MOST_ADDRESS = 128
"""sizeof(struct sockaddr_storage), <linux/socket.h>."""
_UNSPEC, _UNIX, _NETLINK = socket.AF_UNSPEC, socket.AF_UNIX, socket.AF_NETLINK
INTERNET = {int(socket.AF_INET): "inet", int(socket.AF_INET6): "inet6"}
_INTERRUPTED = (errno.EINTR, errno.ESRCH, RESTART)
_SIZES = {int(socket.AF_INET): 16, int(socket.AF_INET6): 24}


def address_at(box: Box, call: Call, place: int, size: int) -> bytes:
    """A copy of a struct sockaddr. Raises `OSError`."""
    if not 2 <= number(size) <= _MOST_ADDRESS:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return box.memory.block(call.pid, place, number(size))


def family_of(address: bytes) -> int:
    """The address family. Raises `OSError` (EINVAL) for an address that is too short to have one."""
    if len(address) < 2:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    family: int = struct.unpack_from("=H", address)[0]
    return family


def as_inet(address: bytes, family: int) -> bytes:
    """The address as an IPv4 socket takes it: without a family it is an IPv4 address, too (inet_bind of
    net/ipv4/af_inet.c, udp_sendmsg of net/ipv4/udp.c).
    """
    if family == socket.AF_INET and family_of(address) == _UNSPEC:
        return struct.pack("=H", family) + address[2:]
    return address


def unix_name(address: bytes) -> bytes:
    """The path of a local address, or NUL and its abstract name (unix(7)); b"" for none."""
    name = address[2:]
    if name[:1] == b"\0":
        return name
    return name.split(b"\0", 1)[0]


def sort_of(fd: int, *, named: bool = True) -> tuple[int, int]:
    """Family and kind of a socket. Raises `OSError` (ENOTSOCK).

    EOPNOTSUPP for an act that names an address with a kind that no program of the run can make (`rows.py`): of such a
    one, which somebody outside has passed to it, no rule speaks.
    """
    one = twin(fd)
    try:
        family, kind = int(one.family), int(one.type)
    finally:
        one.close()
    usual = family in (_UNIX, _NETLINK) or (family in INTERNET and kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM))
    if named and not usual:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    return family, kind


def send_timeout(fd: int) -> float:
    """The time that a blocking connect or send may take (SO_SNDTIMEO, socket(7)), 0 for any."""
    one = twin(fd)
    try:
        seconds, microseconds = struct.unpack("=qq", one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16))
    finally:
        one.close()
    return float(seconds + microseconds / 1_000_000)


def powerless_call(box: Box, call: Call, fd: int, act: Callable[[], object], value: int = 0) -> None:
    """Make a call on a duplicate of a socket and answer with `value`. Closes `fd`, unless it raises.

    The kernel judges netlink messages by who sends them (netlink(7)), and some options by who sets them: the supervisor
    would make devices that the program may not make. Letting the kernel go on would be no better: the program could put
    another socket over the descriptor, one that has left the namespace, and that one would never have been decided on.
    So a child without capabilities does it, on the very socket that was looked at.
    """
    spaces = os.open(f"/proc/{box.ids(call).process}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    if not box.listener.stands(call):  # the number may be another's by now
        os.close(spaces)
        raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))

    def powerless() -> int:
        peers.powerless(spaces, act)
        return value

    own_call(box, call, fd, powerless, wakes=False, spent=lambda: os.close(spaces))


def own_call(
    box: Box,
    call: Call,
    fd: int,
    act: Callable[[], int],
    failed: Callable[[OSError], None] | None = None,
    *,
    waits: bool = True,
    wakes: bool = True,
    spent: Callable[[], object] = lambda: None,
    told: Callable[[int], int] = int,
) -> None:
    """Make a call on a duplicate `fd` and answer with its outcome, in a thread unless it cannot wait. Closes `fd`.

    The program shares the duplicate's O_NONBLOCK and can take it away at any time: that alone says nothing of waiting.
    `failed` is told an error before the program is. `spent` is called when the call is over, also when no thread was to
    be had for it: what it needed can then be closed. What only takes a moment is not woken by signals (`wakes` false):
    it would be done, and then be done again. `told` makes the answer of the outcome.
    """

    def done(outcome: Any) -> None:
        os.close(fd)
        spent()
        if isinstance(outcome, OSError):
            if failed is not None:
                failed(outcome)
            box.listener.fail(call, outcome.errno or errno.EIO)
        elif isinstance(outcome, Exception):
            raise outcome
        else:
            answer_with(box, call, outcome, told)

    if waits and not wakes:
        box.jobs.wait(act, done)
        return
    if waits:
        try:
            pid = box.ids(call).process
            once = bool(send_timeout(fd))  # sock_intr_errno() of <net/sock.h>
        except OSError as error:
            done(error)
            return
        box.jobs.wait(lambda: box.waits.blocking(call, pid, act, once=once), done)
        return
    try:
        outcome: Any = act()
    except Exception as error:
        outcome = error
    done(outcome)


def answer_with(box: Box, call: Call, value: int, told: Callable[[int], int]) -> None:
    """Answer with what `told` makes of a value, or its `OSError`."""
    try:
        box.listener.value(call, told(value))
    except OSError as error:
        box.listener.fail(call, error.errno or errno.EFAULT)


def addressed(box: Box, call: Call, act: Callable[[Box, Call, int, bytes], None]) -> None:
    """Do `act` with a duplicate of the socket, which it takes over unless it raises, and a copy of the address."""
    number_of, place, size = call.args[:3]
    address = address_at(box, call, place, size)
    fd = box.duplicate(call, number(number_of))
    try:
        act(box, call, fd, address)
        fd = -1
    finally:
        if fd >= 0:
            os.close(fd)


def _connect(box: Box, call: Call, name: str) -> None:
    addressed(box, call, _connect_to)


def _connect_to(box: Box, call: Call, fd: int, address: bytes) -> None:
    """Takes `fd` over, unless it raises."""
    family, kind = sort_of(fd)
    if family in INTERNET:
        box.network()
    if family == _UNIX and family_of(address) == _UNIX:
        _connect_local(box, call, fd, address, kind)
    elif family in INTERNET and box.broker is not None:
        _connect_out(box, call, fd, address, family, kind)
    elif family in INTERNET and family_of(address) in INTERNET:
        reach(box, call, fd, "net.connect", address, kind)
        own_call(box, call, fd, lambda: syscalls.connect(fd, address), waits=kind == socket.SOCK_STREAM)
    elif family == _NETLINK:
        powerless_call(box, call, fd, lambda: syscalls.connect(fd, address))
    elif family_of(address) == _UNSPEC:
        own_call(box, call, fd, lambda: syscalls.connect(fd, address), waits=False)
    else:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))


def _connect_local(box: Box, call: Call, fd: int, address: bytes, kind: int) -> None:
    target, found = local(box, call, fd, "net.connect", address)
    if found is not None and found.text == box.desk.channel:
        found.close()
        _connect_guard(box, call, fd)
        return

    pid = box.ids(call).process
    name = os.fsdecode(unix_name(address)[1:]) if found is None else ""
    beyond = bool(name) and box.netns and box.desk.policy.decide("net", "unix:@" + name).allowed

    def act() -> int:
        try:
            return once(fd, kind, lambda: peers.act_as(box, pid, lambda: syscalls.connect(fd, target)))
        except ConnectionRefusedError:
            if not beyond or is_outside(box, fd):
                raise
        return _connect_beyond(box, call, fd, address, kind)

    own_call(box, call, fd, act, spent=lambda: found.close() if found is not None else None)


def _connect_beyond(box: Box, call: Call, fd: int, address: bytes, kind: int) -> int:
    """Connect to an abstract name of the machine, which a rule allows and nobody of the run has: by another socket, put
    in the place of the asker's. Raises `OSError`.
    """
    one = socket.socket(socket.AF_UNIX, kind)
    try:
        one.setblocking(os.get_blocking(fd))
        pid = box.ids(call).process
        peers.act_as(box, pid, lambda: syscalls.connect(one.fileno(), address))
        if number_of := _replaced.put_over(box, call, fd, one.fileno()):
            raise OSError(number_of, os.strerror(number_of))
    finally:
        one.close()
    return 0


def once(fd: int, kind: int, connect: Callable[[], int]) -> int:
    """Connect a local socket; one that was connected when the signal came is not interrupted, as its connect(2) would
    be made again and fail. Raises `OSError`.
    """
    try:
        return connect()
    except InterruptedError:
        if kind == socket.SOCK_DGRAM:  # which may have had another peer before, and may be connected again
            raise
        one = twin(fd)
        try:
            one.getpeername()
            return 0
        except OSError:
            pass
        finally:
            one.close()
        raise


def _connect_guard(box: Box, call: Call, fd: int) -> None:
    """The run's own channel: one end of a new pair is put in the socket's place, so that who has it is known."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    os.close(fd)
    try:
        place = number(call.args[0])
        if box.listener.put(call, theirs.fileno(), place, box.askers.closes_on_exec(call.pid, place)):
            box.adopt(ours.detach(), box.ids(call).process)
            box.listener.value(call, 0)
    finally:
        ours.close()
        theirs.close()


def local(box: Box, call: Call, fd: int, op: str, address: bytes) -> tuple[bytes, Found | None]:
    """Decide on a local address for a socket; returns one that means the decided object and nothing else.

    Raises `OSError`.
    """
    name = unix_name(address)
    if not name:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    if name[:1] == b"\0":
        decide_abstract(box, call, fd, op, name)
        return address, None
    found = box.tree.find(call.pid, name)
    try:
        if found.text != box.desk.channel:  # which the caller answers itself
            decide_local(box, call, op, found.text)
    except OSError:
        found.close()
        raise
    return struct.pack("=H", int(_UNIX)) + b"/proc/self/fd/%d\0" % found.fd, found


def decide_abstract(box: Box, call: Call, fd: int, op: str, name: bytes) -> None:
    """Abstract names are those of the socket's namespace (unix(7)): in the run's own there are only its processes."""
    text = os.fsdecode(name[1:])
    if not box.netns or is_outside(box, fd):
        decide_local(box, call, op, "\0" + text)
    else:
        box.scribe.observe(box.ids(call).process, op, {"path": "@" + text})
        box.scribe.flush()


def decide_local(box: Box, call: Call, op: str, path: str) -> None:
    pid = box.ids(call).process
    verdict = decider(op).decide(op, {"path": path}, pid, box.desk)
    if verdict.denial is not None:
        if box.scribe.deny(pid, op, verdict.args, verdict.denial):
            raise refused()
    elif not verdict.quiet:
        box.scribe.observe(pid, op, verdict.args)
    box.scribe.flush()


def endpoint(
    box: Box, call: Call, op: str, address: bytes, *, datagram: bool = False, known: bool = False
) -> tuple[str, int]:
    """Decide on an internet address that the broker has no part in; `datagram` is told of what is to be bound, `known`
    of what the record has already where it is allowed. The address as rules have it, and the port. Raises `OSError`.
    """
    family = family_of(address)
    if family not in INTERNET:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    if len(address) < _SIZES[family]:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    packed = address[4:8] if family == socket.AF_INET else address[8:24]
    port = int.from_bytes(address[2:4], "big")
    args = {
        "family": INTERNET[family], "address": socket.inet_ntop(family, packed), "port": port, "datagram": datagram,
    }  # fmt: skip
    pid = box.ids(call).process
    verdict = decider(op).decide(op, args, pid, box.desk)
    if verdict.denial is not None:
        if box.scribe.deny(pid, op, verdict.args, verdict.denial):
            raise refused()
    elif not known:
        box.scribe.observe(pid, op, verdict.args)
    box.scribe.flush()
    return verdict.args["address"], port


def reach(box: Box, call: Call, fd: int, op: str, address: bytes, kind: int) -> None:
    """Decide on whom a socket connects or sends to, and have one for datagrams hear it. Raises `OSError`."""
    peer = endpoint(box, call, op, address)
    if kind == socket.SOCK_DGRAM and not box.netns and peers_only.is_limited(fd):
        peers_only.admit(fd, *peer)


def _connect_out(box: Box, call: Call, fd: int, address: bytes, family: int, kind: int) -> None:
    from agentbox.guard.kernel import broker
    from agentbox.guard.kernel.outside import NO_ADDRESS

    pid = box.ids(call).process
    nonblocking = not os.get_blocking(fd)
    request = broker.Request(
        "net.connect", pid, address, kind=kind, family=family, nonblocking=nonblocking, template=fd
    )
    answer = box.broker.judge(request)
    if answer.denial is not None:
        # Once for an address: the C library connects datagram sockets only to sort addresses (RFC 6724).
        said = f"net.connect {kind} {answer.args['address']} {answer.args['port']}"
        deny = box.scribe.deny if kind == socket.SOCK_STREAM else _once(box, said)
        if deny(pid, "net.connect", dict(answer.args), answer.denial) and answer.action == broker.DENY:
            raise refused()
    if answer.action == broker.FAIL and answer.errno == errno.EALREADY and not nonblocking:
        own_call(box, call, fd, lambda: syscalls.connect(fd, NO_ADDRESS))  # which waits for it
        return
    if answer.action == broker.DONE:
        os.close(fd)
        box.listener.value(call, 0)
        return
    if answer.action == broker.FAIL:
        raise OSError(answer.errno, os.strerror(answer.errno))
    if answer.action == broker.CONTINUE:
        goes_on(box, pid, answer)
        own_call(box, call, fd, lambda: syscalls.connect(fd, address), waits=kind == socket.SOCK_STREAM)
        return
    if not box.scribe.consult(pid, "net.connect", answer.args):
        raise refused()
    _dial(box, call, pid, fd, answer)


def goes_on(box: Box, pid: int, answer: Any) -> None:
    """Record what stays inside the run, unless it is in the record by another name already (a denial, a look-up)."""
    if answer.args and answer.denial is None and not answer.stub:
        box.scribe.observe(pid, answer.request.op, dict(answer.args))
    box.scribe.flush()


def _once(box: Box, said: str) -> Callable[..., bool]:
    return lambda pid, op, args, denial: box.scribe.deny_once(pid, op, said, args, denial)


def _dial(box: Box, call: Call, pid: int, fd: int, answer: Any) -> None:
    """Make a connection outside. One that is still under way when a blocking asker waits no more is its own all the
    same, and it may wait for it by another connect(2), as it does without agentbox.
    """
    told = answer.denial is not None
    limit = send_timeout(fd)
    wait: Any = None

    def then(answer: Any) -> None:
        if wait is not None:
            box.waits.end(wait)
        _dialled(box, call, pid, fd, answer, told)

    def stop() -> None:
        number_of = errno.EINTR if limit and wait.number == RESTART else wait.number
        box.jobs.post(lambda _: dial.give_up(number_of), None)

    dial = box.broker.dial(answer, then)
    if not dial.is_over and not answer.request.nonblocking:
        wait = box.waits.add(call, pid, stop, limit)


def _dialled(box: Box, call: Call, pid: int, fd: int, answer: Any, told: bool) -> None:
    """A connection made outside is put over the asker's socket; `told`: it has its entry, of a denial let pass."""
    if answer.socket is not None or answer.errno not in _INTERRUPTED:  # before anything was tried
        tell_dialled(box, pid, answer, told)
    if answer.socket is not None:
        number_of = _replaced.put_over(box, call, fd, answer.socket.fileno())
        if number_of:
            answer.errno = number_of
        else:
            box.connected(answer)
        answer.socket.close()
    os.close(fd)
    if answer.errno:
        box.listener.fail(call, answer.errno)
    else:
        box.listener.value(call, 0)


def tell_dialled(box: Box, pid: int, answer: Any, told: bool) -> None:
    """Record what was tried outside, also when it failed, or that it was refused there after all."""
    if answer.denial is not None and answer.errno not in (0, errno.EINPROGRESS):
        box.scribe.deny(pid, answer.request.op, dict(answer.args), answer.denial)
    elif not told:
        box.scribe.observe(pid, answer.request.op, dict(answer.args))
    box.scribe.flush()


OF_HOST = "of a connection that was made outside"
"""What a socket of the host's network is called in the record."""


def is_of_host(box: Box, fd: int) -> bool:
    """Whether an internet socket is of the machine's network: put in place of a program's own, or any of a run that has
    no network namespace. Raises `OSError`.
    """
    family, _ = sort_of(fd, named=False)
    return family in INTERNET and (is_outside(box, fd) or box.broker is None)


def is_outside(box: Box, fd: int) -> bool:
    """Whether a socket is of another network namespace than the run's empty one; never without such a one."""
    box.network()
    return box.broker is not None and not box.broker.is_inside(fd)


CALLS: dict[str, Handler] = {"connect": _connect}
