"""What users read cannot drive their terminal, and goes to the right stream."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.waiting import holds

from agentbox.cli import output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, äöü €", "plain text, äöü €"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\u202edrow\u2066", "\\u202edrow\\u2066"),
        ("\x9b31m", "\\x9b31m"),
        ("\udcff", "\\xff"),
        ("\ud800", "\\ud800"),
        ("\u2028", "\\u2028"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_drives_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    """Control, direction, line and tag characters, and surrogates, become visible."""
    assert output.escape(text) == shown


@given(st.text())
def test_every_text_becomes_printable(text: str) -> None:
    """Nothing that is not printable gets through, and what is printable stays."""
    shown = output.escape(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()


def test_a_message_is_marked_and_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output stays the agent's or the result's."""
    output.message("bad \x1b thing")
    assert capsys.readouterr() == ("", "agentbox: bad \\x1b thing\n")


def test_only_indented_lines_continue_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    """A text with line ends cannot pass lines off as the agent's or another program's."""
    output.message("first\n  second\nthird")
    assert capsys.readouterr().err == "agentbox: first\n  second\nagentbox: third\n"


FULL = """
import os
from agentbox.cli import output
os.set_blocking(2, False)
try:
    while True:
        os.write(2, b"x" * 4096)
except BlockingIOError:
    pass
print("full", flush=True)
for number in range(1000):
    output.message(f"line {number} of what a run says at its end")
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_is_slow_is_told_all(unbuffered: str) -> None:
    """An agent that makes our common standard error one that does not wait, and fills it, hides nothing by that."""
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", FULL], env=environ, **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == b"full\n"
        assert holds(lambda: child.poll() is None)  # it waits for its reader
        said = child.stderr.read().lstrip(b"x").decode().splitlines()
    assert said == [f"agentbox: line {number} of what a run says at its end" for number in range(1000)]


def test_colours_need_a_terminal_and_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colours into pipes, with NO_COLOR, or on a dumb terminal."""

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert output.coloured(Terminal())  # type: ignore[arg-type]
    monkeypatch.setenv("TERM", "dumb")
    assert not output.coloured(Terminal())  # type: ignore[arg-type]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not output.coloured(Terminal())  # type: ignore[arg-type]
    assert not output.coloured(None)


class Terminal(io.StringIO):
    """A standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_of_a_long_job_is_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a big job shows percentages on one line, at most about a hundred times, and takes the line away."""
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    total = 100_000_000
    progress = output.Progress("verifying", total)
    for done in range(0, total, 10_000):
        progress.update(done)
    progress.close()
    shown = screen.getvalue()
    assert "\ragentbox: verifying  50% of 100 MB" in shown
    assert shown.count("\r") <= 102
    assert "\n" not in shown
    assert shown.endswith("\r\x1b[K")


@pytest.mark.parametrize(("terminal", "total"), [(False, 100_000_000), (True, 1_000_000)])
def test_progress_is_silent_where_nobody_needs_it(monkeypatch: pytest.MonkeyPatch, terminal: bool, total: int) -> None:
    """No progress into files and pipes, and none for what is over at once."""
    screen = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    progress = output.Progress("verifying", total)
    progress.update(total)
    progress.close()
    assert screen.getvalue() == ""
