"""The python command line, read as CPython reads it: which options are set, and where the program begins.

It only splits words (Python/getopt.c and Python/initconfig.c, 3.11 to 3.14); what an option means for the guard is said
in one table.
"""

from __future__ import annotations

_WITH_ARGUMENT = "cmWX"
_KNOWN = "bBdEhiIJOPqRsStuvVx?"
_LONG = ("--help", "--help-all", "--help-env", "--help-xoptions", "--version")
_LONG_WITH_ARGUMENT = "--check-hash-based-pycs"

DISARMING = {
    "I": "-I makes the interpreter ignore the variables that bring the guard in",
    "E": "-E makes the interpreter ignore the variables that bring the guard in",
    "S": "-S makes the interpreter skip the start-up file that arms the guard",
}

_EARLY = ("presite", "pycache_prefix")  # a module; compiled modules, the first of which load before the guard


class CommandLine:
    """`problem`: why a guard could not arm under these words. `ends`: the interpreter only prints and ends, as for
    --version.

    `kind` is `script`, `command` (-c), `module` (-m) or `stdin`; `program` the script's path or the text after -c or
    -m.
    """

    __slots__ = ("ends", "kind", "problem", "program")

    def __init__(self) -> None:
        self.problem = ""
        self.ends = False
        self.kind = "stdin"
        self.program = ""


def read(words: list[str]) -> CommandLine:
    """Read the words after the interpreter's name."""
    line = CommandLine()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "-" or not word.startswith("-"):
            if word != "-":
                line.kind, line.program = "script", word
            break
        if word == "--":
            if rest:
                line.kind, line.program = "script", rest[0]
            break
        if word.startswith("--"):
            _long(word, rest, line)
        elif _cluster(word[1:], rest, line):
            break
    if line.ends and not line.problem:
        line.program = ""
    return line


def _long(word: str, rest: list[str], line: CommandLine) -> None:
    if word in _LONG:
        line.ends = True
    elif word == _LONG_WITH_ARGUMENT and rest:
        rest.pop(0)
    else:
        line.problem = line.problem or f"{word} is not an option that agentbox knows of python"


def _cluster(letters: str, rest: list[str], line: CommandLine) -> bool:
    """Read one word of short options; True when the program follows."""
    for position, letter in enumerate(letters):
        if letter in _WITH_ARGUMENT:
            argument = letters[position + 1 :] or (rest.pop(0) if rest else "")
            if letter in "cm":
                line.kind, line.program = {"c": "command", "m": "module"}[letter], argument
                return True
            line.problem = line.problem or _argument_problem(letter, argument)
            return False
        if letter in DISARMING:
            line.problem = line.problem or DISARMING[letter]
        elif letter in "hV?":
            line.ends = True
        elif letter not in _KNOWN:
            line.problem = line.problem or f"-{letter} is not an option that agentbox knows of python"
    return False


def _argument_problem(letter: str, argument: str) -> str:
    if letter == "X" and argument.partition("=")[0].strip() in _EARLY:
        return f"-X {argument.partition('=')[0].strip()} runs code from elsewhere before the guard is live"
    if letter == "W" and "." in (argument.split(":") + ["", "", ""])[2]:
        return f"-W {argument} imports the module of its category before the guard is live"
    return ""
