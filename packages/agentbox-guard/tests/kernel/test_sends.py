"""Sends that the supervisor makes in a program's name end as the kernel's own do: broken streams, and pages that are
sent without being copied. Each program says the same without the sandbox.
"""

import json
import shutil
import subprocess
import sys
import textwrap

import pytest
from bench import Bench
from kit.waiting import PATIENCE, POLLED
from test_confined import Box

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def both(box, code, without="", within=""):
    """What the program says, without and within the sandbox, each with a word of its own."""
    argv = box.python(code)
    bare, done = box.bare(*argv, without), box.run("read: ../program.py\n", *argv, within)
    assert bare.returncode == done.status == 0, (bare.stderr, done.err)
    return json.loads(bare.stdout), json.loads(done.out)


BROKEN = r"""
    import ctypes, errno, json, os, signal, socket, threading
    libc = ctypes.CDLL(None, use_errno=True)
    heard = []
    signal.signal(signal.SIGPIPE, lambda number, frame: heard.append(number))
    def pair(kind):
        if kind != "tcp":
            ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        else:
            server = socket.create_server(("127.0.0.1", 0))
            ours = socket.create_connection(server.getsockname())
            theirs = server.accept()[0]
            ours.shutdown(socket.SHUT_WR)
        theirs.close()
        return ours
    def count():
        for _ in range(9):  # Python runs handlers at a jump back, or a little later
            pass
        return len(heard)
    def sent(one, flags=0):
        before = count()
        try:
            told = one.sendmsg([b"x"], [], flags)
        except OSError as error:
            told = errno.errorcode[error.errno]
        return told, count() - before
    def by_sendto(one, flags=0):
        before = count()
        place = bytes.fromhex("02000009") + bytes([127, 0, 0, 1]) + bytes(8)
        told = libc.sendto(one.fileno(), b"x", 1, flags, place, len(place))
        told = errno.errorcode[ctypes.get_errno()] if told < 0 else told
        return told, count() - before
    def after(act):
        child = os.fork()
        if not child:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            try:
                act()
            finally:
                os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    def other_thread(one):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
        told = []
        def work():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
            sent(one)
            told.append(signal.SIGPIPE in signal.sigpending())
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return told, signal.SIGPIPE in signal.sigpending()
    stream = socket.SOCK_STREAM
    print(json.dumps({
        "local": sent(pair(stream)), "without a signal": sent(pair(stream), socket.MSG_NOSIGNAL),
        "datagram": sent(pair(socket.SOCK_DGRAM)), "packets": sent(pair(socket.SOCK_SEQPACKET)),
        "tcp": sent(pair("tcp")), "tcp, without a signal": sent(pair("tcp"), socket.MSG_NOSIGNAL),
        "sendto": by_sendto(pair("tcp")), "sendto, without a signal": by_sendto(pair("tcp"), socket.MSG_NOSIGNAL),
        "nobody listens": after(lambda: sent(pair(stream))), "again": [sent(pair(stream)) for _ in range(20)],
        "of that thread alone": other_thread(pair(stream)),
    }))
    """


def test_a_broken_stream_signals_who_sends(box):
    """SIGPIPE comes with EPIPE, before the call ends, to the very thread, once; not for datagrams, nor when it is not
    wanted.
    """
    bare, boxed = both(box, BROKEN)
    assert bare["local"] == ["EPIPE", 1] and bare["nobody listens"] == -13 and bare["without a signal"] == ["EPIPE", 0]
    assert bare["of that thread alone"] == [[True], False]
    assert boxed == bare


PAGES = r"""
    import json, select, socket, struct
    ZEROCOPY, SO_ZEROCOPY, ERRQUEUE = 0x4000000, 60, 0x2000
    def completions(one, most):
        found = 0
        poll = select.poll()
        poll.register(one, 0)
        while found < most and poll.poll(2000):
            for level, kind, data in one.recvmsg(100, 1000, ERRQUEUE)[1]:
                number, origin, _, _, _, first, last = struct.unpack_from("=IBBBBII", data)
                found += last - first + 1 if origin == 5 else 0
        return found
    def tcp(asked):
        server = socket.create_server(("127.0.0.1", 0))
        ours = socket.create_connection(server.getsockname())
        theirs = server.accept()[0]
        if asked:
            ours.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        sizes = [70000, 1, 30000]
        bodies = [bytes([65 + at]) * size for at, size in enumerate(sizes)]
        sent = [ours.sendmsg([body], [], ZEROCOPY) for body in bodies]
        got = b""
        while len(got) < sum(sent):
            got += theirs.recv(1 << 20)
        same = got == b"".join(body[:size] for body, size in zip(bodies, sent))
        return sent == sizes, same, completions(ours, 3 if asked else 1)
    def local():
        ours, theirs = socket.socketpair()
        return ours.sendmsg([b"abc"], [], ZEROCOPY), theirs.recv(9).decode()
    print(json.dumps({"asked": tcp(True), "not asked": tcp(False), "local": local()}))
    """


def test_pages_are_sent_and_told_of(box):
    """MSG_ZEROCOPY with SO_ZEROCOPY: the kernel tells when it is done with the pages; without, it means nothing."""
    bare, boxed = both(box, PAGES)
    assert bare == {"asked": [True, True, 3], "not asked": [True, True, 0], "local": [3, "abc"]}
    assert boxed == bare


