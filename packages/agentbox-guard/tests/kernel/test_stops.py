"""A program that stops itself: the run stops as a shell's job does, so that the terminal comes back to the shell."""

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from bench import MACHINES, Bench, lack, said_over
from kit.waiting import PATIENCE, holds, wait_until

from agentbox.guard.kernel.process import stat_fields

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

STOP = """
    import os, signal, sys
    if len(sys.argv) > 2:
        os.setpgid(0, 0)
    print("up", os.getpid(), flush=True)
    os.kill(os.getpid(), int(sys.argv[1]))
    print("resumed", flush=True)
"""


def as_job(bench, command, lacking):
    """What a shell sees of its job `command`: whether it stopped, its status when it was continued, and its output."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(bench.ws)
        job = os.fork()
        if job == 0:
            os.setpgid(0, 0)
            lack(lacking)
            os.execv(command[0], command)
        with suppress(PermissionError):  # it has executed the command, and done so itself
            os.setpgid(job, job)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, job)
        signal.alarm(PATIENCE)
        _, status = os.waitpid(job, os.WUNTRACED)
        stopped = os.WIFSTOPPED(status)
        os.killpg(job, signal.SIGCONT)
        if stopped:
            _, status = os.waitpid(job, 0)
        os.write(1, f"job {stopped} {os.waitstatus_to_exitcode(status)} over".encode())
        os._exit(0)
    return said_over(pid, terminal)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGTSTP], ids=["SIGSTOP", "SIGTSTP"])
@pytest.mark.parametrize("lacking", MACHINES[:2])
def test_a_job_that_stops_itself_is_stopped_and_goes_on(tmp_path, number, lacking):
    """As without agentbox; whoever continues the job continues the program."""
    bench = Bench(tmp_path, STOP)
    for command, layers in ((bench.boxed(int(number), without=lacking), lacking), (bench.bare(int(number)), ())):
        said = as_job(bench, command, layers)
        assert "job True 0 over" in said and "resumed" in said, said


@pytest.mark.parametrize("lacking", MACHINES[:2])
def test_a_program_in_a_group_of_its_own_goes_on_too(tmp_path, lacking):
    """The shell continues the job's group only: the rest is the supervisor's to continue."""
    bench = Bench(tmp_path, STOP)
    said = as_job(bench, bench.boxed(int(signal.SIGSTOP), "own", without=lacking), lacking)
    assert "job True 0 over" in said and "resumed" in said, said


@pytest.mark.parametrize("whom", ["program", "command"])
@pytest.mark.parametrize("lacking", MACHINES[:2])
def test_nobody_stops_where_nobody_could_go_on(tmp_path, lacking, whom):
    """Without a shell the supervisor serves on, and who continues the program alone finds it alive; timeout(1) and the
    like know the command only, and so continue the program by it.
    """
    bench = Bench(tmp_path, STOP)
    command = bench.boxed(int(signal.SIGSTOP), without=lacking)
    run = bench.start(command, lacking, stdout=subprocess.PIPE, start_new_session=True)
    try:
        word, _ = run.stdout.readline().split()
        assert word == "up"
        agent = wait_for_stop(run.pid)
        assert stat_fields(run.pid)[0] != "T"
        os.kill(agent if whom == "program" else run.pid, signal.SIGCONT)
        assert run.communicate(timeout=PATIENCE)[0] == "resumed\n"
        assert run.returncode == 0
    finally:
        run.kill()
        run.communicate()


def wait_for_stop(supervisor):
    """The process below the supervisor that has stopped, with time for others to follow it."""
    found = wait_until(lambda: [pid for pid in below(supervisor) if state(pid) == "T"], "a program that has stopped")
    holds(lambda: True)  # that nothing follows takes a while to show
    return found[0]


def below(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(word) for word in file.read().split()]
    except OSError:
        return []
    return [*children, *(one for child in children for one in below(child))]


def state(pid):
    try:
        return stat_fields(pid)[0]
    except OSError:
        return ""
