"""The supervisor's own descriptors: no call that fails leaves one open, and when there is none left what could not be
decided is refused and recorded.
"""

import errno
import json
import os
import resource
import subprocess
import sys

import pytest
from test_sockets import scene  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

FAILING = """
import array, ctypes, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
left, right = socket.socketpair()
other = os.open("/dev/zero", os.O_RDONLY)
address = struct.pack("=H", socket.AF_INET) + bytes(14)
local = struct.pack("=H", socket.AF_UNIX) + b"ws/none" + bytes(1)
room, size = ctypes.create_string_buffer(64), ctypes.c_int(12)
bad = array.array("i", [left.fileno()] * 20 + [999])
def rights():
    try:
        left.sendmsg([b"x"], [(1, 1, bad)])
    except OSError as error:
        assert error.errno == 9
acts = {
    "connect": lambda: libc.connect(other, address, 16),
    "connect to nobody": lambda: libc.connect(right.fileno(), local, 20),
    "bind": lambda: libc.bind(other, address, 16),
    "listen": lambda: libc.listen(other, 1),
    "sendto": lambda: libc.sendto(other, address, 1, 0, address, 16),
    "peer": lambda: libc.getsockopt(other, 1, 17, room, ctypes.byref(size)),
    "option": lambda: libc.setsockopt(other, 0, 35, room, 8),
    "wrong option": lambda: libc.setsockopt(left.fileno(), 0, 35, room, 8),
    "request": lambda: libc.ioctl(other, 0x8912, room),
    "rights": rights,
    "message": lambda: left.sendmsg([b"x"], [(1, 99, b"x")]),
}
def all_of_them(count):
    for number in range(count):
        for act in acts.values():
            try:
                act()
            except OSError:
                pass
all_of_them(2)
print(".", flush=True)
sys.stdin.readline()
all_of_them(10)
print(".", flush=True)
sys.stdin.readline()
"""

STARVING = """
import errno, json, os, socket, sys, threading, time
left, right = socket.socketpair()
left.setblocking(False)
try:
    while True:
        left.send(bytes(4096))
except BlockingIOError:
    left.setblocking(True)
def wait():
    left.sendmsg([bytes(4096)])
for number in range(int(sys.argv[1])):
    threading.Thread(target=wait, daemon=True).start()
time.sleep(1)
told = []
for path in sys.argv[2:]:
    try:
        os.close(os.open(path, os.O_RDONLY))
        told.append(0)
    except OSError as error:
        told.append(error.errno)
os.write(1, json.dumps(told).encode())
os._exit(0)
"""


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks at the supervisor's descriptors")
def test_calls_that_fail_leave_no_descriptor_open(scene):  # noqa: F811
    """On what is no socket, on nobody's address, and with a descriptor among others that is none."""
    command, environ = scene.command(FAILING)
    with subprocess.Popen(
        command, cwd=scene.folder, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=scene.drop
    ) as running:
        assert running.stdout.read(2) == b".\n"
        before = descriptors(running.pid)
        running.stdin.write(b"\n")
        running.stdin.flush()
        assert running.stdout.read(2) == b".\n"
        assert descriptors(running.pid) <= before
        running.stdin.close()
    assert running.returncode == 0


def test_what_cannot_be_decided_for_want_of_descriptors_is_recorded(scene):  # noqa: F811
    """A program makes so many sends wait that the supervisor has no descriptor left: it still opens nothing unseen."""
    secret = f"{scene.folder}/secret"
    with open(secret, "w") as file:
        file.write("secret")
    os.chmod(secret, 0o644)
    assert scene.run(STARVING, 150, secret, boxed=False) == [0]
    command, environ = scene.command(STARVING, 150, secret)

    def starve():
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        scene.drop()

    done = subprocess.run(
        command, cwd=scene.folder, env=environ, capture_output=True, text=True, timeout=60, preexec_fn=starve
    )
    assert done.returncode == 0, done.stderr
    told = scene.denied()
    # With the very last descriptors it may be decided after all.
    assert json.loads(done.stdout)[0] in (errno.EMFILE, errno.EACCES)
    assert told & {("sys.call", "openat"), ("fs.read", secret)} and ("sys.call", "sendmsg") in told
