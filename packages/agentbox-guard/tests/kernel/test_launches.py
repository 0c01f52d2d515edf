"""Programs for SDK calls, and the starter that makes them: neither can be taken over or ended by the agent."""

import _socket
import os
import subprocess
import sys

import pytest
from bench import MACHINES, NO_LANDLOCK, NO_NAMESPACES, Bench
from kit.waiting import wait_until

from agentbox.guard.family import parent_and_group
from agentbox.guard.kernel.confine import Handover
from agentbox.guard.kernel.launches import Launches
from agentbox.guard.kernel.spawner import ENDED, Spawner
from agentbox.guard.procfs import started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")


@pytest.fixture
def processes():
    """Two processes that wait."""
    made = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    yield [one.pid for one in made]
    for one in made:
        one.kill()
        one.wait()


def test_a_launch_is_one_exec_of_one_process_by_its_own_filter(processes):
    """Neither another process, nor another filter, nor a second exec is what the supervisor has decided on."""
    launches = Launches()
    launches.add(7, processes[0])
    assert not launches.take(8, processes[0]) and not launches.take(7, processes[1])
    assert launches.take(7, processes[0]) and not launches.take(7, processes[0])


def test_a_launch_ends_with_its_process(processes, monkeypatch):
    """Another process by the same number, which has begun at another time, may not use it."""
    launches = Launches()
    launches.add(7, processes[0])
    monkeypatch.setattr("agentbox.guard.kernel.launches.started", lambda pid: started(pid) + 1)
    assert not launches.take(7, processes[0])


def test_what_has_not_begun_is_held_and_what_has_is_not():
    """The starter, who follows a program for it, and the program until its exec: two generations below the starter."""
    code = """
import os, signal
if os.fork() == 0:
    if os.fork():
        signal.pause()
    print(os.getpid(), os.getppid(), flush=True)
signal.pause()
"""
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, process_group=0)
    try:
        program, follower = map(int, starter.stdout.readline().split())
        launches = Launches()
        assert not launches.holds(program)
        launches.starter = lambda: starter.pid
        assert launches.holds(starter.pid) and launches.holds(follower) and launches.holds(program)
        launches.add(7, program)
        assert launches.holds(program)
        assert launches.take(7, program)
        assert not launches.holds(program) and launches.holds(follower) and not launches.holds(os.getpid())
    finally:
        os.killpg(starter.pid, 9)
        starter.communicate()


def test_a_starter_that_is_gone_is_said_so():
    """Not "broken pipe", which is about something else."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    ours.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
    theirs.close()
    spawner = Spawner(ours, Handover, lambda call: call())
    with pytest.raises(ProcessLookupError, match=ENDED):
        spawner.start("/bin/true", ["true"], {}, "/", [0, 1, 2], lambda pid, listener: None)
    assert spawner.starter() == 0
    spawner.close()


KILLER = """
    import ctypes, fcntl, json, os, signal, socket, struct, sys, threading
    one = socket.socket(socket.AF_UNIX)
    one.connect(os.environ["AGENTBOX_CHANNEL"])
    one.sendall(b'{"t":"hello","v":1,"role":"sdk","runtime":"python","version":"3.11"}\\n')
    lines = one.makefile("rb")
    lines.readline()
    def call(number):
        args = {"argv": ["/bin/true"], "cwd": None, "input": None}
        line = {"t": "call", "id": number, "op": "proc.run", "thread": 1, "args": args}
        one.sendall((json.dumps(line) + "\\n").encode())
        answer = json.loads(lines.readline())
        return answer["value"]["status"] if answer["ok"] else answer["error"]
    def attempt(act):
        try:
            act()
        except OSError:
            pass
{how}
    told = []
    for number in range(8):
        thread = threading.Thread(target=lambda: told.append(call(number)))
        thread.start()
        while thread.is_alive():
            kill_all()
    told.append(call(99))
    print(json.dumps(told))
"""


ALL = "    kill_all = lambda: attempt(lambda: os.kill(-1, signal.SIGKILL))\n"


@pytest.mark.parametrize("lacking", MACHINES[:2])
def test_killing_all_that_can_be_killed_spares_what_starts_programs(tmp_path, lacking):
    """Before its exec a program has none of the run's layers, and the starter never: kill(-1) ends only what has
    begun.
    """
    bench = Bench(tmp_path, KILLER.replace("{how}", ALL), "exec: true\n")
    told = bench.told(bench.boxed(without=lacking), lacking)
    assert set(told[:-1]) <= {0, 137} and told[-1] == 0, told


ONE_BY_ONE = """
    libc = ctypes.CDLL(None)
    x86 = os.uname().machine == "x86_64"
    info = ctypes.create_string_buffer(struct.pack("=iii", signal.SIGKILL, 0, -1), 128)
    ends = socket.socketpair()
    def by_pidfd(pid):
        fd = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)
    def by_input(pid):
        fcntl.fcntl(ends[0], 10, signal.SIGKILL)
        fcntl.fcntl(ends[0], fcntl.F_SETOWN, pid)
        fcntl.ioctl(ends[0], 0x5452, struct.pack("=i", 1))
        ends[1].send(b"x")
    def kill_all():
        numbers = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
        for pid in numbers:
            libc.syscall(200 if x86 else 130, pid, 9)
            libc.syscall(234 if x86 else 131, pid, pid, 9)
            libc.syscall(129 if x86 else 138, pid, 9, info)
            libc.syscall(297 if x86 else 240, pid, pid, 9, info)
            for act in (lambda: os.kill(pid, 9), lambda: by_pidfd(pid), lambda: by_input(pid)):
                attempt(act)
"""


@pytest.mark.attempt("P1")
@pytest.mark.parametrize("lacking", [(), (NO_LANDLOCK,)], ids=["all-layers", "no-landlock"])
def test_no_number_of_the_run_ends_what_starts_programs(tmp_path, lacking):
    """By each call that sends a signal, and by input that has one sent; Landlock alone refuses it on some kernels."""
    bench = Bench(tmp_path, KILLER.replace("{how}", ONE_BY_ONE), "exec: true\nread: /proc\n")
    told = bench.told(bench.boxed(without=lacking), lacking)
    assert set(told[:-1]) <= {0, 137} and told[-1] == 0, told


REACH = """
    import errno, json, os, sys
    print(os.getpid(), flush=True)
    told = []
    for pid in map(int, sys.stdin.readline().split()):
        try:
            os.kill(pid, 0)
            told.append(0)
        except OSError as error:
            told.append(errno.errorcode[error.errno])
    print(json.dumps(told))
"""


@pytest.mark.attempt("P1")
def test_the_supervisor_and_the_starter_are_nobodys_to_signal(tmp_path):
    """Where the run sees all processes, by number as well; any other program of the user may."""
    bench = Bench(tmp_path, REACH)
    lacking = (NO_NAMESPACES,)
    run = bench.start(bench.boxed(without=lacking), lacking, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    agent = int(run.stdout.readline())

    def starting():
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if parent_and_group(pid)[0] == run.pid and pid != agent]

    starters = wait_until(starting, "the starter")  # it gets the supervisor for its parent at once
    words = f"{run.pid} {starters[0]} {agent}"
    assert run.communicate(words + "\n")[0] == '["EPERM", "EPERM", 0]\n'
    with subprocess.Popen(["sleep", "600"]) as one, subprocess.Popen(["sleep", "600"]) as other:
        bare = bench.run(bench.bare(), input=f"{one.pid} {other.pid} 0\n")
        one.kill()
        other.kill()
    assert bare.stdout.endswith("[0, 0, 0]\n")
