"""A whole trap, tried out: a process waits at its own filter, and another takes over the filter, reads its memory,
writes to it, and hands it a descriptor.

What a machine keeps from agentbox shows here before a run relies on it: containers forbid some of these calls, and Yama
may keep processes from each other (ptrace_scope 2 and 3). It leaves nothing behind.
"""

from __future__ import annotations

import os
import select
import stat
import sys

from agentbox.guard.kernel import bpf, callnumbers
from agentbox.guard.kernel.confine import adopt
from agentbox.guard.kernel.memory import Memory
from agentbox.guard.kernel.notify import Listener
from agentbox.guard.kernel.seccomp import SECCOMP, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Never

_PATH = b"/agentbox/rehearsal"
"""What is asked for, and is nowhere: the answer can only be the one that is given."""
_PATIENCE = 5000  # milliseconds
_LISTENER, _FAILED = b"l", b"e"


def rehearse() -> None:
    """In a process of its own, of one thread. Raises `OSError`, its text the name of the call that fails and why."""
    reader, writer = os.pipe()
    waiting, go = os.pipe()
    asker = os.fork()
    if asker == 0:
        os.close(reader)
        os.close(go)  # so that the other end's is the last one
        _ask(writer, waiting)
    os.close(writer)
    os.close(waiting)
    try:
        _answer(asker, reader, go)
    finally:
        os.close(go)
        status = os.waitpid(asker, 0)[1]
    if status:
        raise OSError(0, "SECCOMP_IOCTL_NOTIF_ADDFD: a descriptor that was handed over did not arrive")


def _ask(writer: int, waiting: int) -> Never:
    try:
        machine = os.uname().machine
        rows = (bpf.Row("openat", bpf.NOTIFY),)
        arch = callnumbers.AUDIT_ARCH[machine]
        plan = Plan(*bpf.assemble(rows, arch, callnumbers.table(machine), callnumbers.LAST))
        try:
            SECCOMP.apply(plan)
        except OSError as error:
            os.write(writer, _FAILED + (error.errno or 0).to_bytes(4, sys.byteorder))
            os._exit(0)
        os.write(writer, _LISTENER + plan.listener.to_bytes(4, sys.byteorder))
        if os.read(waiting, 1):
            os.close(plan.listener)  # or nobody else's close would let go of this process
            got = os.fstat(os.open(_PATH, os.O_RDONLY))
            os._exit(0 if stat.S_ISCHR(got.st_mode) else 1)
        os._exit(0)
    finally:
        os._exit(1)


def _answer(asker: int, reader: int, go: int) -> None:
    data = os.read(reader, 5)
    number = int.from_bytes(data[1:], sys.byteorder)
    if data[:1] != _LISTENER:
        raise OSError(number, os.strerror(number) if number else "the filter could not be made")
    listener = Listener(adopt(asker, number))
    os.write(go, b"g")
    try:
        poll = select.poll()
        poll.register(listener.fd, select.POLLIN)
        call = listener.receive() if poll.poll(_PATIENCE) else None
        if call is None:
            raise OSError(0, "SECCOMP_IOCTL_NOTIF_RECV: the kernel hands over no call")
        memory = Memory()
        path = memory.text(call.pid, call.args[1])
        memory.write(call.pid, call.args[1], path)
        if path != _PATH:
            raise OSError(0, "process_vm_readv: what was read is not what is there")
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        listener.give(call, descriptor, True)
    finally:
        listener.close()
