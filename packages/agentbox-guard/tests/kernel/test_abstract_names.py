"""Abstract socket names: the run's own are free, one of the machine is reached by the rule that names it."""

import os
import socket
import subprocess
import sys
import threading

import pytest
from kit.waiting import joined

from agentbox.guard.kernel import LAYERS, choose

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's (unix(7))")

OWN = r"""
import socket
server = socket.socket(socket.AF_UNIX)
server.bind("\0own-name")
server.listen()
client = socket.socket(socket.AF_UNIX)
client.connect(b"\0own-name")
accepted, _ = server.accept()
accepted.sendall(b"served")
print(client.recv(9).decode())
"""
OTHERS = r"""
import socket, sys
client = socket.socket(socket.AF_UNIX)
try:
    client.connect("\0" + sys.argv[1])
    print(client.recv(9).decode())
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def machine():
    """An abstract name of the machine where somebody answers."""
    name = f"agentbox-test-{os.getpid()}"
    server = socket.socket(socket.AF_UNIX)
    server.bind("\0" + name)
    server.listen()

    def serve():
        while True:
            try:
                peer = server.accept()[0]
            except OSError:
                return
            peer.sendall(b"outside")
            peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield name
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    assert joined(thread)


WISHES = ["guard", *(["auto"] if choose("auto", [*LAYERS]) == tuple(LAYERS) else [])]
"""`--layers` wishes that can be had here."""


def run(folder, wish, rules, code, *words, isolated=False):
    (folder / "agentbox.policy").write_text(rules)
    python = [sys.executable, *(["-I"] if isolated else []), "-c", code, *words]
    command = [sys.executable, "-P", "-m", "agentbox.cli", "run", "-q", "--layers", wish, "--", *python]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("wish", WISHES)
def test_the_runs_own_names_work_under_a_rule(tmp_path, wish):
    """With the guard alone a rule has to name them; with a network of the run's own they are free."""
    bare = subprocess.run([sys.executable, "-c", OWN], capture_output=True, text=True)
    assert bare.stdout == "served\n"
    done = run(tmp_path, wish, "net: unix:@own-name\n", OWN)
    assert done.stdout == "served\n", done.stderr
    done = run(tmp_path, wish, "read: ./data\n", OWN)
    if wish == "auto":
        assert done.stdout == "served\n", done.stderr
    else:
        assert "net.bind denied: unix:@own-name" in done.stderr and "net: unix:@own-name" in done.stderr


@pytest.mark.attempt("N9")
@pytest.mark.parametrize("isolated", [False, True], ids=["guarded", "native"])
@pytest.mark.parametrize("wish", WISHES)
def test_a_name_of_the_machine_takes_a_rule(tmp_path, machine, wish, isolated):
    """Without the rule nobody answers there, as without anybody; with it the agent is connected."""
    bare = subprocess.run([sys.executable, "-c", OTHERS, machine], capture_output=True, text=True)
    assert bare.stdout == "outside\n"
    if isolated and wish == "guard":
        pytest.skip("the guard alone runs nothing without itself")
    done = run(tmp_path, wish, f"net: unix:@{machine}-not\n", OTHERS, machine, isolated=isolated)
    assert done.stdout in ("ConnectionRefusedError\n", "PermissionError\n"), done.stderr
    done = run(tmp_path, wish, f"net: unix:@{machine}\n", OTHERS, machine, isolated=isolated)
    assert done.stdout == "outside\n", done.stderr
