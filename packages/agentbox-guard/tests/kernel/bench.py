"""Running one hostile program without and with agentbox, also on a machine that lacks some of the layers' means."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from kit.waiting import PATIENCE, read_until

from agentbox.guard.kernel import bpf, callnumbers, rows, syscalls

NO_NAMESPACES, NO_LANDLOCK, NO_SECCOMP = "netns", "landlock", "seccomp"
MACHINES = [
    pytest.param((), id="all-layers"),
    pytest.param((NO_NAMESPACES,), id="no-namespaces"),
    pytest.param((NO_NAMESPACES, NO_LANDLOCK), id="seccomp-alone"),
]
_LANDLOCK_CREATE_RULESET = 444  # <asm/unistd.h>, Linux 5.13, on all machines


def lack(layers, calls=()):
    """Make the kernel refuse what the layers need, or `calls` (EPERM), for this process and all that it starts."""
    machine = os.uname().machine
    own = {"landlock": _LANDLOCK_CREATE_RULESET, "seccomp": 317 if machine == "x86_64" else 277, "pidfd_open": 434}
    numbers = {**callnumbers.table(machine), **own}
    made = [bpf.Row(name, bpf.ERRNO | errno.EPERM) for name in calls]
    if NO_NAMESPACES in layers:
        spaces = bpf.Test(0, (0,), mask=rows.NAMESPACES, wanted=False)
        made.append(bpf.Row("unshare", bpf.ERRNO | errno.EPERM, spaces))
    if NO_LANDLOCK in layers:
        made.append(bpf.Row("landlock", bpf.ERRNO | errno.ENOSYS))
    if NO_SECCOMP in layers:
        made.append(bpf.Row("seccomp", bpf.ERRNO | errno.EINVAL))
    if made:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        syscalls.seccomp(0, *bpf.assemble(made, callnumbers.AUDIT_ARCH[machine], numbers, callnumbers.LAST))


WAITING = """
    def waiting():
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)
            os._exit(0)
        return child
    """
"""For a program: `waiting()` forks a child that lives as long as its parent, and gives its number."""


def said_over(leader, terminal):
    """What a session with a terminal of its own says until `over`, or its end; it is ended then."""
    said = read_until(terminal, b"over")
    os.kill(leader, signal.SIGKILL)
    os.waitpid(leader, 0)
    os.close(terminal)
    return said.decode("utf-8", "replace")


class Bench:
    """A workspace `ws`, and a Python program without a guard in it that is run `bare` or `boxed`."""

    def __init__(self, folder, code="", policy=""):
        self.folder = folder
        self.policy = policy
        for name in ("ws", "state"):
            (folder / name).mkdir()
        self.ws = folder / "ws"
        self.program = folder / "program.py"
        self.program.write_text(textwrap.dedent(code))
        self.state = folder / "state"

    def bare(self, *words):
        return [sys.executable, "-I", "-S", str(self.program), *map(str, words)]

    def boxed(self, *words, without=(), command=None):
        policy = self.state / "agentbox.policy"
        policy.write_text(f"read: ../program.py\n{self.policy}")
        options = ["--allow-degraded", ",".join(without)] if without else []
        head = [sys.executable, "-m", "agentbox.cli", "run", "-p", str(policy), "-t", f"{self.state}/trace.jsonl"]
        return [*head, *options, "--", *(command or self.bare(*words))]

    def start(self, command, without=(), **more):
        return subprocess.Popen(command, cwd=self.ws, preexec_fn=lambda: lack(without), text=True, **more)

    def run(self, command, without=(), timeout=PATIENCE, **more):
        return subprocess.run(
            command, cwd=self.ws, preexec_fn=lambda: lack(without), capture_output=True, text=True, timeout=timeout,
            **more,
        )  # fmt: skip

    def told(self, command, without=()):
        """What the program has printed as JSON."""
        done = self.run(command, without)
        assert done.stdout, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def denied(self):
        """The targets of the trace's denials."""
        with open(self.state / "trace.jsonl") as file:
            return [entry["target"] for entry in map(json.loads, file) if entry["kind"] == "deny"]
