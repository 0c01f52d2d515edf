"""A kind that is not in its folder's table does not exist: every file is in a table, every subcommand is documented."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from agentbox.cli.commands import NAMES, load
from agentbox.guard.kernel import LAYERS
from agentbox.guard.kernel import load as load_layer

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "policy/rules": "agentbox-policy",
    "trace/exporters": "agentbox-trace",
    "guard/effects": "agentbox-guard",
    "guard/kernel/traps": "agentbox-guard",
    "guard/runtimes": "agentbox-guard",
    "guard/python/events": "agentbox-guard",
    "guard/python/facades": "agentbox-guard",
    "cli/commands": "agentbox-cli",
}
"""Folders of kinds, and the distribution that each is in."""


def members(folder: Path) -> set[str]:
    """The kinds of a folder: its files but the table itself and private helpers."""
    return {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}


def named(table: Path) -> set[str]:
    """Every module that a table imports, and every string in it (tables that load on demand hold names)."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(table.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found.add((node.module or "").rpartition(".")[2])
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_is_in_its_table(folder: str) -> None:
    """A file that nobody put into the table of its folder would be dead code that looks alive."""
    path = ROOT / "packages" / FOLDERS[folder] / "src" / "agentbox" / folder
    assert members(path) <= named(path / "__init__.py")


@pytest.mark.parametrize("name", LAYERS)
def test_a_kernel_layer_is_what_its_row_says(name: str) -> None:
    """Every row of the table of layers leads to a layer of that name that enforces something and can be planned."""
    layer = load_layer(name)
    assert layer.name == name and layer.enforces
    assert all(callable(getattr(layer, part)) for part in ("probe", "plan", "apply", "advice"))


@pytest.mark.parametrize("name", NAMES)
def test_a_subcommand_says_what_it_is(name: str) -> None:
    """Every subcommand has the name of its file, and help with a description and examples that name it."""
    command = load(name)
    assert command.name == name
    assert command.summary and command.description and command.examples
    assert all(f"agentbox {name}" in example for example in command.examples)
    assert all(option.help for option in command.options) and all(word.help for word in command.words)


@pytest.mark.parametrize("name", NAMES)
def test_a_subcommand_is_documented(name: str) -> None:
    """Every subcommand is shown in README and in a how-to page."""
    assert f"agentbox {name}" in (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "how-to").glob("*.md")]
    assert any(f"agentbox {name}" in page for page in pages)
