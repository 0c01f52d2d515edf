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

    def problem(self, file, argv, cwd, path):
        return None

    def variables(self, hash_seed):
        return {"FAKE_SEED": str(hash_seed)}


def faulty(kind):
    """A factory of sessions whose `observe` goes wrong in one of some ways."""
    from agentbox.guard.record import RecordSession
    from agentbox.guard.session import EndRun

    class Faulty(RecordSession):
        def observe(self, event):
            raise {
                "end": EndRun(3, "first line\nsecond line"),
                "defect": RuntimeError("boom"),
                "memory": MemoryError(),
                "threads": RuntimeError("can't start new thread"),
            }[kind]

        def consult(self, event):
            return {"allow": False, "text": "served", "errno": 111} if event.op == "net.connect" else None

    return lambda options, rundir: Faulty(options, {})


def main():
    wish = json.loads(sys.argv[1])
    if wish.get("no_pidfd"):
        del os.pidfd_open
    if wish.get("no_snapback"):
        sys.executable = "/nowhere/python"  # beside which snapback would be looked for
    for name in wish.keys() & {"hello_timeout", "grace", "graces"}:
        from agentbox.guard import serve

        constant = name.upper() if name == "hello_timeout" else f"_{name.upper()}"
        assert hasattr(serve, constant)
        setattr(serve, constant, wish[name])

    if "most_seconds" in wish:
        from agentbox.guard import record

        record.MOST_SECONDS = wish["most_seconds"]

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
        layers=wish.get("layers", "guard"),
        checkpoint=wish.get("checkpoint", False),
        runtimes=(Fake(wish.get("arms", True)),) if wish.get("fake", True) else (),
    )
    try:
        return run(options, faulty(wish["faulty"]) if "faulty" in wish else None)
    except (GuardError, TraceError) as error:
        say(f"{error}" + (f" ({error.hint})" if error.hint else ""))
        return getattr(error, "status", 73)


if __name__ == "__main__":
    sys.exit(main())
