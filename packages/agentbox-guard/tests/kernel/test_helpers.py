"""The supervisor's short-lived children, which make a call in a program's name: none of them lives on without it."""

import json
import os
import socket
import sys

import pytest
from bench import MACHINES, Bench
from kit.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

WAITING = """
    import socket
    kept = []
    print("ready", flush=True)
    input()
    while True:  # until one waits for room in the queue
        kept.append(socket.socket(socket.AF_UNIX))
        kept[-1].connect("s")
"""


@pytest.mark.parametrize("lacking", MACHINES)
def test_a_connect_that_waits_in_a_program_s_name_ends_with_the_supervisor(tmp_path, lacking):
    """Its child has the run's standard output, the trace and the filter's listener."""
    bench = Bench(tmp_path, WAITING, "net: unix:./s\n")
    with (
        socket.socket(socket.AF_UNIX) as server,
        bench.start(bench.boxed(without=lacking), lacking, stdin=-1, stdout=-1, stderr=-1) as running,
    ):
        server.bind(str(bench.ws / "s"))
        server.listen(0)
        assert running.stdout.readline() == "ready\n"
        running.stdin.write("\n")
        running.stdin.flush()
        await_helper(running.pid)
        running.kill()
        running.communicate(timeout=PATIENCE)


def await_helper(supervisor):
    """Its children that wait for a connection, as soon as there is one."""
    return wait_until(lambda: [pid for pid in children(supervisor) if is_waiting(pid)], "a child that waits")


def is_waiting(number):
    """Whether it is the supervisor once more, and waits for a connection."""
    try:
        with open(f"/proc/{number}/wchan") as wchan, open(f"/proc/{number}/cmdline") as command:
            return "agentbox.cli" in command.read() and "wait_for_peer" in wchan.read()
    except OSError:
        return False  # it has ended


def children(pid):
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found += file.read().split()
        except FileNotFoundError:
            pass  # it has ended
    return found


ORPHANS = """
    import os, threading, time
    os.mkfifo("fifo")
    told, tell = os.pipe()
    os.set_inheritable(told, True)
    threading.Thread(target=lambda: open("fifo"), daemon=True).start()
    for _ in range(20):
        if os.fork() == 0:
            if os.fork() == 0:
                os.read(told, 1)
            os._exit(0)
        os.wait()
    os.write(tell, bytes(20))
    print("ready", flush=True)
    input()
    os._exit(0)
"""


def test_orphans_are_collected_while_another_program_waits(tmp_path):
    """Where there is no process namespace they are the supervisor's, and it may wait in a program's name for ever."""
    bench = Bench(tmp_path, ORPHANS, "write: .\n")
    lacking = ("netns",)
    with bench.start(bench.boxed(without=lacking), lacking, stdin=-1, stdout=-1, stderr=-1) as running:
        assert running.stdout.readline() == "ready\n"
        wait_until(lambda: not [pid for pid in children(running.pid) if is_zombie(pid)], "the orphans to be collected")
        running.communicate("\n", timeout=PATIENCE)


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False  # it was collected


SIGNALLING = """
    import json, os, signal, socket, sys, threading, time
    signal.signal(signal.SIGVTALRM, lambda number, frame: None)
    told = []
    def connect():
        while True:  # until one waits for room in the queue
            kept.append(socket.socket(socket.AF_UNIX))
            try:
                kept[-1].connect("s")
            except OSError as error:
                told.append(error.errno)
                return
    kept = []
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    print("ready", flush=True)
    helpers = [int(number) for number in input().split()]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGVTALRM])  # for the other thread alone, which goes on
    os.kill(0, signal.SIGVTALRM)
    for number in helpers:
        try:
            os.kill(number, signal.SIGKILL)
            told.append("killed")
        except OSError as error:
            told.append("refused")
    thread.join(0.3)  # it goes on to wait
    print(json.dumps(told), flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize("lacking", MACHINES[:2])
def test_no_program_of_the_run_signals_a_helper(tmp_path, lacking):
    """Neither with the group, in which it is, nor by its number: the connect goes on to wait."""
    bench = Bench(tmp_path, SIGNALLING, "net: unix:./s\n")
    with (
        socket.socket(socket.AF_UNIX) as server,
        bench.start(
            bench.boxed(without=lacking), lacking, stdin=-1, stdout=-1, stderr=-1, start_new_session=True
        ) as running,
    ):
        server.bind(str(bench.ws / "s"))
        server.listen(0)
        assert running.stdout.readline() == "ready\n"
        found = await_helper(running.pid)
        said, why = running.communicate(f"{' '.join(found)}\n", timeout=PATIENCE)
    told = json.loads(said)
    assert [one for one in told if one != "refused"] == [], (told, why)
