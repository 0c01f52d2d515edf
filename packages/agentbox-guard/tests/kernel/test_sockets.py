"""Sockets of unguarded programs: nothing is sent, bound or listened with in the supervisor's power or on the host.

Each attempt is made outside of agentbox as well, where it works.
"""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

import pytest
from bench import Bench
from kit.waiting import PATIENCE
from scenes import scenes, source_folders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

NETLINK = """
import json, socket, struct, sys
def message(kind, flags, body):
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body
def outcome(one):
    return struct.unpack_from("=i", one.recv(65536), 16)[0]
up = message(16, 5, struct.pack("=BxHiII", 0, 0, 1, 1, 1))  # RTM_NEWLINK of lo, which must be up
names = message(18, 0x301, struct.pack("=BxHiII", 0, 0, 0, 0, 0))  # RTM_GETLINK, all of them
told = {}
for name, address in (("sendto", (0, 0)), ("sendmsg", None), ("sendmsg to", (0, 0))):
    one = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    one.bind((0, 0))
    one.connect((0, 0))
    def send(data):
        return one.sendto(data, address) if name == "sendto" else one.sendmsg([data], (), 0, address)
    assert send(up) == len(up)
    told[name] = -outcome(one)
    assert send(names) == len(names)
    told[name + ", asking"] = struct.unpack_from("=H", one.recv(65536), 4)[0]  # RTM_NEWLINK is 16
told["interfaces"] = [name for _, name in socket.if_nameindex()]
print(json.dumps(told))
"""

DATAGRAM = """
import json, socket, sys
told = {}
for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
    for made in (lambda: socket.socket(socket.AF_UNIX, kind), lambda: socket.socketpair(socket.AF_UNIX, kind)[0]):
        one = made()
        for name in ("sendto", "sendmsg"):
            try:
                one.sendto(b"out", sys.argv[1]) if name == "sendto" else one.sendmsg([b"out"], (), 0, sys.argv[1])
                told[f"{name} {len(told)}"] = 0
            except OSError as error:
                told[f"{name} {len(told)}"] = error.errno
print(json.dumps(told))
"""

EXCHANGED = """
import json, os, socket, sys, threading
connected, kept = socket.socketpair(socket.AF_UNIX)
addressed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
one = socket.socket(fileno=os.dup(connected.fileno()))
over = threading.Event()
def exchange():
    while not over.is_set():
        os.dup2(addressed.fileno(), one.fileno())
        os.dup2(connected.fileno(), one.fileno())
other = threading.Thread(target=exchange)
other.start()
sent = 0
for _ in range(int(sys.argv[2])):
    try:
        one.sendmsg([b"out"], (), socket.MSG_DONTWAIT, sys.argv[1])
        sent = 1
        break
    except OSError:
        pass
over.set()
other.join()
print(json.dumps(sent))
"""

LISTENING = """
import ctypes, errno, json, socket, struct, sys
tcp, udp = int(sys.argv[1]), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
told = {}
def attempt(name, act):
    try:
        act()
        told[name] = 0
    except OSError as error:
        told[name] = error.errno
def dissolve():
    if libc.connect(one.fileno(), bytes(16), 16):
        raise OSError(ctypes.get_errno(), "connect")
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.connect(("127.0.0.1", udp))
attempt("dissolve", dissolve)
attempt("bind a datagram socket", lambda: one.bind(("127.0.0.1", 0)))
two = socket.socket()
two.setblocking(False)
told["connect"] = two.connect_ex(("127.0.0.1", tcp))
two.shutdown(socket.SHUT_RDWR)
attempt("bind", lambda: two.bind(("127.0.0.1", 0)))
attempt("listen", lambda: two.listen())
print(json.dumps(told))
"""

SERVER = """
import json, os, socket, struct, sys
one = socket.socket(socket.AF_UNIX)
one.bind("ws/s.sock")
one.listen()
two = socket.socket(socket.AF_UNIX)
two.connect("ws/s.sock")
pid = struct.unpack("=iII", two.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
inner = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(inner.getsockname())
client.sendmsg([b"a", b"b"])
three = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
three.bind(("127.0.0.1", 0))
three.sendmsg([b"c"], [(0, 1, struct.pack("=i", 16))], 0, three.getsockname())  # IP_TOS with it
print(json.dumps([pid == os.getpid(), inner.accept()[0].recv(9).decode(), three.recv(9).decode()]))
"""

ABSTRACT = """
import json, socket, sys
one = socket.socket(fileno=0)
own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
own.bind("\\0own")
own.sendto(b"own", "\\0own")
try:
    one.sendto(b"out", "\\0" + sys.argv[1])
    told = 0
except OSError as error:
    told = error.errno
print(json.dumps([own.recv(9).decode(), told]))
"""


