"""What is set on sockets and asked of them: a connection made outside leads nowhere else, hears nobody else and tells
nothing of the host; sockets of the run's own network work as they do anywhere.

Each attempt is made outside of agentbox as well, where it works.
"""

import errno
import socket
import sys
import threading
from contextlib import ExitStack

import pytest
from test_sockets import scene  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

COMMON = """
import array, ctypes, fcntl, json, socket, struct, sys
told = {}
def attempt(name, act):
    try:
        act()
        told[name] = 0
    except OSError as error:
        told[name] = error.errno
def interfaces(one):
    room = array.array("B", bytes(4096))
    found = fcntl.ioctl(one.fileno(), 0x8912, struct.pack("iP", 4096, room.buffer_info()[0]))
    data = room.tobytes()[: struct.unpack("iP", found)[0]]
    return sorted({data[at : at + 16].split(bytes(1))[0].decode() for at in range(0, len(data), 40)})
group4 = socket.inet_aton("239.83.69.67") + socket.inet_aton("127.0.0.1")
any_group = struct.pack("=I4xHH4s", 1, 2, 0, socket.inet_aton("239.83.69.68")) + bytes(120)
group6 = socket.inet_pton(socket.AF_INET6, "ff15::5345:4352") + struct.pack("i", 1)
routed = bytes([0, 4, 4, 1, 1, 0, 0, 0]) + bytes(16) + socket.inet_pton(socket.AF_INET6, "::1")
padding = bytes([1, 1, 1, 1])
def program(length):
    made = (ctypes.c_uint64 * 1)(int.from_bytes(struct.pack("=HBBI", 6, 0, 0, length), sys.byteorder))
    kept.append(made)
    return struct.pack("=H6xQ", 1, ctypes.addressof(made))
kept = []
def sender(address):
    return 0, 8, struct.pack("i", 1) + socket.inet_aton(address) + bytes(4)
"""

OUTSIDE = (
    COMMON
    + """
four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
four.connect(("127.0.0.1", int(sys.argv[1])))
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
six.connect(("::1", int(sys.argv[2])))
stream = socket.create_connection(("127.0.0.1", int(sys.argv[3])))
attempt("setsockopt IPV6_RTHDR", lambda: six.setsockopt(41, 57, routed))
attempt("setsockopt IP_OPTIONS", lambda: four.setsockopt(0, 4, padding))
attempt("setsockopt IP_OPTIONS", lambda: stream.setsockopt(0, 4, padding))
attempt("setsockopt IP_ADD_MEMBERSHIP", lambda: four.setsockopt(0, 35, group4))
attempt("setsockopt MCAST_JOIN_GROUP", lambda: four.setsockopt(0, 42, any_group))
attempt("setsockopt IPV6_ADD_MEMBERSHIP", lambda: six.setsockopt(41, 20, group6))
attempt("setsockopt SO_BINDTODEVICE", lambda: four.setsockopt(1, 25, b"lo"))
attempt("setsockopt SO_BINDTOIFINDEX", lambda: six.setsockopt(1, 62, 1))
attempt("setsockopt SO_ATTACH_FILTER", lambda: four.setsockopt(1, 26, program(0xFFFFFFFF)))
attempt("sendmsg with IP_RETOPTS", lambda: four.sendmsg([b"x"], [(0, 7, padding)]))
attempt("sendmsg with IP_PKTINFO", lambda: four.sendmsg([b"x"], [sender("127.0.0.77")]))
attempt("ioctl 0x8912", lambda: interfaces(four))
attempt("ioctl 0x8927", lambda: fcntl.ioctl(stream.fileno(), 0x8927, b"lo".ljust(40, bytes(1))))
four.setsockopt(0, 1, 8)
six.setsockopt(41, 67, 8)
stream.setsockopt(6, 1, 1)
four.sendmsg([b"x"], [(0, 1, struct.pack("i", 16)), sender("127.0.0.1")])
four.sendmsg([b"x"], [(17, 103, struct.pack("H", 1))])
print(json.dumps(told))
"""
)

INSIDE = (
    COMMON
    + """
four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
stream = socket.socket()
left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
attempt("IPV6_RTHDR", lambda: six.setsockopt(41, 57, routed))
attempt("IP_OPTIONS", lambda: four.setsockopt(0, 4, padding))
attempt("IP_ADD_MEMBERSHIP", lambda: four.setsockopt(0, 35, group4))
attempt("IPV6_JOIN_GROUP", lambda: six.setsockopt(41, 20, group6))
attempt("SO_BINDTODEVICE", lambda: four.setsockopt(1, 25, b"lo"))
attempt("TCP_FASTOPEN_CONNECT", lambda: stream.setsockopt(6, 30, 1))
attempt("SO_MARK", lambda: four.setsockopt(1, 36, 7))
attempt("no such option", lambda: four.setsockopt(1, 9999, 1))
attempt("too short", lambda: four.setsockopt(0, 35, b"x"))
attempt("a filter of a letter", lambda: right.setsockopt(1, 26, program(1)))
attempt("no socket", lambda: fcntl.ioctl(open("/dev/zero").fileno(), 0x8912, bytes(16)))
attempt("no such interface", lambda: fcntl.ioctl(four.fileno(), 0x8933, b"nosuch0".ljust(40, bytes(1))))
left.send(b"letters")
told["got"] = right.recv(99).decode()
told["interfaces"] = interfaces(left)
told["index"] = socket.if_nametoindex("lo")
print(json.dumps(told))
"""
)

