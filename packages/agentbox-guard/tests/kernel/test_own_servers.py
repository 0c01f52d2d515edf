"""Servers that a run starts for itself, and who tries to reach them before they are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kit.waiting import PATIENCE

from agentbox.guard.kernel import landlock, netns, seccomp
from agentbox.guard.report import OWN_SERVER, local_port

MISSING = sys.platform != "linux" or netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()

EARLY = """
import socket

def knock(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError as error:
        print(error.strerror)

with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
    port, nobody = free.getsockname()[1], other.getsockname()[1]
knock(port)
knock(nobody)
with socket.create_server(("127.0.0.1", port)):
    knock(port)
print(port, nobody)
"""


@pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")
def test_who_comes_too_early_to_a_server_of_the_run_needs_no_rule(tmp_path: Path) -> None:
    """A rule for its port would say all that may be done on the loopback, and so take it from the run."""
    (tmp_path / "agentbox.policy").write_text("read: ./x\n")
    command = [sys.executable, "-m", "agentbox.cli", "run", "--", sys.executable, "-c", EARLY]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    *refused, ports = done.stdout.splitlines()
    assert refused == ["Connection refused"] * 2, done.stderr
    port, nobody = ports.split()
    told = {line.split()[3].rstrip(":"): line for line in done.stderr.splitlines() if " denied net " in line}
    assert told[f"127.0.0.1:{port}"].endswith(OWN_SERVER)
    assert told[f"127.0.0.1:{nobody}"].endswith(f"to allow it: net: 127.0.0.1:{nobody}")


BY_NAME = """
import socket, sys
for name in "localhost", "app.localhost", "LOCALHOST.":
    with socket.create_server(("127.0.0.1", 0)) as server:
        try:
            socket.create_connection((name, server.getsockname()[1])).close()
            print("reached")
        except OSError as error:
            print(error)
try:
    socket.getaddrinfo("localhost.example.com", 80)
except OSError as error:
    print("denied" in str(error))
"""


@pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")
def test_a_server_of_the_run_is_reached_by_name_too(tmp_path: Path) -> None:
    """As by its address, without a rule; where the rules speak of the loopback, they say so of the name as well."""
    command = [sys.executable, "-m", "agentbox.cli", "run", "--", sys.executable, "-c", BY_NAME]
    for rule, reached in (("read: ./x", 3), ("net: 127.0.0.1", 0)):
        (tmp_path / "agentbox.policy").write_text(f"{rule}\n")
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
        assert done.stdout.count("reached") == reached, (done.stdout, done.stderr)
        assert done.stdout.endswith("True\n")


def test_only_targets_on_the_loopback_have_such_ports() -> None:
    """In both families; a host of another machine and a path have none."""
    targets = "127.0.0.1:80", "[::1]:81", "127.9.9.9:82", "10.0.0.1:80", "localhost:80", "/run/s", "127.0.0.1", "::1"
    assert [local_port(target) for target in targets] == [80, 81, 82, 0, 0, 0, 0, 0]
