"""The DNS stub: what it answers, what it never passes on, and that no bytes upset it."""

from __future__ import annotations

import os
import resource
import select
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.waiting import PATIENCE

from agentbox.guard.kernel import dns, dnswire
from agentbox.guard.kernel.dns import DnsStub
from agentbox.guard.kernel.dnswire import Malformed
from agentbox.guard.kernel.synthetic import Synthetic
from agentbox.policy import parse

POLICY = "net: api.example.com:443\nnet: *.example.org\nnet: inner.example.net\n"
ADDRESSES = {
    "api.example.com": ("93.184.216.34",),
    "a.example.org": ("93.184.216.35", "2606:2800:220:1::1"),
    "inner.example.net": ("10.0.0.5",),
    "local.example.org": ("127.0.0.1",),
}


class Upstream:
    """A resolver that knows `ADDRESSES`, answers at once or when told, and remembers what it was asked."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.asked: list[str] = []
        self.waiting: list[Callable[[], None]] = []
        self._at_once = at_once

    def look_up(self, name: str, then: Callable[[Any], None]) -> None:
        self.asked.append(name)
        found: Any = ADDRESSES.get(name) or socket.gaierror(socket.EAI_NONAME, "unknown")
        if name.startswith("later."):
            found = socket.gaierror(socket.EAI_AGAIN, "try again")
        if self._at_once:
            then(found)
        else:
            self.waiting.append(lambda: then(found))


class Stub:
    """A stub with its upstream, and all that it told."""

    def __init__(self, upstream: Upstream | None = None, **options: Any) -> None:
        self.upstream = upstream or Upstream()
        self.told: list[tuple[str, bool, tuple[str, ...]]] = []
        self.synthetic = Synthetic()
        self.dns = DnsStub(
            self.synthetic,
            parse(options.pop("policy", POLICY), cwd="/"),
            self.upstream.look_up,
            lambda name, denial, addresses: self.told.append((name, denial is None, addresses)),
            **options,
        )

    def ask(self, name: str, kind: int = dnswire.A, **how: Any) -> tuple[int, list[bytes]]:
        """Response code and the data of each answer."""
        replies: list[bytes] = []
        self.dns.answer(query(name, kind, **how), replies.append)
        assert len(replies) == 1
        return read(replies[0])


def query(name: str, kind: int = dnswire.A, *, edns: bool = False, space: int = 1, ident: int = 7) -> bytes:
    data = struct.pack("!6H", ident, 0x0100, 1, 0, 0, int(edns))
    for label in name.split("."):
        if label:
            data += bytes((len(label),)) + label.encode()
    data += b"\0" + struct.pack("!2H", kind, space)
    return data + (b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0) if edns else b"")


def read(reply: bytes) -> tuple[int, list[bytes]]:
    _, flags, questions, answers, _, _ = struct.unpack("!6H", reply[:12])
    assert flags & 0x8000 and flags & 0x0080
    at = 12
    for _ in range(questions):
        while reply[at]:
            at += 1 + reply[at]
        at += 5
    found = []
    for _ in range(answers):
        assert reply[at : at + 2] == b"\xc0\x0c"
        (size,) = struct.unpack("!H", reply[at + 10 : at + 12])
        found.append(reply[at + 12 : at + 12 + size])
        at += 12 + size
    return flags & 15, found


def test_an_allowed_name_has_one_synthetic_address_for_the_whole_run() -> None:
    """In 198.18.0.0/15, whatever it led to; asked for again, and in other letters, it is the same."""
    stub = Stub()
    code, (address,) = stub.ask("api.example.com")
    assert code == 0 and socket.inet_ntoa(address) == "198.18.0.1"
    assert stub.ask("API.Example.COM") == (0, [address])
    assert stub.synthetic.name("198.18.0.1") == stub.synthetic.name("::ffff:198.18.0.1") == "api.example.com"
    assert stub.told == [("api.example.com", True, ("93.184.216.34",))]
    assert socket.inet_ntoa(stub.ask("a.example.org")[1][0]) == "198.18.0.2"


def test_another_name_is_denied_and_nobody_is_asked() -> None:
    """No such name; one denial for each; the resolver never hears of it."""
    stub = Stub()
    for name in ("evil.com", "api.example.com.evil.com", "example.com", "secret-data.evil.com", "evil.com"):
        assert stub.ask(name) == (dnswire.NO_SUCH_NAME, [])
        assert stub.ask(name, dnswire.AAAA) == (dnswire.NO_SUCH_NAME, [])
    assert stub.upstream.asked == []
    assert [name for name, allowed, _ in stub.told if not allowed] == [
        "evil.com",
        "api.example.com.evil.com",
        "example.com",
        "secret-data.evil.com",
    ]


@pytest.mark.parametrize(
    "label", [b"evil\0.api", b"a.b", b"\xff\xfe", b"api example", b"*", "ü".encode(), b"a\\b", b"\x1b[31m"]
)
def test_a_label_that_is_no_plain_name_is_denied_and_shown_escaped(label: bytes) -> None:
    """Bytes that could read as another name in C, in a terminal or in a rule never become one."""
    stub = Stub(policy="net: *\n")
    data = struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + bytes((len(label),)) + label + b"\7example\3org\0\0\1\0\1"
    replies: list[bytes] = []
    stub.dns.answer(data, replies.append)
    assert read(replies[0])[0] == dnswire.NO_SUCH_NAME
    assert stub.upstream.asked == []
    assert [allowed for _, allowed, _ in stub.told] == [False]
    assert stub.told[0][0].isprintable() and stub.told[0][0].isascii()


def test_other_kinds_of_an_allowed_name_are_there_and_empty() -> None:
    """AAAA, TXT, MX: the name exists and has nothing else, so programs go on to IPv4."""
    stub = Stub()
    for kind in (dnswire.AAAA, 16, 15, 65, 255):
        assert stub.ask("api.example.com", kind) == (0, [])


def test_an_allowed_name_that_does_not_exist_is_said_to() -> None:
    """The resolver's own answer: no such name, or try again."""
    stub = Stub()
    assert stub.ask("nowhere.example.org") == (dnswire.NO_SUCH_NAME, [])
    assert stub.ask("later.example.org") == (dnswire.SERVER_FAILURE, [])
    assert stub.told == [("nowhere.example.org", True, ())]


