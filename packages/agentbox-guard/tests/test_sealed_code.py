"""Sealed code reads no name that a frame shows: docs/reference/architecture.md, "Sealed code"."""

from __future__ import annotations

import ast
import dis
import pathlib
import types

import pytest

import agentbox.guard.python
import agentbox.policy.forms.path
from agentbox.guard.python import bootstrap, events, facades

FOLDER = pathlib.Path(agentbox.guard.python.__file__).parent
FOLDERS = {"events/": events.MODULES, "facades/": facades.MODULES}
MODULES = ["wire", "resolve", "digest", "../kernel/protected"]
for entry in bootstrap.SEALED_MODULES:
    MODULES += [entry + module for module in FOLDERS[entry]] if entry in FOLDERS else [entry]
PATH_FORM = pathlib.Path(agentbox.policy.forms.path.__file__)
"""Executed between `digest` and the first of SEALED_MODULES."""

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


def defined(path: pathlib.Path) -> list[str]:
    """The names that a sealed module gives to functions and constants of its own."""
    names = []
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.FunctionDef):
            names.append(statement.name)
        elif isinstance(statement, ast.Assign):
            names += [
                name.id for target in statement.targets for name in ast.walk(target) if isinstance(name, ast.Name)
            ]
    return [name for name in names if name not in ("EVENTS", "TYPE_CHECKING")]


def test_no_name_of_the_shared_namespace_stands_for_two_things() -> None:
    """A second function of a name would be bound in place of the first by every module that comes later."""
    names = [name for path in (PATH_FORM, *(FOLDER / f"{name}.py" for name in MODULES)) for name in defined(path)]
    assert [name for name in names if names.count(name) > 1] == []


def test_every_facade_of_the_table_is_a_function_of_its_folder() -> None:
    """A row that names nothing would end every run; one named twice would judge its own stand-in."""
    made = [name for path in (FOLDER / "facades").glob("*.py") for name in defined(path)]
    assert [facade for _, _, facade in facades.FACADES if facade not in made] == []
    assert len({(place, name) for place, name, _ in facades.FACADES}) == len(facades.FACADES)
