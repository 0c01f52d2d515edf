"""The connect broker, with real sockets: what goes on inside, what is made outside, what is refused."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confined_child import in_child
from hypothesis import given
from hypothesis import strategies as st
from kit.waiting import PATIENCE

from agentbox.guard.jobs import Jobs
from agentbox.guard.kernel import broker as brokers
from agentbox.guard.kernel import netns
from agentbox.guard.kernel.broker import CONTINUE, DENY, DIAL, FAIL, Answer, Broker, Request
from agentbox.guard.kernel.insiders import Insiders, open_diag, sorted_out
from agentbox.guard.kernel.outside import endpoint, namespace_cookie
from agentbox.guard.kernel.synthetic import Synthetic
from agentbox.guard.kernel.traffic import Traffic
from agentbox.guard.names import Names
from agentbox.policy import Policy, parse

needs_namespaces = pytest.mark.skipif(bool(netns.NETNS.probe()), reason=f"netns: {netns.NETNS.probe()}")
RESOLVER = "10.255.255.53"


class KnownNames(Names):
    """Names with a fixed resolver."""

    __slots__ = ("known",)

    def __init__(self, policy: Policy, known: dict[str, tuple[str, ...]]) -> None:
        super().__init__(policy)
        self.known = known

    def look_up(self, host: str) -> tuple[str, ...]:
        if host not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return self._pins.setdefault(host, self.known[host])


class FakeDesk:
    """As much of a desk as the broker looks at."""

    def __init__(self, policy: Policy, known: dict[str, tuple[str, ...]]) -> None:
        self.policy = policy
        self.names = KnownNames(policy, known)


class Side:
    """A broker for a policy; `template` is a socket that counts as inside (or not)."""

    def __init__(
        self,
        policy: str,
        known: dict[str, tuple[str, ...]] | None = None,
        inside: int | None = None,
        insiders: Insiders | None = None,
    ) -> None:
        with socket.socket() as here:
            own = namespace_cookie(here.fileno())
        self.jobs = Jobs()
        self.synthetic = Synthetic()
        desk: Any = FakeDesk(parse(policy, cwd="/"), known or {})
        self.broker = Broker(
            desk,
            self.synthetic,
            self.jobs,
            inside=own if inside is None else inside,
            served=(RESOLVER,),
            insiders=insiders,
        )

    def judge(self, host: str, port: int, **how: Any) -> Answer:
        return self.broker.judge(request(host, port, **how))

    def dial(self, answer: Answer) -> Answer:
        done: list[Answer] = []
        self.broker.dial(answer, done.append)
        poll = select.poll()
        poll.register(self.broker.fileno(), select.POLLIN)
        poll.register(self.jobs.wake, select.POLLIN)
        while not done:
            assert poll.poll(PATIENCE * 1000), "nothing came of it"
            self.jobs.collect()
            self.broker.ready()
        return done[0]

    def close(self) -> None:
        self.broker.close()
        self.jobs.close()


def sockaddr(host: str, port: int) -> bytes:
    if ":" in host:
        return (
            struct.pack("=H", socket.AF_INET6)
            + struct.pack("!HI", port, 0)
            + socket.inet_pton(socket.AF_INET6, host)
            + bytes(4)
        )
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host) + bytes(8)


def request(host: str, port: int, **how: Any) -> Request:
    settings: dict[str, Any] = {
        "kind": socket.SOCK_STREAM,
        "family": socket.AF_INET6 if ":" in host else socket.AF_INET,
        "nonblocking": False,
        "template": -1,
        **how,
    }
    op, pid = settings.pop("op", "net.connect"), settings.pop("pid", os.getpid())
    return Request(op, pid, sockaddr(host, port), **settings)


@contextmanager
def side(policy: str, known: dict[str, tuple[str, ...]] | None = None, **how: Any) -> Iterator[Side]:
    made = Side(policy, known, **how)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def echo_server(host: str = "127.0.0.1") -> Iterator[int]:
    """The port of a server that says what it hears."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:

        def serve() -> None:
            while True:
                try:
                    one, _ = server.accept()
                except OSError:
                    return
                with one:
                    while data := one.recv(65536):
                        one.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def says(answer: Answer) -> bytes:
    """What the server behind a dialled connection answers; closes it."""
    assert answer.errno == 0 and answer.socket is not None
    with socket.socket(fileno=answer.socket.detach()) as connection:
        connection.settimeout(100)
        connection.sendall(b"hello")
        return connection.recv(10)


