"""The run's own starter of programs for SDK calls: a process inside the namespaces that confines and executes on
request.

It waits without a filter of its own and does nothing that the supervisor has not sent; what it starts enters the same
layers as the agent, and each such program hands over a listener of its own.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import errno
import os
import select
import struct
import sys

from agentbox.guard.kernel import syscalls
from agentbox.guard.kernel.netns import drop_capabilities
from agentbox.guard.procfs import started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Never

    from agentbox.guard.kernel.confine import Handover

_HEAD = struct.Struct("=Q")
_UP = b"u"
"""What the starter sends when it is there, so that the supervisor knows its number (SCM_CREDENTIALS)."""
_MSG_DONTWAIT = 0x40  # <linux/socket.h>
_PATIENCE = 1000  # milliseconds
ENDED = "the process of agentbox that starts programs in this run is gone"
_END = struct.Struct("=ii")
"""What is told of a program at its end: wait status, and errno of an exec that failed."""
_FDS = 5
"""Standard input, output and error of the program, the hand-over's inner end, and where its wait status goes."""


def serve(requests: _socket.socket, confine: Callable[[int, Callable[[], Never]], Never]) -> Never:
    """In a process of its own: start what is asked for, until the other end is closed.

    `confine(hand_over, start)` enters the layers, hands over by the descriptor and calls `start`.
    """
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    drop_capabilities()
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    place = requests.fileno()
    os.closerange(3, place)
    os.closerange(place + 1, 1 << 20)
    requests.send(_UP)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # those that follow programs are collected by the kernel
    while (request := _receive(requests)) is not None:
        payload, fds = request
        if os.fork() == 0:
            try:
                requests.close()
                _follow(payload, fds, confine)
            finally:
                os._exit(70)
        for fd in fds:
            os.close(fd)
    os._exit(0)


def _receive(requests: _socket.socket) -> tuple[bytes, list[int]] | None:
    head, ancillary, _, _ = requests.recvmsg(_HEAD.size, _socket.CMSG_SPACE(4 * _FDS))
    fds = [fd for _, _, body in ancillary for fd in struct.unpack(f"={len(body) // 4}i", body)]
    if len(head) != _HEAD.size or len(fds) != _FDS:
        return None
    (left,) = _HEAD.unpack(head)
    payload = b""
    while len(payload) < left:
        piece = requests.recv(left - len(payload))
        if not piece:
            return None
        payload += piece
    return payload, fds


def _follow(payload: bytes, fds: list[int], confine: Callable[[int, Callable[[], Never]], Never]) -> Never:
    """Start one program, and tell its wait status when it has ended, and the errno of execve(2) if it never began."""
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    *streams, hand_over, status = fds
    reader, failed = os.pipe()  # closed by a successful exec
    child = os.fork()
    if child == 0:
        try:
            os.close(status)
            file, cwd, count, *words = payload.split(b"\0")
            argv, environ = words[: int(count)], words[int(count) :]
            for number, fd in enumerate(streams):
                os.dup2(fd, number)
                os.close(fd)
            os.chdir(cwd)
            for signal in (_signal.SIGPIPE, _signal.SIGXFSZ):
                _signal.signal(signal, _signal.SIG_DFL)
            _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
            pairs = dict(entry.partition(b"=")[::2] for entry in environ if entry)
            # The supervisor takes the listener by pidfd_getfd(2), which an ordinary user may do to dumpable processes
            # only. The agent's own Landlock domain keeps it from this one, which is in none yet (landlock(7)).
            syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
            confine(hand_over, lambda: _execute(file, argv, pairs, failed))
        except OSError as error:
            os.write(hand_over, b"e" + (error.errno or 5).to_bytes(4, sys.byteorder))
        finally:
            os._exit(127)
    for fd in (*streams, hand_over, failed):
        os.close(fd)
    _, ended = os.waitpid(child, 0)
    number = int.from_bytes(os.read(reader, 4), sys.byteorder)
    os.write(status, _END.pack(ended, number))
    os._exit(0)


def _execute(file: bytes, argv: list[bytes], environ: Mapping[bytes, bytes], failed: int) -> Never:
    try:
        os.execve(file, argv, environ)
    except OSError as error:
        os.write(failed, (error.errno or errno.EINVAL).to_bytes(4, sys.byteorder))
    finally:
        os._exit(127)