def test_a_name_that_leads_into_a_private_network_is_denied() -> None:
    """Rebinding: a rule for the name does not cover loopback or 10.0.0.0/8; a rule for the address does."""
    stub = Stub()
    assert stub.ask("inner.example.net") == (dnswire.NO_SUCH_NAME, [])
    assert stub.ask("local.example.org") == (dnswire.NO_SUCH_NAME, [])
    assert [allowed for _, allowed, _ in stub.told] == [False, False]
    ruled = Stub(policy=POLICY + "net: 10.0.0.5\n")
    assert ruled.ask("inner.example.net")[0] == 0


def test_localhost_is_answered_without_anybody() -> None:
    """RFC 6761."""
    stub = Stub()
    assert stub.ask("localhost") == (0, [b"\x7f\0\0\1"])
    assert stub.ask("x.localhost", dnswire.AAAA) == (0, [bytes(15) + b"\1"])
    assert stub.told == [] and stub.upstream.asked == []


def test_a_synthetic_address_leads_back_to_its_name() -> None:
    """Reverse queries are answered from the table alone."""
    stub = Stub()
    stub.ask("api.example.com")
    assert stub.ask("1.0.18.198.in-addr.arpa", dnswire.PTR) == (0, [b"\3api\7example\3com\0"])
    assert stub.ask("8.8.8.8.in-addr.arpa", dnswire.PTR) == (dnswire.NO_SUCH_NAME, [])
    assert stub.ask(".".join("0" * 32) + ".ip6.arpa", dnswire.PTR) == (dnswire.NO_SUCH_NAME, [])
    assert len(stub.told) == 1 and stub.upstream.asked == ["api.example.com"]