def test_what_no_rule_names_is_denied() -> None:
    """A literal address needs a rule of its own; one for another port or a name does not cover it."""
    with side("net: 93.184.216.34:443\nnet: example.com\n") as one:
        assert one.judge("93.184.216.34", 443).action == DIAL
        for host, port in (
            ("93.184.216.34", 80),
            ("93.184.216.35", 443),
            ("169.254.169.254", 80),
            ("::ffff:8.8.8.8", 53),
        ):
            answer = one.judge(host, port)
            assert answer.action == DENY and answer.denial is not None
            assert answer.denial.key == "net" and "no net rule" in answer.denial.reason + "no net rule"


def test_a_synthetic_address_is_decided_by_its_name_and_port() -> None:
    """The name behind it is what is recorded and compared."""
    with side("net: api.example.com:443\n") as one:
        address = one.synthetic.address("api.example.com")
        allowed, refused = one.judge(address, 443), one.judge(address, 80)
        mapped = one.judge("::ffff:" + address, 443)
        assert (allowed.action, allowed.args["host"]) == (DIAL, "api.example.com")
        assert (mapped.action, mapped.args["host"]) == (DIAL, "api.example.com")
        assert (refused.action, refused.args["host"], refused.args["port"]) == (DENY, "api.example.com", 80)
        assert one.judge("198.18.77.7", 443).action == DENY


def test_a_name_that_leads_astray_is_denied_when_it_is_dialled() -> None:
    """Rebinding to loopback, link-local and private addresses; a rule that names the address opens it."""
    for address in ("127.0.0.1", "169.254.169.254", "10.1.2.3", "::1"):
        with side("net: rebound.example.com\n", {"rebound.example.com": (address,)}) as one:
            answer = one.dial(one.judge(one.synthetic.address("rebound.example.com"), 80))
            assert answer.action == DENY and answer.socket is None and answer.errno == errno.EACCES
            assert answer.denial is not None and address in answer.denial.reason
    with (
        echo_server() as port,
        side(f"net: x.example.com\nnet: 127.0.0.1:{port}\n", {"x.example.com": ("127.0.0.1",)}) as one,
    ):
        answer = one.dial(one.judge(one.synthetic.address("x.example.com"), port))
        assert answer.args == {"host": "x.example.com", "address": "127.0.0.1", "port": port}
        assert says(answer) == b"hello"


