"""`agentbox replay`: runs a command again against its recording and names the first step that differs.

Never touches the network or the real files, and never replays a trace that does not verify.
"""

from __future__ import annotations

import os

from agentbox.cli import output
from agentbox.cli.commands._base import LAYERS, POLICY, TRACE, UNSEALED, Command, tell_older
from agentbox.cli.options import Option, Parsed


def run(parsed: Parsed) -> int:
    from agentbox.node import RUNTIME
    from agentbox.replay import ReplayOptions, replay

    policy = parsed.text("policy")
    if policy == POLICY.default and not os.path.lexists(policy):
        policy = ""
    tell_older(parsed.text("trace"))
    return replay(
        ReplayOptions(
            argv=parsed.command,
            trace_path=parsed.text("trace"),
            policy_path=policy or None,
            allow_unsealed=parsed.switch("allow_unsealed"),
            json=parsed.switch("json"),
            say=output.message,
            layers=parsed.text("layers"),
            runtimes=(RUNTIME,),
        )
    )


COMMAND = Command(
    "replay",
    summary="run a command again from its recording",
    description=(
        "Runs COMMAND with the recorded answers: no network, no program started, no file of yours changed.",
        "It must do the same steps; the first one that differs ends the run and is shown (status 3).",
        "COMMAND is a Python or Node program: others tell of no steps, and are refused but for --layers kernel.",
        "Where there is no agentbox.policy and -p is not given, the policy that the trace holds is used.",
    ),
    options=(
        POLICY,
        TRACE,
        UNSEALED,
        LAYERS,
        Option("--json", help="the outcome as one JSON object on standard error"),
    ),
    takes_command=True,
    examples=(
        "agentbox replay -- python agent.py",
        "agentbox replay -t monday.jsonl -- python agent.py && echo same as on monday",
    ),
    run=run,
)
