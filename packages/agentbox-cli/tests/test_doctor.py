"""`agentbox doctor`: every layer is really tried, and what is missing comes with its way out."""

import json
import subprocess
import sys

import pytest

from agentbox.cli import exitcodes
from agentbox.cli.commands import doctor, load
from agentbox.cli.options import parse
from agentbox.guard import kernel
from agentbox.guard.kernel.holds import HOLDS, UNHELD

linux = pytest.mark.skipif(sys.platform != "linux", reason="layers: the table is Linux's")


class Absent:
    """A layer that does not work here."""

    name = "netns"

    def probe(self):
        return "operation not permitted \x1b[31m"

    def advice(self):
        return "sysctl user.max_user_namespaces=10000"


@pytest.fixture
def without_netns(monkeypatch):
    """A machine without user namespaces."""
    real = kernel.load
    monkeypatch.setattr(kernel, "load", lambda name: Absent() if name == "netns" else real(name))


def run(*words):
    command = load("doctor")
    return command.run(parse(command.name, words, command.options, command.words, takes_command=False))


@linux
def test_every_layer_of_the_table_is_examined():
    """With its word for every kind of rule that it holds."""
    found = doctor.examined()
    assert [row["name"] for row in found] == ["guard", *kernel.LAYERS]
    for row in found:
        assert row["works"] is (row["missing"] == "")
        assert row["holds"] == {kind: parts[row["name"]] for kind, parts in HOLDS.items() if row["name"] in parts}


@linux
def test_it_agrees_with_the_layers_own_probes():
    """As a command of its own, with the status that scripts branch on."""
    works = all(not kernel.load(name).probe() for name in kernel.LAYERS)
    done = subprocess.run([sys.executable, "-m", "agentbox.cli", "doctor", "--json"], capture_output=True, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == (exitcodes.OK if works else exitcodes.UNAVAILABLE)
    assert found["not_enforced"] == UNHELD
    assert {row["name"] for row in found["layers"] if not row["works"]} == {
        name for name in kernel.LAYERS if kernel.load(name).probe()
    }


@linux
def test_what_is_missing_is_said_with_its_way_out(without_netns, capsys):
    """Why, what it needs, how to get it, and what a run does without it; nothing reaches the terminal as it came."""
    assert run() == exitcodes.UNAVAILABLE
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("netns"))
    assert lines[at] == "netns     missing: operation not permitted \\x1b[31m"
    assert lines[at + 1].strip().startswith("needs: Linux 5.14")
    assert lines[at + 2].strip() == "to get it: sysctl user.max_user_namespaces=10000"
    assert lines[-1].startswith("missing: netns") and "--allow-degraded" in lines[-1]
