"""The supervisor's own descriptors: no call that fails leaves one open, and when there is none left what could not be
decided is refused and recorded.
"""

import errno
import os
import resource
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
from bench import MACHINES, Bench
from test_sockets import scene  # noqa: F401 (a fixture)

from agentbox.guard.kernel import broker, dial

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
import itertools, os, sys
for line in itertools.chain([""], sys.stdin):
    try:
        os.close(os.open(sys.argv[1], os.O_RDONLY))
        print(0, flush=True)
    except OSError as error:
        print(error.errno, flush=True)
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


@pytest.mark.attempt("P4", "P10")
def test_what_cannot_be_decided_for_want_of_descriptors_is_recorded(scene):  # noqa: F811
    """The supervisor has no descriptor left of a sudden: it still opens nothing unseen."""
    if scene.uid is not None:
        pytest.skip("another user's limits are not ours to set")
    secret = f"{scene.folder}/secret"
    with open(secret, "w") as file:
        file.write("secret")
    os.chmod(secret, 0o644)
    assert scene.run(STARVING, secret, boxed=False, stdin=subprocess.DEVNULL) == 0
    command, environ = scene.command(STARVING, secret)
    with subprocess.Popen(
        command, cwd=scene.folder, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=scene.drop
    ) as running:
        said = [int(running.stdout.readline())]
        limits = resource.prlimit(running.pid, resource.RLIMIT_NOFILE)
        while said[-1] != errno.EMFILE and len(said) < 50:  # it may just have closed one
            used = {int(name) for name in os.listdir(f"/proc/{running.pid}/fd")}
            free = min(set(range(len(used) + 1)) - used)
            resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (free, limits[1]))
            running.stdin.write(b"\n")
            running.stdin.flush()
            said.append(int(running.stdout.readline()))
            resource.prlimit(running.pid, resource.RLIMIT_NOFILE, limits)
    assert running.returncode == 0
    assert (set(said[:-1]), said[-1]) == ({errno.EACCES}, errno.EMFILE)
    assert ("sys.call", "openat") in scene.denied()


MIXED = """
import errno, os, socket, sys, threading, time
listener = socket.socket(socket.AF_UNIX)
listener.bind("s")
listener.listen(0)
os.mkfifo("fifo")
full, _ = socket.socketpair()
full.setblocking(False)
try:
    while True:
        full.send(bytes(4096))
except BlockingIOError:
    full.setblocking(True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(100)
    os._exit(0)
def local():
    socket.socket(socket.AF_UNIX).connect("s")
def outside(blocking):
    one = socket.socket()
    one.setblocking(blocking)
    one.connect(("127.0.0.1", int(sys.argv[1])))
def datagram():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(sys.argv[1])))
acts = [
    lambda: full.sendmsg([bytes(4096)]), local, lambda: os.open("fifo", os.O_RDONLY), lambda: os.listdir("/usr"),
    lambda: outside(True), lambda: outside(False), lambda: os.rename("none", "other"), datagram,
]
end = time.monotonic() + 2
def work(number):
    while time.monotonic() < end:
        try:
            acts[number % len(acts)]()
        except OSError as error:
            seen.add(error.errno)
        number += 1
seen = set()
for _ in range(2):
    os.fork()
for number in range(24):
    threading.Thread(target=work, args=(number,), daemon=True).start()
time.sleep(3)
print("over", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("lacking", MACHINES)
def test_a_run_that_uses_up_all_descriptors_ends_as_it_would_and_with_all_that_it_has_started(tmp_path, lacking):
    """Whatever waits, connects and fails for want of one: no more than that call fails, and a daemon, which has the
    standard output, does not live on.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        bench = Bench(tmp_path, MIXED, f"write: .\nnet: unix:./s\nnet: 127.0.0.1:{port}\n")
        done = bench.run(["bash", "-c", 'ulimit -n 64; exec "$@"', "-", *bench.boxed(port, without=lacking)], lacking)
    assert (done.returncode, done.stdout[:5]) == (0, "over\n"), done.stderr
    assert "internal" not in done.stderr


def test_a_dial_that_has_no_descriptor_left_is_one_connect_that_fails(monkeypatch):
    """Of a connection and of a datagram: nothing is left open, and the asker is told."""
    for op in ("net.connect", "net.send"):
        ended = []
        args = {"host": "192.0.2.1", "address": "192.0.2.1", "port": 9}
        request = broker.Request(op, 1, b"", kind=socket.SOCK_STREAM, family=2, nonblocking=True, template=-1)
        asked = SimpleNamespace(observing=False, is_inside=lambda template: True)
        monkeypatch.setattr(dial, "outside_socket", short)
        dial.Dial(asked, broker.Answer(broker.DIAL, args, request), ended.append).begin()
        assert [(answer.errno, answer.socket) for answer in ended] == [(errno.EMFILE, None)]


def short(request, address):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
