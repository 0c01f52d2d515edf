"""Documents that repeat what the code says are compared with it, and their links lead somewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentbox.cli import exitcodes
from agentbox.policy import parse, starter_policy

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_what_the_documents_repeat_is_what_the_code_says() -> None:
    """Help, command page and exit statuses in the documents are the ones of the code."""
    check = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("block", ["agentbox --help", "exit statuses", "commands"])
def test_what_the_code_says_is_in_a_document(block: str) -> None:
    """Every text that is made for the documents is used by one."""
    assert any(f"<!-- generated: {block} -->" in page.read_text(encoding="utf-8") for page in PAGES)


def test_the_exit_codes_are_all_in_the_table() -> None:
    """No status is used that the table does not explain, none is listed twice."""
    constants = {value for name, value in vars(exitcodes).items() if name.isupper() and isinstance(value, int)}
    listed = [status for status, _, _ in exitcodes.TABLE]
    assert sorted(listed) == sorted(constants) == sorted(set(listed))


def test_the_statuses_of_other_distributions_are_in_the_table() -> None:
    """Every `status = N` of an error class anywhere is one that the table explains."""
    used = set()
    for source in ROOT.glob("packages/*/src/agentbox/*/errors.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) == "status"
                and isinstance(node.value, ast.Constant)
            ):
                used.add(node.value.value)
    assert used and used <= {status for status, _, _ in exitcodes.TABLE}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    """A relative link in a document names a file that exists."""
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_licence_is_the_same_everywhere() -> None:
    """Each distribution carries the licence of the repository."""
    text = (ROOT / "LICENSE").read_bytes()
    assert [path.read_bytes() == text for path in ROOT.glob("packages/*/LICENSE")] == [True] * 6


def test_the_versions_are_the_same_everywhere() -> None:
    """The six distributions are released together: one version, pinned among each other."""
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob("packages/*/pyproject.toml")]
    versions = {re.search(r'^version = "(.*)"', text, re.MULTILINE)[1] for text in texts}  # type: ignore[index]
    pins = {pin for text in texts for pin in re.findall(r'"agentbox-\w+==([^"]+)"', text)}
    assert len(texts) == 6 and len(versions) == 1 and pins == versions


def test_the_policies_in_the_documents_parse() -> None:
    """README's policy, the example's, and the starter's are policies."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"## The policy\n.*?```\n(.*?)```", readme, re.DOTALL)
    assert block is not None
    for text in (block[1], (ROOT / "examples" / "agentbox.policy").read_text(encoding="utf-8"), starter_policy()):
        assert parse(text, home="/home/user").rules


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_programs_in_the_documents_compile(page: Path) -> None:
    """Python in a document is Python."""
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        compile(block, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
