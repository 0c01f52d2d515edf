"""Binding to a path: the file is where it was decided, the name is the one given, and what a second thread puts in
place of the socket and the address meanwhile counts for nothing.

Each attempt is made outside of agentbox as well, where it works.
"""

import json
import os
import socket
import stat
import sys

import pytest
from bench import MACHINES, Bench
from test_sockets import scene  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

RACE = """
import ctypes, json, os, select, socket, struct, sys, threading, time
closed, wanted, tries = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
out = socket.socket()
out.setblocking(False)
out.connect_ex(("127.0.0.1", closed))
select.select([], [out], [], 100)
assert out.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
local = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
slot = os.dup(local.fileno())
path = struct.pack("=H", socket.AF_UNIX) + b"ws/s"
port = struct.pack("=H", socket.AF_INET) + struct.pack("!H", wanted) + socket.inet_aton("127.0.0.1") + bytes(8)
address = ctypes.create_string_buffer(110)
def swap(delay):
    go.wait()
    time.sleep(delay)
    os.dup2(out.fileno(), slot)
    ctypes.memmove(address, port, len(port))
def taken():
    return out.getsockname()[1] == wanted
if not tries:  # the swap before the call, as a race is won outside
    go = threading.Event()
    go.set()
    swap(0)
    libc.bind(slot, address, 16)
for number in range(tries):
    local = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    os.dup2(local.fileno(), slot)
    ctypes.memmove(address, path + bytes(110 - len(path)), 110)
    go = threading.Event()
    thread = threading.Thread(target=swap, args=(number % 40 * 1e-5,))
    thread.start()
    go.set()
    libc.bind(slot, address, 110)
    thread.join()
    if os.path.exists("ws/s"):
        os.unlink("ws/s")
    if taken():
        break
print(json.dumps(taken()))
"""

NAMES = """
import json, os, socket
told = []
for mask, path in ((0o077, "ws/one"), (0o022, os.path.abspath("ws/two")), (0, "./ws/../ws/three")):
    os.umask(mask)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(path)
        told.append(one.getsockname() == path)
os.chdir("ws")
with socket.socket(socket.AF_UNIX) as one:
    one.setblocking(False)
    one.bind("four")
    told.append(one.getsockname() == "four")
for path in ("four", "no/folder", "../outside", "/proc/self/cwd/../up"):
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.bind(path)
            told.append(0)
        except OSError as error:
            told.append(error.errno)
print(json.dumps(told))
"""


def closed_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.attempt("N11", "P3")
def test_no_port_of_the_host_is_taken_by_a_race(scene):  # noqa: F811
    """While a path is being bound, another thread puts a socket of the host's network and its address in place."""
    ports = closed_port(), closed_port()
    assert scene.run(RACE, *ports, 0, boxed=False) is True
    assert scene.run(RACE, *ports, 400, boxed=True, rules=f"net: 127.0.0.1:{ports[0]}\n") is False


def test_a_bound_socket_has_the_name_and_the_mode_that_were_asked_for(scene):  # noqa: F811
    """As without agentbox, in any spelling; elsewhere than in write roots there is none."""
    os.chmod(scene.folder, 0o777)
    plain = scene.run(NAMES, boxed=False)
    modes = {name: mode_of(f"{scene.folder}/ws/{name}") for name in ("one", "two", "three", "four")}
    assert plain == [True] * 4 + [98, 2, 0, 0]
    for name in ("ws/one", "ws/two", "ws/three", "ws/four", "outside", "up"):
        os.unlink(f"{scene.folder}/{name}")
    assert scene.run(NAMES, boxed=True) == [True] * 4 + [98, 2, 13, 13]
    for name, mode in modes.items():
        assert mode_of(f"{scene.folder}/ws/{name}") == mode
    assert not os.path.exists(f"{scene.folder}/outside") and not os.path.exists(f"{scene.folder}/up")


NAMELESS = """
import json, socket
one = socket.socket(socket.AF_UNIX)
try:
    one.bind("")  # the kernel gives a name
    print(json.dumps([0, one.getsockname()[:1].decode()]))
except OSError as error:
    print(json.dumps([error.errno, ""]))
"""


@pytest.mark.attempt("N9", "N11")
@pytest.mark.parametrize("lacking", MACHINES)
def test_a_name_of_the_kernels_choice_is_a_name(tmp_path, lacking):
    """Among the run's own abstract names there is one more; among the machine's a rule would have to name it."""
    bench = Bench(tmp_path, NAMELESS)
    assert bench.told(bench.bare()) == [0, "\0"]
    assert bench.told(bench.boxed(without=lacking), lacking) == ([13, ""] if lacking else [0, "\0"])
    assert bool(bench.denied()) is bool(lacking)


LEFT_BEHIND = """
import json, socket, sys
closed, told = ("127.0.0.1", int(sys.argv[1])), []
for dissolve in (False, True):
    one = socket.socket()
    assert one.connect_ex(closed) == 111
    if dissolve:
        import ctypes
        assert not ctypes.CDLL(None).connect(one.fileno(), bytes(16), 16)
    try:
        one.listen()
        told.append(0)
    except OSError as error:
        told.append(error.errno)
one = socket.socket()
one.bind(closed)
one.listen()
one.listen()
told.append(one.getsockname()[1] == closed[1])
print(json.dumps(told))
"""


@pytest.mark.attempt("N11")
@pytest.mark.parametrize("lacking", MACHINES)
def test_the_port_of_a_connection_that_failed_is_none_to_listen_at(tmp_path, lacking):
    """The socket still has its number, and would listen at any port: that is decided on like any other."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = probe.getsockname()[1]
    bench = Bench(tmp_path, LEFT_BEHIND, policy=f"net: 127.0.0.1:{closed}\n")
    assert bench.told(bench.bare(closed)) == [0, 0, True]
    assert bench.told(bench.boxed(closed, without=lacking), lacking) == [13, 13, True]
    assert len(bench.denied()) == 2 and all(one.startswith("0.0.0.0:") for one in bench.denied())
    with open(bench.state / "trace.jsonl") as file:
        told = [entry for entry in map(json.loads, file) if (entry["kind"], entry["op"]) == ("observe", "net.bind")]
    assert [entry["args"]["port"] for entry in told] == [closed], "what was bound is not told again"
