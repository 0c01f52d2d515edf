"""The least that an open can cost which another process answers: no policy, no record, no look-up but the open itself.

usage: floor.py COMMAND...; what agentbox adds to it is its own, the rest is the kernel's and the machine's. Where a
waiting processor sleeps at once (virtual machines), most of it is waking up.
"""

from __future__ import annotations

import os
import select
import sys

from agentbox.guard.kernel import bpf, callnumbers, syscalls
from agentbox.guard.kernel.memory import Memory
from agentbox.guard.kernel.notify import Listener
from agentbox.guard.kernel.seccomp import SECCOMP, Plan


def main() -> int:
    machine = os.uname().machine
    numbers, arch = callnumbers.table(machine), callnumbers.AUDIT_ARCH[machine]
    reader, writer = os.pipe()
    go, let = os.pipe()
    child = os.fork()
    if child == 0:
        plan = Plan(*bpf.assemble((bpf.Row("openat", bpf.NOTIFY),), arch, numbers, callnumbers.LAST))
        SECCOMP.apply(plan)
        os.write(writer, bytes([plan.listener]))
        os.read(go, 1)
        os.execvp(sys.argv[1], sys.argv[1:])
    listener = Listener(syscalls.pidfd_getfd(os.pidfd_open(child), os.read(reader, 1)[0]))
    os.write(let, b"x")
    serve(listener)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def serve(listener: Listener) -> None:
    """Open what is asked for, whatever it is, and hand it over, until nobody asks any more."""
    memory = Memory()
    poll = select.epoll()
    poll.register(listener.fd, select.EPOLLIN)
    while all(mask & select.EPOLLIN for _, mask in poll.poll()):
        call = listener.receive()
        if call is None:
            continue
        try:
            path, flags = memory.text(call.pid, call.args[1]), call.args[2] & 0x7FFFFFFF
            fd = os.open(path, flags, call.args[3] & 0o777)
        except OSError as error:
            listener.fail(call, error.errno or 5)
            continue
        listener.give(call, fd, bool(flags & os.O_CLOEXEC))
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
