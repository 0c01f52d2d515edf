"""Who has the terminal, without a process namespace: jobs of the run in turn, and no job of others."""

import json
import os
import pty
import subprocess
import sys

import pytest
from bench import MACHINES, WAITING, Bench, lack, said_over

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

JOBS = (
    """
    import errno, json, os, signal, sys
    told, began = {}, os.getpgrp()
    def attempt(name, group):
        try:
            os.tcsetpgrp(0, group)
            told[name] = os.tcgetpgrp(0) == group
        except OSError as error:
            told[name] = errno.errorcode[error.errno]
    """
    + WAITING
    + """
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # as shells do, which give the terminal away and take it back
    job = waiting()
    os.setpgid(job, job)
    attempt("a job of its own", job)
    attempt("back", began)
    attempt("a job of others", int(sys.argv[1]))
    attempt("back again", began)
    attempt("away", job)
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        os.tcsetpgrp(0, began)
        os._exit(0)
    _, status = os.waitpid(child, os.WUNTRACED)
    told["from behind"] = os.WIFEXITED(status) and os.waitstatus_to_exitcode(status) == 0
    if os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
    print(json.dumps(told), "over", flush=True)
    """
)


def in_session(bench, run):
    """What the leader of a session with a terminal tells, that starts `run(job)`, where `job` is a group of its own."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(bench.ws)
        job = subprocess.Popen(["sleep", "60"], process_group=0)
        run(job.pid)
        job.kill()
        os._exit(0)
    said = said_over(pid, terminal)
    assert "over" in said, said
    return json.loads(said[said.index("{") : said.index("}") + 1])


@pytest.mark.attempt("P1")
@pytest.mark.parametrize("lacking", MACHINES[1:])
def test_the_terminal_is_given_to_no_job_of_others(tmp_path, lacking):
    """Whose group it is gets the user's Ctrl-C. A program in the background that would be stopped for asking gets an
    error, as one does that nobody could continue.
    """
    bench = Bench(tmp_path, JOBS)

    def bare(job):
        subprocess.run(bench.bare(job))

    def boxed(job):
        subprocess.run(bench.boxed(job, without=lacking), preexec_fn=lambda: lack(lacking))

    free = in_session(bench, bare)
    assert free == {
        "a job of its own": True, "back": True, "a job of others": True, "back again": True,
        "away": True, "from behind": False,
    }  # fmt: skip
    held = in_session(bench, boxed)
    assert held == {**free, "a job of others": "EPERM"}
    (target,) = bench.denied()
    assert target.startswith("ioctl TIOCSPGRP of process group ")
