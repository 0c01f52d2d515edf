"""The rule kind `exec:`: programs that may be started, with the first of their arguments (docs/spec/policy.md, section
7).

Never trusts a name at decision time: the file behind a bare name is looked up once, at load, outside of the write
roots.
"""

from __future__ import annotations

from os import X_OK, access
from os.path import isdir, isfile, realpath

from agentbox.policy import place
from agentbox.policy.errors import PolicyError
from agentbox.policy.forms.command import (
    base_name,
    called,
    command_matches,
    is_multi_call,
    name_matches,
    program_matches,
)
from agentbox.policy.forms.path import of_one_run, path_fix, quoted
from agentbox.policy.rules._base import NOTHING, Kind, Scope, Unusable, arity, is_missing
from agentbox.policy.rules._files import plain_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbox.policy.lexer import Value
    from agentbox.policy.model import Policy, Rule
    from agentbox.policy.rules._base import Form

SHOWN_ARGUMENTS = 160
"""How many characters of a command a denial shows."""
SHOWN_NAME = 40
OF_ONE_RUN = (
    "its folder has another name in each run, so no rule can name it: "
    "put the program into a folder that an exec: rule can name"
)
"""Of programs in a run's private folder, its TMPDIR or HOME."""
SHELL_SIGNS = frozenset(("|", "||", "|&", "&", "&&", ";", "<", "<<", ">", ">>", "2>", "2>&1", "&>"))
"""Words that join commands or lead their input and output elsewhere (sh(1)), which a rule does not."""


class Exec(Kind):
    """`exec: PROGRAM [ARGUMENT ...]` or `exec: *`."""

    key = "exec"
    covers = ("exec",)
    summary = "programs the agent may start: a name or a path, with the arguments that it must begin with, if any"
    starter = (
        "# exec: git status",
        "# exec: ./tools/convert --from csv",
    )
    members = (("match", (str,)), ("program", (str, type(None))), ("file", (str, type(None))), ("args", (list,)))

    def compile(self, value: Value, scope: Scope) -> Form:
        _check_words(value)
        (program, quoted_program), args = value.words[0], [word for word, _ in value.words[1:]]
        if program == "*" and not quoted_program:
            if args:
                raise PolicyError(
                    f"got {value.text}, but * has no arguments", code="bad-command", hint="write `exec: *`"
                )
            return {"match": "any", "program": None, "file": None, "args": []}
        if not program:
            raise PolicyError(
                "got an empty program name", code="empty-value", hint="write the name of a program: exec: git status"
            )
        if not quoted_program and ("*" in program or "?" in program):
            raise PolicyError(
                f"got a wildcard in {program}, expected one program",
                code="bad-glob",
                hint="name each program; `exec: *` allows every program",
            )
        if "/" not in program and (quoted_program or program[0] != "~"):
            return {"match": "name", "program": program, "file": None, "args": args}
        file = place.resolved(value.with_plain(program, quoted_program), scope)
        return {"match": "path", "program": program, "file": file, "args": args}

    def settle(self, form: Form, scope: Scope, writable: Callable[[str], bool]) -> Form:
        if form["match"] == "name":
            form["file"] = find_program(form["program"], scope.search, writable)
        return form

    def absent(self, policy: Policy, rule: Rule) -> str:
        form = rule.form
        if form["match"] == "name" and form["file"] is None:
            return "no such program in PATH outside of the write roots"
        if form["match"] == "path" and isdir(form["file"]):
            return "it is a folder, and a rule names one program; `exec: *` allows all"
        if form["match"] == "path" and is_missing(policy, form["file"]):
            return NOTHING
        if '"' in rule.value:  # which says that its words are meant as they are
            return ""
        sign = next((word for word in form["args"] if word in SHELL_SIGNS), "")
        return f"no shell reads it, so it means a program that is given {sign} as an argument" if sign else ""

    def restore(self, members: Form) -> Form:
        form = super().restore(members)
        if form["match"] not in ("any", "name", "path") or not all(type(word) is str for word in form["args"]):
            raise PolicyError("got an exec rule with a wrong match or wrong args", code="normal-form")
        if form["match"] != "any" and form["program"] is None:
            raise PolicyError("got an exec rule without a program", code="normal-form")
        return form

    def target(self, given: tuple[object, ...]) -> tuple[str, tuple[str, ...]]:
        arity(given, 2)
        argv = given[1]
        if type(argv) is not tuple and type(argv) is not list:
            raise Unusable("the arguments are not a list of text")
        words = tuple(argv)
        for word in words:
            if type(word) is not str or "\0" in word:
                raise Unusable("an argument is not text that a program can be given")
        return plain_path(given[0]), words

    def show(self, target: tuple[str, tuple[str, ...]]) -> str:
        file, argv = target
        text = " ".join((file, *argv[1:]))
        return text if len(text) <= SHOWN_ARGUMENTS else text[:SHOWN_ARGUMENTS] + "…"

    def find(self, policy: Policy, target: tuple[str, tuple[str, ...]]) -> Rule | None:
        return next((rule for rule in policy.rules_of(self.covers) if command_matches(rule.form, *target)), None)

    def explain(self, policy: Policy, target: tuple[str, tuple[str, ...]]) -> tuple[str, Rule | None]:
        file, argv = target
        rules = policy.rules_of(self.covers)
        if of_one_run(file, policy.cwd):
            return OF_ONE_RUN, None
        for rule in rules:
            if program_matches(rule.form, file, argv):
                if not name_matches(rule.form, file, argv):
                    name = called(argv)
                    how = "without a name" if name is None else f"by the name {name[:SHOWN_NAME]}"
                    return f"it is called {how}, and {rule.where} has arguments, so it means {_names(rule, file)}", rule
                return f"{rule.where} allows it only with the arguments `{' '.join(rule.form['args'])}`", rule
        for rule in rules:
            if rule.form["file"] == file:
                only = rule.form["program"]
                return f"{base_name(file)} is many programs in one, and {rule.where} allows only {only}", rule
            if rule.form["match"] == "name" and rule.form["program"] == base_name(file):
                if policy.is_writable(file):
                    return (
                        f"the agent may write this file, and {rule.where} means a program outside of the write roots",
                        rule,
                    )
                if rule.form["file"] is None:
                    return f"the program of {rule.where} was not found at start", rule
                return f"{rule.where} means {rule.form['file']}", rule
        return "no exec rule names this program", None

    def fix(self, policy: Policy, target: tuple[str, tuple[str, ...]]) -> str:
        file, argv = target
        program = _program_for(policy, file, argv)
        if not program:
            return ""
        if len(argv) < 2 or not _is_subcommand(argv[1]):
            return f"exec: {program}"
        # With arguments, a rule means the program by names of its own only.
        name = called(argv) or ""
        named = _program_by_name(policy, file, name)
        if named or is_multi_call(file) or name == base_name(file):
            return f"exec: {named or program} {argv[1]}"
        return f"exec: {program}"


