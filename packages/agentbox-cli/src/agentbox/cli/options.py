"""The parser of command lines: a table of options and words per subcommand, from which help and errors are made too.

Never imports argparse, which costs 7 ms that `agentbox run` would pay before every agent.
"""

from __future__ import annotations

from agentbox.cli.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Option:
    """One option: its `flags` (`-p`, `--policy`), `metavar` of its value (none: a switch), default, choices, help.

    `several`: the value may name several of the choices, separated by commas.
    """

    __slots__ = ("choices", "default", "flags", "help", "metavar", "name", "several")

    def __init__(
        self,
        *flags: str,
        help: str,
        metavar: str = "",
        default: str = "",
        choices: tuple[str, ...] = (),
        several: bool = False,
    ) -> None:
        self.flags = flags
        self.name = flags[-1].lstrip("-").replace("-", "_")
        self.metavar = metavar
        self.default = default
        self.choices = choices
        self.several = several
        self.help = help


class Word:
    """One positional word: its `name` as shown in help, its default ("" when it has none) and help text."""

    __slots__ = ("default", "help", "name")

    def __init__(self, name: str, *, help: str, default: str) -> None:
        self.name = name
        self.default = default
        self.help = help


class Parsed:
    """The words of one command line, sorted out; `command` is what came after the options of `run` and `replay`."""

    __slots__ = ("_switches", "_texts", "command", "wants_help")

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._switches: set[str] = set()
        self.command: list[str] = []
        self.wants_help = False

    def text(self, name: str) -> str:
        """The value of the option or word `name`, its default when it was not given."""
        return self._texts[name]

    def switch(self, name: str) -> bool:
        """Whether the switch `name` was given."""
        return name in self._switches

    def set_text(self, name: str, value: str) -> None:
        self._texts[name] = value

    def set_switch(self, name: str) -> None:
        self._switches.add(name)


HELP = Option("-h", "--help", help="show this help and stop")


def parse(
    command: str, argv: Sequence[str], options: Sequence[Option], words: Sequence[Word], *, takes_command: bool
) -> Parsed:
    """Sort `argv` into a `Parsed`. Raises `UsageError` that names `command`, what it got and what fits."""
    parsed = Parsed()
    for option in options:
        parsed.set_text(option.name, option.default)
    for word in words:
        parsed.set_text(word.name, word.default)
    by_flag = {flag: option for option in (*options, HELP) for flag in option.flags}
    found: list[str] = []
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            found, parsed.command = (found, rest) if takes_command else (found + rest, [])
            break
        if argument.startswith("-") and argument != "-":
            _take_option(command, argument, rest, by_flag, parsed)
            if parsed.wants_help:
                return parsed
        elif takes_command:
            # As with env, nice or timeout: the first word that is not an option begins the command.
            parsed.command = [argument, *rest]
            break
        else:
            found.append(argument)
    _take_words(command, found, words, parsed)
    if takes_command and not parsed.command:
        example = f"agentbox {command} -- python agent.py"
        raise UsageError(f"{command}: no command to run", f"put it behind --, for example: {example}")
    return parsed


def _take_option(command: str, argument: str, rest: list[str], by_flag: dict[str, Option], parsed: Parsed) -> None:
    if argument.startswith("--"):
        flag, has_value, value = argument.partition("=")
    else:
        flag, value = argument[:2], argument[2:]
        has_value = value
    option = by_flag.get(flag)
    if option is None:
        raise UsageError(f"{command}: unknown option {flag}", suggest(flag, by_flag, f"see agentbox {command} --help"))
    if option is HELP:
        parsed.wants_help = True
    elif not option.metavar:
        if has_value and not argument.startswith("--"):
            rest.insert(0, "-" + value)
        elif has_value:
            raise UsageError(f"{command}: option {flag} takes no value, got {value!r}", f"write it as {flag} alone")
        parsed.set_switch(option.name)
    else:
        parsed.set_text(option.name, _value(command, flag, option, value if has_value else None, rest))


def _value(command: str, flag: str, option: Option, value: str | None, rest: list[str]) -> str:
    if value is None:
        if not rest or rest[0] == "--":
            raise UsageError(f"{command}: option {flag} needs a value", f"write it as {flag} {option.metavar}")
        value = rest.pop(0)
    if not value:
        raise UsageError(f"{command}: option {flag} got an empty value", f"write it as {flag} {option.metavar}")
    if option.metavar == "FILE":
        _check_file(command, f"option {flag}", value)
    for one in value.split(",") if option.several else [value]:
        if option.choices and one not in option.choices:
            expected = ", ".join(option.choices[:-1]) + " or " + option.choices[-1]
            text = f"{command}: option {flag} got {one!r}, expected {expected}"
            raise UsageError(text, suggest(one, option.choices, ""))
    return value


def _take_words(command: str, found: list[str], words: Sequence[Word], parsed: Parsed) -> None:
    if len(found) > len(words):
        extra = found[len(words)]
        expected = f"expected at most {len(words)}" if words else "expected none"
        raise UsageError(f"{command}: unexpected word {extra!r}, {expected}", f"see agentbox {command} --help")
    for word, value in zip(words, found, strict=False):
        if not value:
            raise UsageError(f"{command}: {word.name} is empty", f"leave it out for {word.default}")
        _check_file(command, word.name, value)
        parsed.set_text(word.name, value)


def _check_file(command: str, what: str, value: str) -> None:
    """Refuse the `-` that elsewhere means standard input or output: policies and traces are files with a place."""
    if value == "-":
        raise UsageError(
            f"{command}: {what} got '-', expected a file; standard input and output cannot be used here",
            "write ./- for a file of that name",
        )


def suggest(got: str, known: Iterable[str], otherwise: str) -> str:
    """A "did you mean" for `got` out of `known`, or `otherwise`."""
    import difflib

    near = difflib.get_close_matches(got, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else otherwise
