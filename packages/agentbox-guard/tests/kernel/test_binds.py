"""Binding to a path: the file is where it was decided, the name is the one given, and what a second thread puts in
place of the socket and the address meanwhile counts for nothing.

Each attempt is made outside of agentbox as well, where it works.
"""

import os
import socket
import stat
import sys

import pytest
from test_sockets import scene  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

RACE = """
import ctypes, json, os, select, socket, struct, sys, threading, time
closed, wanted, tries = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
out = socket.socket()
out.setblocking(False)
out.connect_ex(("127.0.0.1", closed))
select.select([], [out], [], 5)
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
