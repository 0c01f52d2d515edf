"""Runs one supervised program for a test: `drive.py JSON`, the JSON holding the wishes."""

import json
import os
import sys

from agentbox.guard import GuardError, RunOptions, run
from agentbox.guard.runtimes._base import Launch
from agentbox.policy import load
from agentbox.trace import TraceError


class Fake:
    """A runtime whose programs speak the channel themselves."""

    name = "fake"
    guarded = True

    def __init__(self, arms):
        self.arms = arms

    def recognise(self, command):
        return Launch(self.name, command.file, command.argv, arms=self.arms)

    def variables(self, hash_seed):
        return {"FAKE_SEED": str(hash_seed)}


def main():
    wish = json.loads(sys.argv[1])

    with open("agentbox.policy", "w", encoding="utf-8") as file:
        file.write(wish["policy"])

    def say(line):
        os.write(2, f"agentbox: {line}\n".encode())

    options = RunOptions(
        policy=load("agentbox.policy"),
        argv=wish["argv"],
        cwd=os.getcwd(),
        trace=wish.get("trace", "trace.jsonl"),
        say=say,
        mode=wish.get("mode", "record"),
        layers=wish.get("layers", "auto"),
        checkpoint=wish.get("checkpoint", False),
        runtimes=(Fake(wish.get("arms", True)),) if wish.get("fake", True) else (),
    )
    try:
        return run(options)
    except (GuardError, TraceError) as error:
        say(f"{error}" + (f" ({error.hint})" if error.hint else ""))
        return getattr(error, "status", 73)


if __name__ == "__main__":
    sys.exit(main())
