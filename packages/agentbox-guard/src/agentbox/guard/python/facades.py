"""Sealed: stand-ins for a few C functions. They make a call plain (one path, exact types, a child's environment
complete) before the hook judges it.

Where an operation raises no audit event the stand-in is all there is: it explains and records, and a hostile program
can get around it; the kernel layers contain. Nothing here trusts the agent's own modules.
"""

from __future__ import annotations

import _posixsubprocess
import _signal
import _socket
import os
import posix
from errno import EACCES, ENOENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.events.files import on_open, on_single
    from agentbox.guard.python.events.network import is_literal
    from agentbox.guard.python.events.process import on_exec
    from agentbox.guard.python.report import Refusal, refuse
    from agentbox.guard.python.resolve import exact_text
    from agentbox.guard.python.wire import ask

RawSocket = _socket.socket
EXTRA_PATH = "AGENTBOX_PYTHONPATH"
AI_NUMERICHOST, NI_NUMERICHOST, EAI_NONAME = _socket.AI_NUMERICHOST, _socket.NI_NUMERICHOST, _socket.EAI_NONAME


def stop(refusal: Refusal | None, *, OSError=OSError) -> None:
    """Raise a refusal as the exception that the hook would raise."""
    if refusal is not None:
        raise OSError(*refusal) if refusal[2] is not None else OSError(refusal[0], refusal[1])


def plain_path(
    path: Any, *, fspath=posix.fspath, exact_text=exact_text, isinstance=isinstance, str=str, TypeError=TypeError
) -> str:
    """What the caller means by a path, converted once; from here on it cannot change."""
    text = exact_text(fspath(path))
    if text is None:
        raise TypeError("agentbox: a path must be text without NUL")
    return text


def os_open(
    path: Any,
    flags: int,
    mode: int = 0o777,
    *,
    dir_fd: int | None = None,
    real=posix.open,
    plain_path=plain_path,
    getcwd=posix.getcwd,
    OSError=OSError,
) -> int:
    """Open a file for low level IO. Returns a file descriptor (integer)."""
    text = plain_path(path)
    if text[:1] != "/":  # the audit event has no dir_fd, so the path has to say it
        text = f"/proc/self/fd/{dir_fd}/{text}" if dir_fd is not None else f"{getcwd()}/{text}"
    try:
        return real(text, flags, mode)
    except OSError as error:
        if error.filename == text:
            error.filename = path
        raise


def os_mkfifo(
    path: Any,
    mode: int = 0o666,
    *,
    dir_fd: int | None = None,
    real=posix.mkfifo,
    on_single=on_single,
    stop=stop,
    plain_path=plain_path,
) -> None:
    """Create a "fifo" (a POSIX named pipe)."""
    try:
        path = plain_path(path)
        stop(on_single("fs.mknod", path, dir_fd))
        real(path, mode, dir_fd=dir_fd)
    finally:
        real = None  # a denial's traceback must not hand out the original


def os_mknod(
    path: Any,
    mode: int = 0o600,
    device: int = 0,
    *,
    dir_fd: int | None = None,
    real=posix.mknod,
    on_single=on_single,
    stop=stop,
    plain_path=plain_path,
) -> None:
    """Create a node in the file system."""
    try:
        path = plain_path(path)
        stop(on_single("fs.mknod", path, dir_fd))
        real(path, mode, device, dir_fd=dir_fd)
    finally:
        real = None


def os_chroot(path: Any, *, refuse=refuse, stop=stop) -> None:
    """Refused: it would change what every path means."""
    stop(refuse("code.load", {"name": "os.chroot"}, "code", "os.chroot", "it would change what every path means", None))


def os_unshare(flags: int, *, refuse=refuse, stop=stop) -> None:
    """Refused: it would change what every path means."""
    stop(
        refuse("code.load", {"name": "os.unshare"}, "code", "os.unshare", "it would change what every path means", None)
    )


def os_setns(fd: int, nstype: int = 0, *, refuse=refuse, stop=stop) -> None:
    """Refused: it would change what every path means."""
    stop(refuse("code.load", {"name": "os.setns"}, "code", "os.setns", "it would change what every path means", None))


def extra_path(value: str, shim: str) -> str:
    """A PYTHONPATH as the agent wishes it, without the guard's own folder: what a child appends once its guard is live."""
    kept = []
    for entry in value.split(":"):
        if entry != shim and entry != "":
            kept.append(entry)
    return ":".join(kept)


