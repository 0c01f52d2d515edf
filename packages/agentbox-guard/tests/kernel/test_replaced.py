"""A connection made outside stands in for a program's own socket wherever that process has it, and programs that close
it meanwhile, or end, end nothing else.

Each program runs outside of agentbox as well, with the same outcome.
"""

import json
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest
from kit.waiting import PATIENCE
from test_options import answer, bound
from test_sockets import scene  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

EPOLL = """
import json, os, select, socket, sys
tcp, udp = (("127.0.0.1", int(port)) for port in sys.argv[1:])
told = []
for edge in (0, select.EPOLLET):
    one = socket.socket()
    one.setblocking(False)
    sets = [select.epoll(), select.epoll()]
    for other in sets:
        other.register(one.fileno(), select.EPOLLOUT | edge)
    one.connect_ex(tcp)
    told.append([[found == [(one.fileno(), select.EPOLLOUT)] for found in (other.poll(100),)] for other in sets])
    sets[0].modify(one.fileno(), select.EPOLLIN)
    told.append(sets[0].poll(0))
    sets[1].unregister(one.fileno())
    told.append(sets[1].poll(0))
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
waiting = select.epoll()
waiting.register(one.fileno(), select.EPOLLIN)
one.sendto(b"x", udp)
told.append(waiting.poll(100) == [(one.fileno(), select.EPOLLIN)])
one = socket.socket()
twin = one.dup()
os.set_inheritable(twin.fileno(), True)
one.connect(tcp)
told.append([twin.getpeername() == one.getpeername(), os.get_inheritable(twin.fileno()),
             os.get_inheritable(one.fileno())])
twin.send(b"x")
print(json.dumps(told))
"""

CLOSING = """
import ctypes, json, os, signal, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
address = ("127.0.0.1", int(sys.argv[1]))
child = os.fork()
if not child:
    socket.socket().connect(address)
    os._exit(1)
one = socket.socket()
told = []
def connect():
    told.append(one.connect_ex(address) in (0, 9))
thread = threading.Thread(target=connect)
thread.start()
time.sleep(0.5)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
os.close(one.fileno())
print("closed", flush=True)
sys.stdin.readline()
thread.join()
print(json.dumps(told), flush=True)
os._exit(0)
"""


def test_a_socket_is_replaced_wherever_its_process_has_it(scene):  # noqa: F811
    """In epoll sets that it was put into before, with their events, and under the numbers of its duplicates."""
    with ExitStack() as stack:
        tcp, udp = bound(stack, kind=socket.SOCK_STREAM), bound(stack)
        tcp.listen()
        thread = threading.Thread(target=answer, args=(udp, bound(stack)))
        thread.start()
        ports = [one.getsockname()[1] for one in (tcp, udp)]
        try:
            plain = scene.run(EPOLL, *ports, boxed=False)
            assert plain == [*[[[True], [True]], [], []] * 2, True, [True, True, False]]
            rules = "".join(f"net: 127.0.0.1:{port}\n" for port in ports)
            assert scene.run(EPOLL, *ports, boxed=True, rules=rules) == plain
        finally:
            udp.sendto(b"stop", udp.getsockname())
            thread.join()


def test_who_closes_a_socket_while_it_is_connected_ends_nothing_else(scene):  # noqa: F811
    """Nor does a process that is killed then. The connections are made later, by a backlog that has room again."""
    for boxed in (False, True):
        with ExitStack() as stack:
            tcp = bound(stack, kind=socket.SOCK_STREAM)
            tcp.listen(0)
            for _ in range(4):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(tcp.getsockname())
            port = tcp.getsockname()[1]
            command, environ = scene.command(CLOSING, port, boxed=boxed, rules=f"net: 127.0.0.1:{port}\n")
            running = stack.enter_context(
                subprocess.Popen(
                    command, cwd=scene.folder, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    preexec_fn=scene.drop,
                )
            )  # fmt: skip
            assert running.stdout.readline() == b"closed\n"
            tcp.listen(100)
            output, _ = running.communicate(b"\n", timeout=PATIENCE)
            assert (json.loads(output), running.returncode) == ([True], 0)


HIDDEN = """
import ctypes, json, os, socket, sys
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
address = ("127.0.0.1", int(sys.argv[1]))
one = socket.create_connection(address)
two = socket.socket(socket.AF_UNIX)
two.bind("ws/s")
two.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
os.unlink("ws/s")
print(json.dumps([one.getpeername()[1] == address[1], two.getsockname()]))
"""


def test_a_program_that_hides_from_others_has_its_connections(scene):  # noqa: F811
    """One that is not dumpable, as key agents are, shows its descriptors to root alone."""
    with ExitStack() as stack:
        tcp = bound(stack, kind=socket.SOCK_STREAM)
        tcp.listen()
        port = tcp.getsockname()[1]
        for boxed in (False, True):
            assert scene.run(HIDDEN, port, boxed=boxed, rules=f"net: 127.0.0.1:{port}\n") == [True, "ws/s"]