YES = r"""
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>
int main(void) {
    struct iovec part = {"y\n", 2};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    for (;;) if (sendmsg(1, &head, 0) < 0 && errno != ECONNRESET) _exit(3);  // first, if some is unread
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
def test_a_program_ends_when_its_reader_does(box):
    """As everybody expects of `yes | head`, over a socket: by the signal, and not by its own handling of the error."""
    (box.folder / "yes.c").write_text(YES)
    subprocess.run(["gcc", "-o", str(box.ws / "yes"), str(box.folder / "yes.c")], check=True)
    code = """
        import os, socket, subprocess, sys
        ours, theirs = socket.socketpair()
        child = subprocess.Popen(["./yes"], stdout=theirs)
        theirs.close()
        assert ours.recv(2) == b"y\\n"
        ours.close()
        print(child.wait())
        """
    argv = box.python(code)
    assert box.bare(*argv).stdout == "-13\n"
    done = box.run("write: .\nread: ../program.py\nexec: ./yes\n", *argv)
    assert done.out == "-13\n", done.err


LONG = r"""
    import ctypes, errno, json, socket, struct
    libc = ctypes.CDLL(None, use_errno=True)
    body = bytes(range(256)) * 4096 + b"!"
    def sent(one, *address):
        one.setblocking(False)
        try:
            return one.sendmsg([body[:1000], body[1000:]], [], 0, *address)
        except OSError as error:
            return errno.errorcode[error.errno]
    told = {}
    for name, kind in (("datagram", socket.SOCK_DGRAM), ("packets", socket.SOCK_SEQPACKET)):
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        told[name] = sent(ours)
    there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    there.bind(("127.0.0.1", 0))
    told["udp"] = sent(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), there.getsockname())
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    text = ctypes.create_string_buffer(body, len(body))
    part = (ctypes.c_ulong * 2)(ctypes.addressof(text), len(body))
    heads = ctypes.create_string_buffer(struct.pack("=QI4xQQQQi4xI4x", 0, 0, ctypes.addressof(part), 1, 0, 0, 0, 0))
    told["messages"] = libc.sendmmsg(ours.fileno(), heads, 1, 0)
    ours.close()
    told["all told"] = struct.unpack_from("=I", heads, 56)[0] == len(b"".join(iter(lambda: theirs.recv(65536), b"")))
    print(json.dumps(told))
    """


def test_a_message_that_is_too_long_is_not_sent_in_part_and_what_is_sent_of_several_is_told(box):
    """One that is whole or nothing fails; a stream takes what fits, and the caller learns how much."""
    bare, boxed = both(box, LONG)
    assert bare == {"datagram": "EMSGSIZE", "packets": "EMSGSIZE", "udp": "EMSGSIZE", "messages": 1, "all told": True}
    assert boxed == bare


CROWD = (
    textwrap.indent(POLLED, "    ")
    + r"""
    import json, os, socket, sys, threading, time
    def sends():
        ours, theirs = socket.socketpair()
        kept.append(theirs)
        while True:
            begun.append(1)
            ours.sendmsg([body])
    kept, begun, body = [], [], bytes(1 << 20)
    threading.stack_size(65536)
    for _ in range(200):
        threading.Thread(target=sends, daemon=True).start()
    wait_until(lambda: len(begun) >= 400)  # each has filled its socket once, and waits
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    print(json.dumps([ours.sendmsg([b"still"]), theirs.recv(9).decode()]), flush=True)
    input()
    os._exit(0)
    """
)


def test_what_waits_to_be_sent_is_held_up_to_a_limit(tmp_path):
    """Two hundred senders of a mebibyte each cost the supervisor less than half of that; messages go on."""
    bench = Bench(tmp_path, CROWD)
    with bench.start(bench.boxed(), stdin=-1, stdout=-1, stderr=-1) as running:
        told = json.loads(running.stdout.readline())
        with open(f"/proc/{running.pid}/status") as status:
            held = int(status.read().partition("VmRSS:")[2].split()[0])
        running.communicate("\n", timeout=PATIENCE)
    assert told == [5, "still"] and held < 130_000


LINGERING = r"""
    import json, os, socket, struct, sys, time
    def unsent(seconds):
        # what the other end never reads cannot be sent
        server = socket.create_server(("127.0.0.1", 0))
        one = socket.create_connection(server.getsockname())
        other = server.accept()[0]
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
        one.setblocking(False)
        try:
            while one.send(bytes(65536)):
                pass
        except BlockingIOError:
            one.setblocking(True)
        return one, other
    one, waiting = unsent(int(sys.argv[1]))
    said = one.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
    began = time.monotonic()
    one.close()
    waited = time.monotonic() - began > int(sys.argv[1]) - 0.5
    one, other = unsent(0)
    one.close()
    try:
        while other.recv(1 << 20):
            pass
        reset = False
    except ConnectionResetError:
        reset = True
    print(json.dumps({"said": struct.unpack("ii", said), "waited": waited, "reset": reset}))
"""


def test_no_close_waits_for_what_is_not_sent_yet(box):
    """The supervisor may be the last to close a socket, with a duplicate, and would answer nobody for as long as the
    program likes. A connection that is to be reset is.
    """
    bare, inside = both(box, LINGERING, "3", "100")
    assert bare == {"said": [1, 3], "waited": True, "reset": True}
    assert inside == {"said": [0, 0], "waited": False, "reset": True}
