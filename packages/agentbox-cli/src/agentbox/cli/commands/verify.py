"""`agentbox verify`: whether a trace is what its writer wrote, and what that proves.

Never says more than the report of agentbox.trace does, and never passes a trace that was not checked to its end.
"""

from __future__ import annotations

import os
import sys

from agentbox.cli import exitcodes, output
from agentbox.cli.commands._base import TRACE_ALIAS, TRACE_WORD, UNSEALED, Command, tell_older, trace_path
from agentbox.cli.options import Option, Parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.trace import Report


def run(parsed: Parsed) -> int:
    from agentbox.trace import verify

    path = trace_path(parsed)
    progress = output.Progress("verifying", os.path.getsize(path) if os.path.isfile(path) else 0)
    try:
        report = verify(
            path,
            head=parsed.text("head") or None,
            allow_unsealed=parsed.switch("allow_unsealed"),
            blobs=not parsed.switch("no_blobs"),
            progress=lambda done, total: progress.update(done),
        )
    finally:
        progress.close()
    tell_older(path)
    output.result(_json(report) if parsed.switch("json") else _text(report))
    return exitcodes.OK if report.ok else exitcodes.NOT_VERIFIED


def _json(report: Report) -> str:
    import json

    return json.dumps(report.as_dict())


def _text(report: Report) -> str:
    """What was proved and what not, and in the last line the verdict with entries, seal and head."""
    lines = [f"proved: {sentence}" for sentence in report.proved]
    lines += [f"not proved: {sentence}" for sentence in report.not_proved]
    if report.ok:
        verdict, colour = f"verify ok — {report.entries} entries, {report.status}, head {report.head}", output.GREEN
    else:
        verdict, colour = f"verify FAILED ({report.status}) — {report.message}", output.RED
    verdict = output.escape(verdict)
    if output.coloured(sys.stdout):
        verdict = output.paint(verdict, colour)
    return "\n".join([*map(output.escape, lines), verdict])


COMMAND = Command(
    "verify",
    summary="check that a trace is intact",
    description=(
        "Recomputes the hash chain of the trace and checks the bodies beside it.",
        "Says what was proved and what was not. If anything does not fit: status 1, the line, and what was done to it.",
    ),
    words=(TRACE_WORD,),
    options=(
        TRACE_ALIAS,
        Option("--head", metavar="HEX", help="the head that the run printed, kept where nobody could change it"),
        UNSEALED,
        Option("--no-blobs", help="do not check the bodies beside the trace"),
        Option("--json", help="the report as one JSON object"),
    ),
    examples=(
        "agentbox verify",
        "agentbox verify monday.jsonl --head 5f2c…   # also shows a trace that was rewritten as a whole",
        "agentbox verify --allow-unsealed            # after a crash: is what is there intact?",
    ),
    run=run,
)
