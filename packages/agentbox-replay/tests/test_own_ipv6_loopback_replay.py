"""A replay leaves the IPv6 loopback to the agent as the run did, also where a rule names a server on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kit.waiting import PATIENCE

from agentbox.replay import layers

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or bool(layers.missing()), reason="the kernel layers are not there"
)

PROBE = """
import socket
with socket.socket(socket.AF_INET6) as probe:
    probe.bind(("::1", 0))
print("bound", open("in").read())
"""


@pytest.mark.parametrize("chosen", [(), ("--layers", "kernel")], ids=["auto", "kernel"])
def test_a_bind_to_it_is_the_same_in_a_replay(tmp_path: Path, chosen: tuple[str, ...]) -> None:
    """No denial, and no divergence."""
    (tmp_path / "in").write_text("alpha")
    (tmp_path / "agent.py").write_text(PROBE)
    (tmp_path / "agentbox.policy").write_text("read: ./in\nread: ./agent.py\nnet: 127.0.0.1:9\n")
    for words in ("run",), ("replay", *chosen):
        command = [sys.executable, "-m", "agentbox.cli", *words, "--", sys.executable, "agent.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, done.stdout) == (0, "bound alpha\n"), done.stderr
