"""Python commands: interpreters, virtual environments, version-manager shims, scripts with a python `#!` line, `env
python3`.

It refuses what would keep the guard from arming, before anything runs; it never trusts a file's name where the file can
be asked.
"""

from __future__ import annotations

import os
import sys

from agentbox.guard.errors import CommandNotFound, OutdatedInterpreter, Unconfinable
from agentbox.guard.launch import find_command
from agentbox.guard.paths import MOST_LINKS
from agentbox.guard.runtimes import _flags, _shebang
from agentbox.guard.runtimes._base import Command, Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbox.policy import Policy

SHIM = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "python", "shim")
"""The folder that goes first on PYTHONPATH; its sitecustomize arms the guard."""

OLDEST = (3, 11)
"""The oldest Python that the guard runs in."""
_NAMES = ("python", "pypy")
_SHARED = ("/", "/usr", "/usr/local")
"""Prefixes that an interpreter shares with everything else, so that only its libraries are its own."""
_DEPTH = 4  # nested scripts: the kernel allows five levels (execve(2))


class _Python:
    name = "python"
    guarded = True

    def recognise(self, command: Command) -> Launch | None:
        found = interpreter(command.file, command.argv, command.cwd, command.environ.get("PATH", ""))
        if found is None:
            return None
        if outdated := _outdated(found.file):
            raise OutdatedInterpreter(f"{os.path.basename(command.file)}: {outdated}")
        if found.problem:
            raise Unconfinable(f"{os.path.basename(command.file)}: cannot be guarded: {found.problem}")
        file = _real_interpreter(found.file, command)
        line = _flags.read(found.words)
        if line.problem:
            raise Unconfinable(f"{os.path.basename(file)}: cannot be guarded: {line.problem}", "leave that option out")
        script = os.path.realpath(os.path.join(command.cwd, line.program)) if line.kind == "script" else ""
        listable = script if os.path.isdir(script) else os.path.dirname(script) or command.cwd
        return Launch(
            self.name,
            file,
            [found.name if file == found.file else file, *found.words],
            script=script,
            listable=listable,
            arms=not line.ends,
            extra=found.variables,
        )

    def variables(self, hash_seed: int) -> dict[str, str]:
        return {
            "PYTHONPATH": SHIM,
            "PYTHONNOUSERSITE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": str(hash_seed),
        }


PYTHON = _Python()


class Interpreter:
    """The python behind a command: its `file` (links as written), `name` (argv[0]), the `words` after it.

    `variables` are set by an `env` in front; `problem` says why no guard could come up, whatever the words say.
    """

    __slots__ = ("file", "name", "problem", "variables", "words")

    def __init__(self, file: str, name: str, words: list[str]) -> None:
        self.file = file
        self.name = name
        self.words = words
        self.variables: dict[str, str] = {}
        self.problem = ""


def homes(file: str) -> list[str]:
    """The trees that an interpreter reads its own code from before any guard is live, `file` with its links as written:
    the folders that it is started from, its virtual environment, its installation or, in a shared one, its libraries.

    What lies there is found by Modules/getpath.py and run by Lib/site.py (`.pth` files, `pyvenv.cfg`).
    """
    found: dict[str, None] = {}
    for hop in hops(file):
        folder, prefix = os.path.dirname(hop), os.path.dirname(os.path.dirname(hop))
        found[folder] = None
        if os.path.exists(prefix + "/pyvenv.cfg"):
            found[prefix] = None
        libraries = [path for lib in ("lib", "lib64") for path in _libraries(f"{prefix}/{lib}")]
        found.update(dict.fromkeys(libraries if prefix in _SHARED or not libraries else [prefix]))
    return list(found)


def environments(policy: Policy, search: str) -> list[str]:
    """The interpreters of virtual environments (PEP 405) that programs of a run may come to: where a rule, or a folder
    of `search`, its PATH, leads to an interpreter that an `exec:` rule allows.
    """
    rules = [rule.form for rule in policy.rules_of(("exec",))]
    if not rules:
        return []
    files = {form["file"] for form in rules}
    is_any = any(form["match"] == "any" for form in rules)
    written = (_spelled(policy, form["program"]) for form in rules if form["match"] == "path")
    found = dict.fromkeys(file for file in written if _in_environment(os.path.dirname(file)) and is_python(file))
    for file in _on_path(search):
        if is_any or os.path.realpath(file) in files:
            found[file] = None
    return list(found)


def _spelled(policy: Policy, program: str) -> str:
    """The path that an `exec:` rule names, its links as written."""
    home = program == "~" or program.startswith("~/")
    return os.path.normpath(policy.home + program[1:] if home else os.path.join(policy.cwd, program))


def _on_path(search: str) -> Iterator[str]:
    """The interpreters of virtual environments on a PATH."""
    for folder in search.split(":"):
        if folder[:1] == "/" and _in_environment(folder):
            try:
                names = sorted(os.listdir(folder))
            except OSError:
                continue
            yield from (f"{folder}/{name}" for name in names if _named_python(name))


def _in_environment(folder: str) -> bool:
    return any(os.path.exists(f"{place}/pyvenv.cfg") for place in (folder, os.path.dirname(folder)))


