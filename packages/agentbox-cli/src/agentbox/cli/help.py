"""Help texts, made from the table of subcommands and their options; also what README and docs repeat.

Never holds the name of a subcommand or an option itself.
"""

from __future__ import annotations

from agentbox.cli.commands import NAMES, load
from agentbox.cli.options import HELP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.cli.commands._base import Command
    from agentbox.cli.options import Option

VERSION_HELP = ("-V, --version", "show the version and stop")


def overview() -> str:
    """What `agentbox --help` prints."""
    commands = [load(name) for name in NAMES]
    return "\n".join(
        [
            "usage: agentbox COMMAND [options]",
            "",
            "Runs an AI agent under a policy, records what it does, proves and replays the recording.",
            "",
            "commands:",
            *_columns([(command.name, command.summary) for command in commands]),
            "",
            "options:",
            *_columns([(_flags(HELP), HELP.help), VERSION_HELP]),
            "",
            "start here:",
            "  agentbox init                        # a starter policy: agentbox.policy",
            "  agentbox run -- python agent.py      # run it confined, record to trace.jsonl",
            "  agentbox show                        # read what it did",
            "  agentbox verify                      # is the recording intact?",
            "  agentbox replay -- python agent.py   # the same run again, without network",
            "",
            "Each command explains itself: agentbox run --help",
        ]
    )


def command(described: Command) -> str:
    """What `agentbox COMMAND --help` prints."""
    lines = [usage(described), "", *described.description]
    if described.words:
        rows = [(word.name, _with_default(word.help, word.default)) for word in described.words]
        lines += ["", "words:", *_columns(rows)]
    rows = [(_flags(option), _meaning(option)) for option in (*described.options, HELP)]
    lines += ["", "options:", *_columns(rows)]
    lines += ["", "examples:", *(f"  {example}" for example in described.examples)]
    return "\n".join(lines)


def usage(described: Command) -> str:
    """The first line of the help of a subcommand."""
    parts = [f"usage: agentbox {described.name} [options]", *(f"[{word.name}]" for word in described.words)]
    if described.takes_command:
        parts.append("-- COMMAND [ARG ...]")
    return " ".join(parts)


def _flags(option: Option) -> str:
    joined = ", ".join(option.flags)
    if len(option.flags) == 1 and option.flags[0].startswith("--"):
        joined = "    " + joined
    return f"{joined} {option.metavar}" if option.metavar else joined


def _meaning(option: Option) -> str:
    if not option.choices:
        return _with_default(option.help, option.default)
    default = f"; default: {option.default}" if option.default else ""
    return f"{option.help} ({', '.join(option.choices)}{default})"


def _with_default(text: str, default: str) -> str:
    return f"{text} (default: {default})" if default else text


def _columns(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(left) for left, _ in rows)
    return [f"  {left:<{width}}  {right}" for left, right in rows]