class Scene:
    def __init__(self, uid):
        self.uid = uid
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="sockets-"))
        os.chmod(self.folder, 0o755)
        os.makedirs(f"{self.folder}/ws")
        os.makedirs(f"{self.folder}/state")
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.bind(f"{self.folder}/d.sock")
        self.datagrams.setblocking(False)
        os.chmod(f"{self.folder}/d.sock", 0o777)
        self.python = sys.executable if uid is None else "/usr/bin/python3"
        if uid is not None:
            for name in ("", "/ws", "/state"):
                os.chown(self.folder + name, uid, uid)

    def received(self):
        try:
            return self.datagrams.recv(100)
        except BlockingIOError:
            return None

    def command(self, code, *arguments, boxed=True, rules="", options=()):
        """What to start, and in what environment."""
        command = [self.python, "-I", "-c", code, *map(str, arguments)]
        environ = {**os.environ, "TMPDIR": f"{self.folder}/state"}
        if boxed:
            policy = f"{self.folder}/state/p.policy"
            with open(policy, "w") as file:
                file.write(f"write: {self.folder}/ws\n{rules}")
            options = [*options, "-q", "-p", policy, "-t", f"{self.folder}/state/trace.jsonl"]
            command = [self.python, "-m", "agentbox.cli", "run", *options, "--", *command]
            environ["PYTHONPATH"] = ":".join(source_folders())
        return command, environ

    def run(self, code, *arguments, boxed, rules="", alone=False, stdin=None):
        """The program's output, read as JSON; `alone`: in another network namespace, so that the host's is not
        touched.
        """
        command, environ = self.command(code, *arguments, boxed=boxed, rules=rules)
        if alone:
            command = ["unshare", "-n" if os.geteuid() == 0 and self.uid is None else "-rn", *command]
        done = subprocess.run(
            command, cwd=self.folder, env=environ, capture_output=True, text=True, timeout=PATIENCE, stdin=stdin,
            preexec_fn=self.drop,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout else None

    def drop(self):
        if self.uid is not None:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)

    def denied(self):
        with open(f"{self.folder}/state/trace.jsonl") as file:
            entries = [json.loads(line) for line in file]
        return {(entry["op"], entry["target"]) for entry in entries if entry["kind"] == "deny"}

    def close(self):
        self.datagrams.close()
        shutil.rmtree(self.folder, ignore_errors=True)


scene = scenes(Scene)


@pytest.mark.attempt("N8")
def test_netlink_is_asked_but_changes_nothing(scene):
    """A program may list the interfaces of its empty network; the supervisor's power does not reach its messages."""
    asked = {f"{name}, asking": 16 for name in ("sendto", "sendmsg", "sendmsg to")}
    changed = scene.run(NETLINK, boxed=False, alone=True)
    assert {name: changed.pop(name) for name in ("sendto", "sendmsg", "sendmsg to")} == dict.fromkeys(
        ("sendto", "sendmsg", "sendmsg to"), 0
    )
    found = scene.run(NETLINK, boxed=True)
    assert found == {**asked, **dict.fromkeys(("sendto", "sendmsg", "sendmsg to"), errno.EPERM), "interfaces": ["lo"]}


@pytest.mark.attempt("N9")
def test_local_datagrams_of_each_kind_are_decided(scene):
    """SOCK_RAW is another name for SOCK_DGRAM of local sockets (unix(7)): each send to a path is decided."""
    path = f"{scene.folder}/d.sock"
    assert set(scene.run(DATAGRAM, path, boxed=False).values()) == {0} and scene.received() == b"out"
    while scene.received():
        pass
    found = scene.run(DATAGRAM, path, boxed=True)
    assert len(found) == 8 and set(found.values()) == {errno.EACCES}
    assert scene.received() is None
    assert ("net.send", f"unix:{path}") in scene.denied()


def test_another_socket_put_in_its_place_changes_nothing(scene):
    """A second thread changes a connected socket for one that heeds addresses, while the first sends to a path."""
    path = f"{scene.folder}/d.sock"
    assert scene.run(EXCHANGED, path, "2000000", boxed=False) == 1 and scene.received() == b"out"
    while scene.received():
        pass
    scene.run(EXCHANGED, path, "3000", boxed=True)
    assert scene.received() is None


def test_a_socket_made_outside_never_listens(scene):
    """A connection that was given up leaves a socket of the host's network: it is neither dissolved, bound nor listened
    with.
    """
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    tcp = socket.socket()
    tcp.bind(("127.0.0.1", 0))
    tcp.listen(0)
    fillers = [socket.socket() for _ in range(4)]  # so that the program's connection stays under way
    for one in fillers:
        one.setblocking(False)
        one.connect_ex(tcp.getsockname())
    ports = tcp.getsockname()[1], udp.getsockname()[1]
    try:
        assert scene.run(LISTENING, *ports, boxed=False) == {
            "dissolve": 0, "bind a datagram socket": 0, "connect": errno.EINPROGRESS, "bind": 0, "listen": 0,
        }  # fmt: skip
        rules = "".join(f"net: 127.0.0.1:{port}\n" for port in ports)
        assert scene.run(LISTENING, *ports, boxed=True, rules=rules) == {
            "dissolve": errno.EOPNOTSUPP, "bind a datagram socket": errno.EINVAL, "connect": errno.EINPROGRESS,
            "bind": errno.EINVAL, "listen": errno.EINVAL,
        }  # fmt: skip
    finally:
        for one in (udp, tcp, *fillers):
            one.close()
    told = scene.denied()
    assert {("sys.call", f"{name} of a connection that was made outside") for name in ("bind", "listen")} <= told


