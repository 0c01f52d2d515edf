"""The IPv6 loopback of the run's own network stays its own where a rule names a server on this machine."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kit.waiting import PATIENCE

from agentbox.guard.kernel import landlock, netns, seccomp

MISSING = sys.platform != "linux" or netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()
KERNEL = pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")
RULES = "net: 127.0.0.1:9", "net: localhost:9", "net: [::1]:9"

PROBE = """
import socket
with socket.socket(socket.AF_INET6) as probe:  # as urllib3 does
    probe.bind(("::1", 0))
    print("bound")
with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
    with socket.create_connection(server.getsockname()[:2]) as client:
        server.accept()[0].close()
        print("reached")
"""
BINDS = """
import socket
for family, address in (
    (socket.AF_INET6, "::"), (socket.AF_INET6, "::ffff:127.0.0.1"), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""),
):
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        with socket.socket(family, kind) as one:
            try:
                one.bind((address, 0))
                print("bound", address, kind.name)
            except OSError:
                print("denied")
"""
KNOCK = """
import socket, sys
try:
    socket.create_connection(("::1", int(sys.argv[1]))).close()
    print("reached")
except OSError as error:
    print(error.strerror)
"""


SERVE = """
const server = require("net").createServer().listen(0, "::1", () => { console.log("bound"); server.close() })
"""


def _run(folder: Path, rule: str, code: str, *words: str, layers: str = "auto") -> subprocess.CompletedProcess[str]:
    (folder / "agentbox.policy").write_text(f"{rule}\n")
    command = [sys.executable, "-m", "agentbox.cli", "run", "--layers", layers, "--", sys.executable, "-c", code]
    return subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True, timeout=PATIENCE)


@KERNEL
@pytest.mark.parametrize("rule", RULES)
def test_no_rule_takes_the_ipv6_loopback_from_the_run(tmp_path: Path, rule: str) -> None:
    """Binding, listening and being reached there need no rule, and no denial is recorded."""
    done = _run(tmp_path, rule, PROBE)
    assert done.stdout == "bound\nreached\n", done.stderr
    assert " 0 denials" in done.stderr


@KERNEL
def test_what_takes_ipv4_still_needs_a_rule(tmp_path: Path) -> None:
    """Where a rule names 127.0.0.1: also by an IPv6 socket. Datagram sockets of any address are free, as ever."""
    done = _run(tmp_path, "net: 127.0.0.1:9", BINDS)
    free = ["denied", "bound :: SOCK_DGRAM", *["denied"] * 5, "bound  SOCK_DGRAM"]
    assert done.stdout.splitlines() == free, done.stderr


@KERNEL
def test_a_port_of_the_machine_on_it_still_needs_a_rule(tmp_path: Path) -> None:
    """Who is reached there without one is the run; the machine's server is reached without the sandbox."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = str(server.getsockname()[1])
        bare = subprocess.run([sys.executable, "-c", KNOCK, port], capture_output=True, text=True, timeout=PATIENCE)
        assert bare.stdout == "reached\n"
        done = _run(tmp_path, "net: 127.0.0.1:9", KNOCK, port)
        assert done.stdout == "Connection refused\n", done.stderr
        assert f"to allow it: net: [::1]:{port}" in done.stderr


def test_with_the_guard_alone_it_is_the_machines(tmp_path: Path) -> None:
    """There binding to it needs a rule."""
    done = _run(tmp_path, "net: 127.0.0.1:9", PROBE, layers="guard")
    assert "bound" not in done.stdout and "net.bind denied" in done.stderr


@KERNEL
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node_serves_on_it_too(tmp_path: Path) -> None:
    """Its guard asks the same decision."""
    (tmp_path / "agent.js").write_text(SERVE)
    (tmp_path / "agentbox.policy").write_text("read: ./agent.js\nnet: 127.0.0.1:9\n")
    command = [sys.executable, "-m", "agentbox.cli", "run", "--", "node", "agent.js"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "bound\n", done.stderr
    assert " 0 denials" in done.stderr