class Spawner:
    """The supervisor's end. `start` may be called from any thread; `launched(pid, listener)` is called on the
    loop's.
    """

    __slots__ = ("_lock", "_make", "_post", "_requests", "_starter")

    def __init__(
        self,
        requests: _socket.socket,
        make: Callable[[], Handover],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        from _thread import allocate_lock

        self._requests = requests
        self._make = make
        self._post = post
        self._lock = allocate_lock()
        self._starter: tuple[int, int] | None = None

    def starter(self, patience: int = _PATIENCE) -> int:
        """The starter's process, as we number it; 0 when it has ended, or is not there after so many milliseconds."""
        if self._starter is None:
            self._starter = _announced(self._requests, patience)
        pid, start = self._starter or (0, 0)
        return pid if start and started(pid) == start else 0

    def start(
        self,
        file: str,
        argv: Sequence[str],
        environ: Mapping[str, str],
        cwd: str,
        ends: list[int],
        launched: Callable[[int, int], None],
    ) -> Program:
        """Start a program with three standard descriptors. Raises `OSError` when it cannot be."""
        words = [file, cwd, str(len(argv)), *argv, *(f"{name}={value}" for name, value in environ.items())]
        if any("\0" in word for word in words):
            raise OSError(22, os.strerror(22))
        payload = b"\0".join(os.fsencode(word) for word in words)
        hand_over = self._make()
        reader, writer = os.pipe()
        try:
            with self._lock:
                fds = struct.pack(f"={_FDS}i", *ends, hand_over.inner, writer)
                self._requests.sendmsg([_HEAD.pack(len(payload))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
                self._requests.sendall(payload)
        except OSError as error:
            os.close(reader)
            hand_over.close()
            if error.errno in (errno.EPIPE, errno.ECONNRESET):
                raise OSError(errno.ESRCH, ENDED) from None
            raise
        finally:
            os.close(writer)
        taken = hand_over.take()
        if taken is None:
            os.close(reader)
            hand_over.close()
            number = hand_over.failed
            raise OSError(number, os.strerror(number)) if number else OSError(errno.ESRCH, ENDED)

        def go() -> None:
            if taken.listener >= 0:
                launched(taken.agent, taken.listener)
            hand_over.release()

        self._post(go)
        return Program(taken.agent, reader, file)

    def close(self) -> None:
        """The starter ends, and is gone when this returns: it is no process that outlives the agent."""
        pid = self.starter(0)
        self._requests.close()
        if pid > 0:
            try:
                pidfd = os.pidfd_open(pid)
            except OSError:
                return
            waiting = select.poll()
            waiting.register(pidfd, select.POLLIN)
            waiting.poll(_PATIENCE)
            os.close(pidfd)


def _announced(requests: _socket.socket, patience: int) -> tuple[int, int] | None:
    """The starter that has said that it is up, by its number and start; (0, 0) when it is gone, None when none is yet.

    The socket stays as it is: another thread may be sending by it.
    """
    waiting = select.poll()
    waiting.register(requests.fileno(), select.POLLIN)
    if not waiting.poll(patience):
        return None
    try:
        _, ancillary, _, _ = requests.recvmsg(1, _socket.CMSG_SPACE(12), _MSG_DONTWAIT)
    except OSError:
        return 0, 0
    pid = struct.unpack("=iII", ancillary[0][2])[0] if ancillary else 0
    return pid, started(pid)


class Program:
    """A started program: `pid` (in our namespace), and its end."""

    __slots__ = ("_file", "_reader", "pid")

    def __init__(self, pid: int, reader: int, file: str) -> None:
        self.pid = pid
        self._reader = reader
        self._file = file

    def wait(self) -> int:
        """Its wait status, when it has ended; that of a killed one if nobody can say any more. Raises `OSError` if the
        kernel would not start it (execve(2)).
        """
        try:
            data = os.read(self._reader, _END.size)
        finally:
            os.close(self._reader)
        if len(data) != _END.size:
            return int(_signal.SIGKILL)
        status, number = _END.unpack(data)
        if number:
            raise OSError(number, os.strerror(number), self._file)
        return int(status)
