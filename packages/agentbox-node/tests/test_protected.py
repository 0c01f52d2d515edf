"""The built-in protection of write roots holds for Node with the guard alone, and decides as the supervisor's does."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

import agentbox.node
from agentbox.guard.kernel import protected

JS = pathlib.Path(agentbox.node.__file__).parent / "js"
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

DRIVER = """
const fs = require('fs');
const { js, paths, settings } = JSON.parse(fs.readFileSync(0, 'utf8'));
const p = require(`${js}/primordials.cjs`);
const exists = (path) => { try { fs.lstatSync(path); return true; } catch { return false; } };
const reason = require(`${js}/forms/protected.cjs`)(p, exists, settings);
console.log(JSON.stringify(paths.map(reason)));
"""


def samples(home: str) -> list[str]:
    """Paths around each protected name: in other letters, deeper, beside, in a home folder and among packages."""
    names = [f"{name}/x" for name in protected.FOLDERS | protected.INNER_FOLDERS | protected.HOME_FOLDERS]
    names += [*protected.FILES, *protected.INNER_FILES, *protected.HOME_FILES]
    names += [f"{name}{ending}" for name in protected.OWN_MODULES for ending in (*protected.MODULE_ENDINGS, ".abi3.so")]
    names += [f"a{ending}" for ending in protected.ENDINGS]
    names += [
        ".git/hooks/x", ".git/hooks/x.sample", ".git/config", ".git/modules/s/hooks/x", "bare.git/hooks/update",
        "half/hooks/x", "half/config", ".gitconfig", ".config/git/config", ".config/git/ignore", "config", "hooks/x",
        ".v\u017fcode/tasks.json", ".g\u200cit/hooks/x", ".b\u2064ash\U000e0061rc", ".u\u1e9e", "stra\u00dfe", "x",
        "\ud83d\ude00.py".encode("utf-16", "surrogatepass").decode("utf-16"), ".\u212ashrc", "agentbox/x.py", "json.py",
    ]  # fmt: skip
    made = []
    for name in names:
        made += [f"{home}/{name}", f"{home}/a/b/{name}", f"{home}/{name}/more", f"{home}/{name.upper()}"]
        made += [f"{home}/node_modules/p/{name}", f"{home}/lifted/{name}", f"{home}/own/{name}", f"/elsewhere/{name}"]
    return made


def test_javascript_decides_as_the_supervisor(tmp_path: pathlib.Path) -> None:
    """The same answer, word for word, for each protected name and what is like it."""
    home = str(tmp_path)
    (tmp_path / "half/objects").mkdir(parents=True)
    (tmp_path / "half/refs").mkdir()
    lifted = [".vscode", ".git/hooks", "a/.bashrc", ".docker", ".config/fish"]
    settings = {
        "lifting": [[f"{home}/lifted/{name}", f"{home}/lifted/{name}".count("/") + 1] for name in lifted],
        "exempt": [f"{home}/own/"],
        "homes": [protected.folded(home)],
    }
    paths = samples(home)
    asked = json.dumps({"js": str(JS), "paths": paths, "settings": settings})
    done = subprocess.run(["node", "-e", DRIVER], input=asked, capture_output=True, text=True, check=True, timeout=60)
    expected = [
        protected.reason_for(
            path,
            lifting=tuple((root, parts) for root, parts in settings["lifting"]),
            exempt=tuple(settings["exempt"]),
            homes=tuple(settings["homes"]),
        )
        for path in paths
    ]
    told = json.loads(done.stdout)
    assert [(path, a, b) for path, a, b in zip(paths, expected, told, strict=True) if a != b] == []
    assert 500 < sum(1 for one in expected if one) < len(expected)


def test_a_node_agent_leaves_nothing_that_others_run(tmp_path: pathlib.Path) -> None:
    """With the guard alone: written, renamed, linked; the refusal names the line, and a rule that names it lifts it."""
    code = """
        const fs = require('fs');
        fs.writeFileSync('plain', 'x');
        const tries = {
          write: () => fs.writeFileSync('.bashrc', 'x'), link: () => fs.linkSync('plain', '.mcp.json'),
          rename: () => fs.renameSync('plain', 'agentbox.py'), open: () => fs.openSync('.vscode/tasks.json', 'w'),
          lifted: () => fs.writeFileSync('.envrc', 'x'),
        };
        fs.mkdirSync('.vscode', { recursive: true });
        for (const [name, act] of Object.entries(tries)) {
          try { act(); console.log(name, 'done'); } catch (error) { console.log(name, error.code); }
        }
    """
    (tmp_path / "agent.cjs").write_text(code)
    bare = subprocess.run(["node", "agent.cjs"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert bare.stdout.count("done") == 5
    work = tmp_path / "ws"
    work.mkdir()
    (work / "agent.cjs").write_text(code)
    (work / ".envrc").write_text("")
    (work / "agentbox.policy").write_text("write: .\nwrite: ./.envrc\n")
    command = [sys.executable, "-m", "agentbox.cli", "run", "--layers", "guard", "--", "node", "agent.cjs"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:5] == ["write EACCES", "link EACCES", "rename EACCES", "open EACCES", "lifted done"]
    assert "it is protected unless a write: rule names it; to allow it: write: ./.bashr" in done.stderr
