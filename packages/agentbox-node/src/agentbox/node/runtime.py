"""Recognises JavaScript programs among commands, in the form that agentbox.guard asks of a runtime.

Never starts anything and never trusts a name alone: a script is known by the interpreter that its `#!` line names.
"""

from __future__ import annotations

import os

from agentbox.node import flags
from agentbox.node.errors import NodeUnguardable, NodeUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    class Command(Protocol):
        """What the guard hands over: the `file` that would be executed (absolute), the words typed, where and how."""

        file: str
        argv: list[str]
        cwd: str
        environ: Mapping[str, str]
        write_roots: tuple[str, ...]


SHIM = os.path.join(os.path.dirname(os.path.realpath(__file__)), "js", "shim.cjs")
"""What NODE_OPTIONS preloads: it arms the guard."""

_NODES = frozenset(("node", "nodejs"))
_OTHERS = frozenset(("deno", "bun", "bunx"))
_HEAD = 256  # bytes of a `#!` line that the kernel reads (execve(2))
_MOST_LINKS = 40  # as the kernel's own limit in one look-up (path_resolution(7))
_V1_LIMITS = ("soft_limit_in_bytes", "limit_in_bytes")
_V2_LIMITS = ("memory.max", "memory.high", "cpu.max")
_DEPTH = 4  # scripts whose interpreter is a script in turn: the kernel allows five levels (execve(2))


class Launch:
    """How the guard starts a command (see `agentbox.guard.runtimes`): the `file` to exec with `argv`, and what is
    readable for it.

    `script` is the file that is run ("" for none), `listable` the folder that imports come from, `readable` the trees
    of installed packages. `arms` is false for a command that ends before any user code, such as `node --version`.
    """

    __slots__ = ("argv", "arms", "extra", "file", "listable", "readable", "runtime", "script")

    def __init__(self, file: str, argv: Sequence[str], *, script: str, listable: str, arms: bool) -> None:
        self.runtime = "node"
        self.file = file
        self.argv = list(argv)
        self.script = script
        self.listable = listable
        self.arms = arms
        self.extra: dict[str, str] = {}
        self.readable: list[str] = []


class NodeRuntime:
    """The JavaScript row of the guard's runtimes."""

    name = "node"
    guarded = True

    def recognise(self, command: Command) -> Launch | None:
        """How to start `command`, or None if it is no JavaScript program.

        Raises `NodeUnguardable` when the guard could not arm, `NodeUnsupported` for Deno and Bun.
        """
        found = interpreter(command.file, command.argv, command.cwd, command.environ.get("PATH", ""))
        if found is None:
            return None
        shown = os.path.basename(command.argv[0])
        if found.name in _OTHERS:
            behind = "" if found.name == shown else f" (run by {found.name})"
            raise NodeUnsupported(
                f"{shown}{behind}: {found.name} cannot be guarded by agentbox-node 0.1",
                "only Node and Python programs have a guard; any other needs the kernel layers",
            )
        line = flags.read(found.words)
        problem = found.problem or line.problem
        if problem:
            raise NodeUnguardable(f"{shown}: cannot be guarded: {problem}", "leave that option out")
        script = _script(line, command.cwd)
        launch = Launch(
            found.file,
            [found.argv0, *found.words],
            script=script,
            listable=os.path.dirname(script) or command.cwd,
            arms=not line.ends,
        )
        launch.extra = found.variables
        folder = os.path.dirname(script) or command.cwd
        launch.readable = [
            *_links(line, command.cwd),
            *_memory_limits(),
            *_package_files(folder, command.cwd),
            *_packages(folder, found.file, command.write_roots),
        ]
        return launch

    def variables(self, hash_seed: int) -> dict[str, str]:
        """What brings the guard into every Node process of the run."""
        return {"NODE_OPTIONS": f"--require {_quoted(SHIM)}"}

    def problem(self, file: str, argv: Sequence[str], cwd: str, path: str) -> str | None:
        """Why starting `file` with `argv` would give a Node process without a guard; "" if it would not.

        None when it is no JavaScript program. Asked for programs that a guarded process starts.
        """
        found = interpreter(file, list(argv) or [file], cwd, path)
        if found is None:
            return None
        if found.name in _OTHERS:
            return f"{found.name} cannot be guarded"
        return found.problem or flags.read(found.words).problem


RUNTIME = NodeRuntime()
"""What `agentbox run` gives to the guard as an additional runtime."""


class Interpreter:
    """The JavaScript engine behind a command: its `name`, `file` (links as written), `argv0`, and `words` after it.

    `variables` are set by an `env` in front; `problem` says why no guard could come up, whatever the words say.
    """

    __slots__ = ("argv0", "file", "name", "problem", "variables", "words")

    def __init__(self, name: str, file: str, argv0: str, words: list[str]) -> None:
        self.name = name
        self.file = file
        self.argv0 = argv0
        self.words = words
        self.variables: dict[str, str] = {}
        self.problem = ""


def interpreter(file: str, argv: list[str], cwd: str, path: str, depth: int = _DEPTH) -> Interpreter | None:
    """The JavaScript interpreter that would run if `file` were executed with `argv`, or None.

    Follows `#!` lines and `env` as the kernel and env(1) would; `path` is the PATH that env looks in.
    """
    real = os.path.realpath(file)
    shebang = _shebang(real)
    if not shebang:
        for name in (os.path.basename(file), os.path.basename(real)):
            if name in _NODES or name in _OTHERS:
                return Interpreter(name, file, argv[0], argv[1:])
            if name == "env":
                return _behind_env(argv[1:], cwd, path, depth)
        return None
    if depth == 0:
        return None
    words = [*shebang, file, *argv[1:]]
    return interpreter(os.path.join(cwd, shebang[0]), words, cwd, path, depth - 1)


