"""Variables by which the agent would make a program that a rule allows do what no rule allows: `LD_PRELOAD`,
`GIT_CONFIG_COUNT`, another `HOME`. One decision for all that ask: guards, SDK calls and the kernel layers.

A rule for a program with any arguments trusts it with all that arguments can ask for, but not with code that is loaded
into it, nor a script with another interpreter's start than its own; one that names arguments says that the program is
to do this and nothing else. An `env:` rule that names a variable leaves it to the agent. It reads no memory and decides
on what it is given.
"""

from __future__ import annotations

import os

from agentbox.guard.decisions._harmless import is_harmless
from agentbox.guard.session import Denial
from agentbox.policy import carries_code, code_variables, loaded_by, obeyed_by
from agentbox.policy.forms.command import command_matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from agentbox.policy import Policy

REASON = "the variable {} would make it run something else"
ARGUMENTS = "; a rule for this program without arguments allows it"
UNGUARDED = (
    "the variable {} would carry code or files into it before its guard is live, and no other layer holds it; with the"
    " kernel layers (without --layers guard) it is allowed"
)
_LOADER = carries_code("LD_PRELOAD")
_HOMES = ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")
"""Where git and others look for their configuration (XDG base directories, git-config(1))."""
_RUNNERS = frozenset((
    "EDITOR", "VISUAL", "PAGER", "MANPAGER", "BROWSER", "WGETRC", "SYSTEM_WGETRC", "CURL_HOME", "TAR_OPTIONS", "ZIP",
    "ZIPOPT", "UNZIP", "UNZIPOPT", "MAKEFILES", "GREP_OPTIONS", "SUDO_EDITOR", "DIFFPROG", "RSYNC_RSH", "CLASSPATH",
    "MAVEN_OPTS", "MAVEN_ARGS", "GRADLE_OPTS", "ANT_OPTS", "ANT_ARGS", "SBT_OPTS", "GCC_EXEC_PREFIX", "COMPILER_PATH",
    "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "RIPGREP_CONFIG_PATH", "GNUPGHOME", "GOFLAGS", "GOENV", "GOTOOLCHAIN",
    "CC", "CXX", "CPP", "AR", "AS", "LD", "FC", "LEX", "YACC", "RANLIB", "CFLAGS", "CXXFLAGS", "LDFLAGS", "RUSTC",
    "RUSTDOC", "RUSTFLAGS",
))  # fmt: skip
_RUNNER_PREFIXES = ("LESS", "PYTEST_", "CARGO_", "RUSTC_", "PIP_", "UV_", "TOX_", "LUA_PATH", "LUA_CPATH", "CMAKE_")
"""Variables by which programs choose what they start, or which options they take, by name and by beginning."""
_NPM = "npm_config_"
"""The beginning of npm's, which takes either case (npm-config(1))."""
_EXTRA_PATH = "AGENTBOX_PYTHONPATH"
"""What a guarded Python takes for its PYTHONPATH once the guard is live (python/facades/environment.py)."""
_GIT_HARMLESS = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT", "GIT_PAGER_IN_USE")
_STARTS_NOTHING = frozenset((
    "basename", "cat", "chmod", "cksum", "cmp", "comm", "cp", "cut", "date", "df", "diff", "dirname", "du",
    "echo", "false", "fold", "head", "hostname", "id", "join", "ln", "ls", "md5sum", "mkdir", "mktemp", "mv",
    "nl", "nproc", "od", "paste", "printenv", "printf", "pwd", "readlink", "realpath", "rm", "rmdir", "seq",
    "sha1sum", "sha256sum", "sha512sum", "sleep", "stat", "sync", "tac", "tail", "tee", "test", "touch", "tr",
    "true", "truncate", "tty", "uname", "uniq", "wc", "whoami",
))  # fmt: skip
"""Programs of the system (coreutils, diffutils) that start no other: they obey the loader's variables only."""
_SYSTEM = ("/usr/bin/", "/bin/", "/usr/local/bin/")
_OF_NODE = frozenset((
    "NODE_COMPILE_CACHE", "NODE_EXTRA_CA_CERTS", "NODE_ICU_DATA", "NODE_REDIRECT_WARNINGS", "NODE_REPL_HISTORY",
    "SSL_CERT_DIR", "SSL_CERT_FILE",
))  # fmt: skip
"""By which Node reads and writes files below its guard (doc/api/cli.md)."""
_AFTER_GUARD = ("NODE_OPTIONS", "NODE_PATH", _EXTRA_PATH)
"""By which Node and Python load modules after their guard, whose own NODE_OPTIONS come before what they let follow."""
_MOST_SCRIPTS = 5  # exec_binprm() of fs/exec.c
_LINE = 256  # BINPRM_BUF_SIZE, <linux/binfmts.h>


def judged() -> dict[str, list[str]]:
    """`names` and `prefixes` of the variables that a decision looks at; guards send no others."""
    found = code_variables()
    return {
        "names": sorted({*found["names"], *_HOMES, *_RUNNERS, *_OF_NODE, "PATH", _EXTRA_PATH}),
        "prefixes": sorted({*found["prefixes"], *_RUNNER_PREFIXES, "GIT_", _NPM, _NPM.upper()}),
    }


