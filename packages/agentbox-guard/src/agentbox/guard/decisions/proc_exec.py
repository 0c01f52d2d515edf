"""`proc.exec`: which program is really started, whether a rule allows it, and whether its guard could come up.

The name that the agent gives is never compared with anything: only the resolved file and the interpreter behind it are.
"""

from __future__ import annotations

import errno
import os

from agentbox.guard.decisions._base import Desk, Verdict, denial_of, executable, member, rule_text, texts
from agentbox.guard.decisions._variables import Injected, interpreters, unguarded
from agentbox.guard.errors import GuardError
from agentbox.guard.launch import find_command
from agentbox.guard.meant import folder_problem
from agentbox.guard.paths import is_name, resolve, show_path, within
from agentbox.guard.runtimes import _flags
from agentbox.guard.runtimes.python import hops, interpreter
from agentbox.guard.session import Denial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from agentbox.guard.runtimes.python import Interpreter


class Exec:
    """Args: `file` (as the kernel gets it; a bare name is looked up in the run's PATH), `argv`, `cwd`, `env_ok`, and
    optionally `path`, the PATH that the program will have, and `variables`, those of its environment that are judged.
    """

    def decide(self, op: str, args: dict[str, Any], pid: int, desk: Desk) -> Verdict:
        file = member(args, "file", str, op)
        argv = texts(args, "argv", op)
        cwd = member(args, "cwd", str, op)
        env_ok = member(args, "env_ok", bool, op)
        path = member(args, "path", str, op) if "path" in args else None
        variables = texts(args, "variables", op) if "variables" in args else []
        return decide(file, argv, cwd, env_ok, pid, desk, path, variables)

    def complete(self, verdict: Verdict, pid: int, desk: Desk) -> None:
        verdict.args["sha256"] = digest(verdict.args["_file"], desk)


DECIDER = Exec()


def decide(
    file: str,
    argv: list[str],
    cwd: str,
    env_ok: bool,
    pid: int,
    desk: Desk,
    path: str | None = None,
    variables: Sequence[str] = (),
) -> Verdict:
    """Decide a start; the verdict's args are those of `proc.exec` without `sha256`, plus `_file` (resolved)."""
    cwd = os.path.join(desk.cwd, cwd)
    if not all(is_name(word) for word in (file, cwd, path or "", *argv, *variables)):
        return _missing(file, argv, cwd, desk, errno.EINVAL)
    try:
        written = file if "/" in file else find_command(file, cwd, desk.environ.get("PATH", ""))
        written = os.path.join(cwd, written)
        real = resolve(written, cwd, pid)
    except (OSError, GuardError):
        return _missing(file, argv, cwd, desk, errno.ENOENT)
    if not executable(real):
        return _missing(real, argv, cwd, desk, errno.EACCES if os.path.exists(real) else errno.ENOENT)
    verdict = Verdict(_recorded(real, argv, _folder(cwd, pid), desk))
    verdict.args["_file"] = real
    verdict.slow = True
    if desk.wall is not None:
        verdict.denial = desk.wall.start_problem(pid, real, argv)
        if desk.wall.is_agent(pid):
            verdict.denial = _agents_problem(verdict.denial, real, argv, cwd, desk, variables)
        return verdict
    decision = desk.policy.decide("exec", real, argv)
    target = " ".join([real, *argv[1:]])
    denial = None if decision.allowed else denial_of(decision, "exec")
    if denial is None and within(real, desk.hidden):
        verdict.denial = Denial("exec", target, "it is agentbox's own record of this run")
    else:
        verdict.denial = _agents_problem(denial, real, argv, cwd, desk, variables)
    if verdict.denial is None:
        path = desk.environ.get("PATH", "") if path is None else path
        problem = _guard_problem(written, argv, cwd, env_ok, desk, path, variables)
        if problem:
            verdict.denial = Denial("exec", target, problem, rule=rule_text(decision))
    return verdict


def _agents_problem(
    denial: Denial | None, real: str, argv: list[str], cwd: str, desk: Desk, variables: Sequence[str]
) -> Denial | None:
    """What stands against a start by the agent itself: the `denial` of its file, its folder, its variables; or None."""
    if denial is None and (moved := folder_problem(desk.policy, real, argv, cwd, desk.private.values())) is not None:
        return moved
    if not variables or (denial is not None and not denial.fix):
        return denial
    scripts = interpreters(real)
    injected = Injected(desk.policy, real, argv, desk.environ, scripts, _misleading(real, argv, bool(scripts), desk))
    given = [os.fsencode(one) for one in variables]
    if denial is not None:
        return injected.beside(denial, given)
    return None if injected.any else injected.refusal(given)


