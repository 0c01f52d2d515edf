"""`agentbox replay`: runs a command again against its recording and names the first step that differs.

Never touches the network or the real files, and never replays a trace that does not verify.
"""

from __future__ import annotations

from agentbox.cli.commands._base import JSON, POLICY, TRACE, UNSEALED, Command
from agentbox.cli.options import Parsed


def run(parsed: Parsed) -> int:
    from agentbox.replay import ReplayOptions, replay

    return replay(
        ReplayOptions(
            argv=parsed.command,
            policy_path=parsed.text("policy"),
            trace_path=parsed.text("trace"),
            allow_unsealed=parsed.switch("allow_unsealed"),
            json=parsed.switch("json"),
        )
    )


COMMAND = Command(
    "replay",
    summary="run the command again from the recording",
    description=(
        "Runs COMMAND with the recorded answers: no network, no program started, no file of yours changed.",
        "It must do the same steps; the first one that differs ends the run and is shown (status 3).",
    ),
    options=(POLICY, TRACE, UNSEALED, JSON),
    takes_command=True,
    examples=(
        "agentbox replay -- python agent.py",
        "agentbox replay -t monday.jsonl -- python agent.py && echo same as on monday",
    ),
    run=run,
)
