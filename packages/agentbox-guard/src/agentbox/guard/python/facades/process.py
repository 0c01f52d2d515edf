"""Sealed: stand-ins for what starts programs and signals them. Never starts one whose child guard could not arm.

They choose the one file that would run and complete its environment; the judgement is that of events/process.py.
"""

from __future__ import annotations

import _posixsubprocess
import _signal  # type: ignore[import-not-found]
import posix
from errno import EACCES, ENOENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.events.files import on_open
    from agentbox.guard.python.events.process import on_exec
    from agentbox.guard.python.facades._plain import arguments, plain_path, stop
    from agentbox.guard.python.facades.environment import environment, with_required

PIDFD_SEND_SIGNAL = getattr(_signal, "pidfd_send_signal", None)
"""Missing where Python was built for a kernel before 5.1."""


def os_execve(
    path: Any,
    argv: Any,
    env: Any,
    *,
    real=posix.execve,
    plain_path=plain_path,
    arguments=arguments,
    environment=environment,
    isinstance=isinstance,
    int=int,
) -> None:
    """Execute an executable path with arguments, replacing current process."""
    real(path if isinstance(path, int) else plain_path(path), arguments(argv), environment(env))


def os_execv(path: Any, argv: Any, /, *, os_execve=os_execve) -> None:
    """Execute an executable path with arguments, replacing current process."""
    os_execve(path, argv, None)


def spawn(
    path: str,
    argv: Any,
    env: Any,
    options: dict[str, Any],
    *,
    real=posix.posix_spawn,
    arguments=arguments,
    environment=environment,
    on_open=on_open,
    plain_path=plain_path,
    getcwd=posix.getcwd,
    stop=stop,
    tuple=tuple,
    list=list,
    POSIX_SPAWN_OPEN=posix.POSIX_SPAWN_OPEN,
) -> int:
    """posix_spawn with plain values; files that the child is to open are judged here, as no event tells of them."""
    actions = []
    for action in options.pop("file_actions", None) or ():
        action = tuple(action)
        if action[0] == POSIX_SPAWN_OPEN:
            name = plain_path(action[2])
            name = name if name[:1] == "/" else getcwd() + "/" + name
            stop(on_open(name, None, action[3]))
            action = (*action[:2], name, *action[3:])
        actions.append(action)
    return real(path, arguments(argv), environment(env), file_actions=actions, **options)


def os_posix_spawn(
    path: Any, argv: Any, env: Any, /, *, spawn=spawn, plain_path=plain_path, getcwd=posix.getcwd, **options: Any
) -> int:
    """Execute the program specified by path in a new process."""
    text = plain_path(path)
    return spawn(text if "/" in text else getcwd() + "/" + text, argv, env, options)


def os_posix_spawnp(
    path: Any,
    argv: Any,
    env: Any,
    /,
    *,
    spawn=spawn,
    plain_path=plain_path,
    posix=posix,
    access=posix.access,
    X_OK=posix.X_OK,
    **options: Any,
) -> int:
    """Execute the program specified by path, found by PATH, in a new process."""
    text = plain_path(path)
    if "/" not in text:
        for folder in posix.environ.get(b"PATH", b"/bin:/usr/bin").decode("utf-8", "surrogateescape").split(":"):
            if folder and access(folder + "/" + text, X_OK):
                text = folder + "/" + text
                break
    return spawn(text if "/" in text else "/nonexistent/" + text, argv, env, options)


def choose(
    candidates: Any,
    cwd: str | None,
    *,
    plain_path=plain_path,
    access=posix.access,
    stat=posix.stat,
    getcwd=posix.getcwd,
    X_OK=posix.X_OK,
    F_OK=posix.F_OK,
    EACCES=EACCES,
    ENOENT=ENOENT,
    OSError=OSError,
    len=len,
    strerror=posix.strerror,
) -> tuple[str, str]:
    """(as given, absolute) of the one program that execvp would run; raises what it would fail with."""
    failure = ENOENT
    text = ""
    for candidate in candidates:
        text = plain_path(candidate)
        full = text if text[:1] == "/" else (cwd or getcwd()) + "/" + text
        if not access(full, F_OK):
            continue
        if access(full, X_OK) and stat(full).st_mode & 0o170000 == 0o100000:
            return text, full
        failure = EACCES
    raise OSError(failure, strerror(failure), text if len(candidates) == 1 else text.rpartition("/")[2])


def fork_exec(
    args: Any,
    executables: Any,
    close_fds: Any,
    pass_fds: Any,
    cwd: Any,
    env_list: Any,
    *rest: Any,
    real=_posixsubprocess.fork_exec,
    choose=choose,
    arguments=arguments,
    plain_path=plain_path,
    environment=environment,
    with_required=with_required,
    on_exec=on_exec,
    stop=stop,
    tuple=tuple,
) -> int:
    """Start a program: what subprocess and multiprocessing call.

    No audit event before Python 3.14, so it is judged here.
    """
    try:
        words = arguments(args)
        folder = None if cwd is None else plain_path(cwd)
        given, full = choose(executables, folder)
        if env_list is None:
            environ = environment(None)
        else:
            pairs = []
            for item in env_list:
                name, _, value = plain_path(item).partition("=")
                pairs.append((name, value))
            environ = with_required(pairs)
        env_list = []
        for name, value in environ.items():
            env_list.append(f"{name}={value}".encode("utf-8", "surrogateescape"))
        stop(on_exec(full, words, environ, folder))
        return real(
            words, (given.encode("utf-8", "surrogateescape"),), close_fds, tuple(pass_fds), folder, env_list, *rest
        )
    finally:
        real = None


def pidfd_send_signal(
    pidfd: int,
    signalnum: int,
    siginfo: Any = None,
    flags: int = 0,
    /,
    *,
    real=PIDFD_SEND_SIGNAL,
    mark="",
    open=posix.open,
    read=posix.read,
    close=posix.close,
    kill=posix.kill,
    int=int,
) -> None:
    """Send a signal to a process referred to by a pid file descriptor.

    Judged like kill: fdinfo of the descriptor holds `Pid:` (pidfd_open(2)).
    """
    fd = open(f"{mark}/proc/self/fdinfo/{int(pidfd)}", 0)
    try:
        info = read(fd, 4096).decode()
    finally:
        close(fd)
    kill(int(info.partition("Pid:")[2].split()[0]), signalnum)
