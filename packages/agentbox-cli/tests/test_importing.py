"""The console script's own way of importing: what it loads is what the interpreter would have loaded."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

import pytest

import agentbox.guard
import agentbox.policy
from agentbox_command import Finder


def test_a_module_is_found_as_the_interpreter_finds_it() -> None:
    """A package, a module and a module of a package, with the same places and the same code."""
    for parent, name in ((agentbox, "guard"), (agentbox.guard, "serve"), (agentbox.policy, "forms")):
        full = f"{parent.__name__}.{name}"
        ours, theirs = Finder.find_spec(full, parent.__path__), PathFinder.find_spec(full, parent.__path__)
        assert ours is not None and theirs is not None and ours.loader is not None and theirs.loader is not None
        for member in ("name", "origin", "cached", "has_location", "submodule_search_locations", "parent"):
            assert getattr(ours, member) == getattr(theirs, member), member
        assert ours.loader.get_code(full) == theirs.loader.get_code(full)  # type: ignore[attr-defined]
        assert ours.loader.get_source(full) == theirs.loader.get_source(full)  # type: ignore[attr-defined]


def test_all_else_is_left_to_the_interpreter() -> None:
    """Other packages, the namespace itself, and what is not there."""
    assert Finder.find_spec("json", None) is None
    assert Finder.find_spec("agentbox", None) is None
    assert Finder.find_spec("agentbox.nothing", agentbox.__path__) is None


def loaded(folder: Path) -> int:
    spec = Finder.find_spec("agentbox.piece", [str(folder)])
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: int = module.VALUE
    return found


def test_only_byte_code_of_this_very_source_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, that of an older source, a torn one and one of another interpreter are passed over, and made anew."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    source = tmp_path / "piece.py"
    source.write_text("VALUE = 1\n")
    assert loaded(tmp_path) == 1
    (cached,) = (tmp_path / "__pycache__").iterdir()
    source.write_text("VALUE = 20\n")
    assert loaded(tmp_path) == 20
    good = cached.read_bytes()
    for bad in (b"", good[:9], b"\0\0\r\n" + good[4:]):
        cached.write_bytes(bad)
        assert loaded(tmp_path) == 20
        assert cached.read_bytes() == good
    os.utime(source, (1e9, 1e9))
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    source.write_text("VALUE = 31\n")
    assert loaded(tmp_path) == 31


def test_byte_code_is_taken_where_there_is_some(tmp_path: Path) -> None:
    """Else there would be no point: the source is not even read."""
    source = tmp_path / "piece.py"
    source.write_text("VALUE = 1\n")
    facts = source.stat()
    py_compile.compile(str(source))
    source.write_text("VALUE = 2\n")
    os.utime(source, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert loaded(tmp_path) == 1


def test_the_script_uses_it() -> None:
    """But not where byte code lies elsewhere or is of another kind."""
    code = (
        "import agentbox_command, sys\n"
        "sys.argv = ['agentbox', '--version']\n"
        "import os; os._exit = lambda status: print(status, agentbox_command.Finder in sys.meta_path)\n"
        "agentbox_command.main()"
    )
    for options, used in (([], True), (["-O"], False), (["-X", f"pycache_prefix={os.devnull}"], False)):
        done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == f"0 {used}", done.stderr
