"""`--observe` under the default layers: everything passes, and what the policy would deny is recorded."""

import http.server
import json
import shutil
import subprocess
import sys
import threading

import pytest
from kit.waiting import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
NATIVE = """
import socket
one = socket.create_connection(("127.0.0.1", PORT))
one.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
data = b""
while got := one.recv(4096): data += got
print(data.decode().rpartition("\\n")[2])
"""
GUARDED = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:PORT/").read().decode())
"""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"served")

    def log_message(self, *args):
        pass


@pytest.fixture
def port():
    """The port of a real server on this machine's loopback."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class Seen:
    def __init__(self, folder, done):
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.trace = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]

    def denials(self, target):
        return [entry for entry in self.trace if entry["kind"] == "deny" and entry["target"] == target]


@pytest.fixture
def run(tmp_path):
    (tmp_path / "ws").mkdir()
    (tmp_path / "agentbox.policy").write_text("read: .\nexec: sh, exec: cat\n")

    def run(*argv, options=("--observe",)):
        line = [sys.executable, "-m", "agentbox.cli", "run", "-p", "../agentbox.policy", "-t", "../trace.jsonl"]
        done = subprocess.run(
            [*line, *options, "--", *argv], cwd=tmp_path / "ws", capture_output=True, text=True, timeout=PATIENCE
        )
        return Seen(tmp_path, done)

    return run


def programs(port):
    yield [sys.executable, "-c", GUARDED.replace("PORT", str(port))]
    yield [sys.executable, "-I", "-S", "-c", NATIVE.replace("PORT", str(port))]
    if curl := shutil.which("curl"):
        yield [curl, "-sS", f"http://127.0.0.1:{port}/"]
        yield [curl, "-sS", f"http://localhost:{port}/"]


def test_connections_to_this_machine_pass_and_are_recorded(run, port):
    """From a guarded interpreter and from programs without a guard; the same is refused without `--observe`."""
    target = f"127.0.0.1:{port}"
    for argv in programs(port):
        seen = run(*argv)
        assert (seen.status, seen.out.strip()) == (0, "served"), seen.err
        assert seen.denials(target) and all(one["enforced"] is False for one in seen.denials(target))
        assert f"would deny net {target}" in seen.err and f"to allow it: net: {target}" in seen.err
        held = run(*argv, options=())
        assert "served" not in held.out and held.denials(target)[0]["enforced"] is True


def test_datagrams_to_this_machine_pass(run):
    """Sent with an address, and on a connected socket."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(100)
        place = server.getsockname()
        code = f"import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.sendto(b'one', {place})\n"
        code += f"t = socket.socket(type=socket.SOCK_DGRAM); t.connect({place}); t.send(b'two')"
        seen = run(sys.executable, "-I", "-S", "-c", code)
        assert seen.status == 0, seen.err
        assert {server.recv(16), server.recv(16)} == {b"one", b"two"}
        assert not any(one["enforced"] for one in seen.denials(f"127.0.0.1:{place[1]}"))


def test_a_closed_port_is_told_as_one_and_denied_once(run):
    """A connection that fails is no second denial."""
    import socket

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        code = (
            f"import socket\ntry: socket.create_connection(('127.0.0.1', {port}))\nexcept OSError as e: print(e.errno)"
        )
        seen = run(sys.executable, "-I", "-S", "-c", code)
    assert seen.out == "111\n" and len(seen.denials(f"127.0.0.1:{port}")) == 1


def test_what_a_guard_has_told_is_told_once_for_each_time(run, tmp_path):
    """The kernel's notice of the same act makes no second denial, and the next time is another one."""
    (tmp_path / "secret").write_text("the secret\n")
    path = f"{tmp_path}/secret"
    for times in (1, 2):
        seen = run(sys.executable, "-c", f"for _ in range({times}): print(open({path!r}).read(), end='')")
        assert seen.out == "the secret\n" * times and len(seen.denials(path)) == times


def test_files_outside_of_the_policy_pass(run, tmp_path):
    """Read, made and written."""
    (tmp_path / "secret").write_text("the secret\n")
    seen = run("sh", "-c", f"cat {tmp_path}/secret; echo hi > {tmp_path}/made")
    assert seen.out == "the secret\n" and (tmp_path / "made").read_text() == "hi\n"
    (read,), (write,) = seen.denials(f"{tmp_path}/secret"), seen.denials(f"{tmp_path}/made")
    assert not read["enforced"] and not write["enforced"] and read["fix"] == f"read: {tmp_path}/secret"


def test_it_says_first_that_nothing_is_enforced(run):
    """The first line, and a header that names no layer as enforcing but for the environment, which is built before."""
    seen = run("sh", "-c", "true")
    assert seen.err.startswith("agentbox: OBSERVE MODE: nothing is enforced")
    header = seen.trace[0]["args"]
    assert header["mode"] == "observe" and "landlock" not in header["layers"]
    assert {kind for kind, parts in header["enforced_by"].items() if parts} == {"env"}
