"""A process that prepares the confinement and ends too soon: the run says so, and does not look like the command's."""

import os
import signal
import subprocess
import sys

import pytest
from kit.waiting import PATIENCE

from agentbox.guard.kernel import landlock, netns, seccomp

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()

DRIVER = """
import os, sys
from agentbox.guard.kernel import init
def broken(*_): os._exit(70)
setattr(init, sys.argv[1], broken)
from agentbox.cli.main import main
sys.exit(main(["run", "--", "true"]))
"""


@pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")
@pytest.mark.parametrize("part", ["_keep_only", "drop_capabilities", "_is_deserted"])
def test_a_run_whose_preparation_ends_too_soon_says_so(tmp_path, part):
    """Status 70 and one line, whichever of the processes in between it was; the same command runs otherwise."""
    (tmp_path / "agentbox.policy").write_text("exec: true\n")
    good = [sys.executable, "-m", "agentbox.cli", "run", "--", "true"]
    assert subprocess.run(good, cwd=tmp_path, capture_output=True, timeout=PATIENCE).returncode == 0
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, part], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 70
    said = [line for line in done.stderr.splitlines() if "was not started" in line or "cannot be confined" in line]
    assert len(said) == 1 and "Traceback" not in done.stderr, done.stderr
    assert not [name for name in os.listdir(tmp_path) if name.startswith("agentbox-")]


KILLED = """
import os, signal, sys
from agentbox.guard.kernel import confine
def enter(*_): os.kill(os.getpid(), signal.SIGKILL)
confine.Confinement.enter = enter
from agentbox.cli.main import main
sys.exit(main(["run", "--", "true"]))
"""


HANDED_OVER = """
import os, signal, sys, time
from agentbox.guard.kernel import wall
def made(taken, *rest, init=wall.Wall):
    os.kill(taken.agent, int(sys.argv[1]))
    while os.path.exists(f"/proc/{taken.agent}/exe"):
        pass
    return init(taken, *rest)
wall.Wall = made
from agentbox.cli.main import main
sys.exit(main(["run", "--", "true"]))
"""


@pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")
@pytest.mark.parametrize("code", [KILLED, HANDED_OVER], ids=["at once", "after it has handed over"])
def test_a_preparation_that_was_killed_is_not_laid_to_the_machine(tmp_path, code):
    """The hint names who kills processes, not what a confinement needs."""
    (tmp_path / "agentbox.policy").write_text("exec: true\n")
    command = [sys.executable, "-c", code, str(int(signal.SIGKILL))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 70 and "by signal 9" in done.stderr, done.stderr
    assert "hint: somebody killed it" in done.stderr and "/dev/null" not in done.stderr


@pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")
def test_a_preparation_that_the_user_ends_is_no_failure(tmp_path):
    """A SIGTERM for the agent that comes between its hand-over and its start."""
    (tmp_path / "agentbox.policy").write_text("exec: true\n")
    command = [sys.executable, "-c", HANDED_OVER, str(int(signal.SIGTERM))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 143 and "internal" not in done.stderr and "hint" not in done.stderr, done.stderr


NO_FORK = """
import errno, os, sys
fork, count = os.fork, [0]
def bounded():
    count[0] += 1
    if count[0] > 1:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()
os.fork = bounded
from agentbox.cli.main import main
sys.exit(main(["run", "--", "true"]))
"""


@pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")
def test_a_limit_of_processes_is_named(tmp_path):
    """Where one of the processes that prepare a run cannot be made (fork(2), EAGAIN)."""
    (tmp_path / "agentbox.policy").write_text("exec: true\n")
    command = [sys.executable, "-c", NO_FORK]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 70 and "hint: raise the limit of processes: ulimit -u" in done.stderr, done.stderr