INTERPRETERS = {"python": "python", "python3": "python", "node": "node"}
"""The bare names that mean the interpreter of a run's own command, too, and how that interpreter's file is called."""


def same_language(program: str, file: str) -> bool:
    """Whether a rule's bare `program` is a name of the interpreter `file`: `python3` of `/opt/py/bin/python3.12`."""
    wanted = INTERPRETERS.get(program)
    version = base_name(file).removeprefix(wanted) if wanted else "-"
    return not version or (version[0].isdigit() and version.replace(".", "").isdigit())


def _check_words(value: Value) -> None:
    for count, (word, quoted_word) in enumerate(value.words):
        if not quoted_word and "'" in word:
            raise PolicyError(
                f"got a single quote in {value.text}",
                code="bad-quote",
                hint="group words with double quotes; they may hold a '",
            )
        if count and word == "*" and not quoted_word:
            raise PolicyError(
                f"got * as an argument in {value.text}",
                code="bad-command",
                hint="arguments are a prefix: leave the * away to allow any that follow",
            )


def find_program(name: str, search: str, writable: Callable[[str], bool]) -> str | None:
    """The resolved file that PATH gives for a bare name, files that the agent may write left out; None if there is
    none.

    Relative and empty parts of `search` are left out: they mean another folder for each process.
    """
    for folder in search.split(":"):
        if folder[:1] != "/":
            continue
        try:
            if access(f"{folder}/{name}", X_OK) and isfile(f"{folder}/{name}"):
                file = realpath(f"{folder}/{name}")
                if not writable(file):
                    return file
        except (OSError, ValueError):
            continue
    return None


def _program_for(policy: Policy, file: str, argv: tuple[str, ...]) -> str:
    """How a rule would have to name the program so that it means `file`: by its bare name if PATH leads there, else by
    path.
    """
    path = file
    if is_multi_call(file):
        if not argv:
            return ""
        path = argv[0]
    named = _program_by_name(policy, file, base_name(path))
    if named or path[:1] != "/" or realpath(path) != file:
        return named
    line = path_fix("read", path, policy.cwd, exact=True)
    relative = "./" + path[len(policy.cwd) + 1 :] if path.startswith(policy.cwd + "/") else path
    return quoted(relative, True) if line else ""


def _program_by_name(policy: Policy, file: str, name: str) -> str:
    """`name` as a rule would have it, if PATH leads from it to `file`; else ""."""
    return quoted(name, True) if name and find_program(name, policy.search, policy.is_writable) == file else ""


def _names(rule: Rule, file: str) -> str:
    return " or ".join(dict.fromkeys((base_name(rule.form["program"]), base_name(file))))


def _is_subcommand(word: str) -> bool:
    """Whether an argument reads as the subcommand of a tool (`git push`), so that the suggested rule should be that
    narrow.
    """
    return (
        word.isascii() and word.replace("-", "").isalnum() and word[0].isalpha() and word.islower() and len(word) <= 30
    )
