"""Sends that the supervisor makes in a program's name end as the kernel's own do: broken streams, and pages that are
sent without being copied. Each program says the same without the sandbox.
"""

import json
import shutil
import subprocess
import sys

import pytest
from test_confined import Box

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def both(box, code):
    """What the program says, without and within the sandbox."""
    argv = box.python(code)
    bare, done = box.bare(*argv), box.run("read: ../program.py\n", *argv)
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
