"""A program that cannot be started, because it is missing or no program or denied, ends in Node as it does without a
guard: the same errors, events, streams and numbers, in the same order, for every form of child_process.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "js/failed_start.cjs"
LAYERS = ["auto", "guard"]


def told(done, program):
    """What the script told, by way; the program's name left out, and the words of a denial."""
    found = {}
    for line in done.stdout.splitlines():
        entry = json.loads(line.replace(program, "PROGRAM"))
        found[entry["name"]] = entry["told"]
    assert len(found) == 19, done.stderr
    return found


@pytest.fixture
def agent(scene):
    scene.write(SCRIPT.read_text(), "agent.cjs")
    (scene.ws / "data/plain").write_text("no program\n")
    scene.rules.append(f"exec: {scene.node}")
    return scene


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("program", ["no-such-program", "./data/no-such-program", "./data/plain", "./data"])
def test_what_cannot_be_started_fails_as_it_does_without_a_guard(agent, program, layers):
    """Missing by name and by path, no program, and a folder."""
    bare = told(agent.bare("agent.cjs", program), program)
    done = agent.run("agent.cjs", program, layers=layers)
    assert told(done, program) == bare
    assert not [entry for entry in agent.entries() if entry["kind"] == "deny"]


@pytest.mark.parametrize("layers", LAYERS)
def test_what_is_denied_fails_as_what_is_no_program(agent, layers):
    """EACCES by every form, with the denial's own words; each denial is recorded, and nothing was started."""
    (agent.ws / "data/tool").write_text("#!/bin/sh\necho started > out/started\n")
    (agent.ws / "data/tool").chmod(0o755)
    bare = told(agent.bare("agent.cjs", "./data/plain"), "./data/plain")
    agent.bare("agent.cjs", "./data/tool")
    assert (agent.ws / "out/started").exists()
    (agent.ws / "out/started").unlink()
    done = agent.run("agent.cjs", "./data/tool", layers=layers)
    found = told(done, "./data/tool")
    assert list(found) == list(bare)
    words = "agentbox: proc.exec denied: "
    for name, now in found.items():
        if name == "noFolder":
            assert now == bare[name]
            continue
        text = json.dumps(now)
        assert words in text, (name, text)
        assert without_words(now) == without_words(bare[name]), name
    assert not (agent.ws / "out/started").exists()
    denied = [entry for entry in agent.entries() if entry["kind"] == "deny"]
    assert len(denied) == len(found) - 1 and all(entry["fix"].startswith("exec: ./data/tool") for entry in denied)


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("program", ["no-such-program", "id"])
def test_a_signal_to_what_was_not_started_goes_to_nobody(agent, program, layers):
    """kill, or an AbortSignal that comes at once: libuv would signal process 0, which is the caller's whole group."""
    code = f"""
        const cp = require('child_process'), one = new AbortController();
        process.on('SIGTERM', () => console.log('hit'));
        const told = (name) => (error) => console.log(name, error.code, error.syscall);
        const child = cp.spawn('{program}').on('error', told('killed'));
        console.log(child.kill(), child.kill(0), child.pid);
        cp.spawn('{program}', {{ signal: one.signal }}).on('error', told('aborted'));
        one.abort();
        setImmediate(() => setImmediate(() => console.log('lives')));
    """
    agent.write(code, "kills.cjs")
    agent.rules.append("read: .")
    done = agent.run("kills.cjs", layers=layers)
    number = "ENOENT" if program == "no-such-program" else "EACCES"
    lines = [f"killed {number} spawn {program}", f"aborted {number} spawn {program}"]
    assert done.stdout.splitlines() == ["false false undefined", *lines, "lives"], done.stderr


def without_words(value):
    """The same without what an error says in words."""
    if isinstance(value, dict):
        return {key: without_words(one) for key, one in value.items() if key != "message"}
    return [without_words(one) for one in value] if isinstance(value, list) else value