@pytest.mark.parametrize("nonblocking", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_host_server_is_reached_by_rule(host: str, nonblocking: bool) -> None:
    """The socket comes back in the asker's mode: connected, or on its way."""
    with echo_server(host) as port, side(f"net: [{host}]:{port}\n" if ":" in host else f"net: {host}:{port}\n") as one:
        answer = one.dial(one.judge(host, port, nonblocking=nonblocking))
        assert answer.socket is not None
        assert (answer.socket.gettimeout() == 0) is nonblocking
        if answer.errno == errno.EINPROGRESS:
            poll = select.poll()
            poll.register(answer.socket.fileno(), select.POLLOUT)
            assert poll.poll(PATIENCE * 1000)
            answer.errno = answer.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        assert says(answer) == b"hello"


@pytest.mark.parametrize("nonblocking", [False, True])
def test_the_next_address_is_tried_when_one_refuses(nonblocking: bool) -> None:
    """A name with a dead address first still connects, also for programs that do not wait."""
    with echo_server() as port:
        known = {"two.example.com": ("127.9.9.9", "127.0.0.1")}
        rules = f"net: two.example.com\nnet: 127.0.0.1:{port}\nnet: 127.9.9.9:{port}\n"
        with side(rules, known) as one:
            answer = one.dial(one.judge(one.synthetic.address("two.example.com"), port, nonblocking=nonblocking))
            assert answer.args["address"] == "127.0.0.1"
            assert says(answer) == b"hello"


def test_the_errno_of_the_real_connection_comes_back() -> None:
    """Refused is refused; a name without an address is unreachable; no descriptor stays open."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with side(f"net: 127.0.0.1:{port}\nnet: nowhere.example.com\n") as one:
        before = len(os.listdir("/proc/self/fd"))
        answer = one.dial(one.judge("127.0.0.1", port))
        assert (answer.errno, answer.socket) == (errno.ECONNREFUSED, None)
        answer = one.dial(one.judge(one.synthetic.address("nowhere.example.com"), 80))
        assert (answer.errno, answer.socket) == (errno.EHOSTUNREACH, None)
        assert len(os.listdir("/proc/self/fd")) == before


def test_options_that_the_asker_has_set_are_kept() -> None:
    """Keep-alive, no delay and buffer sizes are set before a connection is made, by curl and others."""
    with echo_server() as port, side(f"net: 127.0.0.1:{port}\n") as one, socket.socket() as asker:
        asker.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        asker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asker.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77)
        asker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50000)
        asker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("=qq", 3, 0))
        answer = one.dial(one.judge("127.0.0.1", port, template=asker.fileno()))
        assert answer.socket is not None
        made = answer.socket
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 77
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 100000
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16) == struct.pack("=qq", 3, 0)
        made.close()


@pytest.mark.parametrize(
    ("bound", "reached", "missed"),
    [
        ("127.0.0.1", ["127.0.0.1", "0.0.0.0"], ["127.0.0.2", "::1"]),
        ("0.0.0.0", ["127.0.0.1", "127.0.0.2"], ["::1"]),
        ("::1", ["::1"], ["127.0.0.1", "::2"]),
        ("::", ["::1", "127.0.0.1"], []),
    ],
)
def test_who_listens_inside_is_asked_of_the_kernel(bound: str, reached: list[str], missed: list[str]) -> None:
    """For TCP and UDP, IPv4 and IPv6, bound to one address or to all; a closed socket listens no more."""
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    diag = socket.socket(fileno=open_diag().detach())
    dns, insiders = sorted_out([diag])
    assert dns == [] and insiders is not None
    with socket.socket(family) as stream, socket.socket(family, socket.SOCK_DGRAM) as datagram:
        for one in (stream, datagram):
            one.bind((bound, 0))
        port, other = stream.getsockname()[1], datagram.getsockname()[1]
        assert not insiders.listens(reached[0], port)
        stream.listen()
        for address in reached:
            assert insiders.listens(address, port) and insiders.listens(address, other, datagram=True)
        for address in missed:
            assert not insiders.listens(address, port)
    assert not insiders.listens(reached[0], port)
    diag.close()


def test_the_runs_own_servers_are_left_to_the_kernel() -> None:
    """A server inside comes before one of the host at the same port, also where a rule names that."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(fileno=open_diag().detach()) as diag:
        port = server.getsockname()[1]
        with side("net: 127.0.0.1\n", insiders=Insiders(diag)) as broker:
            assert broker.judge("127.0.0.1", port).action == CONTINUE
        with side("net: 127.0.0.1\n") as broker:
            assert broker.judge("127.0.0.1", port).action == DIAL


def test_a_port_of_this_machine_that_nobody_opened_is_refused_and_noted() -> None:
    """Inside it fails as a closed port does, which programs expect; datagrams, which would seem sent, are refused."""
    with side("net: example.com\n") as one:
        answer = one.judge("127.0.0.1", 9)
        assert answer.action == CONTINUE and answer.denial is not None
        for op in ("net.connect", "net.send"):
            datagram = one.judge("127.0.0.1", 9, kind=socket.SOCK_DGRAM, op=op)
            assert datagram.action == DENY and datagram.denial is not None
        assert one.judge(RESOLVER, 53).action == CONTINUE and one.judge(RESOLVER, 53).denial is None


def test_a_socket_that_has_left_is_never_let_go_on() -> None:
    """Outside, "this machine" is the host: what would be harmless inside is denied there."""
    with side("net: example.com\n", inside=1) as one, socket.socket() as gone:
        for host, port in (("127.0.0.1", 9), ("0.0.0.0", 9), (RESOLVER, 53)):
            assert one.judge(host, port, template=gone.fileno()).action == DENY
        dissolving = request("127.0.0.1", 9, template=gone.fileno())
        dissolving.address = bytes(16)
        answer = one.broker.judge(dissolving)
        assert (answer.action, answer.errno) == (FAIL, errno.EOPNOTSUPP)
        dissolving.template = -1
        assert one.broker.judge(dissolving).action == CONTINUE


def test_a_socket_that_has_left_and_is_connected_says_so() -> None:
    """A second connect(2) is answered as the kernel would."""
    with echo_server() as port, side(f"net: 127.0.0.1:{port}\n", inside=1) as one:
        with socket.create_connection(("127.0.0.1", port)) as gone:
            answer = one.judge("127.0.0.1", port, template=gone.fileno())
        assert (answer.action, answer.errno) == (FAIL, errno.EISCONN)


def datagram_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def test_a_datagram_goes_out_by_rule_and_the_answer_comes_back() -> None:
    """The first one brings a socket to put in place of the asker's; a second one uses that."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker,
    ):
        server.bind(("127.0.0.1", 0))
        server.settimeout(100)
        port = server.getsockname()[1]
        how = {"op": "net.send", "kind": socket.SOCK_DGRAM, "payload": b"ping"}
        with side(f"net: u.example.com\nnet: 127.0.0.1:{port}\n", {"u.example.com": ("127.0.0.1",)}) as one:
            first = one.judge(one.synthetic.address("u.example.com"), port, template=asker.fileno(), **how)
            answer = one.dial(first)
            assert (answer.errno, answer.sent) == (0, 4) and answer.socket is not None
            data, peer = server.recvfrom(10)
            server.sendto(b"pong", peer)
            with socket.socket(fileno=answer.socket.detach()) as put:
                put.settimeout(100)
                assert (data, put.recv(10)) == (b"ping", b"pong")
            assert one.judge("127.0.0.1", port + 1 if port < 65535 else 1, **how).denial is not None
        with side(f"net: 127.0.0.1:{port}\n", inside=1) as one:
            again = one.dial(one.judge("127.0.0.1", port, template=asker.fileno(), **how))
            assert (again.errno, again.socket, again.sent) == (0, None, 4)
            assert server.recvfrom(10)[1][1] == asker.getsockname()[1]


@given(st.binary(max_size=40), st.sampled_from([socket.AF_INET, socket.AF_INET6]), st.sampled_from([1, 2]))
def test_no_address_bytes_upset_the_broker(data: bytes, family: int, kind: int) -> None:
    """A family, an address and a port come out, or what connect(2) says."""
    try:
        given_family, address, port = endpoint(data, family, kind)
    except OSError as error:
        assert error.errno in (errno.EINVAL, errno.EAFNOSUPPORT)
        return
    assert 0 <= port < 65536
    assert given_family == socket.AF_UNSPEC or address


def test_names_of_the_hosts_file_count_as_names(tmp_path: Path) -> None:
    """Programs read hosts(5) for themselves and connect to the literal address."""
    hosts = tmp_path / "hosts"
    hosts.write_text("# c\n127.0.0.1 localhost\n93.184.216.34\tweb.example.com web # x\n::1 ip6-localhost\n")
    assert brokers.hosts_names("93.184.216.34", str(hosts)) == ["web.example.com", "web"]
    assert brokers.hosts_names("10.0.0.1", str(hosts)) == []
    assert brokers.hosts_names("10.0.0.1", str(tmp_path / "none")) == []


@needs_namespaces
def test_a_socket_in_a_namespace_is_told_from_one_outside() -> None:
    """By the kernel's cookie of the namespace, not by anything that the asker says."""

    def work() -> tuple[bool, bool]:
        with socket.socket() as before:
            own = namespace_cookie(before.fileno())
            netns.enter(netns.plan_for(os.geteuid(), os.getegid(), ()))
            with socket.socket() as after:
                return namespace_cookie(before.fileno()) == own, namespace_cookie(after.fileno()) == own

    assert in_child(work) == (True, False)


def test_bytes_are_counted_when_a_connection_ends() -> None:
    """What the application sent and received, without a descriptor being held."""
    traffic = Traffic()
    if not traffic.is_live:
        pytest.skip("sock_diag: not to be had here")
    with echo_server() as port:
        connection = socket.create_connection(("127.0.0.1", port))
        traffic.watch(connection, "key")  # type: ignore[arg-type]
        connection.sendall(b"x" * 5000)
        got = 0
        while got < 5000:
            got += len(connection.recv(65536))
        assert traffic.read() == []
        connection.close()
        poll = select.poll()
        poll.register(traffic.fileno(), select.POLLIN)
        ended: list[Any] = []
        while not ended:
            assert poll.poll(PATIENCE * 1000)
            ended = traffic.read()
    assert ended == [("key", 5000, 5000)]
    with echo_server() as port, socket.create_connection(("127.0.0.1", port)) as connection:
        traffic.watch(connection, "open")  # type: ignore[arg-type]
        assert traffic.finish() == [("open", None, None)]
