"""`agentbox doctor`: which layers work on this machine, what they hold, and how to get those that do not.

Each is really tried, in a child process; nothing is assumed from versions, and nothing of the machine is changed.
"""

from __future__ import annotations

import os
import sys

from agentbox.cli import exitcodes, output
from agentbox.cli.commands._base import Command
from agentbox.cli.options import Option, Parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run(parsed: Parsed) -> int:
    found = examined()
    if parsed.switch("json"):
        import json

        output.result(json.dumps({"layers": found, "not_enforced": _unheld(), "noticed": _noticed()}))
    else:
        output.result(_text(found))
    return exitcodes.OK if all(row["works"] for row in found) else exitcodes.UNAVAILABLE


def examined() -> list[dict[str, Any]]:
    """Every layer of this system: `name`, `works`, `missing` (why not), `advice`, `needs`, and `holds` by rule kind."""
    from agentbox.guard import kernel
    from agentbox.guard.kernel.holds import NEEDS
    from agentbox.guard.kernel.seatbelt import SEATBELT

    rows = [_row("guard", "", "", NEEDS["guard"])]
    if sys.platform != "linux":
        return [*rows, _row("seatbelt", SEATBELT.probe(), SEATBELT.advice(), NEEDS["seatbelt"])]
    for name in kernel.LAYERS:
        layer = kernel.load(name)
        missing = layer.probe()
        rows.append(_row(name, missing, kernel.advice(name) if missing else "", NEEDS[name]))
    return rows


def _row(name: str, missing: str, advice: str, needs: str) -> dict[str, Any]:
    from agentbox.guard.kernel.holds import HOLDS

    holds = {kind: parts[name] for kind, parts in HOLDS.items() if name in parts}
    return {
        "name": name,
        "works": not missing,
        "missing": missing,
        "advice": advice,
        "needs": needs,
        "holds": holds,
    }


def _unheld() -> dict[str, str]:
    from agentbox.guard.kernel.holds import UNHELD

    return UNHELD


def _noticed() -> dict[str, str]:
    from agentbox.guard.kernel.holds import NOTICED

    if sys.platform != "linux":
        return {}
    return {name: text for name, text in NOTICED.items() if name != "owner" or os.geteuid() != 0}


def _text(found: list[dict[str, Any]]) -> str:
    lines = []
    coloured = output.coloured(sys.stdout)
    for row in found:
        word = "works" if row["works"] else "missing"
        if coloured:
            word = output.paint(word, output.GREEN if row["works"] else output.RED)
        lines.append(f"{row['name']:<10}{word}{'' if row['works'] else ': ' + output.escape(row['missing'])}")
        if not row["works"]:
            lines += [f"{'':10}{label}: {output.escape(row[key])}" for label, key in _WAYS if row[key]]
        lines += [f"{'':10}{kind}: {text}" for kind, text in row["holds"].items()]
    lines.append("not enforced by any layer:")
    lines += [f"{'':10}{kind}: {text}" for kind, text in _unheld().items()]
    if noticed := _noticed():
        lines.append("what programs notice:")
        lines += [f"{'':10}{name}: {text}" for name, text in noticed.items()]
    lines.append(_verdict([row["name"] for row in found if not row["works"]]))
    return "\n".join(lines)


_WAYS = (("needs", "needs"), ("to get it", "advice"))


def _verdict(missing: list[str]) -> str:
    if not missing:
        return "every layer works: agentbox run contains any program here"
    names = ", ".join(missing)
    if sys.platform != "linux":
        return f"missing: {names}; agentbox run takes commands with a guard only"
    without = f"--allow-degraded {','.join(missing)}, or --layers guard"
    return f"missing: {names}; agentbox run refuses unless it is told to do without ({without})"


COMMAND = Command(
    "doctor",
    summary="say which layers work on this machine",
    description=(
        "Tries every layer of confinement in a child process and says for each whether it works here, what it enforces "
        "for which kind of rule, and how to get one that does not. What no layer enforces is listed too, and "
        "what programs notice of the layers.",
        "Nothing is changed. The exit status is 0 when every layer works, else 69.",
    ),
    examples=(
        "agentbox doctor",
        "agentbox doctor --json     # for a script that prepares machines",
    ),
    run=run,
    options=(Option("--json", help="print the findings as one JSON object"),),
)
