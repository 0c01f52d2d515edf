"""A connect(2) that is made once more: after one that is under way, done, failed or interrupted it says what it says
without agentbox.
"""

import errno
import json
import os
import socket
import subprocess
import sys
import threading

import pytest
from bench import Bench
from kit.waiting import PATIENCE
from test_waits import Crowded

from agentbox.guard.kernel.traps import sockets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

AGAIN = """
    import errno, json, select, socket, sys
    there = ("127.0.0.1", int(sys.argv[1]))
    one = socket.socket()
    one.setblocking(False)
    def connect():
        return errno.errorcode.get(one.connect_ex(there), 0)
    told = [connect(), connect()]
    print("begun", flush=True)
    select.select([], [one], [], 100)
    if sys.argv[2:] == ["asked"]:
        told.append(errno.errorcode.get(one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0))
    told += [connect(), connect()]
    print(json.dumps(told))
"""


@pytest.mark.parametrize(
    ("act", "words", "expected"),
    [
        ("serve", (), [0, "EISCONN"]),
        ("close", (), ["ECONNREFUSED", "EINPROGRESS"]),
        ("close", ("asked",), ["ECONNREFUSED", "ECONNABORTED", "EINPROGRESS"]),
    ],
)
def test_a_connect_that_is_made_again_tells_once_how_the_first_one_ended(tmp_path, act, words, expected):
    """A connection that is there, one that has failed, and one whose error was asked for already."""
    bench = Bench(tmp_path, AGAIN)
    for boxed in (False, True):
        crowded = Crowded()
        bench.policy = f"net: 127.0.0.1:{crowded.port}\n"
        command = (bench.boxed if boxed else bench.bare)(crowded.port, *words)
        with bench.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            assert running.stdout.readline() == "begun\n"
            serving = threading.Thread(target=crowded.serve)
            if act == "serve":
                serving.start()
            else:
                crowded.close()
            said, why = running.communicate(timeout=PATIENCE)
        if act == "serve":
            crowded.close()
            serving.join()
        assert json.loads(said) == ["EINPROGRESS", "EALREADY", *expected], why


def test_a_local_connect_that_was_done_when_the_signal_came_is_done():
    """It would be made again and fail; a datagram socket may be connected again, and has perhaps the peer of before."""

    def interrupted():
        raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))

    ours, theirs = socket.socketpair()
    alone = socket.socket(socket.AF_UNIX)
    with ours, theirs, alone:
        assert sockets.once(ours.fileno(), socket.SOCK_STREAM, interrupted) == 0
        for one, kind in ((alone, socket.SOCK_STREAM), (ours, socket.SOCK_DGRAM)):
            with pytest.raises(InterruptedError):
                sockets.once(one.fileno(), kind, interrupted)