def with_required(
    pairs: list[tuple[str, str]], *, required=(), extra_path=extra_path, EXTRA_PATH=EXTRA_PATH
) -> dict[str, str]:
    """An environment with what every guarded child must carry.

    The caller's own PYTHONPATH goes by another name: modules found there before the guard is live (`encodings`) would
    run without it.
    """
    found = {}
    for name, value in pairs:
        found[name] = value
    for name, value in required:
        given = found.get(name, value)
        if name == "PYTHONPATH" and given != value:
            found[EXTRA_PATH] = extra_path(given, value)
        found[name] = value
    return found


def os_putenv(
    name: Any,
    value: Any,
    /,
    *,
    real=posix.putenv,
    required=(),
    plain_path=plain_path,
    extra_path=extra_path,
    EXTRA_PATH=EXTRA_PATH,
) -> None:
    """Change or add an environment variable. What children need for their own guard keeps its value in them."""
    text = plain_path(name)
    for fixed, content in required:
        if fixed == text:
            if fixed == "PYTHONPATH":
                real(EXTRA_PATH, extra_path(plain_path(value), content))
            return
    real(text, plain_path(value))


def os_unsetenv(
    name: Any, /, *, real=posix.unsetenv, required=(), plain_path=plain_path, EXTRA_PATH=EXTRA_PATH
) -> None:
    """Delete an environment variable. What children need for their own guard stays in them."""
    text = plain_path(name)
    for fixed, _ in required:
        if fixed == text:
            if fixed == "PYTHONPATH":
                real(EXTRA_PATH)
            return
    real(text)


def environment(env: Any, *, plain_path=plain_path, with_required=with_required, os=os) -> dict[str, str]:
    """A mapping given for a child, made plain and complete; None stands for the process's own, as Python knows it."""
    if env is None:
        env = os.environ
    pairs = []
    for name in env:
        pairs.append((plain_path(name), plain_path(env[name])))
    return with_required(pairs)


def arguments(
    argv: Any, *, plain_path=plain_path, isinstance=isinstance, list=list, tuple=tuple, TypeError=TypeError
) -> list[str]:
    """A program's arguments, made plain."""
    if not isinstance(argv, (list, tuple)):
        raise TypeError("agentbox: arguments must be a list or a tuple")
    words = []
    for word in argv:
        words.append(plain_path(word))
    return words


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
    search=None,
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
    raise OSError(failure, strerror(failure), text)


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
    real=getattr(_signal, "pidfd_send_signal", None),
    mark="",
    open=posix.open,
    read=posix.read,
    close=posix.close,
    kill=posix.kill,
    int=int,
) -> None:
    """Send a signal to a process referred to by a pid file descriptor; judged like kill (pidfd_open(2): fdinfo holds
    `Pid:`).
    """
    fd = open(f"{mark}/proc/self/fdinfo/{int(pidfd)}", 0)
    try:
        info = read(fd, 4096).decode()
    finally:
        close(fd)
    kill(int(info.partition("Pid:")[2].split()[0]), signalnum)


def lookup(
    host: Any,
    port: Any,
    family: str,
    *,
    ask=ask,
    hello="",
    exact_text=exact_text,
    gaierror=_socket.gaierror,
    stop=stop,
    EACCES=EACCES,
    EAI_NONAME=EAI_NONAME,
    type=type,
    int=int,
) -> list[str]:
    """The addresses of a name, from the supervisor, which decides, resolves and pins them."""
    text = exact_text(host) or "?"
    answer = ask("net.resolve", {"host": text, "port": port if type(port) is int else 0, "family": family}, "", hello)
    if answer["allow"] is not True:
        stop((answer.get("errno") or EACCES, answer.get("text") or "agentbox denied it", None))
    addresses = (answer.get("value") or {}).get("addresses") or ()
    if not addresses:
        raise gaierror(EAI_NONAME, "Name or service not known")
    return addresses


def getaddrinfo(
    host: Any,
    port: Any,
    family: int = 0,
    type: int = 0,
    proto: int = 0,
    flags: int = 0,
    *,
    real=_socket.getaddrinfo,
    lookup=lookup,
    exact_text=exact_text,
    is_literal=is_literal,
    gaierror=_socket.gaierror,
    inet=_socket.AF_INET,
    inet6=_socket.AF_INET6,
    NUMERIC=AI_NUMERICHOST,
    EAI_NONAME=EAI_NONAME,
    int=int,
) -> list[Any]:
    """Resolve host and port into list of address infos."""
    text = None if host is None else exact_text(host)
    if text is None or text == "" or is_literal(text) or flags & NUMERIC:
        return real(host, port, family, type, proto, flags)
    found = []
    for address in lookup(text, port, "inet" if family == inet else "inet6" if family == inet6 else "any"):
        try:
            found += real(address, port, family, type, proto, flags | NUMERIC)
        except gaierror:
            continue
    if not found:
        raise gaierror(EAI_NONAME, "Name or service not known")
    return found


