"""Sealed: operations without an audit event, done here on behalf of the facades, after they were judged.

The C functions are kept where no trace function and no traceback reaches: the hook, in which tracing is suspended and
whose inner frames no exception shows. `agentbox.perform` is the guard's own event; whoever raises it gets no more.
"""

from __future__ import annotations

import _frozen_importlib
import _imp
import _posixsubprocess
import _signal  # type: ignore[import-not-found]
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.digest import descriptor_pid
    from agentbox.guard.python.events.changes import on_single
    from agentbox.guard.python.events.files import on_open
    from agentbox.guard.python.events.interpreter import HELD_REASON, on_import
    from agentbox.guard.python.events.process import on_exec, on_process
    from agentbox.guard.python.judge import check_file
    from agentbox.guard.python.report import Refusal, refuse

EVENTS = ("agentbox.perform",)
PIDFD_SEND_SIGNAL = getattr(_signal, "pidfd_send_signal", None)
"""Missing where Python was built for a kernel before 5.1."""
TRAMPOLINE = getattr(sys, "activate_stack_trampoline", None)
"""Python 3.12 and later."""


def all_scalars(values: Any, *, type=type, str=str, int=int) -> bool:
    """Whether each is exactly a str, an int or None; by identity, as a metaclass may say how its types compare."""
    plain = True
    for value in values:
        plain = plain and (type(value) is str or type(value) is int or value is None)
    return plain


def is_plain(values: tuple[Any, ...], *, all_scalars=all_scalars, tuple=tuple, dict=dict, type=type) -> bool:
    """Whether values, and what tuples and dicts among them hold, are of exact types: then C code takes what was judged.

    Anything else may answer differently there, and its methods would run within the hook, before its frames.
    """
    for value in values:
        if type(value) is dict:
            if not all_scalars(value) or not all_scalars(value.values()):
                return False
            continue
        for part in value if type(value) is tuple else (value,):
            if not all_scalars(part if type(part) is tuple else (part,)):
                return False
    return True


def judge_node(
    path: Any, mode: Any, dir_fd: Any, *, on_single=on_single, refuse=refuse, type=type, int=int, str=str
) -> Refusal | None:
    """mkfifo and mknod: a new name; devices are doors to the machine and are refused wherever they lie."""
    if type(path) is not str or type(mode) is not int:
        return refuse("fs.mknod", {"path": "?"}, "write", "?", "its path or mode is no plain value", None)
    if mode & 0o170000 in (0o060000, 0o020000):
        return refuse("fs.mknod", {"path": path}, "write", path, "a device node opens the machine itself", None)
    return on_single("fs.mknod", path, dir_fd)


def judge_program(
    given: Any, words: Any, environ: Any, folder: Any, *, on_exec=on_exec, getcwd=posix.getcwd
) -> Refusal | None:
    """A program by the path that the kernel will get, relative to the folder that the child will be in."""
    return on_exec(given, words, environ, getcwd() if folder is None else folder)


def judge_actions(
    actions: Any, *, on_open=on_open, refuse=refuse, tuple=tuple, str=str, type=type, OPEN=posix.POSIX_SPAWN_OPEN
) -> Refusal | None:
    """The files that posix_spawn is to open in the child, by absolute path."""
    for action in actions:
        if type(action) is not tuple or (action[0] == OPEN and (type(action[2]) is not str or action[2][:1] != "/")):
            return refuse("fs.read", {"path": "?"}, "read", "?", "a file action is no plain value", None)
        if action[0] == OPEN:
            refusal = on_open(action[2], None, action[3])
            if refusal is not None:
                return refusal
    return None


def judge_trampoline(backend: Any, *, check_file=check_file, getpid=posix.getpid, contained=False) -> Refusal | None:
    """The file that a profiler's backend makes: Python/perf_trampoline.c, from 3.13 on perf_jit_trampoline.c.

    Kernel layers see it made.
    """
    place = f"/tmp/jit-{getpid()}.dump" if backend == "perf_jit" else f"/tmp/perf-{getpid()}.map"
    return None if contained else check_file("fs.write", "write", place, {"path": place, "flags": "a"})


def judge_performed(
    name: str,
    values: Any,
    *,
    judge_node=judge_node,
    judge_program=judge_program,
    judge_actions=judge_actions,
    judge_trampoline=judge_trampoline,
    descriptor_pid=descriptor_pid,
    on_import=on_import,
    on_process=on_process,
    refuse=refuse,
    is_plain=is_plain,
    held_modules=frozenset(),
    held_reason=HELD_REASON,
) -> Refusal | None:
    """The refusal of an operation, or None.

    What follows the first four values (descriptors, options) is not judged, and may be anything.
    """
    if not is_plain(values[:4]):
        return refuse("code.load", {"name": "perform"}, "code", "perform", "its values are no plain values", None)
    if name == "fork_exec":
        return judge_program(values[0], values[1], values[2], values[3])
    if name == "posix_spawn":
        return judge_actions(values[3])
    if name == "mkfifo" or name == "mknod":
        return judge_node(values[0], values[1], values[-1])
    if name == "create_builtin":
        if values[0] in held_modules:  # the facade has those made with their stand-ins
            return refuse("code.load", {"name": values[0]}, "code", "module " + values[0], held_reason, None)
        return on_import(values[0], None)
    if name == "activate_stack_trampoline":
        return judge_trampoline(values[0])
    if name == "pidfd_send_signal":
        return on_process("os.kill", (descriptor_pid(values[0]), values[1]))
    return refuse("code.load", {"name": "perform"}, "code", "perform", "there is no such operation", None)


def perform(
    name: str,
    values: Any,
    *,
    fork_exec=_posixsubprocess.fork_exec,
    posix_spawn=posix.posix_spawn,
    mkfifo=posix.mkfifo,
    mknod=posix.mknod,
    create_builtin=_imp.create_builtin,
    activate_stack_trampoline=TRAMPOLINE,
    ModuleSpec=_frozen_importlib.ModuleSpec,
    pidfd_send_signal=PIDFD_SEND_SIGNAL,
) -> Any:
    """Do what was judged, with the very values that were judged."""
    if name == "fork_exec":
        given, words, environ, folder, close_fds, pass_fds, rest = values
        block = []
        for key, value in environ.items():
            block.append(f"{key}={value}".encode("utf-8", "surrogateescape"))
        program = (given.encode("utf-8", "surrogateescape"),)
        return fork_exec(words, program, close_fds, pass_fds, folder, block, *rest)
    if name == "posix_spawn":
        path, words, environ, actions, options = values
        return posix_spawn(path, words, environ, file_actions=actions, **options)
    if name == "mkfifo":
        return mkfifo(values[0], values[1], dir_fd=values[2])
    if name == "mknod":
        return mknod(values[0], values[1], values[2], dir_fd=values[3])
    if name == "create_builtin":
        return create_builtin(ModuleSpec(values[0], None))
    if name == "activate_stack_trampoline":
        return activate_stack_trampoline(values[0])
    return pidfd_send_signal(values[0], values[1], None, values[2])


def on_performed(
    event: str,
    args: tuple[Any, ...],
    *,
    judge_performed=judge_performed,
    perform=perform,
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
    if type(name) is not str or type(values) is not tuple or type(box) is not list:
        return refuse("code.load", {"name": "perform"}, "code", "perform", "its values are no plain values", None)
    refusal = judge_performed(name, values)
    if refusal is not None:
        return refusal
    try:
        box.append((True, perform(name, values)))
    except BaseException as error:  # the operation's own failure, which the facade raises; not one of the judgement
        box.append((False, without(error, None)))
    return None
