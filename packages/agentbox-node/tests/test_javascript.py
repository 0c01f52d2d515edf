"""The tests of the JavaScript itself, run by Node's own test runner: the policy's vectors, the hash, the tables."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from kit.waiting import PATIENCE

import agentbox.node

HERE = Path(__file__).resolve().parent
SHIPPED = Path(agentbox.node.__file__).parent / "js"
"""The JavaScript under test, from a checkout or from a wheel."""


@pytest.mark.parametrize("file", sorted((HERE / "js").glob("*.test.cjs")), ids=lambda path: path.name)
def test_javascript(node, file):
    """Every test of the file passes in this Node."""
    environ = {**os.environ, "AGENTBOX_NODE_JS": str(SHIPPED)}
    done = subprocess.run([node, "--test", str(file)], env=environ, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout[-4000:]
