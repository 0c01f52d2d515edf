"""Sealed: the judgement of one file access, and what an event's path names. Judges no spelling, only objects.

Built-in protections come before the rules; the rules themselves are the policy's path form (docs/spec/policy.md).
"""

from __future__ import annotations

from errno import ENOENT
from posix import P_PID, WEXITED, WNOHANG, WNOWAIT, getpid, lstat, waitid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.kernel.protected import reason_for
    from agentbox.guard.python.digest import own_terminal
    from agentbox.guard.python.report import Refusal, refuse, witness
    from agentbox.guard.python.resolve import exact_text, of_descriptor, resolve
    from agentbox.policy.forms.path import path_decide, path_fix, path_reason

DEVICES = frozenset(("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts/ptmx"))
OWN_PROC_REFUSED = ("/mem", "/pagemap", "/clear_refs")
HIDDEN_REASON = "it is agentbox's own record of this run, which no rule opens"
FOREIGN_REASON = "the memory, environment and files of another process are open to no rule"
FOREIGN_OPEN = frozenset(
    ("", "cmdline", "comm", "stat", "statm", "status", "io", "limits", "cgroup", "sched", "schedstat")
)
"""What a rule may open of another process's folder in /proc, and its threads': numbers and names (proc(5))."""

SEALED_REASON = (
    "the policy, agentbox's own code and the interpreter are never writable, whatever the rules say; "
    "change them outside of the run, or install packages into an environment that the run makes (python -m venv)"
)


def traced(path: str, *, private=(), len=len) -> str:
    """The path as the trace names it: private folders by variable, as their real names differ in every run."""
    for name, tree, prefix in private:
        if path == tree or path.startswith(prefix):
            return "$" + name + path[len(tree) :]
    return path


def is_child(
    number: str,
    *,
    waitid=waitid,
    kind=P_PID,
    look=WEXITED | WNOHANG | WNOWAIT,
    int=int,
    OSError=OSError,
    ValueError=ValueError,
) -> bool:
    """Whether a process is a child of this one: waitid(2) knows of no other, and collects none so."""
    try:
        waitid(kind, int(number), look)
    except (OSError, ValueError):
        return False
    return True


def judge_file(
    access: str,
    path: str,
    *,
    opening=True,
    hidden=(frozenset(), ()),
    sealed=(frozenset(), ()),
    readable=(frozenset(), ()),
    owned=(frozenset(), ()),
    streams=(frozenset(), frozenset()),
    rules=(),
    devices=DEVICES,
    refused=OWN_PROC_REFUSED,
    hidden_reason=HIDDEN_REASON,
    sealed_reason=SEALED_REASON,
    foreign_reason=FOREIGN_REASON,
    foreign_open=FOREIGN_OPEN,
    getpid=getpid,
    path_decide=path_decide,
    path_reason=path_reason,
    own_terminal=own_terminal,
    is_child=is_child,
    contained=False,
    protecting=False,
    reason_for=reason_for,
) -> int | str:
    """0: allowed and not recorded, 1: allowed and recorded, or the reason of a denial.

    Built-in protections come before the rules. What all may open, none may call otherwise or give another mode: devices
    and the files of standard streams are exempt for `opening` only.
    """
    if path in owned[0] or path.startswith(owned[1]):
        return 1
    if path in hidden[0] or path.startswith(hidden[1]):
        return hidden_reason
    if opening and (path in devices or path in streams[access == "write"]):
        return 0
    if opening and path.startswith("/dev/pts/") and own_terminal(path):
        return 0
    if access == "write":
        if path in sealed[0] or path.startswith(sealed[1]):
            return sealed_reason
    else:
        if path in readable[0] or path.startswith(readable[1]):
            return 0
    if contained and access == "read" and path == "/proc":
        return 0  # whether it is the run's own, the kernel layers know
    if path.startswith("/proc/") and path[6:7].isdigit():
        number, _, rest = path[6:].partition("/")
        if number != f"{getpid()}":
            if rest[:5] == "task/":
                rest = rest[5:].partition("/")[2]
            if rest not in foreign_open and rest != "task":
                return foreign_reason
            if access == "read" and (contained or is_child(number)):
                return 0
        elif path.endswith(refused):
            return foreign_reason
        elif access != "write" or path.rpartition("/")[0].endswith("/fd") or (opening and rest == "comm"):
            return 0  # a descriptor that leads to no file (a pipe, a socket) is the process's own already
    if path_decide(access, path, rules) < 0:
        return path_reason(access, path, rules)
    return (reason_for(path) or 1) if protecting and access == "write" else 1


def reject(
    op: str,
    access: str,
    path: str,
    reason: str,
    args: dict[str, Any],
    *,
    refuse=refuse,
    path_fix=path_fix,
    lstat=lstat,
    cwd="/",
    builtin=(HIDDEN_REASON, SEALED_REASON, FOREIGN_REASON),
    enoent=ENOENT,
    OSError=OSError,
) -> Refusal | None:
    """Refuse a file access; only what the rules refused has a line that would allow it.

    Reading what is not there fails as it always does: programs probe for optional files, and printing a traceback looks
    for "<string>".
    """
    if access != "write" and reason not in builtin:
        try:
            lstat(path)
        except OSError as error:
            if error.errno == enoent:
                return (enoent, "No such file or directory", path)
    return refuse(op, args, access, path, reason, None if reason in builtin else path_fix(access, path, cwd))


def check_file(
    op: str,
    access: str,
    path: str,
    args: dict[str, Any],
    *,
    opening=True,
    judge_file=judge_file,
    witness=witness,
    reject=reject,
    int=int,
    type=type,
) -> Refusal | None:
    """Judge one resolved path and record the outcome."""
    judged = judge_file(access, path, opening=opening)
    if type(judged) is int:
        return witness(op, args, path) if judged else None
    return reject(op, access, path, judged, args)


def place(
    path: Any,
    dir_fd: Any,
    follow: bool,
    *,
    exact_text=exact_text,
    resolve=resolve,
    of_descriptor=of_descriptor,
    issubclass=issubclass,
    int=int,
    type=type,
    whole=int.__int__,
) -> str | None:
    """The resolved path of an event's (path, dir_fd) pair; None when it cannot be told, which the callers deny."""
    if path is None:
        return resolve(".", True)
    if issubclass(type(path), int):
        return of_descriptor(whole(path))
    text = exact_text(path)
    if text is None:
        return None
    if text[:1] != "/" and issubclass(type(dir_fd), int) and whole(dir_fd) >= 0:
        text = f"/proc/self/fd/{whole(dir_fd)}/{text}"
    return resolve(text, follow)


def unclear(op: str, what: Any, *, refuse=refuse, str=str, bytes=bytes, type=type, contained=False) -> Refusal | None:
    """The refusal of a path that has no single meaning; under kernel layers what it comes to mean is judged there."""
    if contained:
        return None
    reason = "the object given may mean one path now and another later; pass a plain str or bytes path"
    if type(what) is str or type(what) is bytes:
        reason = "where it leads cannot be told: its links lead in a circle, or it lies deeper than a path is long"
    return refuse(op, {"path": "?"}, "read", "?", reason, None)
