"""The rule kind `env:`: variables of the caller that the agent is started with (docs/spec/policy.md, section 9).

A variable that makes a loader, an interpreter or a common tool run code is passed on by its own name only, never by a
glob that reaches it by chance; one of agentbox's own never.
"""

from __future__ import annotations

from agentbox.policy.errors import PolicyError
from agentbox.policy.forms.name import name_matches
from agentbox.policy.forms.path import literal, quoted
from agentbox.policy.place import check_sets
from agentbox.policy.rules._base import Kind, Unusable, arity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.policy.lexer import Value
    from agentbox.policy.model import Policy, Rule
    from agentbox.policy.rules._base import Form, Scope

OWN_PREFIX = "AGENTBOX_"
OWN = "agentbox sets it itself"

CODE_PREFIXES = {
    OWN_PREFIX: OWN,
    "BASH_FUNC_": "bash runs it",
    "COR_PROFILER": "the .NET runtime loads code from it",
    "CORECLR_PROFILER": "the .NET runtime loads code from it",
    "DYLD_": "the dynamic loader obeys it",
    "GIT_CONFIG": "git runs programs from its configuration",
    "LD_": "the dynamic loader obeys it",
    "LUA_INIT": "Lua runs it",
    "PYTHON": "the Python interpreter obeys it",
}

