"""A scene to run Node agents in, bare and guarded; every Node that the machine offers is a parameter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kit.waiting import PATIENCE


def nodes() -> list[str]:
    """The Node interpreters to test: the one of PATH, and those that AGENTBOX_TEST_NODES names, separated by colons."""
    found = [shutil.which("node"), *os.environ.get("AGENTBOX_TEST_NODES", "").split(":")]
    return [path for path in found if path]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "node" in metafunc.fixturenames:
        metafunc.parametrize("node", nodes() or [pytest.param("", marks=pytest.mark.skip(reason="there is no node"))])


class Scene:
    """A workspace with readable `data`, writable `out` and forbidden `outside` beside it."""

    def __init__(self, base: Path, node: str) -> None:
        self.base = base
        self.node = node
        self.ws = base / "ws"
        self.outside = base / "outside"
        for folder in (self.ws / "data", self.ws / "out", self.outside):
            folder.mkdir(parents=True)
        (self.ws / "data" / "ok.txt").write_text("allowed\n")
        (self.outside / "secret.txt").write_text("secret\n")
        self.rules = ["read: ./data", "write: ./out/"]
        self.trace = self.ws / "trace.jsonl"

    def write(self, text: str, name: str = "agent.cjs") -> Path:
        path = self.ws / name
        path.write_text(text)
        return path

    def environ(self) -> dict[str, str]:
        keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**keep, "HOME": str(self.base), "OUTSIDE": str(self.outside)}

    def bare(self, *words: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.node, *words], cwd=self.ws, env=self.environ(), capture_output=True, text=True, timeout=timeout
        )

    def agentbox(self, *words: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        (self.ws / "agentbox.policy").write_text("\n".join([*self.rules, "env: OUTSIDE"]) + "\n")
        command = [sys.executable, "-m", "agentbox.cli", *words]
        return subprocess.run(command, cwd=self.ws, env=self.environ(), capture_output=True, text=True, timeout=timeout)

    def run(self, *words: str, layers: str = "guard") -> subprocess.CompletedProcess[str]:
        return self.agentbox("run", "--layers", layers, "--", self.node, *words)

    def box(self, text: str, *, name: str = "agent.cjs") -> subprocess.CompletedProcess[str]:
        """Run a program guarded."""
        return self.run(str(self.write(text, name)))

    def entries(self) -> list[dict]:
        return [json.loads(line) for line in self.trace.read_text().splitlines()]

    def steps(self, *kinds: str) -> list[tuple[str, dict]]:
        """(op, args) of the entries of these kinds, in order."""
        return [(entry["op"], entry["args"]) for entry in self.entries() if entry["kind"] in kinds]


@pytest.fixture
def scene(tmp_path: Path, node: str) -> Scene:
    return Scene(Path(os.path.realpath(tmp_path)), node)
