"""Imports run one way (docs/reference/architecture.md and CONTRIBUTING.md), and only through public names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

MAY_IMPORT = {
    "policy": set(),
    "trace": set(),
    "guard": {"policy", "trace"},
    "client": set(),
    "replay": {"policy", "trace", "guard"},
    "node": {"policy", "trace"},
    "cli": {"policy", "trace", "guard", "replay", "node"},
}
"""Part of the namespace (`agentbox.X`) to the parts that it may import besides itself."""

SOURCES = sorted(ROOT.glob("packages/*/src/**/*.py"))


def part_of(source: Path) -> str:
    """`agentbox.X` that a file belongs to; files outside the namespace belong to the command."""
    names = source.parts[source.parts.index("src") + 1 :]
    return names[1].removesuffix(".py") if names[0] == "agentbox" else "cli"


def imports(source: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that a file imports, in functions and for typing too."""
    names = source.parts[source.parts.index("src") + 1 : -1]
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = names[: len(names) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def crossings(source: Path) -> Iterator[tuple[int, str, str]]:
    """Line, other part and full name of what a file imports from other parts of the namespace."""
    own = part_of(source)
    for line, name in imports(source):
        pieces = name.split(".")
        if pieces[0] == "agentbox" and len(pieces) > 1 and pieces[1] != own:
            yield line, pieces[1], name


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "packages")))
def test_imports_run_one_way(source: Path) -> None:
    """A file imports only the parts that its own part may see, and of those only public names."""
    own = part_of(source)
    wrong = [
        f"line {line}: {name}"
        for line, other, name in crossings(source)
        if other not in MAY_IMPORT[own] or any(piece.startswith("_") for piece in name.split(".")[1:])
    ]
    assert not wrong, f"agentbox.{own} must not import: {wrong}"


def test_every_part_is_in_the_table() -> None:
    """A new part of the namespace must say what it may import."""
    assert {part_of(source) for source in SOURCES} == set(MAY_IMPORT)


def test_the_walk_sees_an_import_against_the_direction(tmp_path: Path) -> None:
    """The check itself fails when policy imports guard, deep inside a function."""
    source = tmp_path / "src" / "agentbox" / "policy" / "model.py"
    source.parent.mkdir(parents=True)
    source.write_text("def f():\n    from agentbox.guard import run\n")
    assert list(crossings(source)) == [(2, "guard", "agentbox.guard.run")]


def test_nobody_owns_the_namespace() -> None:
    """`agentbox` stays a PEP 420 namespace: no distribution may bring an `__init__.py` of it."""
    assert not list(ROOT.glob("packages/*/src/agentbox/__init__.py"))
    assert len(list(ROOT.glob("packages/*/src/agentbox/*/py.typed"))) == 6


def test_only_one_module_of_the_command_prints() -> None:
    """What users read goes through `agentbox.cli.output`."""
    printing = []
    writers = ("print", "sys.stdout.write", "sys.stderr.write")
    for source in ROOT.glob("packages/agentbox-cli/src/agentbox/cli/**/*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in writers:
                printing.append(source.name)
    assert set(printing) == {"output.py"}