def gethostbyname(
    host: Any, *, lookup=lookup, exact_text=exact_text, is_literal=is_literal, real=_socket.gethostbyname
) -> str:
    """Return the IP address (a string of the form '255.255.255.255') for a host."""
    text = exact_text(host)
    return real(host) if text is None or text == "" or is_literal(text) else lookup(text, 0, "inet")[0]


def gethostbyname_ex(
    host: Any, *, lookup=lookup, exact_text=exact_text, is_literal=is_literal
) -> tuple[str, list[str], list[str]]:
    """Return the true host name, a list of aliases, and a list of IP addresses, for a host."""
    text = exact_text(host) or "?"
    return (text, [], [text] if is_literal(text) else [*lookup(text, 0, "inet")])


def gethostbyaddr(
    host: Any, *, lookup=lookup, exact_text=exact_text, is_literal=is_literal
) -> tuple[str, list[str], list[str]]:
    """Return the true host name, a list of aliases, and a list of IP addresses.

    An address keeps its number: reverse look-ups leave the machine.
    """
    text = exact_text(host) or "?"
    return (text, [], [text] if is_literal(text) else [*lookup(text, 0, "any")])


def getnameinfo(sockaddr: Any, flags: int, /, *, real=_socket.getnameinfo, NUMERIC=NI_NUMERICHOST) -> tuple[str, str]:
    """Get host and port for a sockaddr; the host as a number, as a reverse look-up would leave the machine."""
    return real(sockaddr, flags | NUMERIC)


def plain_address(
    sock: Any,
    address: Any,
    *,
    lookup=lookup,
    exact_text=exact_text,
    is_literal=is_literal,
    family_of=RawSocket.family,
    inet=_socket.AF_INET,
    inet6=_socket.AF_INET6,
    isinstance=isinstance,
    tuple=tuple,
    int=int,
    whole=int.__int__,
    item=tuple.__getitem__,
    everything=slice(None),
    len=len,
    bytearray=bytearray,
    bytes=bytes,
) -> Any:
    """An address whose parts cannot change and whose host is a number; names are looked up by the supervisor."""
    family = family_of.__get__(sock)
    if (family != inet and family != inet6) or not isinstance(address, tuple):
        return address
    parts = [*item(address, everything)]
    if len(parts) >= 2:
        if isinstance(parts[1], int):
            parts[1] = whole(parts[1])
        host = bytes(parts[0]) if isinstance(parts[0], bytearray) else parts[0]
        text = exact_text(host)
        if text is not None:
            named = text != "" and text != "<broadcast>" and not is_literal(text)
            parts[0] = lookup(text, parts[1], "inet" if family == inet else "inet6")[0] if named else text
    return tuple(parts)


def socket_connect(self: Any, address: Any, /, *, real=RawSocket.connect, plain_address=plain_address) -> None:
    """Connect the socket to a remote address."""
    return real(self, plain_address(self, address))


def socket_connect_ex(self: Any, address: Any, /, *, real=RawSocket.connect_ex, plain_address=plain_address) -> int:
    """Like connect(address), but returns an error code instead of raising an exception when the system call fails."""
    return real(self, plain_address(self, address))


def socket_bind(self: Any, address: Any, /, *, real=RawSocket.bind, plain_address=plain_address) -> None:
    """Bind the socket to a local address."""
    return real(self, plain_address(self, address))


def socket_sendto(self: Any, data: Any, *rest: Any, real=RawSocket.sendto, plain_address=plain_address) -> int:
    """Send data to the address: sendto(data[, flags], address)."""
    return real(self, data, *rest[:-1], plain_address(self, rest[-1])) if rest else real(self, data)


def socket_listen(
    self: Any,
    *backlog: Any,
    real=RawSocket.listen,
    bind=RawSocket.bind,
    name_of=RawSocket.getsockname,
    family_of=RawSocket.family,
    inet=_socket.AF_INET,
    inet6=_socket.AF_INET6,
) -> None:
    """Enable a server to accept connections.

    An unbound socket is bound first, as the kernel would on its own and unseen.
    """
    family = family_of.__get__(self)
    if family == inet or family == inet6:
        if name_of(self)[1] == 0:
            bind(self, ("0.0.0.0" if family == inet else "::", 0))
    return real(self, *backlog)
