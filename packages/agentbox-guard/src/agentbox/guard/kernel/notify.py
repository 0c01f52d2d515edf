"""The supervisor's end of seccomp notifications: receive one, tell whether it still stands, answer it.

It decides nothing. Every answer may come too late, because a process can be killed at any time: that is never an error.
Source: seccomp_unotify(2); layouts of <linux/seccomp.h>.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.process import Ids

_RECEIVE = 0xC0502100  # SECCOMP_IOCTL_NOTIF_RECV, Linux 5.0
_SEND = 0xC0182101  # SECCOMP_IOCTL_NOTIF_SEND, Linux 5.0
_VALID = 0x40082102  # SECCOMP_IOCTL_NOTIF_ID_VALID, Linux 5.17 (its direction was another before)
_ADD = 0x40182103  # SECCOMP_IOCTL_NOTIF_ADDFD, Linux 5.9
_SET_FLAGS = 0x40082104  # SECCOMP_IOCTL_NOTIF_SET_FLAGS, Linux 6.6
_SYNC_WAKE_UP = 1  # SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6: 63 µs a call become 14
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE, Linux 5.5
_PUT = 1  # SECCOMP_ADDFD_FLAG_SETFD, Linux 5.9
_AND_SEND = 2  # SECCOMP_ADDFD_FLAG_SEND, Linux 5.14

_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_DESCRIPTOR = struct.Struct("=QIIII")
_ZEROS = bytes(_NOTIFICATION.size)
_GONE = (errno.ENOENT, errno.EINPROGRESS, errno.ESRCH)


class Call:
    """One system call that waits at the listener `fd`: `id`, the thread's `pid` in our namespace, `number`, `arch` and
    six `args`. `ids` is room for what was found out about the caller.
    """

    __slots__ = ("answered", "arch", "args", "fd", "id", "ids", "number", "pid")

    def __init__(self, fd: int, facts: tuple[int, ...]) -> None:
        self.fd = fd
        self.id, self.pid, _, self.number, self.arch, _ = facts[:6]
        self.args = facts[6:]
        self.ids: Ids | None = None
        self.answered = False


class Listener:
    """Receives the calls of one filter, and answers those of any; takes over `descriptor`.

    A call is answered once; later answers do nothing.
    """

    __slots__ = ("_buffer", "_receive", "fd")

    def __init__(self, descriptor: int) -> None:
        self.fd = descriptor
        self._buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(descriptor, _SET_FLAGS, _SYNC_WAKE_UP)
        except OSError:
            pass  # before Linux 6.6: the same answers, later

    def receive(self) -> Call | None:
        """The next waiting call; None if the one that was announced is gone. Waits if there is none: poll before."""
        self._buffer[:] = _ZEROS
        try:
            fcntl.ioctl(self.fd, _RECEIVE, self._buffer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return None
            raise
        return Call(self.fd, _NOTIFICATION.unpack(self._buffer))

    def stands(self, call: Call) -> bool:
        """True while the caller still waits, so that what was read of its /proc entries was its own."""
        try:
            fcntl.ioctl(call.fd, _VALID, call.id.to_bytes(8, "little"))
            return True
        except OSError:
            return False

    def fail(self, call: Call, code: int) -> None:
        """The call fails with an errno."""
        self._send(call, 0, -code, 0)

    def value(self, call: Call, value: int) -> None:
        """The call is done, without the kernel's doing it, and gives `value`."""
        self._send(call, value, 0, 0)

    def proceed(self, call: Call) -> None:
        """The kernel makes the call. Only for what registers, or another layer, already decide: memory may change."""
        self._send(call, 0, 0, _CONTINUE)

    def give(self, call: Call, descriptor: int, close_on_exec: bool) -> None:
        """The call gives a new descriptor of what `descriptor` is; ours stays open.

        A program that has no descriptor left is told so (EMFILE).
        """
        if call.answered:
            return
        try:
            flags = os.O_CLOEXEC if close_on_exec else 0
            fcntl.ioctl(call.fd, _ADD, _DESCRIPTOR.pack(call.id, _AND_SEND, descriptor, 0, flags))
            call.answered = True
        except OSError as error:
            if error.errno in _GONE:
                call.answered = True
            else:
                self.fail(call, error.errno or errno.EIO)

    def put(self, call: Call, descriptor: int, place: int, close_on_exec: bool) -> bool:
        """Put what `descriptor` is over the caller's descriptor number `place`; the call still waits. False if it is
        gone.
        """
        try:
            flags = os.O_CLOEXEC if close_on_exec else 0
            fcntl.ioctl(call.fd, _ADD, _DESCRIPTOR.pack(call.id, _PUT, descriptor, place, flags))
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Whoever waits, and every call that comes, fails with ENOSYS from now on."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _send(self, call: Call, value: int, error: int, flags: int) -> None:
        if call.answered:
            return
        call.answered = True
        try:
            fcntl.ioctl(call.fd, _SEND, _ANSWER.pack(call.id, value, error, flags))
        except OSError as failure:
            if failure.errno not in _GONE:
                raise
