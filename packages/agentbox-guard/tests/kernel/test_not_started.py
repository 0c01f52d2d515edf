"""A process that prepares the confinement and ends too soon: the run says so, and does not look like the command's."""

import os
import subprocess
import sys

import pytest

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
    assert subprocess.run(good, cwd=tmp_path, capture_output=True, timeout=30).returncode == 0
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, part], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 70
    said = [line for line in done.stderr.splitlines() if "was not started" in line or "cannot be confined" in line]
    assert len(said) == 1 and "Traceback" not in done.stderr, done.stderr
    assert not [name for name in os.listdir(tmp_path) if name.startswith("agentbox-")]
