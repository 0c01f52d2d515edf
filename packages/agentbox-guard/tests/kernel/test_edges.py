"""Addresses at the edge of what a call takes: too short, of another family, of none. They fail as the kernel fails
them, and none goes undecided where the run has no network of its own.
"""

import errno
import json
import subprocess
import sys

import pytest
from kit.waiting import PATIENCE
from test_sockets import scene  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

COMMON = """
import ctypes, json, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
told = {}
def attempt(name, value):
    told[name] = -ctypes.get_errno() if value < 0 else value
def inet(family, port, room=8):
    return struct.pack("=H", family) + struct.pack("!H", port) + socket.inet_aton("127.0.0.1") + bytes(room)
def message(name, size):
    text, part = ctypes.create_string_buffer(name), ctypes.create_string_buffer(b"x")
    kept.extend((text, part))
    parts = (ctypes.c_uint64 * 2)(ctypes.addressof(part), 1)
    kept.append(parts)
    return struct.pack("=QI4xQQQQQ", ctypes.addressof(text), size, ctypes.addressof(parts), 1, 0, 0, 0)
kept = []
local = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
stream = socket.socket()
"""

SHORT = (
    COMMON
    + """
for size in (1, 2):
    attempt(f"local {size}", libc.sendmsg(local.fileno(), message(bytes([1, 0]), size), 0))
    attempt(f"four {size}", libc.sendmsg(four.fileno(), message(bytes([2, 0]), size), 0))
    attempt(f"sendto {size}", libc.sendto(four.fileno(), b"x", 1, 0, inet(2, 9), size))
    attempt(f"connect {size}", libc.connect(local.fileno(), bytes([1, 0]), size))
    attempt(f"bind {size}", libc.bind(stream.fileno(), bytes([2, 0]), size))
attempt("bind of another family", libc.bind(stream.fileno(), inet(1, 9), 16))
attempt("send of another family", libc.sendto(four.fileno(), b"x", 1, 0, inet(10, 9), 16))
print(json.dumps(told))
"""
)

UNDECIDED = (
    COMMON
    + """
port = int(sys.argv[1])
attempt("no family", libc.sendto(four.fileno(), b"no family", 9, 0, inet(0, port), 16))
attempt("its family", libc.sendto(four.fileno(), b"its family", 10, 0, inet(2, port), 16))
attempt("in a message", libc.sendmsg(four.fileno(), message(inet(0, port), 16), 0))
group = socket.inet_aton("239.1.2.3") + socket.inet_aton("127.0.0.1")
attempt("a group", libc.setsockopt(four.fileno(), 0, 35, group, 8))
attempt("a service class", libc.setsockopt(four.fileno(), 0, 1, struct.pack("=i", 8), 4))
attempt("bind of another family", libc.bind(stream.fileno(), inet(1, 9), 16))
print(json.dumps(told))
"""
)

TOGGLE = """
import fcntl, json, os, socket, threading, time
left, right = socket.socketpair()
left.setblocking(False)
try:
    while True:
        left.send(bytes(4096))
except BlockingIOError:
    mode = fcntl.fcntl(left, fcntl.F_GETFL)
child = os.fork()
while not child:  # it shares the socket, and what blocks on it
    fcntl.fcntl(left, fcntl.F_SETFL, mode ^ os.O_NONBLOCK)
    fcntl.fcntl(left, fcntl.F_SETFL, mode)
def send():
    for _ in range(400):
        try:
            left.sendmsg([bytes(4096)])
        except OSError:
            pass
for _ in range(40):
    threading.Thread(target=send, daemon=True).start()
slow = False
for _ in range(100):
    opened = threading.Thread(target=lambda: os.close(os.open("/dev/zero", os.O_RDONLY)), daemon=True)
    opened.start()
    opened.join(100)
    if slow := opened.is_alive():
        break
    time.sleep(0.01)
os.kill(child, 9)
os.write(1, json.dumps(not slow).encode())
os._exit(0)
"""

NO_MORE_SPACES = """
ip link set lo up || exit 77
for kind in net pid mnt ipc user; do echo 0 >/proc/sys/user/max_${kind}_namespaces || exit 77; done
exec "$@"
"""
"""In a network of its own, make it a machine on which no further namespaces can be made."""

SERVICE = """
import json, socket, subprocess, sys
service = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
service.bind(("127.0.0.1", 0))
service.setblocking(False)
command = [*sys.argv[1:], str(service.getsockname()[1])]
told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
got = []
try:
    while True:
        got.append(service.recv(99).decode())
except BlockingIOError:
    print(json.dumps([told, got]))
"""


def without_spaces(scene, code, boxed):  # noqa: F811
    command, environ = scene.command(code, boxed=boxed, options=("--allow-degraded", "netns"))
    whole = ["unshare", "-rn", "sh", "-c", NO_MORE_SPACES, "sh", scene.python, "-c", SERVICE, *command]
    done = subprocess.run(
        whole, cwd=scene.folder, env=environ, capture_output=True, text=True, timeout=PATIENCE, preexec_fn=scene.drop
    )
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip(f"no such machine can be made: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_addresses_that_are_too_short_fail_as_they_do_in_the_kernel(scene):  # noqa: F811
    """The run goes on, and each call fails for itself."""
    plain = scene.run(SHORT, boxed=False)
    assert set(plain.values()) == {-errno.EINVAL, -errno.EAFNOSUPPORT}
    assert scene.run(SHORT, boxed=True) == plain


def test_no_address_goes_undecided_without_a_network_of_its_own(scene):  # noqa: F811
    """An IPv4 datagram's address without a family is one of IPv4 (udp_sendmsg), and a group sends reports of itself."""
    told, got = without_spaces(scene, UNDECIDED, False)
    assert got == ["no family", "its family", "x"] and told["a group"] == 0
    assert told["bind of another family"] == -errno.EAFNOSUPPORT
    told, got = without_spaces(scene, UNDECIDED, True)
    assert got == [] and told == {
        "no family": -errno.EACCES, "its family": -errno.EACCES, "in a message": -errno.EACCES,
        "a group": -errno.EPERM, "a service class": 0, "bind of another family": -errno.EAFNOSUPPORT,
    }  # fmt: skip


def test_a_send_that_begins_to_wait_holds_up_nobody_else(scene):  # noqa: F811
    """Another process takes O_NONBLOCK away and gives it back all the time, between any look and any call."""
    assert scene.run(TOGGLE, boxed=False) is True
    assert scene.run(TOGGLE, boxed=True) is True