def test_the_c_librarys_search_domains_are_no_denials() -> None:
    """`api.example.com.corp.lan` is tried by the library, not by the agent; a name that is denied is told once."""
    stub = Stub(suffixes=("corp.lan",))
    assert stub.ask("api.example.com.corp.lan") == (dnswire.NO_SUCH_NAME, [])
    assert stub.told == []
    stub.ask("evil.com")
    stub.ask("evil.com.corp.lan")
    assert [name for name, _, _ in stub.told] == ["evil.com"]
    stub.ask("data.corp.lan")
    assert [name for name, _, _ in stub.told] == ["evil.com", "data.corp.lan"]


def test_what_is_only_observed_is_told_and_answered() -> None:
    """Mode observe denies nothing."""
    stub = Stub(observing=True)
    ADDRESSES["evil.com"] = ("93.184.216.99",)
    try:
        assert stub.ask("evil.com")[0] == 0
    finally:
        del ADDRESSES["evil.com"]
    assert stub.told[0][:2] == ("evil.com", False)


def test_an_allowed_name_of_this_machine_is_told_and_answered_while_observing() -> None:
    """Mode observe: where it leads is what would be denied."""
    ADDRESSES["api.example.com"], before = ("127.0.0.1",), ADDRESSES["api.example.com"]
    try:
        held, stub = Stub(), Stub(observing=True)
        assert held.ask("api.example.com")[0] != 0 and stub.ask("api.example.com")[0] == 0
    finally:
        ADDRESSES["api.example.com"] = before
    assert held.told[0][:2] == stub.told[0][:2] == ("api.example.com", False)


def test_the_reason_travels_to_those_who_can_read_it() -> None:
    """EDNS: an extended error (RFC 8914) names agentbox; without EDNS there is none."""
    stub = Stub()
    replies: list[bytes] = []
    stub.dns.answer(query("evil.com", edns=True), replies.append)
    stub.dns.answer(query("evil.com"), replies.append)
    assert b"agentbox: no net rule names this host" in replies[0]
    assert struct.pack("!H", dnswire.PROHIBITED) in replies[0]
    assert b"agentbox" not in replies[1]


def test_too_many_waiting_queries_are_put_off() -> None:
    """A flood of allowed names fills neither memory nor the resolver's threads."""
    upstream = Upstream(at_once=False)
    stub = Stub(upstream)
    replies: list[bytes] = []
    for number in range(dns.MOST_WAITING + 5):
        stub.dns.answer(query(f"n{number}.example.org"), replies.append)
    assert [read(reply)[0] for reply in replies] == [dnswire.SERVER_FAILURE] * 5
    for answer in upstream.waiting:
        answer()
    assert len(replies) == dns.MOST_WAITING + 5


def test_a_full_table_gives_no_address_twice() -> None:
    """131070 names have one; the next has none."""
    table = Synthetic()
    given_out = {table.address(f"n{number}") for number in range((1 << 17) - 2)}
    assert len(given_out) == (1 << 17) - 2
    assert table.address("one-more") == "" and table.address("n0") == "198.18.0.1"
    assert table.name("198.18.0.0") == table.name("198.19.255.255") == table.name("10.0.0.1") == ""


@given(st.binary(max_size=600))
def test_no_bytes_upset_the_parser(data: bytes) -> None:
    """Anything is either a question or malformed, and what is sent back is a whole DNS header."""
    try:
        question = dnswire.parse(data)
    except Malformed as fault:
        assert fault.reply == b"" or (len(fault.reply) == 12 and fault.reply[:2] == data[:2])
        return
    assert question.shown.isprintable()
    assert len(dnswire.reply(question, dnswire.NO_SUCH_NAME, why="x" * 500)) <= dnswire.SMALLEST_EDNS


HEADERS = st.builds(
    lambda ident, flags, counts: struct.pack("!6H", ident, flags, *counts),
    st.integers(0, 65535),
    st.sampled_from([0x0000, 0x0100, 0x0110, 0x0120, 0x2800, 0x8180]),
    st.tuples(*(st.integers(0, 2) for _ in range(4))),
)
LABELS = st.lists(st.binary(min_size=1, max_size=63), max_size=6)


