"""An agent in C, which no guard is in: compiled, and run with and without the sandbox."""

import json
import os
import subprocess
import sys

from kit.waiting import PATIENCE


class Box:
    """Compiles an agent, and runs it with and without the sandbox."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "ws").mkdir()
        (folder / "state").mkdir()

    def compile(self, source, *options, name="agent"):
        """Make a program beside the working folder."""
        path = self.folder / f"{name}.c"
        path.write_text(source)
        subprocess.run(["gcc", "-w", "-O1", "-pthread", *options, "-o", str(self.folder / name), str(path)], check=True)

    def plain(self, *words):
        """The agent without the sandbox."""
        command = [str(self.folder / "agent"), *words]
        return subprocess.run(command, cwd=self.folder / "ws", capture_output=True, text=True, timeout=PATIENCE)

    def boxed(self, policy, *words, command=(), options=()):
        """The agent, or another command, under a policy."""
        state = self.folder / "state"
        (state / "agentbox.policy").write_text(policy)
        command = [
            sys.executable, "-m", "agentbox.cli", "run", "-p", f"{state}/agentbox.policy", "-t", f"{state}/trace.jsonl",
            *options, "--", *(command or (str(self.folder / "agent"), *words)),
        ]  # fmt: skip
        environ = {**os.environ, "TMPDIR": str(state)}
        return subprocess.run(
            command, cwd=self.folder / "ws", env=environ, capture_output=True, text=True, timeout=PATIENCE
        )

    def trace(self):
        """The entries of the last run."""
        text = (self.folder / "state" / "trace.jsonl").read_bytes()
        return [json.loads(line) for line in text.splitlines()]
