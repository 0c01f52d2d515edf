"""`agentbox run`: confines a command by a policy and records what it does.

Never adds to the agent's own output: what agentbox says goes to standard error, and the exit status is the agent's.
"""

from __future__ import annotations

import os

from agentbox.cli import output
from agentbox.cli.commands._base import LAYERS, POLICY, TRACE, Command
from agentbox.cli.errors import CannotCreate
from agentbox.cli.options import Option, Parsed


def run(parsed: Parsed) -> int:
    from agentbox.guard import RunOptions
    from agentbox.guard import run as run_guarded
    from agentbox.node import RUNTIME
    from agentbox.policy import load
    from agentbox.trace import TraceError

    options = RunOptions(
        policy=load(parsed.text("policy"), may_be_empty=parsed.switch("observe")),
        argv=parsed.command,
        cwd=os.getcwd(),
        trace=parsed.text("trace"),
        say=output.message,
        note=_silent if parsed.switch("quiet") else None,
        live=output.message if output.is_watched() and not parsed.switch("quiet") else None,
        mode="observe" if parsed.switch("observe") else "record",
        layers=parsed.text("layers"),
        allow_degraded=[name for name in parsed.text("allow_degraded").split(",") if name],
        read_trace=not parsed.switch("no_read_trace"),
        checkpoint=parsed.switch("checkpoint"),
        runtimes=(RUNTIME,),
    )
    try:
        return run_guarded(options)
    except TraceError as error:
        # Raised only before the agent starts: a trace that fails later ends the agent, and its status is returned.
        raise CannotCreate(str(error), error.hint) from error


def _silent(line: str) -> None:
    """In place of the notes of a run, under --quiet."""


COMMAND = Command(
    "run",
    summary="run a command under a policy and record it",
    description=(
        "Runs COMMAND so that it can touch only what the policy allows, and records what it does.",
        "Its input, output and exit status stay its own; the lines of agentbox go to standard error.",
        "The trace of an earlier run is kept: it is moved to traces/, under its time and run.",
        "On a terminal each denial is told when it first happens, else at the end.",
        "Ctrl-C goes to COMMAND; a second one within three seconds ends the run, whatever COMMAND does about it.",
        "Layers: auto applies all kernel layers of this system, and runs nothing when one cannot be had unless",
        "--allow-degraded names it; kernel insists on a system that has them; guard is the interpreter's guard alone.",
    ),
    options=(
        POLICY,
        TRACE,
        Option("--observe", help="record what would be denied, and let it pass: no policy needed, no protection"),
        LAYERS,
        Option(
            "--allow-degraded",
            metavar="NAMES",
            choices=("netns", "landlock", "seccomp"),
            several=True,
            help="kernel layers that may be missing, separated by commas",
        ),
        Option("--no-read-trace", help="neither hash nor record what programs without a guard read"),
        Option("-q", "--quiet", help="say nothing but what went wrong: no summary, head or denials at the end"),
        Option(
            "--checkpoint", help="take a snapback snapshot before the first change, or before a command without a guard"
        ),
    ),
    takes_command=True,
    examples=(
        "agentbox run -- python agent.py",
        "agentbox run -p strict.policy -t monday.jsonl -- python -m my_agent --task report",
        "agentbox run --observe -- python agent.py      # what would the policy have to allow?",
        "agentbox run --checkpoint -- python agent.py   # and snapback undo takes it all back",
    ),
    run=run,
)