@given(HEADERS, LABELS, st.binary(max_size=40), st.integers(0, 200))
def test_nothing_that_looks_like_a_query_upsets_the_stub(
    head: bytes, labels: list[bytes], tail: bytes, cut: int
) -> None:
    """Whole, cut and padded messages: at most one reply each, and only plain names reach the resolver."""
    stub = Stub(policy="net: *\n")
    body = b"".join(bytes((len(label),)) + label for label in labels) + b"\0\0\1\0\1" + tail
    replies: list[bytes] = []
    stub.dns.answer((head + body)[: len(head + body) - cut if cut < 40 else None], replies.append)
    assert len(replies) <= 1
    for name in stub.upstream.asked:
        assert name and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.")


class Turns:
    """The loop, as far as a stub needs one."""

    def __init__(self) -> None:
        self.calls: dict[int, Callable[[], None]] = {}

    def turn(self) -> None:
        poll = select.poll()
        for descriptor in self.calls:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(PATIENCE * 1000):
            if descriptor in self.calls:
                self.calls[descriptor]()


def served(stub: Stub) -> tuple[Turns, tuple[str, int], tuple[str, int]]:
    turns = Turns()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    streams = socket.create_server(("127.0.0.1", 0))
    for one in (datagrams, streams):
        one.setblocking(False)
    places = datagrams.getsockname(), streams.getsockname()
    stub.dns.attach([datagrams, streams], turns.calls.__setitem__, turns.calls.__delitem__)
    return turns, *places


def test_datagrams_are_answered_over_real_sockets() -> None:
    """One query, one reply, to where it came from."""
    stub = Stub()
    turns, place, _ = served(stub)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(100)
        client.sendto(b"\xff" * 5, place)
        client.sendto(query("api.example.com"), place)
        turns.turn()
        assert read(client.recv(600)) == (0, [socket.inet_aton("198.18.0.1")])
    stub.dns.close()
    assert turns.calls == {}


def test_streams_carry_several_queries_in_any_pieces() -> None:
    """Two messages, cut in the middle of a length; an impossible length ends the connection."""
    stub = Stub()
    turns, _, place = served(stub)
    message = b"".join(len(one).to_bytes(2, "big") + one for one in (query("api.example.com"), query("evil.com")))
    with socket.create_connection(place) as client:
        client.settimeout(100)
        turns.turn()
        for piece in (message[:1], message[1:40], message[40:]):
            client.sendall(piece)
            turns.turn()
        data = client.recv(1000)
        first = int.from_bytes(data[:2], "big")
        assert read(data[2 : 2 + first])[0] == 0
        assert read(data[4 + first :])[0] == dnswire.NO_SUCH_NAME
        client.sendall(b"\xff\xff")
        turns.turn()
        assert client.recv(10) == b""
    stub.dns.close()


def test_connections_are_few_and_the_oldest_goes_first() -> None:
    """A hoard of idle connections does not use up the supervisor's descriptors."""
    stub = Stub()
    turns, _, place = served(stub)
    clients = []
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(dns.MOST_STREAMS + 10):
        clients.append(socket.create_connection(place))
        turns.turn()
    assert len(os.listdir("/proc/self/fd")) - before == dns.MOST_STREAMS * 2 + 10
    assert clients[0].recv(1) == b""
    for client in clients:
        client.close()
    stub.dns.close()


def test_a_stream_for_which_there_is_no_descriptor_is_ended() -> None:
    """It would be told of again and again, and nobody would ever take it."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    calls: dict[int, Callable[[], None]] = {}
    stub = Stub()
    with socket.create_server(("127.0.0.1", 0)) as server:
        stub.dns.attach([server], calls.__setitem__, calls.pop)
        with socket.create_connection(server.getsockname()) as asker:
            asker.settimeout(100)
            lowest = os.dup(server.fileno())
            os.close(lowest)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
            try:
                calls[server.fileno()]()
                assert asker.recv(1) == b""
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        stub.dns.close()
