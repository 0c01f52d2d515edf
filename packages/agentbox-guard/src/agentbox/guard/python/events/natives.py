"""Sealed: functions of the standard library that open, name or change something outside without an audit event.

Facades raise the guard's own event for them, and they are judged and called here, where no trace function and no
traceback reaches them. Never runs code of the agent's: values are of exact types. Kernel layers see the calls
themselves, so with them none of this is installed.
"""

from __future__ import annotations

import posix
from posix import F_OK, access, getegid, geteuid, getgid, getgroups, getpid, getuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.digest import load_module
    from agentbox.guard.python.events.files import on_listing, on_open
    from agentbox.guard.python.events.performed import is_plain
    from agentbox.guard.python.judge import judge_file
    from agentbox.guard.python.report import Refusal, inquire, refuse

EVENTS = ("agentbox.native",)

NATIVES: dict[str, Any] = {}
"""The C functions by "module.name": filled by `adopt` when a module is loaded, and read within the hook only."""

NUMBERED = {
    "posix.setpriority": 1,
    "posix.sched_setaffinity": 0,
    "posix.sched_setparam": 0,
    "posix.sched_setscheduler": 0,
}
"""What changes a process by its number, and which argument that is."""

PRIO_PROCESS = 0  # sys/resource.h
ACCOUNTS, GROUPS = "/etc/passwd", "/etc/group"


def dress(module: Any, name: str, *, dressed=(), getattr=getattr, setattr=setattr, type=type) -> None:
    """Put stand-ins that call the real function themselves into a module that was just loaded.

    A C type takes no new attributes: a type of our own takes its place.
    """
    kinds: dict[str, Any] = {}
    for place, kind, attribute, facade, defaults in dressed:
        if place != name:
            continue
        holder = getattr(module, kind, None) if kind else module
        real = getattr(holder, attribute, None)
        if real is None or real is facade:
            continue
        defaults["real"] = real
        if kind:
            kinds[kind] = {**kinds.get(kind, {"__slots__": (), "__module__": name}), attribute: facade}
        else:
            setattr(module, attribute, facade)
    for kind, methods in kinds.items():
        setattr(module, kind, type(kind, (getattr(module, kind),), methods))


def adopt(module: Any, name: str, *, late=(), functions=NATIVES, dress=dress, getattr=getattr, setattr=setattr) -> None:
    """Put all stand-ins into a module that was just loaded, and keep here what they stand for."""
    for place, attribute, facade in late:
        real = getattr(module, attribute, None) if place == name else None
        if real is not None and real is not facade:
            functions[name + "." + attribute] = real
            setattr(module, attribute, facade)
    dress(module, name)


def load(name: str, origin: str | None, *, load_module=load_module, adopt=adopt) -> Any:
    """A module with stand-ins, as import is to find it: from the file `origin`, or builtin.

    Only for those that import nothing when they are initialised, which the agent could have led to code of its own.
    """
    module = load_module(name, origin)
    adopt(module, name)
    return module


def judge_numbered(
    name: str,
    values: tuple[Any, ...],
    *,
    numbered=NUMBERED,
    inquire=inquire,
    refuse=refuse,
    access=access,
    getpid=getpid,
    F_OK=F_OK,
    PRIO_PROCESS=PRIO_PROCESS,
    type=type,
    int=int,
) -> Refusal | None:
    """Priority and processors of a process: its own threads are free, about others the supervisor decides."""
    target = values[numbered[name]]
    groups = name == "posix.setpriority" and values[0] != PRIO_PROCESS
    if type(target) is int and not groups:
        if target == 0 or target == getpid() or access(f"/proc/self/task/{target}", F_OK):
            return None
        return inquire("proc.signal", {"target": target, "signal": 0}, None)
    reason = "a group or a user, of which the supervisor is one"
    return refuse("proc.signal", {"target": "?"}, "signal", name, reason, None)


def judge_shared(name: str, path: Any, *, shared="", refuse=refuse, type=type, str=str) -> Refusal | None:
    """A name of shared memory or of a semaphore: the run's own begin alike, and no other is opened."""
    if shared and type(path) is str and path.startswith(shared) and "/" not in path[1:]:
        return None
    reason = "shared memory of other programs is open to no rule"
    return refuse("fs.write", {"path": "/dev/shm"}, "write", "/dev/shm", reason, None)


