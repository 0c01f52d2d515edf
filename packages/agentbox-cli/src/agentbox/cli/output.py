"""The only module of the command that prints: results to standard output, `agentbox:` lines to standard error.

Never writes a text from a trace, a policy or a command line as it came: all of them may be hostile, so `escape` them.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

RED, GREEN, YELLOW, DIM, BOLD = "31", "32", "33", "2", "1"


def prepare() -> None:
    """Make both streams able to take any text: what the terminal's encoding cannot show is written as an escape."""
    for stream in (sys.stdout, sys.stderr):
        # Either may be None (closed by the caller) or replaced by an embedding program.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


class OutputFailed(Exception):
    """Standard output cannot be written, for the system's reason. A reader that left is `BrokenPipeError` instead."""


def result(text: str) -> None:
    """One line (or several) of the result, to standard output. Raises `OutputFailed` or `BrokenPipeError`."""
    if sys.stdout is None:
        raise OutputFailed("it is closed")
    try:
        sys.stdout.write(text + "\n")
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise OutputFailed(reason(failure)) from failure


def flush() -> None:
    """Bring what `result` wrote to the reader. Raises `OutputFailed` (a full disk) or `BrokenPipeError`."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise OutputFailed(reason(failure)) from failure


def reason(failure: OSError) -> str:
    """What the system says about a failed call, in the case of our own messages."""
    return (failure.strerror or str(failure)).lower()


def forget_stdout() -> None:
    """Drop what could not be written, so that the interpreter does not try again (and complain) when it exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def message(text: str) -> None:
    """A message to standard error, escaped: `agentbox: …`, and the lines that continue it if they are indented."""
    if sys.stderr is None:
        return
    lines = text.split("\n")
    marked = [line if line.startswith("  ") and index else f"agentbox: {line}" for index, line in enumerate(lines)]
    try:
        _write(sys.stderr, "".join(escape(line) + "\n" for line in marked))
    except OSError:
        pass  # nobody is left to be told


def _write(stream: TextIO, text: str) -> None:
    """Write all of a text. A program of the run may have made our common standard error one that does not wait
    (O_NONBLOCK, as Node does), and Python's streams drop what a slow reader does not take. Raises `OSError`.
    """
    try:
        descriptor = stream.fileno()
    except (AttributeError, ValueError):  # replaced by an embedding program
        stream.write(text)
        stream.flush()
        return
    stream.flush()
    data = text.encode(stream.encoding, "backslashreplace")
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            from select import select

            select((), (descriptor,), ())


def error(text: str, hint: str = "") -> None:
    """Why the command cannot go on, in one line; `hint` is the way out."""
    message(f"{text} ({hint})" if hint else text)


def is_watched() -> bool:
    """Whether standard error is a terminal, where somebody reads along."""
    return sys.stderr is not None and sys.stderr.isatty()


def escape(text: str) -> str:
    r"""`text` with all that could drive a terminal (control, direction and line characters, surrogates) as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"  # a byte that is not UTF-8, carried as PEP 383 says
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")


def coloured(stream: TextIO | None) -> bool:
    """Whether `stream` should get colours: it is a terminal that can, and NO_COLOR (no-color.org) is not set."""
    return bool(
        stream is not None and stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def paint(text: str, colour: str) -> str:
    """`text` in `colour`; the caller asks `coloured` first."""
    return f"\x1b[{colour}m{text}\x1b[0m"


class Progress:
    """A line on standard error that says how far a long job is; silent unless standard error is a terminal."""

    __slots__ = ("_label", "_live", "_next", "_shown", "_total")

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._live = total > 32 * 1024 * 1024 and sys.stderr is not None and sys.stderr.isatty()
        self._next = 0
        self._shown = False

    def update(self, done: int) -> None:
        """Say that `done` of the total bytes are behind us; called often, prints about a hundred times."""
        if not self._live or done < self._next:
            return
        self._next = done + max(self._total // 100, 1)
        self._shown = True
        percent = min(100, done * 100 // self._total)
        sys.stderr.write(f"\ragentbox: {self._label} {percent:3d}% of {self._total // 1_000_000} MB")
        sys.stderr.flush()

    def close(self) -> None:
        """Take the line away again."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