def hops(file: str) -> list[str]:
    """The places that a link leads through, folders resolved, the file itself last."""
    found = []
    for _ in range(MOST_LINKS):
        file = os.path.join(os.path.realpath(os.path.dirname(file)), os.path.basename(file))
        found.append(file)
        if not os.path.islink(file):
            break
        file = os.path.join(os.path.dirname(file), os.readlink(file))
    return found


def _libraries(folder: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.realpath(f"{folder}/{name}") for name in names if name.startswith(_NAMES)]


def python_script(command: Command) -> str:
    """The resolved script of a Python command that cannot be guarded, which is readable like that of any other; "" for
    none.
    """
    found = interpreter(command.file, command.argv, command.cwd, command.environ.get("PATH", ""))
    line = _flags.read(found.words) if found is not None else None
    if line is None or line.kind != "script":
        return ""
    return os.path.realpath(os.path.join(command.cwd, line.program))


def is_python(file: str) -> bool:
    """True if the file's own name, or that of the file it links to, is a Python interpreter's."""
    return _named_python(os.path.basename(file)) or _named_python(os.path.basename(os.path.realpath(file)))


def _named_python(name: str) -> bool:
    for stem in _NAMES:
        if name.startswith(stem):
            rest = name[len(stem) :]
            for suffix in ("-dbg", "-debug", "dm", "td", "d", "t", "m", "w"):
                if rest.endswith(suffix):
                    rest = rest[: -len(suffix)]
                    break
            return all(letter in "0123456789." for letter in rest)
    return False


def _outdated(file: str) -> str:
    """Why no guard runs in an interpreter whose file says its version (`python3.10`); "" where it does not."""
    name = os.path.basename(os.path.realpath(file))
    major, dot, minor = name.removeprefix("python").rstrip("dmtuw").partition(".")
    if not (major.isdigit() and (minor.isdigit() or not dot)):
        return ""
    if (int(major), int(minor or OLDEST[1])) >= OLDEST:
        return ""
    return f"{name} is too old, the guard needs Python {OLDEST[0]}.{OLDEST[1]} or later"


def interpreter(file: str, argv: list[str], cwd: str, path: str, depth: int = _DEPTH) -> Interpreter | None:
    """The python that would run if `file` were executed with `argv`, or None when it is no Python program.

    Follows `#!` lines and `env` as the kernel and env(1) would; `path` is the PATH that env looks in.
    """
    shebang = _shebang.first_line(file)
    if is_python(file):
        found = Interpreter(file, argv[0], argv[1:])
        found.problem = _outdated(file)
        return found
    if os.path.basename(os.path.realpath(file)) in _shebang.ENV_NAMES or (
        os.path.basename(file) in _shebang.ENV_NAMES and not shebang
    ):
        return _behind_env(argv[1:], cwd, path, depth)
    if not shebang or depth == 0:
        return None
    words = [*shebang, file, *argv[1:]]
    return interpreter(os.path.join(cwd, shebang[0]), words, cwd, path, depth - 1)


def _behind_env(words: list[str], cwd: str, path: str, depth: int) -> Interpreter | None:
    from agentbox.policy import loaded_by

    asked = _shebang.read_env(words)
    if not asked.words:
        return None
    try:
        file = find_command(asked.words[0], cwd, asked.set.get("PATH", path))
    except Exception:
        return None
    found = interpreter(file, asked.words, cwd, path, depth - 1) if depth else None
    if found is None:
        return None
    touched = [name for name in (*asked.set, *asked.unset) if loaded_by("python", name)]
    if asked.clear:
        found.problem = found.problem or "env -i removes the variables that bring the guard in"
    elif touched:
        found.problem = found.problem or f"env changes {touched[0]}, which is the guard's"
    found.problem = found.problem or (asked.problem and f"{asked.problem} is not understood")
    found.variables = {**asked.set, **found.variables}
    return found


def _real_interpreter(file: str, command: Command) -> str:
    """`file`, or the interpreter behind it when it is a version manager's shim: a script named like a python."""
    real = os.path.realpath(file)
    if not _shebang.first_line(real):
        return file
    if any(real == root or real.startswith(root.rstrip("/") + "/") for root in command.write_roots):
        raise Unconfinable(
            f"{file}: is a script in a writable folder that poses as an interpreter", "name the real interpreter"
        )
    import subprocess

    try:
        answer = subprocess.run(
            [file, "-I", "-c", "import sys; print(sys.executable)"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=command.cwd,
            timeout=20,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CommandNotFound(
            f"{file}: the interpreter behind this shim does not start", "name the real interpreter"
        ) from error
    found = os.fsdecode(answer.strip().split(b"\n")[-1])
    if not os.path.isabs(found) or not os.access(found, os.X_OK) or _shebang.first_line(os.path.realpath(found)):
        raise CommandNotFound(f"{file}: no interpreter behind this shim, got {found!r}", "name the real interpreter")
    return found


if sys.platform == "darwin":  # framework builds call their interpreter "Python"
    _NAMES = (*_NAMES, "Python")
