"""A disk that is full from the start: the first entry of the trace comes before any code of the agent's."""

import resource
import signal
import subprocess
import sys

import pytest

from agentbox.guard.kernel import LAYERS, choose

AGENT = "import sys; sys.stdout.write('the agent ran'); sys.stdout.flush()"


def no_files() -> None:
    """Let files be made, and nothing be written to them (setrlimit(2), RLIMIT_FSIZE)."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize("layers", ["guard", "auto"])
def test_no_code_runs_when_the_first_entry_cannot_be_written(tmp_path, layers):
    """Status 74 and one line that says why; the same command runs where the disk has room."""
    if layers == "auto" and not choose("auto", [*LAYERS]):
        pytest.skip("no kernel layer is live here")
    (tmp_path / "agentbox.policy").write_text("read: ./data\n")
    degraded = ",".join(LAYERS)
    command = [sys.executable, "-P", "-m", "agentbox.cli", "run", "--layers", layers, "--allow-degraded", degraded]
    command += ["--", sys.executable, "-c", AGENT]
    full = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, preexec_fn=no_files)
    assert (full.returncode, full.stdout) == (74, ""), full.stderr
    assert "the trace cannot be written" in full.stderr and "Traceback" not in full.stderr
    assert (tmp_path / "trace.jsonl").read_bytes() == b""
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "the agent ran"), done.stderr
