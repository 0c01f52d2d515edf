"""Sealed code reads no name that a frame shows: docs/reference/architecture.md, "Sealed code"."""

from __future__ import annotations

import dis
import pathlib
import types

import pytest

import agentbox.guard.python
from agentbox.guard.python import bootstrap

FOLDER = pathlib.Path(agentbox.guard.python.__file__).parent
MODULES = ["wire", "resolve", "digest", *bootstrap.SEALED_MODULES]
READS_OUTSIDE = {
    "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF",
    "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF", "STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL",
    "IMPORT_NAME", "MAKE_FUNCTION", "LOAD_BUILD_CLASS", "MAKE_CELL", "COPY_FREE_VARS",
}  # fmt: skip


def functions(code: types.CodeType) -> list[types.CodeType]:
    """The code objects of a module's functions."""
    return [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


@pytest.mark.parametrize("name", MODULES)
def test_every_name_is_a_parameter(name: str) -> None:
    """No function of a sealed module reads a global, a builtin or a cell, or makes a function."""
    path = FOLDER / f"{name}.py"
    found = functions(compile(path.read_text(), str(path), "exec"))
    assert found, "a sealed module without functions would make this test empty"
    for function in found:
        outside = {
            f"{function.co_name}: {i.opname} {i.argval}"
            for i in dis.get_instructions(function)
            if i.opname in READS_OUTSIDE
        }
        assert not outside


def test_every_module_of_the_guard_is_sealed_or_the_bootstrap() -> None:
    """A file that the bootstrap does not execute sealed is either the bootstrap itself or holds no functions."""
    for path in FOLDER.rglob("*.py"):
        name = str(path.relative_to(FOLDER).with_suffix(""))
        if name in MODULES or name in ("bootstrap", "shim/sitecustomize"):
            continue
        assert not functions(compile(path.read_text(), str(path), "exec")), name
