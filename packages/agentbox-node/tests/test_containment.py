"""Every attempt succeeds in plain Node and is refused under the guard, with the policy line where one would allow it."""
# ruff: noqa: E501
# Programs in JavaScript keep their lines.

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
NAMES = re.findall(r"^  (\w+): ", (HERE / "attempts.cjs").read_text(), re.MULTILINE)
NO_RECORD = {"readExists", "readBinding", "readHooks", "readWorker", "readWasi", "readUrlOverridden"}
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


def test_a_database_is_opened_as_it_was_judged(scene):
    """Neither a getter on a prototype makes a file writable, nor does a variable's name hide a statement."""
    has_sqlite = scene.bare("-e", "require('node:sqlite')").returncode == 0
    if not has_sqlite:
        pytest.skip("this Node has no node:sqlite")
    program = scene.write(
        "const { DatabaseSync } = require('node:sqlite');\n"
        "const attempt = (name, act) => { try { act(); console.log(name, 'done') } catch (e) { console.log(name, e.code) } };\n"
        "if (process.argv[2] === 'make') { new DatabaseSync('data/x.db').exec('create table t(a)'); process.exit() }\n"
        "let reads = process.argv[2] === 'bare' ? 1 : 0; // Node reads it once, and the guard did before it\n"
        "Object.defineProperty(Object.prototype, 'readOnly', { configurable: true, set() {}, get: () => reads++ === 0 || undefined });\n"
        "attempt('write', () => new DatabaseSync('data/x.db', {}).exec('create table u(a)'));\n"
        "delete Object.prototype.readOnly;\n"
        "attempt('attach', () => new DatabaseSync(':memory:').exec(\"SELECT $a('); ATTACH DATABASE \\\"data/x.db\\\" AS y; --'\"));\n"
    )
    scene.bare(str(program), "make")
    assert scene.run(str(program)).stdout.split() == ["write", "EACCES", "attach", "EACCES"]
    assert scene.bare(str(program), "bare").stdout.split() == ["write", "done", "attach", "done"]


def test_no_other_process_starts_the_debugger(scene):
    """SIGUSR1 from a parent opens no debugger in a child, and reaches a handler of the child's own."""
    child = scene.write(
        "if (process.argv[2]) process.on('SIGUSR1', () => { console.log('handled'); process.exit() });\n"
        "setInterval(() => { const url = require('node:inspector').url(); if (url) { console.log('debugger'); process.exit() } }, 10);\n"
        "setTimeout(() => { console.log('nothing'); process.exit() }, process.argv[2] ? 20000 : 1000);\n"
        "process.debugPort = 0;\nconsole.log('up');\n",
        "child.cjs",
    )
    program = scene.write(
        "const cp = require('node:child_process');\n"
        "const child = cp.spawn(process.execPath, process.argv.slice(2), { stdio: ['ignore', 'pipe', 'ignore'] });\n"
        "child.stdout.once('data', () => child.kill('SIGUSR1'));\n"
        "child.stdout.pipe(process.stdout);\n"
    )
    scene.rules += ["read: .", f"exec: {os.path.realpath(scene.node)}"]
    assert scene.run(str(program), str(child)).stdout.split() == ["up", "nothing"]
    assert scene.run(str(program), str(child), "own").stdout.split() == ["up", "handled"]
    assert scene.bare(str(program), str(child)).stdout.split() == ["up", "debugger"]
