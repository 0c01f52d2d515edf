"""The seccomp layer: a filter that refuses what nobody needs, and hands to the supervisor what the policy decides.

It never lets a call through whose path or address it would have to read: those are answered by the traps (traps/).
"""

from __future__ import annotations

import errno
import os

from agentbox.guard import kernel
from agentbox.guard.kernel import bpf, callnumbers, rows, syscalls
from agentbox.guard.kernel._attempt import in_container, tried

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from agentbox.policy import Policy


class Plan:
    """The assembled filter; `listener` is its descriptor once `apply` has installed it."""

    __slots__ = ("count", "listener", "program")

    def __init__(self, program: bytes, count: int) -> None:
        self.program = program
        self.count = count
        self.listener = -1


class Seccomp:
    """The row of the table of layers."""

    name = "seccomp"
    enforces = kernel.ENFORCES["seccomp"]

    def probe(self) -> str:
        """Try a whole trap in forked children; "" when that works, else what is missing, in one clause."""
        machine = os.uname().machine
        if machine not in callnumbers.MACHINES:
            return f"the machine is {machine}, and agentbox knows the system calls of {', '.join(callnumbers.MACHINES)}"
        if not hasattr(os, "pidfd_open"):
            return "this Python has no os.pidfd_open"
        from agentbox.guard.kernel.rehearsal import rehearse

        return tried(rehearse)

    def plan(self, policy: Policy, context: Mapping[str, Any]) -> Plan:
        """The filter; the policy makes no difference, the member `layers` of `context` does: which others are live."""
        netns = "netns" in context.get("layers", ())
        return plan_for(os.uname().machine, netns=netns)

    def apply(self, plan: Plan) -> None:
        """Install it for the calling process and all that it starts; `plan.listener` is to be handed to the supervisor.

        Raises `OSError`. From here on the process waits at every call that the filter hands over.
        """
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        flags = syscalls.SECCOMP_FILTER_FLAG_NEW_LISTENER
        try:
            # Only a signal that ends the process interrupts a call that the supervisor has begun to answer, so that
            # nothing is done twice (Linux 5.19).
            wait = flags | syscalls.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
            plan.listener = syscalls.seccomp(wait, plan.program, plan.count)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            plan.listener = syscalls.seccomp(flags, plan.program, plan.count)

    def advice(self) -> str:
        """How a user gets the layer on a machine without it; "" when nothing is known to be in its way."""
        if kernel.nested():
            return "this process runs inside another agentbox, whose filter answers already"
        if _forbidden_by_yama():
            return "Yama keeps processes from reading those that they start: sysctl kernel.yama.ptrace_scope=1, or 0"
        if in_container():
            return (
                "a container's seccomp profile forbids reading the processes that one starts: run it with "
                "--cap-add SYS_PTRACE, or --security-opt seccomp=unconfined"
            )
        return "use Linux 5.14 or later built with CONFIG_SECCOMP_FILTER; a container's profile must allow seccomp(2)"


SECCOMP = Seccomp()


def plan_for(machine: str, *, netns: bool) -> Plan:
    """The filter for a machine, with or without namespaces of the run's own."""
    made = rows.rows(pidns=netns, ipcns=netns)
    program, count = bpf.assemble(made, callnumbers.AUDIT_ARCH[machine], callnumbers.table(machine), callnumbers.LAST)
    return Plan(program, count)


def _forbidden_by_yama() -> bool:
    """Whether only root, or nobody, may attach to other processes (admin-guide/LSM/Yama)."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:
        return False
    return scope == "3" or (scope == "2" and os.geteuid() != 0)
