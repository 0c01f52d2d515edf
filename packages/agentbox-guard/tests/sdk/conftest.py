"""What the tests of effects and SDK share: a run's services over plain lists, and real loopback servers."""

from __future__ import annotations

import base64
import errno
import json
import os
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import agentbox.client as box
from agentbox.guard.context import EffectContext, EffectDenied, EffectUsage
from agentbox.guard.effects import EFFECTS
from agentbox.guard.session import Denial


class PlainServices:
    """Services over lists: `read` and `write` roots, `hosts` as (name, port), `names` to addresses, `programs`."""

    def __init__(self):
        self.read, self.write = [], []
        self.hosts, self.names = set(), {}
        self.programs = set()
        self.decided = []
        self.on_resolve = lambda path: None
        self.changing = lambda descriptor: None

    def resolve_path(self, path, cwd):
        resolved = os.path.realpath(os.path.join(cwd, path))
        self.on_resolve(resolved)
        return resolved

    def check_path(self, key, path):
        self.decided.append((key, path))
        roots = self.write if key == "write" else self.read + self.write
        inside = any(path == root or path.startswith(f"{root}/") for root in map(str, roots))
        return None if inside else Denial(key, path, "no rule allows it", fix=f"{key}: {path}")

    def check_host(self, host, port):
        self.decided.append(("net", f"{host}:{port}"))
        target = f"{host}:{port}"
        return None if (host, port) in self.hosts else Denial("net", target, "no rule allows it", fix=f"net: {target}")

    def addresses(self, host, port):
        found = self.names.get(host, host)
        if isinstance(found, OSError):
            raise found
        return ([found] if isinstance(found, str) else found), None

    def check_exec(self, argv, cwd, environ):
        facts = {"file": argv[0], "argv": argv, "cwd": cwd, "sha256": "0" * 64}
        return facts, None if argv[0] in self.programs else Denial("exec", argv[0], "no rule allows it")

    def spawn(self, argv, *, file, cwd, stdin, timeout, limit):
        if not os.path.isdir(cwd):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), cwd)
        try:
            done = subprocess.run(argv, executable=file, cwd=cwd, input=stdin, timeout=timeout, capture_output=True)
        except subprocess.TimeoutExpired:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def services():
    """Services that allow nothing until the test says so."""
    return PlainServices()


@pytest.fixture
def context(services, tmp_path):
    """A context of a run in `tmp_path`."""
    private = {"TMPDIR": str(tmp_path / "private")}
    return EffectContext(None, services, cwd=str(tmp_path), environ={}, writable=private)


class Server:
    """A loopback HTTP server; `routes` maps a path to a function that gets the handler, `seen` lists what was asked."""

    def __init__(self):
        self.routes, self.seen = {}, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length and self.path != "/hangup" else b""
                outer.seen.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                outer.routes[self.path.partition("?")[0]](self)

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = handle_one

            def log_message(self, *_):
                pass

            def answer(self, status, body=b"", **headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads = True
        self.port = self.httpd.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self):
        self.httpd.shutdown()
        self.httpd.server_close()


@pytest.fixture
def make_server():
    """A maker of servers, closed after the test."""
    made = []

    def make():
        made.append(Server())
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def server(make_server, services):
    """One server, allowed by policy."""
    server = make_server()
    services.hosts.add(("127.0.0.1", server.port))
    return server


class ChannelServer:
    """The supervisor's end of the channel for role `sdk`, over the real effects; `calls` holds every line that came.

    `answers` maps an operation to a function from the call line to an answer line, for what only a broken or a
    replaying supervisor would say.
    """

    def __init__(self, path, context):
        self.path, self.context = str(path), context
        self.calls, self.hellos, self.answers = [], [], {}
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        try:
            with sock, sock.makefile("rb") as stream:
                for line in stream:
                    sock.sendall(self.answer(json.loads(line)))
        except OSError:
            pass

    def answer(self, line):
        if line["t"] == "hello":
            self.hellos.append(line)
            answer = {"t": "welcome", "v": 1}
        else:
            self.calls.append(line)
            answer = self.answers.get(line["op"], self.perform)(line)
        return answer if type(answer) is bytes else json.dumps(answer).encode() + b"\n"

    def perform(self, line):
        effect = EFFECTS[line["op"]]
        try:
            result = effect.perform(effect.normalise(line["args"], self.context), self.context)
        except EffectUsage as error:
            result = {"error": {"type": "usage", "text": str(error)}}
        except EffectDenied as error:
            denial = error.denial
            text = f"{line['op']} {denial.target}: {denial.reason}"
            facts = {"target": denial.target, "rule": denial.rule, "fix": denial.fix}
            result = {"error": {"type": "denied", "text": text, "errno": 13, **facts}}
        answer = {"t": "result", "id": line["id"], "ok": "error" not in result}
        return {**answer, **(result if "error" in result else {"value": carried(result)})}


def carried(value):
    """A result as the channel carries it: bodies as text or base64."""
    if isinstance(value, bytes):
        try:
            return {"text": value.decode()}
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return {name: carried(member) for name, member in value.items()} if isinstance(value, dict) else value


@pytest.fixture
def channel(tmp_path, context, monkeypatch):
    """A channel that this process is told of; the SDK in this process uses it."""
    path = tmp_path / "channel"
    server = ChannelServer(path, context)
    monkeypatch.setenv("AGENTBOX_CHANNEL", str(path))
    box._local.__dict__.clear()
    yield server
    box._local.__dict__.clear()
    server.listener.shutdown(socket.SHUT_RDWR)
    server.listener.close()
