"""Abstract socket names (unix(7)) are free in a network of the run's own, and need a rule with the guard alone."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
AGENT = r"""
import os, socket, sys
kind, name = sys.argv[1], sys.argv[2]
name = "\0" + name if kind == "str" else b"\0" + name.encode()
def attempt(act):
    try:
        return act()
    except OSError as error:
        return type(error).__name__
def serve():
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect(name)
    client.send(b"x")
    return server.accept()[0].recv(1).decode()
def cut():
    socket.socket(socket.AF_UNIX).bind(name + (b"\0rest" if kind == "bytes" else "\0rest"))
    return "bound"
print(attempt(serve), attempt(cut))
"""


@pytest.fixture
def run(tmp_path):
    def run(policy, *words, layers=("--layers", "auto")):
        (tmp_path / "agent.py").write_text(AGENT)
        (tmp_path / "agentbox.policy").write_text(policy)
        argv = [sys.executable, "agent.py", *words]
        if layers:
            argv = [sys.executable, "-m", "agentbox.cli", "run", *layers, "--", *argv]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        entries = []
        if layers:
            entries = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
        return done.stdout.split(), [entry for entry in entries if entry["op"].startswith("net.")]

    return run


@pytest.mark.parametrize("kind", ["str", "bytes"])
def test_a_rule_names_an_abstract_socket(run, tmp_path, kind):
    """With the guard alone the machine's names are the run's: what a rule names is served, nothing else is."""
    name = f"{tmp_path.name}-{kind}"
    policy = f"read: ./agent.py\nnet: unix:@{name}\n"
    assert run(policy, kind, name, layers=())[0] == ["x", "bound"]
    out, entries = run(policy, kind, name, layers=("--layers", "guard"))
    assert out == ["x", "PermissionError"]
    assert [(entry["kind"], entry["op"]) for entry in entries] == [
        ("observe", "net.bind"), ("observe", "net.connect"), ("deny", "net.bind"),
    ]  # fmt: skip
    out, entries = run(policy, kind, name + "-other", layers=("--layers", "guard"))
    assert out[0] == "PermissionError" and entries[0]["fix"] == f"net: unix:@{name}-other"


@pytest.mark.parametrize("kind", ["str", "bytes"])
def test_the_runs_own_names_need_no_rule(run, tmp_path, kind):
    """In a network of the run's own nobody else is behind such a name; each act has one entry."""
    out, entries = run("read: ./agent.py\n", kind, tmp_path.name)
    if "netns" not in json.loads((tmp_path / "trace.jsonl").read_text().splitlines()[0])["args"]["layers"]:
        pytest.skip("there is no network namespace here")
    assert out[0] == "x"
    found = [(entry["op"], entry["args"]["path"]) for entry in entries if entry["kind"] == "observe"]
    assert found == [("net.bind", f"@{tmp_path.name}"), ("net.connect", f"@{tmp_path.name}")]
