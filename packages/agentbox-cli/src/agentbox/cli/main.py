"""The entry point: finds the subcommand, parses its options, runs it, and words whatever went wrong in one line.

Never imports a subcommand that was not asked for, and never lets a traceback reach a user.
"""

from __future__ import annotations

import sys

from agentbox.cli import __version__, exitcodes, output
from agentbox.cli.commands import NAMES, load
from agentbox.cli.errors import UsageError
from agentbox.cli.options import parse, suggest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run `agentbox` with `argv` (default: the process's own, without the program's name); returns the exit status."""
    output.prepare()
    try:
        try:
            status = _dispatch(sys.argv[1:] if argv is None else list(argv))
        finally:
            output.flush()
        return status
    except BrokenPipeError:
        output.forget_stdout()
        return exitcodes.CLOSED_PIPE
    except KeyboardInterrupt:
        return exitcodes.INTERRUPTED
    except output.OutputFailed as error:
        output.forget_stdout()
        output.error(f"cannot write to standard output: {error}")
        return exitcodes.TRACE_IO
    except Exception as error:
        return _failed(error)


def _dispatch(argv: list[str]) -> int:
    if not argv:
        return _help([])
    name, *rest = argv
    if name in ("-h", "--help", "help"):
        return _help(rest)
    if name in ("-V", "--version"):
        output.result(f"agentbox {__version__}")
        return exitcodes.OK
    if name not in NAMES:
        what = "option" if name.startswith("-") else "command"
        expected = "" if what == "option" else ", expected one of " + ", ".join(NAMES)
        raise UsageError(f"unknown {what} {name!r}{expected}", suggest(name, NAMES, "see agentbox --help"))
    command = load(name)
    parsed = parse(name, rest, command.options, command.words, takes_command=command.takes_command)
    if parsed.wants_help:
        return _help([name])
    return command.run(parsed)


def _help(names: list[str]) -> int:
    from agentbox.cli import help as texts

    if names and names[0] not in NAMES:
        raise UsageError(f"no help on {names[0]!r}", suggest(names[0], NAMES, "see agentbox --help"))
    output.result(texts.command(load(names[0])) if names else texts.overview())
    return exitcodes.OK


def _failed(error: Exception) -> int:
    """Word the error of a subcommand; what no distribution of ours raises on purpose is a defect."""
    if isinstance(error, MemoryError):
        output.error("out of memory", "raise the limit (ulimit -v, or the container's), or free some")
        return exitcodes.INTERNAL
    known = exitcodes.of_error(error)
    if known is None:
        return _unexpected(error)
    output.error(str(error), getattr(error, "hint", "") or "")
    return known


def _unexpected(error: Exception) -> int:
    """A defect: one line that says so and where, and the whole traceback for those who ask for it."""
    import os
    import traceback

    if os.environ.get("AGENTBOX_DEBUG"):
        traceback.print_exc()
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    output.error(
        f"internal error at {place}: {type(error).__name__}: {error}",
        "a defect in agentbox; AGENTBOX_DEBUG=1 shows the traceback to report",
    )
    return exitcodes.INTERNAL
