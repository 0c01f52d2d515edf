"""Command lines are sorted as users of other tools expect, and what does not fit is said in one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbox.cli.errors import CliError, UsageError
from agentbox.cli.options import Option, Parsed, Word, parse

OPTIONS = (
    Option("-p", "--policy", metavar="FILE", default="agentbox.policy", help="the policy"),
    Option("--layers", metavar="WHICH", choices=("auto", "kernel", "guard"), default="auto", help="layers"),
    Option("-f", "--follow", help="follow"),
    Option("-x", "--extra", help="another switch"),
)
WORDS = (Word("TRACE", default="trace.jsonl", help="the trace"),)


def show(*argv: str) -> Parsed:
    return parse("show", argv, OPTIONS, WORDS, takes_command=False)


def run(*argv: str) -> Parsed:
    return parse("run", argv, OPTIONS, (), takes_command=True)


def test_nothing_given_means_the_defaults() -> None:
    """Every option and word has a value without being given."""
    parsed = show()
    assert (parsed.text("policy"), parsed.text("layers"), parsed.text("TRACE")) == (
        "agentbox.policy",
        "auto",
        "trace.jsonl",
    )
    assert not parsed.switch("follow")


@pytest.mark.parametrize(
    "argv", [("-p", "x"), ("-px",), ("--policy", "x"), ("--policy=x",), ("-fp", "x"), ("-fxpx",), ("t", "-p", "x")]
)
def test_a_value_may_be_written_in_every_usual_way(argv: tuple[str, ...]) -> None:
    """Short and long, joined and apart, behind switches, before and after words."""
    assert show(*argv).text("policy") == "x"


def test_words_and_switches_mix_in_any_order() -> None:
    """Options may stand behind the words of a command that runs nothing."""
    parsed = show("t.jsonl", "-f")
    assert (parsed.text("TRACE"), parsed.switch("follow")) == ("t.jsonl", True)


def test_a_word_behind_two_dashes_may_begin_with_a_dash() -> None:
    """`--` ends the options."""
    assert show("--", "-f").text("TRACE") == "-f"


@pytest.mark.parametrize(
    "argv", [("--", "python", "-p", "x"), ("python", "-p", "x"), ("-f", "--", "python", "-p", "x")]
)
def test_the_options_of_the_agent_are_its_own(argv: tuple[str, ...]) -> None:
    """What follows the command, or `--`, is handed on untouched."""
    parsed = run(*argv)
    assert parsed.command == ["python", "-p", "x"]
    assert parsed.text("policy") == "agentbox.policy"


def test_two_dashes_of_the_agent_stay() -> None:
    """Only the first `--` is agentbox's."""
    assert run("--", "git", "log", "--", "file").command == ["git", "log", "--", "file"]


@pytest.mark.parametrize("argv", [("-h",), ("--help",), ("-fh",), ("-p", "x", "--help", "--nonsense")])
def test_help_wins(argv: tuple[str, ...]) -> None:
    """Help is given whatever follows it."""
    assert run(*argv).wants_help


def test_help_behind_the_command_is_the_agents() -> None:
    """`agentbox run -- python --help` asks Python."""
    parsed = run("--", "python", "--help")
    assert not parsed.wants_help and parsed.command == ["python", "--help"]


@pytest.mark.parametrize(
    ("argv", "text", "hint"),
    [
        (("--polcy", "x"), "show: unknown option --polcy", "did you mean --policy?"),
        (("-q",), "show: unknown option -q", "see agentbox show --help"),
        (("-fq",), "show: unknown option -q", "see agentbox show --help"),
        (("-p",), "show: option -p needs a value", "write it as -p FILE"),
        (("--policy=",), "show: option --policy got an empty value", "write it as --policy FILE"),
        (("--follow=yes",), "show: option --follow takes no value, got 'yes'", "write it as --follow alone"),
        (
            ("--layers", "kernal"),
            "show: option --layers got 'kernal', expected auto, kernel or guard",
            "did you mean kernel?",
        ),
        (("a", "b"), "show: unexpected word 'b', expected at most 1", "see agentbox show --help"),
        (("",), "show: TRACE is empty", "leave it out for trace.jsonl"),
        (
            ("-",),
            "show: TRACE got '-', expected a file; standard input and output cannot be used here",
            "write ./- for a file of that name",
        ),
        (
            ("-p", "-"),
            "show: option -p got '-', expected a file; standard input and output cannot be used here",
            "write ./- for a file of that name",
        ),
    ],
)
def test_what_does_not_fit_is_said_with_the_way_out(argv: tuple[str, ...], text: str, hint: str) -> None:
    """Each error names the command, what it got and what fits."""
    with pytest.raises(UsageError) as caught:
        show(*argv)
    assert (str(caught.value), caught.value.hint, caught.value.status) == (text, hint, 64)


@pytest.mark.parametrize("argv", [(), ("--",), ("-p", "x"), ("-p", "x", "--")])
def test_a_run_needs_a_command(argv: tuple[str, ...]) -> None:
    """Without a command the error shows how one is given."""
    with pytest.raises(UsageError, match="^run: no command to run$") as caught:
        run(*argv)
    assert caught.value.hint == "put it behind --, for example: agentbox run -- python agent.py"


def test_a_value_is_not_stolen_from_the_command() -> None:
    """`-p --` is a missing value, not a policy named `--`."""
    with pytest.raises(UsageError, match="option -p needs a value"):
        run("-p", "--", "python")


@given(st.lists(st.text()))
def test_any_words_are_sorted_or_refused(argv: list[str]) -> None:
    """No command line makes the parser fail in another way than by its own error."""
    for parser in (show, run):
        try:
            parser(*argv)
        except CliError as error:
            assert str(error)


def test_a_list_of_choices_is_checked_one_by_one() -> None:
    """The wrong one is named as for any other option."""
    options = (Option("--without", metavar="NAMES", choices=("netns", "landlock"), several=True, help="x"),)
    assert parse("run", ["--without", "netns,landlock"], options, (), takes_command=False).text("without")
    with pytest.raises(UsageError) as caught:
        parse("run", ["--without=netns,landlok"], options, (), takes_command=False)
    assert str(caught.value) == "run: option --without got 'landlok', expected netns or landlock"
    assert caught.value.hint == "did you mean landlock?"


def test_the_layers_of_the_option_are_those_that_there_are() -> None:
    """`--allow-degraded` names every kernel layer."""
    from agentbox.cli.commands.run import COMMAND
    from agentbox.guard.kernel import LAYERS

    option = next(option for option in COMMAND.options if option.name == "allow_degraded")
    assert option.choices == tuple(LAYERS)
