"""The rules of sealed code (docs/reference/architecture.md, "Sealed code"), by disassembly and by running it."""

from __future__ import annotations

import builtins
import dis
import subprocess
import sys
import types
from pathlib import Path

import pytest

from agentbox.policy import parse
from agentbox.policy.forms import path as sealed

SOURCE = Path(sealed.__file__)
FORBIDDEN = (
    *("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"),
    *(
        "LOAD_FROM_DICT_OR_DEREF",
        "STORE_GLOBAL",
        "STORE_NAME",
        "STORE_DEREF",
        "MAKE_CELL",
        "COPY_FREE_VARS",
        "MAKE_FUNCTION",
    ),
    *("IMPORT_NAME", "IMPORT_FROM", "LOAD_BUILD_CLASS", "SETUP_FINALLY", "PUSH_EXC_INFO", "LOAD_ASSERTION_ERROR"),
    *("LOAD_LOCALS", "DELETE_GLOBAL", "LOAD_COMMON_CONSTANT", "YIELD_VALUE", "RETURN_GENERATOR"),
)


def functions() -> list[types.FunctionType]:
    return [made for made in vars(sealed).values() if isinstance(made, types.FunctionType)]


def names_read(function: types.FunctionType) -> list[str]:
    """The instructions of a function that reach for anything but its own locals."""
    return [step.opname for step in dis.get_instructions(function) if step.opname in FORBIDDEN]


@pytest.mark.parametrize("function", functions(), ids=lambda made: made.__name__)
def test_no_function_reads_anything_but_its_locals(function):
    """Every name that a sealed function needs is a keyword default, so that there is nothing to patch."""
    assert names_read(function) == []
    assert function.__closure__ is None
    assert not any(isinstance(constant, types.CodeType) for constant in function.__code__.co_consts)
    assert function.__defaults__ is None


def test_the_check_sees_a_global():
    """The disassembly above would notice a function that is not sealed."""

    def open_one(path):
        return len(path) + sum(part for part in path)

    assert "LOAD_GLOBAL" in names_read(open_one)


def test_the_module_holds_functions_only():
    """No class, no mutable state, nothing imported at run time."""
    for name, made in vars(sealed).items():
        if not name.startswith("__") and name != "TYPE_CHECKING":
            assert isinstance(made, types.FunctionType), name


def test_it_runs_under_private_builtins_without_imports():
    """Run from its source with read-only builtins and no import function, it decides as the importable one does."""
    allowed = {name: made for name, made in vars(builtins).items() if name != "__import__"}
    space = {"__builtins__": types.MappingProxyType(allowed), "__name__": "sealed"}
    exec(compile(SOURCE.read_text(), "<sealed>", "exec"), space)
    made = parse("read: ./a, ./b/**/*.py\nwrite: ./c\n", cwd="/agentbox-vectors", home="/", search="").normal_form()[
        "rules"
    ]
    for path in (
        "/agentbox-vectors/a/x",
        "/agentbox-vectors/b/c/d.py",
        "/agentbox-vectors/c",
        "/etc/passwd",
        "/a/../b",
    ):
        for access in ("read", "write"):
            rules = space["path_rules"](made)
            assert rules == sealed.path_rules(made)
            assert space["path_decide"](access, path, rules) == sealed.path_decide(access, path, rules)
            ask = (access, path, rules, "/agentbox-vectors", "p")
            assert space["path_denied_text"](*ask) == sealed.path_denied_text(*ask)


def test_patched_builtins_change_nothing():
    """Replacing builtins after the module was made has no effect on a decision."""
    code = (
        "import builtins, os; from agentbox.policy.forms import path as sealed;"
        "rules = sealed.path_rules([{'key': 'read', 'root': '/data', 'glob': None}]);"
        "ask = '/etc/passwd';"
        "builtins.len = builtins.type = builtins.tuple = builtins.enumerate = builtins.ord = None;"
        "decided = sealed.path_decide('read', ask, rules) == -1;"
        "decided = decided and sealed.path_fix('read', ask, '/') == 'read: /etc/passwd';"
        "os._exit(0 if decided and len is None else 1)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_whole_text_of_a_denial():
    """A denial names access, path, reason and the line that would allow it, on one line, in full."""
    rules = sealed.path_rules([{"key": "read", "root": "/ws/data", "glob": None}])
    assert sealed.path_denied_text("write", "/ws/data/x", rules, "/ws", "agentbox.policy") == (
        "agentbox: write denied: /ws/data/x: the policy allows reading it, not writing; "
        "to allow it, add this line to agentbox.policy: write: ./data/x"
    )
    assert sealed.path_denied_text("read", "/etc/a\x1b[2J", rules, "/ws", "agentbox.policy") == (
        "agentbox: read denied: /etc/a\\x1b[2J: no read or write rule covers it; "
        'to allow it, add this line to agentbox.policy: read: "/etc/a\\x1b\\[2J"'
    )


def test_within():
    """A path is within a tree when it is the tree or below it, and only in its one spelling."""
    trees = ("/usr/lib", "/opt/x.py")
    assert sealed.path_within("/usr/lib", trees)
    assert sealed.path_within("/usr/lib/python3/os.py", trees)
    assert sealed.path_within("/opt/x.py", trees)
    for path in ("/usr/lib2", "/usr", "/", "/usr/lib/../bin", "usr/lib", "/usr/lib/", b"/usr/lib", None):
        assert not sealed.path_within(path, trees)
