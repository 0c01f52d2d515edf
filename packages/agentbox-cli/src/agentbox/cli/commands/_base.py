"""The form of a subcommand: what help, the parser and `main` need to know of it.

Never imports what a subcommand works with: that is loaded by its `run`, when it runs.
"""

from __future__ import annotations

from agentbox.cli.errors import UsageError
from agentbox.cli.options import Option, Parsed, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

POLICY = Option("-p", "--policy", metavar="FILE", default="agentbox.policy", help="the policy file")
TRACE = Option("-t", "--trace", metavar="FILE", default="trace.jsonl", help="the trace file")
TRACE_WORD = Word("TRACE", default="trace.jsonl", help="the trace file")
TRACE_ALIAS = Option("-t", "--trace", metavar="FILE", help="the trace file too, as it is written for agentbox run")
UNSEALED = Option("--allow-unsealed", help="accept a trace without its last line, as a crash leaves it")
LAYERS = Option(
    "--layers",
    metavar="WHICH",
    choices=("auto", "kernel", "guard"),
    default="auto",
    help="the layers that must enforce",
)


def trace_path(parsed: Parsed) -> str:
    """The trace that was named as a word or with -t. Raises `UsageError` when it was named both ways."""
    word, option = parsed.text("TRACE"), parsed.text("trace")
    if option and word != TRACE_WORD.default:
        raise UsageError(f"got two traces, {word!r} and {option!r}, expected one", "name it once")
    return option or word


def tell_older(path: str) -> None:
    """Say where the traces of earlier runs are, when the last one is read because none was named."""
    if path != TRACE_WORD.default:
        return
    from agentbox.cli import output
    from agentbox.trace import older

    if kept := len(older(path)):
        output.message(f"{path}: the last run; {kept} older {'one is' if kept == 1 else 'ones are'} kept in traces/")


class Command:
    """One subcommand: its `name`, a one-line `summary`, the paragraphs of its help, its options and words, and `run`.

    `run` takes what was parsed and returns the exit status; `takes_command` says that the agent's command line follows.
    """

    __slots__ = ("description", "examples", "name", "options", "run", "summary", "takes_command", "words")

    def __init__(
        self,
        name: str,
        *,
        summary: str,
        description: tuple[str, ...],
        examples: tuple[str, ...],
        run: Callable[[Parsed], int],
        options: tuple[Option, ...] = (),
        words: tuple[Word, ...] = (),
        takes_command: bool = False,
    ) -> None:
        self.name = name
        self.summary = summary
        self.description = description
        self.examples = examples
        self.run = run
        self.options = options
        self.words = words
        self.takes_command = takes_command