HEARING = """
import json, socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(100)
heard = []
for port in sys.argv[1:]:
    one.sendto(b"x", ("127.0.0.1", int(port)))
    heard.append([])
    while (got := one.recv(99)) != b"end":
        heard[-1].append(got.decode())
print(json.dumps(heard))
"""

PIDFDS = """
import json, socket
left, right = socket.socketpair()
told = []
for act in (lambda: left.getsockopt(1, 77), lambda: left.setsockopt(1, 76, 1)):
    try:
        act()
        told.append(0)
    except OSError as error:
        told.append(error.errno)
print(json.dumps(told))
"""


def bound(stack, family=socket.AF_INET, address="127.0.0.1", kind=socket.SOCK_DGRAM):
    one = stack.enter_context(socket.socket(family, kind))
    one.bind((address, 0))
    return one


def answer(one, stranger):
    """Everybody who writes is answered, by a stranger first."""
    while True:
        data, whence = one.recvfrom(99)
        if data == b"stop":
            return
        stranger.sendto(b"stranger", whence)
        for word in (b"peer", b"end"):
            one.sendto(word, whence)


def test_a_socket_made_outside_takes_no_other_way(scene):  # noqa: F811
    """Source routes, groups, devices, filters and senders' addresses are refused by option and by message, and what
    asks for the host's interfaces; each refusal is recorded, and harmless options work.
    """
    with ExitStack() as stack:
        four, six = bound(stack), bound(stack, socket.AF_INET6, "::1")
        stream = bound(stack, kind=socket.SOCK_STREAM)
        stream.listen()
        ports = [one.getsockname()[1] for one in (four, six, stream)]
        assert set(scene.run(OUTSIDE, *ports, boxed=False).values()) == {0}
        rules = f"net: 127.0.0.1:{ports[0]}, [::1]:{ports[1]}, 127.0.0.1:{ports[2]}\n"
        found = scene.run(OUTSIDE, *ports, boxed=True, rules=rules)
        assert len(found) == 12 and set(found.values()) == {errno.EPERM}
        made = {target.removesuffix(" of a connection that was made outside") for _, target in scene.denied()}
        assert made >= found.keys()


def test_options_of_the_runs_own_sockets_work(scene):  # noqa: F811
    """In the run's empty network a program may set and ask what it may anywhere, in its own power."""
    plain = scene.run(INSIDE, boxed=False)
    found = scene.run(INSIDE, boxed=True)
    assert plain["SO_MARK"] in (0, errno.EPERM) and found["SO_MARK"] == errno.EPERM
    assert found["got"] == "l" and "lo" in found["interfaces"] and found["IP_ADD_MEMBERSHIP"] == 0
    assert {**plain, "SO_MARK": 0, "interfaces": [], "index": 1} == {**found, "SO_MARK": 0, "interfaces": []}


def test_a_datagram_socket_hears_only_whom_it_has_sent_to(scene):  # noqa: F811
    """One socket talks with two allowed peers; what a stranger sends to it does not arrive."""
    with ExitStack() as stack:
        peers, stranger = [bound(stack), bound(stack)], bound(stack, address="127.0.0.2")
        threads = [threading.Thread(target=answer, args=(one, stranger)) for one in peers]
        for thread in threads:
            thread.start()
        ports = [one.getsockname()[1] for one in peers]
        try:
            assert scene.run(HEARING, *ports, boxed=False) == [["stranger", "peer"]] * 2
            rules = "".join(f"net: 127.0.0.1:{port}\n" for port in ports)
            assert scene.run(HEARING, *ports, boxed=True, rules=rules) == [["peer"]] * 2
        finally:
            for port in ports:
                stranger.sendto(b"stop", ("127.0.0.1", port))
            for thread in threads:
                thread.join()


def test_no_process_is_handed_over_by_a_socket(scene):  # noqa: F811
    """SO_PEERPIDFD and SO_PASSPIDFD, which would give a handle of the supervisor: as on an older kernel."""
    assert set(scene.run(PIDFDS, boxed=False)) <= {0, errno.ENOPROTOOPT}
    assert scene.run(PIDFDS, boxed=True) == [errno.ENOPROTOOPT] * 2