class Injected:
    """For one start of `file`, as a rule names it: what its environment must not hold. `environ` is what the run was
    started with, `interpreters` the files that read it where it is a script, `misleads` whether a value of PATH leads
    it to take another place for its own. `any` is true when nothing is forbidden.
    """

    __slots__ = ("_argv", "_file", "_free", "_misleads", "_obeyed", "_own", "_policy", "_script", "any")

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
        self._policy = policy
        self._file = file
        self._argv = argv
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
        for name, always in self._offending(environ, free=free):
            return REASON.format(name) + ("" if always else ARGUMENTS)
        return ""

    def refusal(self, environ: Sequence[bytes]) -> Denial | None:
        """The refusal of these variables, with the line that allows them, or None."""
        reason = self.reason(environ)
        if not reason:
            return None
        line = self.lines(environ, free=True)
        if line is not None and not self._free:
            line = _joined(self._policy.decide("exec", self._file, self._argv[:1]).fix or "", line)
        return Denial("exec", " ".join([self._file, *self._argv[1:]])[:400], reason, fix=line or None)

    def beside(self, denial: Denial, environ: Sequence[bytes]) -> Denial:
        """The refusal of a start that no rule allows; where the variables would not go with the rule that it suggests,
        it suggests what they go with.
        """
        free = self._policy.decide("exec", self._file, self._argv[:1]).fix
        line = self.lines(environ, free=True)
        if line == "":
            if free and free != denial.fix and self.reason_under(environ, free=False):
                return Denial("exec", denial.target, denial.reason, rule=denial.rule, fix=free)
            return denial
        reason = f"{denial.reason}; besides, {self.reason_under(environ, free=True)}"
        fix = _joined(free, line) if free and line else None
        return Denial("exec", denial.target, reason, rule=denial.rule, fix=fix)

    def lines(self, environ: Iterable[bytes], *, free: bool) -> str | None:
        """The `env:` rules, on one line, that leave what is refused here to the agent; "" when nothing is, None when no
        rule can (a PATH).
        """
        names: dict[str, None] = {}
        for name, _ in self._offending(environ, free=free):
            fix = self._policy.decide("env", name).fix if carries_code(name) else ""
            if not fix:
                return None
            # git reads pairs of them (git-config(1)): one without the others is no use.
            names["GIT_CONFIG_*" if name.startswith("GIT_CONFIG_") else fix.removeprefix("env: ")] = None
        return "env: " + ", ".join(names) if names else ""

    def _offending(self, environ: Iterable[bytes], *, free: bool) -> Iterator[tuple[str, bool]]:
        """The variables that are refused, each with whether no rule for the program alone would allow it."""
        for one in environ:
            name, equals, value = os.fsdecode(one).partition("=")
            given = self._own.get(name)
            if not equals or given == value or is_harmless(name, value, given, self._policy.is_writable):
                continue
            name = "PYTHONPATH" if name == _EXTRA_PATH else name
            why = carries_code(name)
            if why is not None and self._policy.decide("env", name).allowed:
                continue
            misled = name == "PATH" and self._misleads(value)
            if self._always_forbids(why) or (self._script and misled):
                yield name, True
            elif not free and not self._starts_nothing and (why is not None or _chooses(name) or misled):
                yield name, False

    @property
    def _starts_nothing(self) -> bool:
        folder, _, name = self._file.rpartition("/")
        return name in _STARTS_NOTHING and f"{folder}/" in _SYSTEM

    def _always_forbids(self, why: str | None) -> bool:
        """Whether it makes no difference what the rule says of arguments. A script's arguments are its own, not its
        interpreter's; where nobody knows that (env(1), another one), it may obey any variable.
        """
        if self._script and why is not None and (not self._obeyed or why in self._obeyed):
            return True
        return why == _LOADER


def unguarded(runtime: str, environ: Iterable[bytes], own: Mapping[str, str], writable: Callable[[str], bool]) -> str:
    """Why a program of a guarded runtime (`python`, `node`) must not be started with these variables where nothing but
    its own guard holds it, or "". What the run was started with goes on, unless it leads to where the agent writes.
    """
    for one in environ:
        name, equals, value = os.fsdecode(one).partition("=")
        given = own.get(name)
        if not equals or not value or is_harmless(name, value, given, writable):
            continue
        if name in _AFTER_GUARD or not (loaded_by(runtime, name) or (runtime == "node" and name in _OF_NODE)):
            continue
        if given == value and (name.startswith("AGENTBOX_") or not any(map(writable, _paths(value)))):
            continue
        return UNGUARDED.format(name)
    return ""


def interpreters(file: str) -> list[str]:
    """The files that the kernel opens besides a script, resolved (execve(2)); none for another program."""
    found: list[str] = []
    while len(found) < _MOST_SCRIPTS:
        try:
            descriptor = os.open(found[-1] if found else file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            break
        try:
            head = os.read(descriptor, _LINE)
        except OSError:
            break
        finally:
            os.close(descriptor)
        words = os.fsdecode(head[2:].partition(b"\n")[0]).split(None, 1)
        if head[:2] != b"#!" or not words:
            break
        found.append(os.path.realpath(words[0]))
    return found


def _paths(value: str) -> Iterator[str]:
    """The absolute paths in a list of them (LD_PRELOAD takes blanks between, too: ld.so(8))."""
    return filter(os.path.isabs, value.replace(" ", ":").split(":"))


def _joined(first: str, second: str) -> str:
    """Two suggestions as one line of a policy."""
    return f"{first}, {second}" if first and second else first or second


def _chooses(name: str) -> bool:
    """Whether a program may do something else than its arguments say because of a variable of this name."""
    if name.startswith("GIT_"):
        return not name.startswith(_GIT_HARMLESS)
    if name.startswith(_RUNNER_PREFIXES) or name.lower().startswith(_NPM):
        return True
    return name in _HOMES or name in _RUNNERS or name in _OF_NODE
