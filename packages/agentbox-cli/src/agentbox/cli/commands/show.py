"""`agentbox show`: a trace as a table for people, or as its own lines for programs.

Never says whether the trace is intact: that is `agentbox verify`.
"""

from __future__ import annotations

import os
import sys

from agentbox.cli import exitcodes, output
from agentbox.cli.commands._base import TRACE_ALIAS, TRACE_WORD, Command, tell_older, trace_path
from agentbox.cli.errors import UsageError
from agentbox.cli.options import Option, Parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentbox.trace import Entry


def run(parsed: Parsed) -> int:
    from agentbox.cli.rows import Rows

    path, follow = trace_path(parsed), parsed.switch("follow")
    if parsed.switch("rules"):
        return _rules(parsed, path)
    rows = None if parsed.switch("json") else Rows(colour=output.coloured(sys.stdout))
    wanted = _filter(parsed.text("kind"), parsed.text("op"))
    shown = 0
    for entry in _entries(path, follow=follow):
        if rows is not None:
            rows.note(entry)
        if wanted(entry):
            output.result(rows.row(entry) if rows is not None else entry.raw.decode().rstrip("\n"))
            shown += 1
        if follow:
            output.flush()
    tell_older(path)
    if not shown:
        asked = parsed.text("kind") or parsed.text("op")
        output.message(f"{path}: no entry of that kind and operation" if asked else f"{path}: is empty")
    return exitcodes.OK


def _rules(parsed: Parsed, path: str) -> int:
    from agentbox.cli.missing_rules import MissingRules

    others = {
        "json": parsed.switch("json"), "follow": parsed.switch("follow"),
        "kind": parsed.text("kind"), "op": parsed.text("op"),
    }  # fmt: skip
    for other, given in others.items():
        if given:
            raise UsageError(f"show: --rules and --{other} do not go together", "give one of them")
    tell_older(path)
    missing = MissingRules()
    for entry in _entries(path, follow=False):
        missing.note(entry)
    lines = missing.lines()
    for line in lines:
        output.result(line)
    if not lines:
        output.message(f"{path}: no rule is missing")
    return exitcodes.OK


def _entries(path: str, *, follow: bool) -> Iterator[Entry]:
    """All entries, with progress on the way through a big trace whose rows go elsewhere than to the terminal."""
    from agentbox.trace import read

    elsewhere = not follow and sys.stdout is not None and not sys.stdout.isatty()
    progress = output.Progress("reading", os.path.getsize(path) if elsewhere and os.path.isfile(path) else 0)
    done = 0
    try:
        for entry in read(path, follow=follow):
            done += len(entry.raw)
            progress.update(done)
            yield entry
    finally:
        progress.close()


def _filter(kind: str, op: str) -> Callable[[Entry], bool]:
    def wanted(entry: Entry) -> bool:
        if kind and entry.kind != kind:
            return False
        return not op or (entry.op.startswith(op[:-1]) if op.endswith("*") else entry.op == op)

    return wanted


COMMAND = Command(
    "show",
    summary="read a trace",
    description=(
        "Shows what was recorded: effects (done by agentbox for the agent), observations (done by the agent),",
        "denials with the rule that would allow them, and the start and end of the run.",
    ),
    words=(TRACE_WORD,),
    options=(
        TRACE_ALIAS,
        Option("-k", "--kind", metavar="KIND", choices=("effect", "observe", "deny", "meta"), help="only this kind"),
        Option("-o", "--op", metavar="OP", help="only this operation, such as http.request or 'fs.*'"),
        Option("-f", "--follow", help="wait for more until the run ends"),
        Option("--json", help="the lines as they were recorded (JSON Lines)"),
        Option("--rules", help="only the policy lines that would allow what was denied, each once"),
    ),
    examples=(
        "agentbox show",
        "agentbox show --kind deny            # what was refused, and what would allow it",
        "agentbox show monday.jsonl --op 'fs.*'",
        "agentbox show --json | jq .args.url",
        "agentbox show --rules >> agentbox.policy   # then read them, and take out what is too much",
    ),
    run=run,
)