CODE_NAMES = {
    "the dynamic loader obeys it": ("GCONV_PATH", "GETCONF_DIR", "GLIBC_TUNABLES", "MALLOC_TRACE"),
    "a shell runs it or is changed by it": (
        *("BASHOPTS", "BASH_ENV", "ENV", "FPATH", "IFS", "PROMPT_COMMAND", "PS0", "PS4", "SHELLOPTS", "ZDOTDIR"),
    ),
    "the Node, Bun or Electron runtime obeys it": (
        *("BUN_OPTIONS", "ELECTRON_RUN_AS_NODE", "NODE_CHANNEL_FD", "NODE_OPTIONS", "NODE_PATH"),
        *("NODE_REPL_EXTERNAL_MODULE", "NODE_V8_COVERAGE", "npm_config_node_options", "npm_config_script_shell"),
    ),
    "the Perl interpreter obeys it": ("PERL5DB", "PERL5LIB", "PERL5OPT", "PERLLIB"),
    "the Ruby interpreter obeys it": ("RUBYLIB", "RUBYOPT", "RUBYSHELL"),
    "the PHP interpreter obeys it": ("PHPRC", "PHP_INI_SCAN_DIR"),
    "the Lua interpreter obeys it": ("LUA_CPATH", "LUA_PATH"),
    "the R interpreter obeys it": ("R_ENVIRON", "R_ENVIRON_USER", "R_PROFILE", "R_PROFILE_USER"),
    "the Java runtime obeys it": ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
    "the .NET runtime loads code from it": ("DOTNET_STARTUP_HOOKS",),
    "the Erlang runtime obeys it": ("ERL_AFLAGS", "ERL_FLAGS", "ERL_ZFLAGS"),
    "OpenSSL loads code from it": ("OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES"),
    "desktop libraries load code from it": ("GIO_EXTRA_MODULES", "GTK_MODULES", "QT_PLUGIN_PATH"),
    "build tools run programs from it": (
        *("CARGO_BUILD_RUSTC_WRAPPER", "GNUMAKEFLAGS", "GOFLAGS", "MAKEFLAGS", "MFLAGS"),
        *("RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER"),
    ),
    "git runs programs from it": (
        *("GIT_ASKPASS", "GIT_COMMON_DIR", "GIT_DIR", "GIT_EDITOR", "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "GIT_PAGER"),
        *("GIT_PROXY_COMMAND", "GIT_SEQUENCE_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_TEMPLATE_DIR"),
    ),
    "other programs run programs from it": ("LESSCLOSE", "LESSOPEN", "SSH_ASKPASS", "SUDO_ASKPASS"),
}


OBEYING = {
    "bash runs it": ("bash",),
    "git runs programs from its configuration": ("git",),
    "git runs programs from it": ("git",),
    "a shell runs it or is changed by it": ("bash", "dash", "fish", "ksh", "mksh", "sh", "zsh"),
    "Lua runs it": ("lua", "luajit"),
    "the Lua interpreter obeys it": ("lua", "luajit"),
    "the Python interpreter obeys it": ("pypy", "python"),
    "the Node, Bun or Electron runtime obeys it": ("bun", "electron", "node", "nodejs"),
    "the Perl interpreter obeys it": ("perl",),
    "the Ruby interpreter obeys it": ("ruby",),
    "the PHP interpreter obeys it": ("php",),
    "the R interpreter obeys it": ("R", "Rscript"),
    "the Java runtime obeys it": ("java",),
    "the .NET runtime loads code from it": ("dotnet",),
    "the Erlang runtime obeys it": ("erl",),
    "build tools run programs from it": ("cargo", "gmake", "go", "make"),
}
"""Why a variable carries code, and the programs that it is for, by the beginning of their names."""

LOADED = frozenset((OWN, "OpenSSL loads code from it", "the dynamic loader obeys it"))
"""What any program may obey, whatever it is, before its own first line."""


def obeyed_by(file: str) -> frozenset[str]:
    """Which variables the program `file` obeys, by what `carries_code` says of them; empty for one that is not known.

    Version suffixes are understood (`python3.12`).
    """
    program = file.rpartition("/")[2]
    return frozenset(
        why
        for why, names in OBEYING.items()
        if any(program.startswith(one) and not program[len(one) :].strip("0123456789.-") for one in names)
    )


def carries_code(name: str) -> str | None:
    """Why the variable `name` makes programs run code, so that only a rule that names it passes it on; None for any
    other.

    Sources: ld.so(8), bash(1), the manual pages of the interpreters named, git(1).
    """
    why = _code_prefix(name)
    if why:
        return why
    for why, names in CODE_NAMES.items():
        if name in names:
            return why
    return None


def loaded_by(file: str, name: str) -> bool:
    """Whether the variable `name` carries code into the program `file` itself, not into what it may start."""
    why = carries_code(name)
    return why is not None and (why in LOADED or why in obeyed_by(file))


def code_variables() -> dict[str, list[str]]:
    """`names` and `prefixes` of all that `carries_code` knows."""
    return {
        "names": sorted(name for names in CODE_NAMES.values() for name in names),
        "prefixes": sorted(CODE_PREFIXES),
    }


def is_named(glob: str, name: str) -> bool:
    """Whether a rule means `name` and does not only reach it: it is written out, or as far as the prefix of its kind
    (`GIT_CONFIG_*`).
    """
    if not name_matches(glob, name):
        return False
    start = literal_start(glob)
    return start == glob or _code_prefix(start) is not None


def literal_start(glob: str) -> str:
    """What stands before the first wildcard."""
    for wildcard in "*?[":
        glob = glob.partition(wildcard)[0]
    return glob


def _code_prefix(name: str) -> str | None:
    return next((why for prefix, why in CODE_PREFIXES.items() if name.startswith(prefix)), None)


class Env(Kind):
    """`env: NAME`, or a glob of names."""

    key = "env"
    covers = ("env",)
    summary = "variables of yours that the agent gets; what runs code (LD_*, GIT_PAGER, ...) by its own name only"
    starter = (
        "# env: EDITOR",
        "# env: AWS_*",
    )
    members = (("name", (str,)),)

    def compile(self, value: Value, scope: Scope) -> Form:
        name = value.plain
        if name[0] == "$" and not value.quoted:
            raise PolicyError(
                f"got {name}, expected a name", code="bad-name", hint=f"did you mean `env: {name[1:].strip('{}')}`?"
            )
        if "=" in name:
            raise PolicyError(
                f"got {name}, expected a name without a value",
                code="bad-name",
                hint=f"values come from your own environment: `env: {name.partition('=')[0].strip()}`",
            )
        if " " in name or "\t" in name or not name.isprintable():
            raise PolicyError(f"got {name!r}, expected one name", code="bad-name", hint="put a comma between two names")
        check_sets(name, name)
        if literal_start(name).startswith(OWN_PREFIX):
            raise PolicyError(
                f"got {name}, which is never passed on: {OWN}", code="never-passed", hint="remove the rule"
            )
        return {"name": name}

    def target(self, given: tuple[object, ...]) -> str:
        arity(given, 1)
        name = given[0]
        if type(name) is not str:
            raise Unusable(f"the name is not text but {type(name).__name__}")
        if not name or "=" in name or "\0" in name:
            raise Unusable("no variable has such a name")
        if name.startswith(OWN_PREFIX):
            raise Unusable(f"it is never passed on, whatever the rules say: {OWN}")
        return name

    def show(self, target: str) -> str:
        return target

    def find(self, policy: Policy, target: str) -> Rule | None:
        covers = name_matches if carries_code(target) is None else is_named
        return next((rule for rule in policy.rules_of(self.covers) if covers(rule.form["name"], target)), None)

    def explain(self, policy: Policy, target: str) -> tuple[str, Rule | None]:
        why = carries_code(target)
        for rule in policy.rules_of(self.covers):
            if why is not None and name_matches(rule.form["name"], target):
                return f"{rule.where} does not name it, and a wildcard leaves out what runs code: {why}", rule
        return "no env rule names it", None

    def fix(self, policy: Policy, target: str) -> str:
        if len(target) > 4096 or " " in target or not target.isprintable():
            return ""
        return f"env: {quoted(literal(target), True)}"
