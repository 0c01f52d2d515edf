"""This machine's servers by every spelling of an address, by proxies and by plain and encrypted HTTP: none is reached
that no rule names, and a rule for one address opens no other.
"""

import json
import shutil
import socket
import sys
import threading

import pytest
from test_confined import Box

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

SPELLINGS = (
    "127.0.0.1", "2130706433", "017700000001", "0x7f000001", "0177.0.0.1", "0x7f.1", "127.1", "0", "0.0.0.0",
    "127.0.0.2", "127.255.255.254", "::1", "::", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::127.0.0.1", "2002:7f00:1::", "2002:7f00:1::1", "fe80::1%lo", "::1%lo", "localhost",
    "localhost.", "LOCALHOST", "127.0.0.1.",
)  # fmt: skip
ALIKE = ("127.0.0.1", "2130706433", "017700000001", "0x7f000001", "0177.0.0.1", "0x7f.1", "127.1", "::ffff:127.0.0.1",
         "::ffff:7f00:1")  # fmt: skip
"""Those that are 127.0.0.1."""
CONNECTS = """
    import json, socket, sys
    port, told = int(sys.argv[1]), {}
    for place in sys.argv[2:]:
        try:
            with socket.create_connection((place, port), timeout=100) as one:
                told[place] = one.recv(20).decode()
        except (OSError, UnicodeError) as error:
            told[place] = ""
    print(json.dumps(told))
    """


class Server:
    """Answers `hello` on every address of this machine, and notes who came."""

    def __init__(self):
        self.socket = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port = self.socket.getsockname()[1]
        self.hits = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, peer = self.socket.accept()
            except OSError:
                return
            with connection:
                self.hits.append(peer)
                connection.sendall(b"hello")


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


@pytest.fixture
def server():
    made = Server()
    yield made
    made.socket.shutdown(socket.SHUT_RDWR)
    made.socket.close()


def connected(text):
    return {place for place, answer in json.loads(text).items() if answer == "hello"}


@pytest.mark.attempt("N1", "N5")
def test_no_spelling_of_an_address_is_a_way_to_this_machine(box, server):
    """Without a rule none; with one for 127.0.0.1 and the port, what is that address and no other."""
    argv = [*box.python(CONNECTS), str(server.port), *SPELLINGS]
    bare = connected(box.bare(*argv).stdout)
    assert len(bare) > 15 and set(ALIKE) <= bare and {"0", "127.0.0.2", "::1"} <= bare
    server.hits.clear()
    done = box.run("net: allowed.test\nread: ../program.py\n", *argv)
    assert connected(done.out) == set() and server.hits == [], done.err
    targets = {entry["target"] for entry in done.trace if entry["kind"] == "deny"}
    assert {f"127.0.0.1:{server.port}", f"127.0.0.2:{server.port}", f"[::1]:{server.port}"} <= targets
    done = box.run(f"net: 127.0.0.1:{server.port}\nread: ../program.py\n", *argv)
    reached = connected(done.out)
    assert set(ALIKE) <= reached and not reached & {"127.0.0.2", "127.255.255.254", "::1", "::"}, done.err


@pytest.mark.attempt("N10")
def test_the_port_of_a_rule_is_no_port_of_another_host(box, server):
    """The same port elsewhere, another port there: each is another address."""
    other = Server()
    try:
        argv = [*box.python(CONNECTS), str(server.port), "127.0.0.1", "127.0.0.2", "127.0.0.3", "::1"]
        rules = f"net: 127.0.0.2:{server.port}\nnet: [::1]:{other.port}\nread: ../program.py\n"
        assert len(connected(box.bare(*argv).stdout)) == 4
        assert connected(box.run(rules, *argv).out) == {"127.0.0.2"}
        argv[argv.index(str(server.port))] = str(other.port)
        assert len(connected(box.bare(*argv).stdout)) == 4
        assert connected(box.run(rules, *argv).out) == {"::1"}
    finally:
        other.socket.close()


@pytest.mark.attempt("N2")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_plain_and_encrypted_are_decided_alike(box, server, scheme):
    """By the address, before a byte is said: nobody is reached by either, and the denial is the same."""
    if not shutil.which("curl"):
        pytest.skip("curl: not installed")
    argv = ["curl", "-sS", "--max-time", "5", f"{scheme}://127.0.0.1:{server.port}/"]
    assert box.bare(*argv).returncode not in (0, 7) and server.hits  # no server of HTTP, but one was there
    server.hits.clear()
    done = box.run("net: allowed.test\n", *argv)
    assert done.status == 7 and server.hits == []
    assert ("net.connect", f"127.0.0.1:{server.port}") in done.denied()


@pytest.mark.attempt("N3")
def test_a_proxy_is_an_address_like_any(box, server):
    """Variables for one do not come in, and one that the agent sets leads to where no rule leads."""
    if not shutil.which("curl"):
        pytest.skip("curl: not installed")
    proxy = f"http://127.0.0.1:{server.port}"
    argv = ["bash", "-c", f'echo "[$http_proxy]"; http_proxy={proxy} curl -sS --max-time 5 http://allowed.test/']
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "http_proxy": proxy}
    assert box.bare(*argv, env=environ).stdout.startswith(f"[{proxy}]\n") and server.hits
    server.hits.clear()
    command = box.command("net: allowed.test\nexec: curl\n", argv)
    assert box.bare(*command, env=environ).stdout == "[]\n" and server.hits == []
