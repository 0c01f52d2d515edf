"""Sealed: stand-ins for what starts programs and signals them. Never starts one whose child guard could not arm.

They choose the one file that would run and complete its environment; the judgement is that of events/process.py.
"""

from __future__ import annotations

import _imp
import _signal  # type: ignore[import-not-found]
import posix
from errno import EACCES, ENOENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.events.natives import dress
    from agentbox.guard.python.facades._plain import arguments, hand_over, native, plain_path
    from agentbox.guard.python.facades.environment import environment, with_required
    from agentbox.guard.python.resolve import exact_text


def os_execve(
    path: Any,
    argv: Any,
    env: Any,
    *,
    real=posix.execve,
    plain_path=plain_path,
    arguments=arguments,
    environment=environment,
    issubclass=issubclass,
    type=type,
    int=int,
) -> None:
    """Execute an executable path with arguments, replacing current process."""
    real(path if issubclass(type(path), int) else plain_path(path), arguments(argv), environment(env))


def os_execv(path: Any, argv: Any, /, *, os_execve=os_execve) -> None:
    """Execute an executable path with arguments, replacing current process."""
    os_execve(path, argv, None)


def spawn(
    path: str,
    argv: Any,
    env: Any,
    options: dict[str, Any],
    *,
    arguments=arguments,
    environment=environment,
    plain_path=plain_path,
    hand_over=hand_over,
    getcwd=posix.getcwd,
    OPEN=posix.POSIX_SPAWN_OPEN,
    issubclass=issubclass,
    type=type,
    int=int,
    whole=int.__int__,
) -> int:
    """posix_spawn with plain values, file actions with absolute paths."""
    actions: tuple[Any, ...] = ()
    for action in options.pop("file_actions", None) or ():
        plain: tuple[Any, ...] = ()
        for part in action:
            plain += (whole(part) if issubclass(type(part), int) else part,)
        if plain[0] == OPEN:
            name = plain_path(plain[2])
            plain = (*plain[:2], name if name[:1] == "/" else getcwd() + "/" + name, *plain[3:])
        actions += (plain,)
    pid: int = hand_over("posix_spawn", path, arguments(argv), environment(env), actions, options)
    return pid


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


def os_system(
    command: Any,
    *,
    real=posix.system,
    contained=False,
    spawn=spawn,
    plain_path=plain_path,
    waitpid=posix.waitpid,
    pthread_sigmask=_signal.pthread_sigmask,
    sigpending=_signal.sigpending,
    sigwait=_signal.sigwait,
    SIG_BLOCK=_signal.SIG_BLOCK,
    SIG_SETMASK=_signal.SIG_SETMASK,
    held=(_signal.SIGINT, _signal.SIGQUIT),
    SIGCHLD=_signal.SIGCHLD,
) -> int:
    """Execute the command in a subshell.

    Without kernel layers it is started with the variables that Python knows, which are judged, not with those of the C
    library. SIGINT and SIGQUIT that come meanwhile are the command's alone, and SIGCHLD waits (system(3)).
    """
    text = plain_path(command)
    if contained:
        return real(text)
    before = pthread_sigmask(SIG_BLOCK, (*held, SIGCHLD))
    try:
        options = {"setsigmask": before, "setsigdef": held}
        status = waitpid(spawn("/bin/sh", ("sh", "-c", text), None, options), 0)[1]
        for number in held:
            if number in sigpending() and number not in before:
                sigwait((number,))
    finally:
        pthread_sigmask(SIG_SETMASK, before)
    return status


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
) -> str:
    """The one program that execvp would run, as given; raises what it would fail with."""
    failure = ENOENT
    text = ""
    for candidate in candidates:
        text = plain_path(candidate)
        full = text if text[:1] == "/" else (cwd or getcwd()) + "/" + text
        if not access(full, F_OK):
            continue
        if access(full, X_OK) and stat(full).st_mode & 0o170000 == 0o100000:
            return text
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
    choose=choose,
    arguments=arguments,
    plain_path=plain_path,
    environment=environment,
    with_required=with_required,
    hand_over=hand_over,
) -> int:
    """Start a program: what subprocess and multiprocessing call."""
    words = arguments(args)
    folder = None if cwd is None else plain_path(cwd)
    given = choose(executables, folder)
    if env_list is None:
        environ = environment(None)
    else:
        pairs = []
        for item in env_list:
            name, _, value = plain_path(item).partition("=")
            pairs.append((name, value))
        environ = with_required(pairs)
    pid: int = hand_over("fork_exec", given, words, environ, folder, close_fds, (*pass_fds,), rest)
    return pid


def create_builtin(
    spec: Any, /, *, exact_text=exact_text, hand_over=hand_over, native=native, held_modules=frozenset()
) -> Any:
    """Create a built-in module; those that the guard has changed are not made a second time."""
    name = exact_text(spec.name) or ""
    return native("_imp.load", name, None) if name in held_modules else hand_over("create_builtin", name)


def create_dynamic(
    spec: Any,
    file: Any = None,
    /,
    *,
    real=_imp.create_dynamic,
    exact_text=exact_text,
    native=native,
    held_modules=frozenset(),
) -> Any:
    """Create an extension module; one that the guard changes comes with its stand-ins, and complete."""
    name = exact_text(spec.name) or ""
    return native("_imp.load", name, exact_text(spec.origin)) if name in held_modules else real(spec, file)


def exec_dynamic(module: Any, /, *, real=_imp.exec_dynamic, held_modules=frozenset(), dress=dress) -> int:
    """Initialize an extension module, unless `create_dynamic` has done so."""
    if module.__name__ in held_modules:
        return 0
    status: int = real(module)
    dress(module, module.__name__)
    return status


def exec_builtin(module: Any, /, *, real=_imp.exec_builtin, held_modules=frozenset(), dress=dress) -> int:
    """Initialize a built-in module, unless `create_builtin` has done so."""
    if module.__name__ in held_modules:
        return 0
    status: int = real(module)
    dress(module, module.__name__)
    return status


def pidfd_send_signal(
    pidfd: int, signalnum: int, siginfo: Any = None, flags: int = 0, /, *, hand_over=hand_over, int=int
) -> None:
    """Send a signal to a process referred to by a pid file descriptor; judged like kill."""
    hand_over("pidfd_send_signal", int(pidfd), int(signalnum), int(flags))
