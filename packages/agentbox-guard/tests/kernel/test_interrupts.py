"""Ctrl-C while a run is being prepared: it reaches the whole group of processes, of which the agent is none yet."""

import os
import pty
import subprocess
import sys

import pytest
from kit.waiting import read_until

from agentbox.guard import kernel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

EARLY = """
import os, signal, sys, time
from agentbox.guard.kernel import init
run, fork, forks = init.run, os.fork, []
def late():
    forks.append(1)
    if len(forks) == int(sys.argv[1]):
        os.write(2, b"now")
        while signal.SIGINT not in signal.sigpending():
            pass
    return fork()
def prepare(*words, **more):
    os.fork = late
    run(*words, **more)
init.run = prepare
from agentbox.cli.main import main
sys.exit(main(["run", "--", "sleep", "600"]))
"""


def interrupted(folder, command):
    """The status of a command that has a terminal and is interrupted there when it says "now"; and what it said."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execv(command[0], command)
    said = read_until(terminal, b"now")
    if b"now" in said:
        os.write(terminal, b"\x03")
    said += read_until(terminal, b"\0")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), said.decode("utf-8", "replace")


@pytest.mark.parametrize("fork", [1, 2], ids=["before process 1", "before the agent"])
def test_an_interrupt_is_not_lost_before_the_agent_is_there(tmp_path, fork):
    """The supervisor takes for had what comes from a terminal; the agent gets it as soon as it is there."""
    if "netns" not in kernel.choose("auto", []):
        pytest.skip("no process namespace on this machine")
    (tmp_path / "agentbox.policy").write_text("exec: sleep\n")
    status, said = interrupted(tmp_path, [sys.executable, "-c", EARLY, str(fork)])
    assert status == 130, said
    assert subprocess.run([sys.executable, "-m", "agentbox.cli", "verify"], cwd=tmp_path).returncode == 0
