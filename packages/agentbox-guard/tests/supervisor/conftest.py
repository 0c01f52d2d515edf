"""A sandbox for tests: a folder, a policy, and a way to run a fake or a real agent in it under the real supervisor."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
from kit.waiting import PATIENCE

HERE = pathlib.Path(__file__).parent
PRELUDE = f"import sys; sys.path.insert(0, {str(HERE)!r})\nfrom fake_agent import Link, rest\nimport os, json, time\n"


class Outcome:
    """What a run left: exit status, standard output and error, and the trace's entries."""

    def __init__(self, folder, status, out, err, trace):
        self.status = status
        self.out = out
        self.err = err
        path = folder / trace
        self.trace = [json.loads(line) for line in path.read_bytes().splitlines()] if path.is_file() else []

    def of(self, kind=None, op=None):
        return [e for e in self.trace if kind in (None, e["kind"]) and op in (None, e["op"])]

    @property
    def last(self):
        return self.err.splitlines()[-1]

    def said(self, text):
        return any(text in line for line in self.err.splitlines() if line.startswith("agentbox: "))


class Sandbox:
    """`fake(code)` runs code that speaks the channel itself, `start` gives its process, `python` runs a real agent."""

    def __init__(self, folder):
        self.folder = folder
        self.environ = {**os.environ, "TMPDIR": str(folder.parent)}
        self.environ.pop("AGENTBOX_DEBUG", None)
        (folder / "data").mkdir()
        (folder / "data" / "a.txt").write_text("alpha\n")

    def wish(self, policy, argv, **more):
        (self.folder / "agentbox.policy").write_text(policy)
        wish = {"policy": policy, "argv": argv, **more}
        return [sys.executable, str(HERE / "drive.py"), json.dumps(wish)]

    def script(self, code, prelude=PRELUDE):
        path = self.folder.parent / "agent.py"
        path.write_text(prelude + textwrap.dedent(code))
        return [sys.executable, "-I", "-S", str(path)]

    def start(self, code, policy="read: ./data\n", argv=None, **more):
        command = self.wish(policy, argv or self.script(code), **more)
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process, trace="trace.jsonl"):
        out, err = process.communicate(timeout=PATIENCE)
        return Outcome(self.folder, process.returncode, out, err, trace)

    def fake(self, code, policy="read: ./data\n", **more):
        return self.end(self.start(code, policy, **more), more.get("trace", "trace.jsonl"))

    def python(self, code, policy="read: ./data\n", options=(), **more):
        argv = [sys.executable, *options, "-c", textwrap.dedent(code)]
        return self.end(self.start("", policy, argv=argv, fake=False, **more))


@pytest.fixture
def sandbox(tmp_path):
    folder = tmp_path / "ws"
    folder.mkdir()
    return Sandbox(folder)
