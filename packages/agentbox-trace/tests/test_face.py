"""The public face: names, what an import costs, README and spec."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import agentbox.trace as face

PACKAGE = Path(__file__).parent.parent
INSTALLED = Path(face.__file__).parents[2]
"""The folder on the import path that holds the package under test, from a checkout or from a wheel."""
HEAVY = {
    "argparse",
    "asyncio",
    "contextlib",
    "dataclasses",
    "hashlib",
    "http",
    "inspect",
    "json",
    "logging",
    "pathlib",
    "re",
    "selectors",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "typing",
    "warnings",
}


def test_public_names() -> None:
    """`__all__` is the table of lazy names, and each has a docstring where it can have one."""
    assert sorted(face.__all__) == sorted(face._HOME)
    for name in face.__all__:
        value = getattr(face, name)
        assert not callable(value) or value.__doc__, name
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        face.nope


def loaded(code: str) -> set[str]:
    """Which modules `code` loads in a fresh interpreter without site."""
    source = f"import sys; sys.path.insert(0, {str(INSTALLED)!r}); before = set(sys.modules)\n{code}\n"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", source + "print(*(set(sys.modules) - before))"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(done.stdout.split())


def test_face_loads_nothing() -> None:
    """Importing the package loads only itself."""
    assert loaded("import agentbox.trace") == {"__future__", "agentbox", "agentbox.trace"}


def test_opening_a_trace_is_cheap(tmp_path: Path) -> None:
    """What `run` does before it forks the agent loads none of the heavy modules."""
    code = (
        "from agentbox.trace import Redactor, TraceWriter, rotate\n"
        f"rotate({str(tmp_path / 'run.jsonl')!r})\n"
        f"TraceWriter.create({str(tmp_path / 'run.jsonl')!r}, redactor=Redactor({{'A_TOKEN': 'abcdefgh'}}))"
    )
    assert not loaded(code) & HEAVY


def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of the README run, in order, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.S)
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)


@pytest.mark.skipif(not (PACKAGE.parent.parent / "docs" / "spec" / "trace.md").exists(), reason="the docs are not here")
def test_spec_names_everything() -> None:
    """The spec describes every status, every kind and every meta op, and its sections are numbered without a gap."""
    from agentbox.trace.report import STATUSES

    spec = (PACKAGE.parent.parent / "docs" / "spec" / "trace.md").read_text()
    for name in (
        *STATUSES,
        *face.KINDS,
        "run.start",
        "process.start",
        "effect.begin",
        "fs.state",
        "run.end",
        face.FORMAT,
    ):
        assert f"`{name}`" in spec, name
    samples = [line for block in re.findall(r"```json\n(.*?)```", spec, re.S) for line in block.splitlines()]
    real = "".join((PACKAGE / "vectors" / "valid" / name / "run.jsonl").read_text() for name in ("small", "bodies"))
    assert len(samples) >= 6 and all(f"{line}\n" in real for line in samples)
    numbers = [int(number) for number in re.findall(r"^## (\d+)\. ", spec, re.M)]
    assert numbers == list(range(1, len(numbers) + 1))
    cited = {
        int(number)
        for path in Path(face.__file__).parent.rglob("*.py")
        for number in re.findall(r"section (\d+)", path.read_text())
    }
    assert cited <= set(numbers)
