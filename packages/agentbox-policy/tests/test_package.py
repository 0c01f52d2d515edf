"""The shape of the distribution: what it imports, that tables and docs are whole, that the README works."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import agentbox.policy
from agentbox.policy import KINDS, rules

SOURCE = Path(agentbox.policy.__file__).parent
LIGHT = {
    "__future__",
    "_collections_abc",
    "_sha2",
    "_sha256",
    "_stat",
    "genericpath",
    "os",
    "os.path",
    "posixpath",
    "stat",
}
HEAVY = {
    "dataclasses",
    "typing",
    "re",
    "json",
    "ipaddress",
    "fnmatch",
    "pathlib",
    "difflib",
    "hashlib",
    "socket",
    "inspect",
}


def docs(package: Path, name: str) -> str:
    return (package.parents[1] / "docs" / name).read_text()


def test_start_up_imports_nothing_heavy():
    """Importing, parsing, deciding and hashing pull in no module that start-up cannot afford."""
    code = (
        "import sys; before = set(sys.modules); from agentbox.policy import parse;"
        "p = parse('read: ./a\\nnet: a.example:443\\nexec: git status\\nenv: A*\\n'); p.decide('read', '/etc/passwd');"
        "p.decide('net', '127.1', 80); p.normal_form(); print(*sorted(set(sys.modules) - before))"
    )
    # -S: what `site` and its .pth files import is not this package's doing.
    paths = f"import sys; sys.path.insert(0, {str(SOURCE.parents[1])!r});"
    ran = subprocess.run([sys.executable, "-S", "-c", paths + code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(ran.stdout.split())
    foreign = [name for name in ran.stdout.split() if not name.startswith("agentbox")]
    assert set(foreign) <= LIGHT, foreign


def test_every_kind_is_one_file_in_the_table():
    """A file of rules/ without an underscore is a kind, named like its key, and the other way round."""
    files = {path.stem for path in Path(rules.__file__).parent.glob("*.py") if not path.stem.startswith("_")}
    assert files == set(KINDS)
    for key, kind in KINDS.items():
        assert kind.key == key
        assert type(kind).__module__ == f"agentbox.policy.rules.{key}"
        assert type(kind).__doc__
        assert kind.summary
        assert kind.starter


def test_every_kind_and_error_code_is_documented(package):
    """The specification has a heading for each kind and a row for each code; the user's page a heading per kind."""
    spec, page = docs(package, "spec/policy.md"), docs(package, "reference/policy.md")
    for key in KINDS:
        assert re.search(rf"^#+ .*`{key}:`", spec, re.MULTILINE), key
        assert re.search(rf"^#+ `{key}:`", page, re.MULTILINE), key
    used = {code for path in SOURCE.rglob("*.py") for code in re.findall(r'code="([a-z-]+)"', path.read_text())}
    table = set(re.findall(r"^\| `([a-z-]+)` \|", spec.partition("## 10.")[2], re.MULTILINE))
    assert used == table


def test_the_spec_lists_every_name_that_carries_code(package):
    """The list of variables in the specification is the code's."""
    from agentbox.policy.rules.env import CODE_NAMES, CODE_PREFIXES

    section = docs(package, "spec/policy.md").partition("## 9.")[2].partition("## 10.")[0]
    for name in (
        *(f"{prefix}*" for prefix in CODE_PREFIXES),
        *(name for names in CODE_NAMES.values() for name in names),
    ):
        assert f"`{name}`" in section, name


def test_cited_sections_exist(package):
    """Each section of the specification that the code cites is there."""
    headings = set(re.findall(r"^## (\d+)\.", docs(package, "spec/policy.md"), re.MULTILINE))
    for path in SOURCE.rglob("*.py"):
        for match in re.findall(r"policy\.md, sections? (\d+)(?: and (\d+)| to (\d+))?", path.read_text()):
            assert {number for number in match if number} <= headings, path


def test_modules_say_what_they_never_do():
    """Each module starts with what it holds and what it must never do."""
    for path in SOURCE.rglob("*.py"):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert re.search(r"\b[Nn]ever\b", text), path


def test_public_names_are_documented_and_real():
    """Everything in `__all__` exists; functions and classes among it have a docstring."""
    for name in agentbox.policy.__all__:
        made = getattr(agentbox.policy, name)
        assert not callable(made) or made.__doc__, name
    assert not hasattr(agentbox.policy, "nothing")


def test_the_readme_example_works(package, tmp_path, monkeypatch, capsys):
    """The example of the README runs and prints what it says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    blocks = re.findall(r"```(\w+)\n(.*?)```", (package / "README.md").read_text(), re.DOTALL)
    assert [kind for kind, _ in blocks] == ["python", "text"]
    exec(compile(blocks[0][1], "README.md", "exec"), {})
    assert capsys.readouterr().out.replace(str(tmp_path), "/work") == blocks[1][1]
