"""How processes are numbered: each once, whatever happens to its pid, and those that are long gone are forgotten."""

import os
import subprocess
import sys

import pytest

from agentbox.guard import connections
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
