"""Who sent a message on a local socket (SO_PASSCRED, unix(7)): the process that called, not the supervisor.

Each program says the same without the sandbox.
"""

import os
import sys

import pytest
from scenes import scenes
from test_real_programs import Scene

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
scene = scenes(Scene)
SENDERS = r"""
import os, socket, struct, sys, threading
threaded, kinds = sys.argv[1] == "threaded", sys.argv[2].split()
LISTENER = socket.socket(socket.AF_UNIX)
def rights(one):
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", one.fileno()))]
def send(one):
    one.send(b"a")
    one.sendmsg([b"b"])
    one.sendmsg([b"c"], rights(LISTENER))
for kind in kinds:
    ours, theirs = socket.socketpair(socket.AF_UNIX, getattr(socket, kind))
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    child = os.fork()
    if not child:
        hold = threading.Event()
        if threaded:
            threading.Thread(target=hold.wait).start()
        send(theirs)
        hold.set()
        os._exit(0)
    told = []
    for _ in range(3):
        data, extra, _, _ = ours.recvmsg(1, 200)
        named = [body for _, sort, body in extra if sort == socket.SCM_CREDENTIALS][0]
        pid, uid, gid = struct.unpack("iII", named[:12])
        passed = sum(sort == socket.SCM_RIGHTS for _, sort, _ in extra)
        told.append((data, pid == child, uid == os.getuid(), gid == os.getgid(), passed))
    os.waitpid(child, 0)
    print(kind, told)
"""


def work(scene, *words):
    scene.files(**{"senders.py": SENDERS})
    script = f"{scene.python} -I -S senders.py {' '.join(map(repr, words))}"
    return scene.work(script, f"read: ./senders.py\nexec: {scene.python}\n")


def test_a_receiver_is_told_who_sent(scene):
    """By send, sendmsg, and sendmsg with a descriptor, from a process with one thread."""
    work(scene, "single", "SOCK_STREAM SOCK_SEQPACKET")


@pytest.mark.skipif(sys.platform == "linux" and os.geteuid() != 0, reason="only root's supervisor may name others")
@pytest.mark.parametrize("threads", ["single", "threaded"])
def test_root_tells_every_sender(threads):
    """Where the kernel cannot go on by itself, the supervisor of root names the sender: datagrams, several threads."""
    scene = Scene(None)
    work(scene, threads, "SOCK_STREAM SOCK_SEQPACKET SOCK_DGRAM")


SHARED = r"""
import ctypes, errno, os, signal
libc = ctypes.CDLL(None, use_errno=True)
CLONE_FILES = 0x400
child = libc.syscall({number}, CLONE_FILES | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0:
    os._exit(0)
print("made" if child > 0 else errno.errorcode[ctypes.get_errno()])
"""


def test_no_two_processes_share_descriptors(tmp_path):
    """Else one could put another socket over a number while the kernel goes on with the other's message."""
    from test_confined import Box

    box = Box(tmp_path)
    argv = box.python(SHARED.replace("{number}", {"x86_64": "56"}.get(os.uname().machine, "220")))
    assert box.bare(*argv).stdout == "made\n"
    assert box.run("read: ../program.py\n", *argv).out == "EPERM\n"