def test_servers_of_the_run_work(scene):
    """Listening by path and on the run's own loopback; the peer is named, messages of several parts and with options
    pass.
    """
    for boxed in (False, True):
        shutil.rmtree(f"{scene.folder}/ws")
        os.makedirs(f"{scene.folder}/ws")
        os.chown(f"{scene.folder}/ws", scene.uid or os.geteuid(), -1)
        rules = f"net: unix:{scene.folder}/ws/s.sock\n"
        assert scene.run(SERVER, boxed=boxed, rules=rules) == [True, "ab", "c"]


def test_abstract_names_are_those_of_the_sockets_own_namespace(scene):
    """The run's own are free; a socket that was left open as standard input would reach the host's."""
    host = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    host.bind(f"\0{scene.folder}")
    with host, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as given:
        assert scene.run(ABSTRACT, scene.folder, boxed=False, stdin=given) == ["own", 0]
        assert host.recv(9) == b"out"
        host.setblocking(False)
        assert scene.run(ABSTRACT, scene.folder, boxed=True, stdin=given) == ["own", errno.EACCES]
        with pytest.raises(BlockingIOError):
            host.recv(9)


ASKED_AT_ONCE = """
import os, socket, struct
server = socket.socket(socket.AF_UNIX)
server.bind("s")
server.listen(8)
told = set()
for _ in range(150):
    child = os.fork()
    if not child:
        one = socket.socket(socket.AF_UNIX)
        one.connect("s")
        one.recv(1)
        os._exit(0)
    peer = server.accept()[0]
    try:
        pid, uid, gid = struct.unpack("=iII", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        told.add((pid == child, uid == os.getuid()))
    except OSError as error:
        told.add(error.strerror)
    peer.close()
    os.waitpid(child, 0)
print(told)
"""


def test_who_connected_is_told_to_whoever_asks_at_once(tmp_path):
    """A server that asks in the very moment of the connection: the process that asked for it, each time (tmux)."""
    (tmp_path / "agentbox.policy").write_text("write: .\nread: ./program.py\nnet: unix:./s\n")
    (tmp_path / "program.py").write_text(ASKED_AT_ONCE)
    command = [sys.executable, "-I", "-S", str(tmp_path / "program.py")]
    bare = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    (tmp_path / "s").unlink()
    box = [sys.executable, "-m", "agentbox.cli", "run", "--", *command]
    done = subprocess.run(box, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert bare.stdout == "{(True, True)}\n", bare.stderr
    assert done.stdout == bare.stdout, done.stderr


PASSED = """
import array, ctypes, json, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
with socket.socket(socket.AF_UNIX) as service:
    service.connect("s")
    (_, _, body), = service.recvmsg(1, socket.CMSG_SPACE(8))[1]
raw, device = array.array("i", body)
here = struct.pack("=HH4B8x", socket.AF_INET, 0, 127, 0, 0, 1)
link = struct.pack("=HHiHBB8x", socket.AF_PACKET, 0x0008, 1, 0, 0, 6)
told = []
for act, *words in (
    (libc.bind, raw, here, 16), (libc.connect, raw, here, 16), (libc.sendto, raw, bytes(28), 28, 0, here, 16),
    (libc.bind, device, link, 20), (libc.sendto, device, bytes(28), 28, 0, link, 20),
):
    told.append(0 if act(*words) >= 0 else ctypes.get_errno())
print(json.dumps(told))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes such sockets")
def test_a_raw_socket_that_is_passed_on_from_outside_sends_to_nobody(tmp_path):
    """One of IP and one of a device: what a rule allows is to connect to who passes them."""
    bench = Bench(tmp_path, PASSED, "net: unix:./s\nnet: 127.0.0.1\n")
    with (
        socket.socket(socket.AF_UNIX) as server,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, 253) as raw,
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as device,
    ):
        server.bind(str(bench.ws / "s"))
        server.listen()

        def serve():
            with server.accept()[0] as connection:
                socket.send_fds(connection, [b"x"], [raw.fileno(), device.fileno()])

        told = []
        for command in (bench.bare(), bench.boxed()):
            thread = threading.Thread(target=serve)
            thread.start()
            told.append(bench.told(command))
            thread.join()
    assert told == [[0] * 5, [errno.EOPNOTSUPP] * 5]
