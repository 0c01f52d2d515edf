"""Starting the agent: find the command, fork, put the child in order, exec, and learn at once whether that worked.

The child runs as little as it can between fork and exec, and nothing of the supervisor's (descriptors, handlers, masks)
reaches the agent.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import os
import resource
import sys

from agentbox.guard.errors import CommandNotExecutable, CommandNotFound, GuardFailed, Unconfinable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Never

    from agentbox.guard.kernel.confine import Confinement
    from agentbox.guard.options import Scratch

_CANNOT_PREPARE = 0  # in place of an errno: the child could not be put in order, text follows


def find_command(name: str, cwd: str, path: str) -> str:
    """The file that a command names, absolute but with its links as written (a virtual environment is found by its
    link).

    `name` with a slash is taken relative to `cwd`, else looked for in `path` (a PATH value). Raises `CommandNotFound`
    or `CommandNotExecutable`.
    """
    if not name:
        raise CommandNotFound("command: got an empty name, expected a program")
    if "/" in name:
        candidates = [os.path.join(cwd, name)]
    else:
        candidates = [os.path.join(cwd, folder, name) for folder in path.split(":")]
    present = ""
    for candidate in candidates:
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return os.path.normpath(candidate) if "/../" not in candidate else candidate
            present = present or candidate
        elif "/" in name and os.path.exists(candidate):
            what = "is a directory" if os.path.isdir(candidate) else "not a file"
            raise CommandNotExecutable(
                f"{name}: {what}, expected a program", "name a program's file, or a program in PATH"
            )
    if present:
        raise CommandNotExecutable(f"{name}: not executable", f"chmod +x {present}, or name its interpreter")
    raise CommandNotFound(
        f"{name}: command not found",
        "no such file; name a program's file, or a program in PATH"
        if "/" in name
        else "looked in PATH; name the file with its folder",
    )


class Child:
    """A started process: its `pid`, and `pidfd` (readable when it ended; -1 where the system has none)."""

    __slots__ = ("pid", "pidfd")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = -1
        if hasattr(os, "pidfd_open"):
            try:
                self.pidfd = os.pidfd_open(pid)
            except OSError:
                pass  # before Linux 5.3: the loop learns of the end by SIGCHLD


def start(
    file: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
    cwd: str,
    *,
    mask: Iterable[int] = (),
    scratch: Scratch | None = None,
    confinement: Confinement | None = None,
) -> tuple[Child, int]:
    """Fork and exec `file`; returns the child and the descriptor to give to `confirm`, which must follow.

    The child stays in the caller's process group and terminal session, keeps descriptors 0 to 2, loses all others, gets
    the default actions for the signals that Python ignores and the signal `mask` that agentbox was started with, and
    dies with the supervisor (`PR_SET_PDEATHSIG`). With a `confinement` the child enters it after `scratch.enter()`, and
    the agent is a grandchild where that has a process namespace. Call it before any thread is started.
    """
    reader, writer = os.pipe()
    bind = _bond(os.getpid())
    pid = os.fork()
    if pid == 0:
        _child(file, argv, environ, cwd, mask, scratch, confinement, writer, bind)
    os.close(writer)
    return Child(pid), reader


def confirm(child: Child, reader: int, name: str) -> None:
    """Wait until the child's exec has happened. Raises `CommandNotFound`, `CommandNotExecutable`, `Unconfinable` or
    `GuardFailed` if it did not.
    """
    report = b""
    while chunk := os.read(reader, 4096):
        report += chunk
    os.close(reader)
    judge(child, report, name)


def judge(child: Child, report: bytes, name: str) -> None:
    """What the child has written until its exec: nothing if that has happened. Raises like `confirm`."""
    if not report:
        return
    os.waitpid(child.pid, 0)
    if child.pidfd >= 0:
        os.close(child.pidfd)
    number, _, text = report.decode("utf-8", "replace").partition(" ")
    code = int(number)
    if code == _CANNOT_PREPARE:
        hint = way_out(text.partition(":")[0])
        if not hint and text == os.strerror(errno.EAGAIN):  # fork(2)
            raise GuardFailed(f"{name}: cannot be confined: {text}", "raise the limit of processes: ulimit -u")
        # A layer that the machine does not give is the machine's: nothing was run.
        raise (Unconfinable if hint else GuardFailed)(f"{name}: cannot be confined: {text}", hint)
    if code == errno.ENOENT:
        raise CommandNotFound(f"{name}: not found, or its interpreter is not there")
    if code == errno.ENOEXEC:
        raise CommandNotExecutable(
            f"{name}: not a program", 'a script needs a first line such as "#!/usr/bin/env python3"'
        )
    raise CommandNotExecutable(f"{name}: cannot be executed: {text}")


def way_out(layer: str) -> str:
    """What a user can do about a layer that could not be applied; "" for another failure."""
    from agentbox.guard import kernel

    if layer not in kernel.LAYERS:
        return ""
    advice = kernel.advice(layer)
    return f"{advice}{'; or ' if advice else ''}do without it: run --allow-degraded {layer}, replay --layers guard"


def _child(
    file: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
    cwd: str,
    mask: Iterable[int],
    scratch: Scratch | None,
    confinement: Confinement | None,
    writer: int,
    bind: Callable[[], None],
) -> Never:
    try:
        bind()
        if scratch is not None:
            scratch.enter()
        os.chdir(cwd)
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
        _forbid_core_files()
        kept = sorted({writer, *(() if confinement is None else confinement.kept)})
        for above, below in zip([2, *kept], [*kept, _descriptor_limit()], strict=True):
            os.closerange(above + 1, below)
        if confinement is not None:
            confinement.enter(lambda: _execute(file, argv, environ, writer), lambda error: _refuse(writer, error))
        _execute(file, argv, environ, writer)
    except OSError as error:
        _refuse(writer, error)
    except BaseException as error:
        _report(writer, _CANNOT_PREPARE, f"{type(error).__name__}: {error}")
    finally:
        os._exit(127)


def _bond(parent: int) -> Callable[[], None]:
    """What a forked child calls to die with its `parent`. Made before the fork: what it needs is loaded once."""
    if sys.platform != "linux":
        return lambda: None
    from agentbox.guard.kernel import syscalls

    def bind() -> None:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, _signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(70)

    return bind


def _execute(file: str, argv: Sequence[str], environ: Mapping[str, str], writer: int) -> Never:
    try:
        os.execve(file, list(argv), dict(environ))
    except OSError as error:
        _report(writer, error.errno or errno.EINVAL, error.strerror or str(error))
    except BaseException as error:
        _report(writer, errno.EINVAL, f"{type(error).__name__}: {error}")
    finally:
        os._exit(127)


def _refuse(writer: int, error: OSError) -> None:
    _report(writer, _CANNOT_PREPARE, error.strerror or str(error))


def _report(writer: int, number: int, text: str) -> None:
    os.write(writer, f"{number} {text}".encode("utf-8", "replace"))


def _forbid_core_files() -> None:
    """A core file holds what the program held, and the kernel writes it past all layers: none from here on.

    A limit of one byte is less than any file's, and the one at which no program is given it either (core(5), piping
    core dumps to a program). Who has a lower one keeps that: it may not be raised.
    """
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    except ImportError:
        pass  # a system without limits of this kind
    except (OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _descriptor_limit() -> int:
    """Above every descriptor that can be open; close_range(2) (Linux 5.9) makes the size of the range free."""
    try:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    except (OSError, ValueError):
        return 1 << 20
    return 1 << 20 if hard == resource.RLIM_INFINITY else max(int(hard), 1 << 20)