def judge_native(
    name: str,
    values: tuple[Any, ...],
    *,
    numbered=NUMBERED,
    judge_numbered=judge_numbered,
    judge_shared=judge_shared,
    on_listing=on_listing,
    refuse=refuse,
) -> Refusal | None:
    """The refusal of a call with plain values, or None."""
    if name in numbered:
        return judge_numbered(name, values)
    if name[:13] == "_posixshmem.s" or name == "_multiprocessing.sem_unlink":
        return judge_shared(name, values[0])
    if name == "_locale.bindtextdomain":
        return on_listing("fs.list", values[1]) if values[1] is not None else None
    if name[:4] in ("pwd.", "grp.") or name == "posix.getgrouplist" or name == "_imp.load":
        return None  # they answer about the own user alone
    if name[:10] == "time.clock":
        return refuse("code.load", {"name": name}, "code", name, "it sets the machine's clock", None)
    return refuse("code.load", {"name": name}, "code", name, "there is no such operation", None)


def opens_all(file: str, *, judge_file=judge_file, on_open=on_open, observe=False, type=type, int=int) -> bool:
    """Whether a rule opens a file of accounts; its reading is then recorded."""
    return observe or (type(judge_file("read", file)) is int and on_open(file, "rb", 0) is None)


def ask_accounts(
    name: str,
    key: Any,
    *,
    functions=NATIVES,
    opens_all=opens_all,
    getuid=getuid,
    geteuid=geteuid,
    file=ACCOUNTS,
    type=type,
    int=int,
    KeyError=KeyError,
) -> Any:
    """The `pwd` module's functions: without a rule for the file, this user and root are all that there is."""
    if opens_all(file):
        return functions[name](key) if name != "pwd.getpwall" else functions[name]()
    found = []
    for number in {0, getuid(), geteuid()}:
        try:
            found.append(functions["pwd.getpwuid"](number))
        except KeyError:
            continue
    if name == "pwd.getpwall":
        return found
    for entry in found:
        if key == (entry[2] if type(key) is int else entry[0]):
            return entry
    if type(key) is int:
        raise KeyError(f"getpwuid(): uid not found: {key}")
    raise KeyError(f"getpwnam(): name not found: {key!r}")


def ask_groups(
    name: str,
    key: Any,
    *,
    functions=NATIVES,
    opens_all=opens_all,
    getgroups=getgroups,
    getgid=getgid,
    getegid=getegid,
    file=GROUPS,
    type=type,
    int=int,
    KeyError=KeyError,
) -> Any:
    """The `grp` module's functions: without a rule for the file the own groups, and no members."""
    if opens_all(file):
        return functions[name](key) if name != "grp.getgrall" else functions[name]()
    found = []
    for number in {0, getgid(), getegid(), *getgroups()}:
        try:
            entry = functions["grp.getgrgid"](number)
            found.append(type(entry)((*entry[:3], [])))
        except KeyError:
            continue
    if name == "grp.getgrall":
        return found
    for entry in found:
        if key == (entry[2] if type(key) is int else entry[0]):
            return entry
    if type(key) is int:
        raise KeyError(f"getgrgid(): gid not found: {key}")
    raise KeyError(f"getgrnam(): name not found: {key!r}")


def call_native(
    name: str,
    values: tuple[Any, ...],
    *,
    functions=NATIVES,
    load=load,
    ask_accounts=ask_accounts,
    ask_groups=ask_groups,
    opens_all=opens_all,
    getgroups=getgroups,
    sched_param=posix.sched_param,
    file=GROUPS,
) -> Any:
    """Do what was judged."""
    if name == "_imp.load":
        return load(values[0], values[1])
    if name[:4] == "pwd.":
        return ask_accounts(name, values[0])
    if name[:4] == "grp.":
        return ask_groups(name, values[0])
    if name == "posix.getgrouplist" and not opens_all(file):
        return [*{values[1], *getgroups()}]
    if name == "posix.sched_setscheduler":
        return functions[name](values[0], values[1], sched_param(values[2]))
    if name == "posix.sched_setparam":
        return functions[name](values[0], sched_param(values[1]))
    return functions[name](*values)


def on_natives(
    event: str,
    args: tuple[Any, ...],
    *,
    judge_native=judge_native,
    call_native=call_native,
    is_plain=is_plain,
    functions=NATIVES,
    refuse=refuse,
    tuple=tuple,
    list=list,
    str=str,
    type=type,
    without=BaseException.with_traceback,
    BaseException=BaseException,
) -> Refusal | None:
    """The family's dispatcher: judge, then put the outcome, a value or an exception, into the facade's own list."""
    name, values, box = args
    plain = type(name) is str and type(values) is tuple and type(box) is list and is_plain(values)
    if not plain or (name not in functions and name != "_imp.load"):
        return refuse("code.load", {"name": "native"}, "code", "native", "its values are no plain values", None)
    refusal = judge_native(name, values)
    if refusal is not None:
        return refusal
    try:
        box.append((True, call_native(name, values)))
    except BaseException as error:  # the function's own failure, which the facade raises; not one of the judgement
        box.append((False, without(error, None)))
    return None
