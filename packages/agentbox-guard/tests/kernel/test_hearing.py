"""Whom a datagram socket hears where the run has no network of its own: whom it has sent to, or who a rule lets in."""

import json
import socket
import subprocess
import sys

import pytest
from bench import MACHINES, Bench
from kit.waiting import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
ALONE = MACHINES[1:]

LISTENS = """
    import errno, json, socket, sys
    server, own = ("127.0.0.1", int(sys.argv[2])), ("127.0.0.1", int(sys.argv[3]))
    one = socket.socket(socket.AF_INET6 if sys.argv[1] == "mapped" else socket.AF_INET, socket.SOCK_DGRAM)
    def refused(act, *arguments):
        try:
            act(*arguments)
            return 0
        except OSError as error:
            return errno.errorcode[error.errno]
    acts = {
        "sent": lambda: one.sendto(b"x", server),
        "mapped": lambda: one.sendto(b"x", ("::ffff:127.0.0.1", server[1])),
        "written": lambda: refused(one.send, b"x"),
        "dissolved": lambda: (one.connect(server), dissolve(), one.sendto(b"x", server)),
        "bound": lambda: one.bind(own),
        "bound again": lambda: (one.sendto(b"x", server), refused(one.bind, own)),
        "let in": lambda: (refused(one.setsockopt, 1, 27, 0), one.sendto(b"x", server)),
    }
    def dissolve():
        import ctypes
        if ctypes.CDLL(None, use_errno=True).connect(one.fileno(), bytes(16), 16):
            raise OSError(ctypes.get_errno(), "")
    acts[sys.argv[1]]()
    print(one.getsockname()[1], flush=True)
    sys.stdin.readline()
    one.setblocking(False)
    heard = []
    try:
        while True:
            heard.append(one.recv(99).decode())
    except BlockingIOError:
        print(json.dumps(heard))
"""


@pytest.fixture
def server():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        yield made


def heard(bench, command, server, lacking=()):
    """What the program's socket has taken of what a stranger and then the server send to it."""
    run = bench.start(command, lacking, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    line = run.stdout.readline()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"stranger", ("127.0.0.1", int(line)))
        server.sendto(b"server", ("127.0.0.1", int(line)))
    return json.loads(run.communicate("\n", timeout=PATIENCE)[0])


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.attempt("N11")
@pytest.mark.parametrize("lacking", ALONE)
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("sent", ["server"]), ("mapped", ["server"]), ("written", []), ("dissolved", ["server"]),
        ("bound again", ["server"]), ("let in", ["server"]), ("bound", ["stranger", "server"]),
    ],
)  # fmt: skip
def test_a_socket_hears_whom_it_has_sent_to_or_who_a_rule_lets_in(tmp_path, server, how, expected, lacking):
    """The kernel binds it to all addresses by the first send, also by one that fails for want of an address."""
    port, own = server.getsockname()[1], free_port()
    bench = Bench(tmp_path, LISTENS, f"net: 127.0.0.1:{port}\nnet: 127.0.0.1:{own}\n")
    assert heard(bench, bench.boxed(how, port, own, without=lacking), server, lacking) == expected
    assert heard(bench, bench.bare(how, port, own), server) == ["stranger", "server"]