def _misleading(real: str, argv: list[str], script: bool, desk: Desk) -> Callable[[str], bool]:
    """Whether a PATH of the agent's choice has a folder that it may write, where a program that looks itself up there
    would look first; of a `script`, which looks others up, any such folder. Kernel layers look at the links as well.
    """
    name = argv[0] if argv and not script else ""
    known = desk.environ.get("PATH", "").split(":")

    def misleads(path: str) -> bool:
        if _agent_writes(real, desk) or "/" in name or not (name or script):
            return False
        for folder in path.split(":"):
            own = folder.startswith("/") and not _agent_writes(os.path.realpath(folder), desk)
            if folder not in known and not own:
                return True
            if name and os.path.exists(os.path.join(folder, name)):
                return False
        return False

    return misleads


def digest(file: str, desk: Desk) -> str | None:
    """The program's content; None for one that may be started but not read (mode 0111)."""
    try:
        return desk.hashes.file(file)
    except OSError:
        return None


def _guard_problem(
    file: str, argv: list[str], cwd: str, env_ok: bool, desk: Desk, path: str, variables: Sequence[str]
) -> str:
    """Why a program of a guarded runtime would run without its guard, or ""."""

    def carried(runtime: str) -> str:
        given = (os.fsencode(one) for one in variables)
        return unguarded(runtime, given, desk.environ, lambda place: _agent_writes(place, desk))

    found = interpreter(file, argv or [""], cwd, path)
    if found is None:
        return _guest_problem(file, argv, cwd, env_ok, desk, path, carried)
    problem = found.problem or _flags.read(found.words).problem or _home_problem(found, cwd, path, desk)
    if problem:
        return f"a Python program must run guarded: {problem}"
    if not env_ok:
        return "a Python program must run guarded: its environment lacks the guard's variables (pass os.environ on)"
    reason = carried("python")
    return f"a Python program must run guarded: {reason}" if reason else ""


def _guest_problem(
    file: str, argv: list[str], cwd: str, env_ok: bool, desk: Desk, path: str, carried: Callable[[str], str]
) -> str:
    """The same for the runtimes of other packages."""
    for runtime in desk.runtimes:
        problem = runtime.problem(file, argv, cwd, path)
        if problem is None:
            continue
        if not problem and not env_ok:
            problem = "its environment lacks the guard's variables"
        problem = problem or carried(runtime.name)
        return f"a {runtime.name.capitalize()} program must run guarded: {problem}" if problem else ""
    return ""


def _home_problem(found: Interpreter, cwd: str, path: str, desk: Desk) -> str:
    """Whether the agent could write where this interpreter looks for itself.

    A Python takes its place from argv[0], with a slash or by PATH, and runs `.pth` files of a `pyvenv.cfg` beside that
    or above it before any guard is live (Modules/getpath.py; Lib/site.py).
    """
    if not found.name:
        return "its name, argv[0], is empty, so it would look for itself elsewhere"
    places = [found.file]
    if "/" in found.name:
        places.append(found.name)
    else:
        for folder in path.split(":"):
            place = os.path.join(cwd, folder, found.name)
            if ".." in folder.split("/") or executable(place):
                places.append(place)
            if executable(place):
                break
    for place in places:
        # Python takes ".." back by the letters (joinpath of Modules/getpath.c), the kernel by the folders: two places,
        # if the name before it is a link.
        if ".." in place.split("/"):
            return f"{place} has a part .. in it, and may mean one place to the system and another to Python"
        for hop in hops(os.path.join(cwd, place)):
            home = os.path.dirname(hop)
            spots = (hop, os.path.join(home, "pyvenv.cfg"), os.path.join(os.path.dirname(home), "pyvenv.cfg"))
            if any(_agent_writes(spot, desk) for spot in spots) and not _named(hop, desk):
                return f"{hop} lies where the agent can write, so what it runs first is the agent's to choose"
    return ""


def _agent_writes(path: str, desk: Desk) -> bool:
    if within(path, desk.sealed):
        return False
    return desk.policy.is_writable(path) or within(path, list(desk.private.values()))


def _named(place: str, desk: Desk) -> bool:
    """True when an exec: rule names this very place: then the user has chosen to trust it."""
    for rule in desk.policy.rules_of(("exec",)):
        program = str(rule.form.get("program") or "")
        if "/" in program:
            folder, name = os.path.split(os.path.join(desk.policy.cwd, program))
            if os.path.join(os.path.realpath(folder), name) == place:
                return True
    return False


def _recorded(real: str, argv: list[str], cwd: str, desk: Desk) -> dict[str, Any]:
    return {
        "file": show_path(real, desk.private),
        "argv": [show_path(word, desk.private) for word in argv],
        "cwd": show_path(cwd, desk.private),
    }


def _folder(cwd: str, pid: int) -> str:
    """A working directory as the kernel tells it; as written where it cannot be one, since nothing starts there."""
    try:
        return resolve(cwd, "/", pid)
    except OSError:
        return cwd


def _missing(file: str, argv: list[str], cwd: str, desk: Desk, code: int) -> Verdict:
    verdict = Verdict(_recorded(file, argv, cwd, desk))
    verdict.missing = code
    return verdict