def _behind_env(words: Sequence[str], cwd: str, path: str, depth: int) -> Interpreter | None:
    """The interpreter that env(1) would start: -i, -u NAME, -S STRING and NAME=VALUE are understood."""
    rest = list(words)
    variables: dict[str, str] = {}
    problem = ""
    while rest:
        word = rest.pop(0)
        if word in ("-i", "-", "--ignore-environment"):
            problem = "env -i removes the variables that bring the guard in"
        elif word in ("-u", "--unset") and rest:
            problem = problem or _touched(rest.pop(0))
        elif word.startswith("--unset="):
            problem = problem or _touched(word.removeprefix("--unset="))
        elif word.startswith(("-S", "--split-string=")):
            text = word.removeprefix("--split-string=").removeprefix("-S") or (rest.pop(0) if rest else "")
            rest[:0] = text.split()
        elif word.startswith("-") and word != "--":
            problem = problem or f"env option {word} is not understood"
        elif "=" in word:
            name, _, value = word.partition("=")
            variables[name] = value
            problem = problem or _touched(name)
        elif word != "--":
            file = _find(word, cwd, variables.get("PATH", path))
            found = interpreter(file, [word, *rest], cwd, path, depth - 1) if file and depth else None
            if found is not None:
                found.variables = {**variables, **found.variables}
                found.problem = found.problem or problem
            return found
    return None


def _touched(name: str) -> str:
    from agentbox.policy import loaded_by

    return f"env changes {name}, which is the guard's" if loaded_by("node", name) else ""


def _find(name: str, cwd: str, path: str) -> str:
    if "/" in name:
        return os.path.join(cwd, name)
    for folder in path.split(":"):
        file = os.path.join(cwd, folder, name)
        if os.path.isfile(file) and os.access(file, os.X_OK):
            return file
    return ""


def _script(line: flags.CommandLine, cwd: str) -> str:
    """The file that node would run, resolved; "" for none, or for a folder (whose own files the policy must open)."""
    if line.kind != "script":
        return ""
    path = os.path.join(cwd, line.program)
    for candidate in (path, path + ".js", path + ".json", path + ".node"):
        if os.path.isfile(candidate):
            return os.path.realpath(candidate)
    return ""


def _links(line: flags.CommandLine, cwd: str) -> list[str]:
    """The links that lead to the script, which Node looks at one by one (bin links of npm)."""
    found: list[str] = []
    path = os.path.join(cwd, line.program) if line.kind == "script" else ""
    while os.path.islink(path) and len(found) < _MOST_LINKS:
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        found.append(path)
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return found


def _package_files(*folders: str) -> list[str]:
    """The package.json that each folder belongs to: Node reads it before any module of it (doc/api/packages.md), the
    one of the working directory for the preload.
    """
    found: list[str] = []
    for folder in folders:
        while True:
            path = os.path.join(folder, "package.json")
            if os.path.isfile(path):
                found.append(os.path.realpath(path))
                break
            if folder == os.path.dirname(folder):
                break
            folder = os.path.dirname(folder)
    return list(dict.fromkeys(found))


def _packages(folder: str, node: str, write_roots: Sequence[str]) -> list[str]:
    """Trees of installed packages that modules may be read from without a rule: the `node_modules` of the script's
    folder and those above it, and the ones that came with this Node; none that the agent may write to.
    """
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(node)))
    found = [os.path.join(prefix, "lib", "node_modules"), "/usr/share/nodejs", "/usr/share/node_modules"]
    while True:
        name = os.path.basename(folder)
        found.append(folder if name == "node_modules" else os.path.join(folder, "node_modules"))
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    real = dict.fromkeys(os.path.realpath(path) for path in found if os.path.isdir(path))
    return [path for path in real if not any(_overlap(path, root) for root in write_roots)]


def _memory_limits() -> list[str]:
    """The files that say how much memory this process may use, which Node reads when it starts (libuv's
    uv_get_constrained_memory; cgroups(7)): those of its own groups, and of the root.
    """
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            groups = [line.rstrip("\n").split(":", 2)[1:] for line in file]
    except (OSError, ValueError):
        return []
    found = [f"/sys/fs/cgroup/memory/memory.{name}" for name in _V1_LIMITS]
    for controllers, path in groups:
        if not controllers:
            found += [os.path.join("/sys/fs/cgroup", path.lstrip("/"), name) for name in _V2_LIMITS]
        elif "memory" in controllers.split(","):
            found += [os.path.join("/sys/fs/cgroup/memory", path.lstrip("/"), f"memory.{name}") for name in _V1_LIMITS]
    return [path for path in found if os.path.isfile(path)]


def _overlap(path: str, root: str) -> bool:
    root = root.rstrip("/")
    return path == root or path.startswith(root + "/") or root.startswith(path + "/")


def _quoted(path: str) -> str:
    """`path` as one word of NODE_OPTIONS (doc/api/cli.md: double quotes group, a backslash escapes in them)."""
    if not set(path) & set(" \t\"'\\"):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _shebang(file: str) -> list[str]:
    """Interpreter and argument of the `#!` line of `file`, at most two words as in execve(2); empty if it has none."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            head = os.read(descriptor, _HEAD)
        finally:
            os.close(descriptor)
    except OSError:
        return []
    if not head.startswith(b"#!"):
        return []
    words = os.fsdecode(head.partition(b"\n")[0][2:]).strip(" \t").split(None, 1)
    return [word.rstrip(" \t") for word in words]
