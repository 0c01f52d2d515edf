"""How processes are numbered: each once, whatever happens to its pid, and those that are long gone are forgotten."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from agentbox.guard import connections, family
from agentbox.guard.connections import Processes

HELLO = {"role": "guard", "runtime": "python", "version": "3.12"}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@pytest.fixture
def pid():
    """A process that lives until the end of the test."""
    with subprocess.Popen(["sleep", "60"]) as child:
        yield child.pid
        child.kill()


def reused(monkeypatch, start):
    """From now on every pid stands for a process that was started at `start`."""
    monkeypatch.setattr(connections, "started", lambda pid: start)
    monkeypatch.setattr(connections, "_folder", lambda pid: (start, start))


def test_a_guard_takes_over_the_number_that_the_kernel_has_seen(pid):
    """What a program does before its guard speaks is in its own lane."""
    processes = Processes()
    seen = processes.seen(pid)
    said = processes.hello(pid, HELLO)
    assert said is seen and (said.number, said.runtime, said.told) == (0, "python", False)
    assert processes.hello(pid, {**HELLO, "resume": True}) is said
    assert processes.hello(pid, HELLO).number == 1, "another program by exec, with a guard of its own"


def test_a_pid_that_is_given_out_again_is_another_process(pid, monkeypatch):
    """For the kernel's notices and for a fork that only resumes; what was announced for the old one is dropped."""
    processes = Processes()
    gone = []
    processes.gone = gone.append
    first = processes.hello(pid, HELLO)
    assert processes.check(pid) is first and not gone
    reused(monkeypatch, 7)
    assert processes.check(pid) is None and gone == [pid]
    assert processes.seen(pid).number == 1
    reused(monkeypatch, 8)
    assert processes.hello(pid, {**HELLO, "resume": True}).number == 2


def test_a_folder_made_anew_is_the_same_process(pid, monkeypatch):
    """The kernel may drop what it holds of /proc; the time of the start stays."""
    processes = Processes()
    first = processes.seen(pid)
    monkeypatch.setattr(connections, "_folder", lambda pid: (1, 1))
    assert processes.check(pid) is first and processes.check(pid) is first


def test_a_process_that_has_ended_keeps_its_number():
    """What it did before may be told after its end."""
    processes = Processes()
    with subprocess.Popen(["sleep", "60"]) as child:
        first = processes.seen(child.pid)
        child.kill()
    assert not os.path.exists(f"/proc/{child.pid}")
    assert processes.check(child.pid) is first and processes.seen(child.pid) is first


def test_those_that_are_long_gone_are_forgotten(pid, monkeypatch):
    """A run of a hundred thousand processes remembers some thousands, and numbers each of them once."""
    monkeypatch.setattr(connections, "MOST_KNOWN", 100)
    processes = Processes()
    own = processes.seen(pid)
    never = range(1 << 24, (1 << 24) + 5000)  # above PID_MAX_LIMIT, <linux/threads.h>: nobody's
    numbers = [processes.seen(number).number for number in never]
    assert numbers == list(range(1, 5001)) and len(processes) < 400
    assert processes.seen(pid) is own
    last = never[-1]
    assert processes.seen(last).number == numbers[-1], "not at once: what it did may be told later"


class Chain:
    """A process that forks and ends at once, and its child likewise: a look into /proc at all processes finds those of
    before.
    """

    def __init__(self):
        self.now, self.ended = 1000, {}

    def hop(self, *_):
        self.ended[self.now] = 0
        self.now += 1
        return os.getpid(), 0

    def children(self):
        return [*self.ended, *([self.now] if self.now else [])]

    def kill(self, pid, number):
        if pid == self.now:
            self.ended[pid], self.now = number, 0

    def wait(self, pid, options):
        if pid not in self.ended:
            return 0, 0
        return pid, self.ended.pop(pid)


def test_a_process_that_forks_and_ends_all_the_time_is_caught(monkeypatch):
    """What it has become since is a child of ours, and children are looked at and killed without a look at others."""
    chain = Chain()
    monkeypatch.setattr(family, "_PATIENCE", 0.2)
    monkeypatch.setattr(family, "_children", list)
    run = family.Family(7)
    monkeypatch.setattr(family, "_children", chain.children)
    monkeypatch.setattr(family, "_pids", chain.children)
    monkeypatch.setattr(family, "parent_and_group", chain.hop)
    monkeypatch.setattr(family.os, "kill", chain.kill)
    monkeypatch.setattr(family.os, "waitpid", chain.wait)
    assert run.end([], chain.hop) == 1
    assert not chain.children()


def test_a_run_ends_though_there_is_no_descriptor_to_look_with(monkeypatch):
    """The agent is killed, and what it has started is seen when the agent's descriptors are free."""
    looks = []

    def children():
        looks.append(1)
        if len(looks) < 3:
            raise OSError(errno.ENFILE, "no descriptor")
        return [one.pid for one in (agent, second) if one.poll() is None]

    with subprocess.Popen(["sleep", "60"]) as agent, subprocess.Popen(["sleep", "60"]) as second:
        monkeypatch.setattr(family, "_children", list)
        run = family.Family(agent.pid)
        monkeypatch.setattr(family, "_children", children)
        run.end([], lambda: None)
        assert agent.poll() is not None and second.poll() is not None


@pytest.mark.parametrize(("script", "expected"), [("exit 3", 3), ("sleep 60", -signal.SIGKILL)])
def test_a_status_is_not_lost_to_the_end_of_the_run(script, expected):
    """The end collects every child; whoever waits for one of them still learns how it ended."""
    run = family.Family(0)
    child = subprocess.Popen(["sh", "-c", script])
    if expected >= 0:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    run.end([], lambda: None)
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)
    assert os.waitstatus_to_exitcode(run.wait(child.pid)) == expected
    child.returncode = expected
    with pytest.raises(ChildProcessError):
        run.wait(os.getpid())
