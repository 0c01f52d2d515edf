"""The policy lines that would allow what a run was denied: each once, none that another covers, and few of many.

It suggests and writes nothing. A line is taken from the trace only if it is one of a policy.
"""

from __future__ import annotations

import os

from agentbox.cli import output
from agentbox.cli.folded_rules import Workspace, folded
from agentbox.guard.report import local_port
from agentbox.policy import KINDS, PolicyError, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.trace import Entry


class MissingRules:
    """Collects the denials of a trace, `note` by `note`; `lines` are then in the order of the kinds of rules."""

    __slots__ = ("_cwd", "_lines", "_own", "_without")

    def __init__(self) -> None:
        self._cwd = ""
        self._own: set[int] = set()
        self._lines: dict[str, str] = {}
        self._without: dict[str, None] = {}

    def note(self, entry: Entry) -> None:
        """Take an entry's line, if it is a denial; to be called for every entry of a trace."""
        port = entry.args.get("port")
        if entry.kind == "observe" and entry.op == "net.bind" and type(port) is int:
            self._own.add(port)
        if entry.op == "run.start":
            self._cwd = str(entry.args.get("cwd", ""))
        if entry.kind != "deny":
            return
        key, target = str(entry.extra.get("key", "")), str(entry.extra.get("target", ""))
        fix = entry.extra.get("fix")
        if type(fix) is str and _is_rule(fix):
            self._lines.setdefault(fix, target)
        else:
            self._without[f"# no rule allows: {key} {target}: {entry.extra.get('reason', '')}"] = None

    def lines(self) -> list[str]:
        """Rules, and as comments what no rule would have allowed."""
        kinds = list(KINDS)
        needed = self._uncovered([line for line in self._lines if not self._is_own(line)])
        workspace = Workspace(self._cwd, os.path.realpath(os.path.expanduser("~")))
        few = folded({line: self._lines[line] for line in needed}, workspace)
        ordered = sorted(few, key=lambda line: (kinds.index(_kind(line)), line))
        return [*ordered, *map(output.escape, self._without)]

    def _is_own(self, line: str) -> bool:
        """Whether the run itself listened there at another time. A rule would even take its loopback from it."""
        port = local_port(self._lines[line]) if _kind(line) == "net" else 0
        return port != 0 and port in self._own

    def _uncovered(self, lines: list[str]) -> list[str]:
        """Without lines for files below a folder that another line opens for as much.

        A folder that the run made is one: one line allows it and what is in it.
        """
        opened: dict[str, set[str]] = {"read": set(), "write": set()}
        for line in lines:
            if _kind(line) in opened and _opens_folders(line):
                opened[_kind(line)].add(self._lines[line])
        opened["read"] |= opened["write"]  # writing implies reading
        opened["list"] = opened["read"]
        return [line for line in lines if not self._covered(line, opened)]

    def _covered(self, line: str, opened: dict[str, set[str]]) -> bool:
        kind, path = _kind(line), self._lines[line]
        if path in {"read": opened["write"], "list": opened["read"]}.get(kind, ()):
            return True
        folders = opened.get(kind, ())
        return any(path[:at] in folders for at in range(1, len(path)) if path[at] == "/")


def _kind(line: str) -> str:
    return line.partition(":")[0]


def _opens_folders(line: str) -> bool:
    """Whether the line covers all below what it names, as one with a wildcard does not."""
    return parse(f"{line}\n", cwd="/").rules[0].form["glob"] is None


def _is_rule(line: str) -> bool:
    """Whether a text is one line of a policy, with its rules."""
    if not line.isprintable() or _kind(line) not in KINDS:
        return False
    try:
        return len(parse(f"{line}\n", cwd="/").rules) > 0
    except PolicyError:
        return False
