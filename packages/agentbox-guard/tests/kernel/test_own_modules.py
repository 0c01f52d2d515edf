"""What `python -m agentbox.cli` would import in place of the command is not left in a folder by a run."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from agentbox.guard.kernel import protected
from agentbox.guard.kernel.protect import Protection
from agentbox.policy import parse

TAKEN = (
    "agentbox.py", "sub/agentbox.py", "agentbox.cpython-312-x86_64-linux-gnu.so", "agentbox.abi3.so", "AgentBox.PYC",
    "agentbox/__init__.py", "agentbox/__init__.so", "agentbox/cli.py", "agentbox/cli/__init__.py", "a/agentbox/cli.so",
)  # fmt: skip
FREE = (
    "agentbox/notes.py", "agentbox/cli/main.py", "agentbox/policies/x.policy", "agentbox.md", "agentbox",
    "cli/__init__.py",
    "myagentbox.py", "agentbox_x.py", "site-packages/agentbox/__init__.py", "x/agentbox/guard/__init__.py", "json.py",
)  # fmt: skip
ESCAPE = "open({!r}, 'w').write(__name__)\n"


@pytest.fixture
def guard(tmp_path: pathlib.Path) -> Protection:
    return Protection(parse("write: .\n", cwd=str(tmp_path)))


@pytest.mark.parametrize("name", TAKEN)
def test_a_module_that_would_be_taken_for_ours_is_protected(
    guard: Protection, tmp_path: pathlib.Path, name: str
) -> None:
    """At any depth, as an extension too; the interpreter's guard decides the same, and a rule for it lifts it."""
    path = f"{tmp_path}/{name}"
    assert "it is protected unless a write: rule names it" in guard.reason(path)
    assert protected.reason_for(path, **guard.tuples()) == guard.reason(path)
    assert Protection(parse(f"write: .\nwrite: ./{name}\n", cwd=str(tmp_path))).reason(path) == ""


@pytest.mark.parametrize("name", FREE)
def test_all_else_of_a_project_is_free(guard: Protection, tmp_path: pathlib.Path, name: str) -> None:
    """Folders of that name, other modules in them, installed packages."""
    assert guard.reason(f"{tmp_path}/{name}") == ""
    assert protected.reason_for(f"{tmp_path}/{name}", **guard.tuples()) == ""


def test_no_renaming_and_no_link_makes_one(guard: Protection, tmp_path: pathlib.Path) -> None:
    """A folder that is called so later, a link to one."""
    (tmp_path / "x/cli").mkdir(parents=True)
    (tmp_path / "x/cli/__init__.py").write_text("")
    assert guard.rename_problem(f"{tmp_path}/x", f"{tmp_path}/agentbox")[1]
    (tmp_path / "agentbox").mkdir()
    assert guard.rename_problem(f"{tmp_path}/x/cli", f"{tmp_path}/agentbox/cli")[1]
    assert guard.symlink_reason(f"{tmp_path}/agentbox")
    assert guard.symlink_reason(f"{tmp_path}/agentbox/cli")
    assert not guard.rename_problem(f"{tmp_path}/agentbox", f"{tmp_path}/other")[1]


@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_no_code_of_a_run_is_run_by_the_module(tmp_path: pathlib.Path, layers: str) -> None:
    """What an agent leaves in its folder, then `python -m agentbox.cli verify` there; bare, the module would run."""
    work, outside = tmp_path / "ws", tmp_path / "outside"
    work.mkdir()
    (work / "agentbox.policy").write_text("write: .\n")
    names = ("agentbox/__init__.py", "agentbox/cli/__init__.py", "agentbox/cli/__main__.py", "agentbox.py", "json.py")
    (work / "agent.py").write_text(
        "import os, sys\nos.makedirs('agentbox/cli', exist_ok=True)\n"
        f"for name in {names!r}:\n"
        "    try:\n"
        f"        open(name, 'w').write({ESCAPE.format(str(outside))!r})\n"
        "    except PermissionError as error:\n"
        "        print(name, error)\n"
    )
    command = [sys.executable, "-m", "agentbox.cli"]
    run = [*command, "run", "-q", "--layers", layers, "--", sys.executable, "agent.py"]
    done = subprocess.run(run, cwd=work, capture_output=True, text=True, timeout=120)
    if done.returncode == 69:
        pytest.skip(f"layers: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Errno 13") == 3, done.stdout
    assert sorted(os.listdir(work / "agentbox/cli")) == ["__main__.py"]
    assert (work / "json.py").exists()
    shown = subprocess.run([*command, "show"], cwd=work, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("it is protected unless a write: rule names it") == 3
    assert not outside.exists()
    (work / "agentbox/__init__.py").write_text("")
    (work / "agentbox/cli/__init__.py").write_text(ESCAPE.format(str(outside)))
    subprocess.run([*command, "show"], cwd=work, capture_output=True, timeout=60, check=False)
    assert outside.exists()
    outside.unlink()
    safe = [sys.executable, "-P", "-m", "agentbox.cli", "show"]
    assert subprocess.run(safe, cwd=work, capture_output=True, timeout=60).returncode == 0
    assert not outside.exists()
