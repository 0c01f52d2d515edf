"""A `list:` rule gives the names in one folder and nothing else, in any language and under any layers.

Each attempt is made without agentbox as well, where it works.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = """
import os, sys
def told(act):
    try:
        return act()
    except OSError:
        return "-"
folder = sys.argv[1]
def by_descriptor():
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return ",".join(sorted(os.listdir(fd)))
    finally:
        os.close(fd)
print(told(lambda: ",".join(sorted(os.listdir(folder)))),
      told(lambda: ",".join(sorted(e.name for e in os.scandir(folder)))), told(by_descriptor),
      told(lambda: open(folder + "/key").read()), told(lambda: ",".join(os.listdir(folder + "/sub"))))
"""
NODE = """
const fs = require('fs'), folder = process.argv[2];
const told = (act) => { try { return act(); } catch { return '-'; } };
console.log(told(() => fs.readdirSync(folder).sort().join()), told(() => { const d = fs.opendirSync(folder), all = [];
  for (let e = d.readSync(); e !== null; e = d.readSync()) all.push(e.name);
  d.closeSync(); return all.sort().join(); }),
  told(() => fs.readdirSync(folder, { withFileTypes: true }).map((e) => e.name).sort().join()),
  told(() => fs.readFileSync(folder + '/key', 'utf8')), told(() => fs.readdirSync(folder + '/sub').join()));
"""
BARE = "key,sub key,sub key,sub secret deep\n"
NAMES = "key,sub key,sub key,sub - -\n"
NOTHING = "- - - - -\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with an agent in each language, and another with a secret to list."""
    work = tmp_path / "work"
    (tmp_path / "shown" / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "shown" / "key").write_text("secret")
    work.mkdir()
    (work / "agent.py").write_text(PYTHON)
    (work / "agent.cjs").write_text(NODE)
    return work


def run(work: Path, command: list[str], rules: str, layers: str) -> str:
    """What the agent printed under these rules."""
    (work / "agentbox.policy").write_text(rules)
    box = [sys.executable, "-P", "-m", "agentbox.cli", "run", "-q", "--layers", layers, "--"]
    done = subprocess.run([*box, *command], cwd=work, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 0
    return done.stdout


def agent(work: Path, language: str) -> list[str]:
    """The command that lists the folder beside the workspace."""
    if language == "node" and not shutil.which("node"):
        pytest.skip("there is no node")
    program = ["node", "agent.cjs"] if language == "node" else [sys.executable, "agent.py"]
    return [*program, os.path.realpath(work.parent / "shown")]


@pytest.mark.parametrize("layers", ["auto", "guard"])
@pytest.mark.parametrize("language", ["python", "node"])
def test_a_listing_is_allowed_without_what_is_in_it(workspace: Path, language: str, layers: str) -> None:
    """The line that a denied listing suggests opens the names, and neither a file nor a folder below."""
    command = agent(workspace, language)
    bare = subprocess.run(command, cwd=workspace, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert bare.stdout == BARE
    rules = "read: ./agent.py, ./agent.cjs\n"
    assert run(workspace, command, rules, layers) == NOTHING
    entries = map(json.loads, (workspace / "trace.jsonl").read_text().splitlines())
    fixes = {entry["fix"] for entry in entries if entry["kind"] == "deny" and entry["op"] == "fs.list"}
    assert f"list: {command[-1]}" in fixes and not any(fix.startswith("read") for fix in fixes)
    assert run(workspace, command, f"{rules}list: {command[-1]}\n", layers) == NAMES


def test_a_program_lists_by_the_same_rule(workspace: Path) -> None:
    """A native program is held to one level, too."""
    shown = os.path.realpath(workspace.parent / "shown")
    command = ["sh", "-c", f"ls {shown}; ls {shown}/sub || cat {shown}/key || echo denied"]
    assert run(workspace, command, f"list: {shown}\nexec: ls, cat\n", "auto") == "key\nsub\ndenied\n"
