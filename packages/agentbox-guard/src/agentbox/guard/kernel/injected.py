"""Variables by which the agent would make a program that a rule allows do what no rule allows: `LD_PRELOAD`,
`GIT_CONFIG_COUNT`, another `HOME`.

A rule for a program with any arguments trusts it with all that arguments can ask for, but not with code that is loaded
into it, nor a script with another interpreter's start than its own; one that names arguments says that the program is
to do this and nothing else. It reads no memory and decides on what it is given.
"""

from __future__ import annotations

import os

from agentbox.policy import never_passed, obeyed_by
from agentbox.policy.forms.command import command_matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agentbox.policy import Policy

REASON = "the variable {} would make it run something else"
ARGUMENTS = "; a rule for this program without arguments allows it"
_LOADER = never_passed("LD_PRELOAD")
_HOMES = ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")
"""Where git and others look for their configuration (XDG base directories, git-config(1))."""
_RUNNERS = frozenset((
    "EDITOR", "VISUAL", "PAGER", "MANPAGER", "BROWSER", "WGETRC", "SYSTEM_WGETRC", "CURL_HOME", "TAR_OPTIONS", "ZIPOPT",
    "UNZIPOPT", "MAKEFILES", "LESSOPEN", "LESSCLOSE", "LESSKEY", "GREP_OPTIONS", "SUDO_EDITOR", "DIFFPROG", "RSYNC_RSH",
))  # fmt: skip
"""Variables by which programs choose what they start, or which options they take."""
_CHOSEN = ("EDITOR", "VISUAL", "PAGER", "MANPAGER")
_GIT_HARMLESS = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT", "GIT_PAGER_IN_USE")
ASKED = frozenset(("GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_ASKPASS", "SSH_ASKPASS"))
QUIET = frozenset(("", ":", "cat", "echo", "false", "true"))
"""Programs that one starts by name when it wants something of its user, and those that only say or do nothing."""
HARMLESS = frozenset(
    ("PYTHONUNBUFFERED", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONFAULTHANDLER", "PYTHONASYNCIODEBUG", "PYTHONDEVMODE")
    + ("PYTHONOPTIMIZE", "PYTHONNODEBUGRANGES", "PYTHONSAFEPATH", "PYTHONCOERCECLOCALE", "PYTHONDONTWRITEBYTECODE")
    + ("PYTHONHASHSEED", "PYTHONNOUSERSITE", "GIT_CONFIG_NOSYSTEM", "AGENTBOX_PYTHONPATH")
    + ("LD_BIND_NOW", "LD_DEBUG", "LD_LIBRARY_VERSION", "LD_TRACE_LOADED_OBJECTS", "LD_VERBOSE", "LD_WARN")
)
"""Variables that say nothing about code though their names begin like those that do, and by which a guard's own go on;
those of the loader have it tell what it does (ld.so(8)), as ldd(1) asks. What the interpreter's guard lets pass
(python/events/process.py, whose lists are the same).
"""
_NODE_OPTIONS = frozenset(
    ("--enable-source-maps", "--expose-gc", "--expose_gc", "--max-old-space-size", "--max_old_space_size")
    + ("--max-semi-space-size", "--no-deprecation", "--no-warnings", "--stack-trace-limit", "--trace-deprecation")
    + ("--trace-uncaught", "--trace-warnings", "--unhandled-rejections")
)
"""What may follow the guard's own value of NODE_OPTIONS: options that load and write nothing (doc/api/cli.md)."""
_MAKE_LETTERS = frozenset("bBdikLmnpqrRsStvw")
"""Options of make(1) without an argument; not -e, by which variables take the place of what a makefile says."""
_MAKE_WORDS = ("--jobserver-auth=", "--jobserver-fds=", "--no-print-directory")


class Injected:
    """For one start of `file`, as a rule names it: what its environment must not hold. `environ` is what the run was
    started with, `interpreters` the files that read it where it is a script, `misleads` whether a value of PATH leads
    it to take another place for its own. `any` is true when nothing is forbidden.
    """

    __slots__ = ("_free", "_misleads", "_obeyed", "_own", "_script", "any")

    def __init__(
        self,
        policy: Policy,
        file: str,
        argv: list[str],
        environ: Mapping[str, str],
        interpreters: Sequence[str] = (),
        misleads: Callable[[str], bool] = lambda path: False,
    ) -> None:
        rules = [rule.form for rule in policy.rules_of(("exec",)) if command_matches(rule.form, file, tuple(argv))]
        self.any = not rules or any(form["match"] == "any" for form in rules)
        self._free = any(not form["args"] for form in rules)
        self._own = environ
        self._misleads = misleads
        self._script = bool(interpreters)
        self._obeyed = obeyed_by(interpreters[-1]) if interpreters else frozenset()

    @property
    def is_told(self) -> bool:
        """Whether rules say with which arguments the program is to be started."""
        return not self.any and not self._free

    def reason(self, environ: Iterable[bytes]) -> str:
        """Why a program must not be started with these variables (`NAME=value`), or "" when it may.

        What the run itself was started with is no choice of the agent's.
        """
        return "" if self.any else self.reason_under(environ, free=self._free)

    def reason_under(self, environ: Iterable[bytes], *, free: bool) -> str:
        """The same as if a rule named the program, without arguments if `free`."""
        for one in environ:
            name, equals, value = os.fsdecode(one).partition("=")
            if not equals or self._own.get(name) == value or _is_harmless(name, value, self._own.get(name)):
                continue
            why = never_passed(name)
            if self._always_forbids(why) or (self._script and name == "PATH" and self._misleads(value)):
                return REASON.format(name)
            if not free and (why is not None or _chooses(name) or (name == "PATH" and self._misleads(value))):
                return REASON.format(name) + ARGUMENTS
        return ""

    def _always_forbids(self, why: str | None) -> bool:
        """Whether it makes no difference what the rule says of arguments. A script's arguments are its own, not its
        interpreter's; where nobody knows that (env(1), another one), it may obey any variable.
        """
        if self._script and why is not None and (not self._obeyed or why in self._obeyed):
            return True
        return why == _LOADER


def _chooses(name: str) -> bool:
    """Whether a program may do something else than its arguments say because of a variable of this name."""
    if name.startswith("GIT_"):
        return not name.startswith(_GIT_HARMLESS)
    return name in _HOMES or name in _RUNNERS


def _is_harmless(name: str, value: str, given: str | None) -> bool:
    if name == "NODE_CHANNEL_FD":  # the pipe of child_process.fork
        return value.isdigit()
    if name == "NODE_OPTIONS":
        rest = value.removeprefix(given or "").split()
        return all(word.partition("=")[0] in _NODE_OPTIONS for word in rest)
    if name in ("MAKEFLAGS", "MFLAGS"):  # what make gives to all that it starts
        return all(map(_is_plain_make_word, value.split()))
    return name in HARMLESS or (value in QUIET and (name in ASKED or name in _CHOSEN))


def _is_plain_make_word(word: str) -> bool:
    if word.startswith(("-j", "-l")):
        return not word[2:].strip("0123456789.")
    return word.startswith(_MAKE_WORDS) or _MAKE_LETTERS.issuperset(word.removeprefix("-"))
