"""Every attempt succeeds in plain Node and is refused under the guard, with the policy line where one would allow it."""
# ruff: noqa: E501
# Programs in JavaScript keep their lines.

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
NAMES = re.findall(r"^  (\w+): ", (HERE / "attempts.cjs").read_text(), re.MULTILINE)
NO_RECORD = {"readExists", "readBinding", "readHooks", "readWorker"}
"""Told to the agent in another form than a denial of that very attempt."""


@pytest.fixture
def agent(scene):
    shutil.copy(HERE / "attempts.cjs", scene.ws / "attempts.cjs")
    return scene


@pytest.mark.parametrize("name", NAMES)
def test_attempt(agent, name):
    """Bare it is done; guarded it is refused, nothing outside changes, and the trace holds the denial."""
    before = sorted(path.name for path in agent.outside.iterdir())
    guarded = agent.run("attempts.cjs", name)
    assert "REFUSED" in guarded.stdout, (guarded.stdout, guarded.stderr)
    assert "secret\n" not in guarded.stdout
    assert sorted(path.name for path in agent.outside.iterdir()) == before
    assert (agent.outside / "secret.txt").read_text() == "secret\n"
    if name not in NO_RECORD:
        assert agent.steps("deny"), guarded.stdout
        assert re.search(r"REFUSED (EACCES|EPERM|ERR_\w+) .*", guarded.stdout), guarded.stdout
    bare = agent.bare("attempts.cjs", name)
    assert "DONE" in bare.stdout, (bare.stdout, bare.stderr)


def test_a_denial_is_an_error_that_explains(scene):
    """It has the code of the system's own refusal, what was refused, and the line that would allow it."""
    done = scene.box(
        "try { require('fs').readFileSync(process.env.OUTSIDE + '/secret.txt') } catch (e) {\n"
        "  console.log(JSON.stringify([e.code, e.errno, e.syscall, e.op, e.target, e.fix, e.message])) }"
    )
    import json

    path = f"{scene.outside}/secret.txt"
    fix = f"read: {path}"
    text = f"agentbox: fs.read denied: {path}: no read or write rule covers it; to allow it, add this line to agentbox.policy: {fix}"
    assert json.loads(done.stdout) == ["EACCES", -13, "open", "fs.read", path, fix, text]


def test_the_suggested_line_allows_it(scene):
    """A policy with the line of the denial added lets the same program through."""
    program = "console.log(require('fs').readFileSync(process.env.OUTSIDE + '/secret.txt', 'utf8'))"
    assert scene.box(program).returncode == 1
    scene.rules += [entry["fix"] for entry in scene.entries() if entry["kind"] == "deny"]
    assert scene.box(program).stdout == "secret\n\n"


def test_the_guard_s_own_things_are_out_of_reach(scene):
    """Neither the trace nor the policy nor the guard's code can be changed, even below a write root."""
    scene.rules = ["write: ."]
    done = scene.box(
        "const fs = require('fs');\n"
        "for (const f of ['trace.jsonl', 'agentbox.policy', process.env.NODE_OPTIONS.split(' ')[1]])\n"
        "  for (const act of [() => fs.appendFileSync(f, 'x'), () => fs.rmSync(f), () => fs.renameSync(f, 'out/moved')])\n"
        "    try { act(); console.log('done', f) } catch (e) { console.log(e.code) }\n"
        "try { fs.rmSync('.', { recursive: true }); console.log('done') } catch (e) { console.log(e.code) }"
    )
    assert done.stdout.split() == ["EACCES"] * 10, done.stdout
    assert scene.agentbox("verify").returncode == 0
