"""Sealed: the audit events of programs, signals and environments. On programs and signals the supervisor decides.

`subprocess.Popen` is no event of this list: Python code raises it, so the agent can silence it; the facade of
`_posixsubprocess.fork_exec` stands there.
"""

from __future__ import annotations

from errno import ENOENT
from posix import X_OK, access, getcwd, getpid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.libraries import on_library_variable, on_library_variables
    from agentbox.guard.python.report import Refusal, inquire, refuse
    from agentbox.guard.python.resolve import exact_text, resolve

EVENTS = (
    *("os.exec", "os.posix_spawn", "os.system", "os.kill", "os.killpg", "os.putenv", "os.unsetenv"),
    *("resource.prlimit", "fcntl.ioctl", "fcntl.fcntl"),
)
LOADS = (
    frozenset(("GCONV_PATH", "GETCONF_DIR", "GLIBC_TUNABLES", "MALLOC_TRACE"))
    | frozenset(("OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES")),
    ("LD_", "DYLD_"),
)
"""Variables by which the C library and OpenSSL load code into the process itself (docs/spec/policy.md, section 9)."""

TIOCSTI, TIOCLINUX = 0x5412, 0x541C
"""asm-generic/ioctls.h: both put characters into a terminal's input, where the user's shell reads them."""

FIOSETOWN, SIOCSPGRP, F_SETOWN, F_SETOWN_EX = 0x8901, 0x8902, 8, 15
"""asm-generic/sockios.h, linux/fcntl.h: who gets a descriptor's signal, of any number (F_SETSIG), when it is ready."""


def is_judged(name: str, *, judged=(frozenset(), ())) -> bool:
    """Whether the supervisor decides on this variable of a program that is started (docs/spec/channel.md)."""
    return name in judged[0] or name.startswith(judged[1])


def child_environment(
    env: Any, *, required=(), is_judged=is_judged, exact_text=exact_text, dict=dict, type=type, str=str, bytes=bytes
) -> tuple[str | None, list[str]]:
    """Why a child must not be started with `env`, or None; and those of its variables that are judged.

    None as `env` means the process's own, as os.system of the C library has it: kernel layers see those.
    """
    if env is None:
        return None, []
    if type(env) is not dict:
        return "its environment is no plain dict", []
    found = {}
    for name, value in env.items():
        if type(name) is not str and type(name) is not bytes:  # its own __eq__ would run at the next look into `env`
            return "its environment holds something that is no plain text", []
        text, content = exact_text(name), exact_text(value)
        if text is None or content is None:
            return "its environment holds something that is no plain text", []
        found[text] = content
    for name, value in required:
        if found.pop(name, None) != value:
            return f"its environment lacks {name}, so its guard could not arm", []
    judged = []
    for name, content in found.items():
        if is_judged(name):
            judged.append(f"{name}={content}")
    return None, judged


def on_exec(
    path: Any,
    argv: Any,
    env: Any,
    cwd: str | None,
    *,
    exact_text=exact_text,
    child_environment=child_environment,
    on_library_variables=on_library_variables,
    inquire=inquire,
    refuse=refuse,
    resolve=resolve,
    access=access,
    getcwd=getcwd,
    x_ok=X_OK,
    enoent=ENOENT,
    list=list,
    tuple=tuple,
    type=type,
    len=len,
) -> Refusal | None:
    """A program is about to start: plain values only; the supervisor resolves and decides.

    A missing file fails as it would without a guard.
    """
    text = exact_text(path) if path is not None else None
    if text is None:
        return refuse(
            "proc.exec",
            {"file": "?"},
            "exec",
            "?",
            "a program must be given as a plain path, not as a descriptor or object",
            None,
        )
    words = []
    if type(argv) is list or type(argv) is tuple:
        for word in argv:
            plain = exact_text(word)
            if plain is None:
                return refuse(
                    "proc.exec", {"file": text}, "exec", text, "an argument is no plain text, so it could change", None
                )
            words.append(plain)
    if not words:
        return refuse("proc.exec", {"file": text}, "exec", text, "its arguments are no plain list", None)
    here = getcwd() if cwd is None else cwd
    full = text if text[:1] == "/" else here + "/" + text
    real = resolve(full, True)
    if real is None or not access(full, x_ok):
        return (enoent, "No such file or directory", text)
    if real.startswith("/memfd:") or full.startswith(("/proc/", "/dev/fd/")):
        return refuse(
            "proc.exec",
            {"file": real, "argv": words},
            "exec",
            real,
            "a program is started by its own path, not through a descriptor",
            None,
        )
    reason, variables = child_environment(env)
    if reason is not None:
        return refuse("proc.exec", {"file": full, "argv": words}, "exec", full, reason, None)
    refusal = on_library_variables(env)
    if refusal is not None:
        return refusal
    path = exact_text(env.get("PATH", env.get(b"PATH", ""))) if env is not None else ""
    return inquire(
        "proc.exec",
        {"file": full, "argv": words, "cwd": here, "env_ok": True, "path": path, "variables": variables},
        full,
    )


def on_variable(
    name: Any,
    value: Any,
    *,
    required=(),
    contained=False,
    loads=LOADS,
    exact_text=exact_text,
    refuse=refuse,
) -> Refusal | None:
    """putenv and unsetenv themselves, which the facades call for what may be changed only: what every child must carry
    stays, and C libraries of this process are told of no code to load.
    """
    text = exact_text(name)
    if text is None:
        return refuse("proc.exec", {"file": "?"}, "env", "?", "the name is no plain text", None)
    for fixed, content in required:
        if fixed == text:
            if value is not None and exact_text(value) == content:
                return None
            return refuse("proc.exec", {"name": text}, "env", text, "child processes need it for their own guard", None)
    if value is not None and not contained and (text in loads[0] or text.startswith(loads[1])):
        return refuse("proc.exec", {"name": text}, "env", text, "a library would load code by it, unguarded", None)
    return None


def on_process(
    event: str,
    args: tuple[Any, ...],
    *,
    on_exec=on_exec,
    on_variable=on_variable,
    on_library_variable=on_library_variable,
    exact_text=exact_text,
    inquire=inquire,
    refuse=refuse,
    getpid=getpid,
    typing_ioctls=(TIOCSTI, TIOCLINUX),
    owner_ioctls=(FIOSETOWN, SIOCSPGRP),
    owner_fcntls=(F_SETOWN, F_SETOWN_EX),
    int=int,
    type=type,
) -> Refusal | None:
    """The family's dispatcher."""
    if event == "os.exec" or event == "os.posix_spawn":
        return on_exec(args[0], args[1], args[2], None)
    if event == "os.system":
        command = exact_text(args[0])
        return on_exec("/bin/sh", ["sh", "-c", command if command is not None else ""], None, None)
    if event == "os.putenv":
        return on_variable(args[0], args[1]) or on_library_variable(args[0], args[1])
    if event == "os.unsetenv":
        return on_variable(args[0], None)
    if event[:6] == "fcntl.":
        number = args[1] & 0xFFFFFFFF if type(args[1]) is int else -1
        if event == "fcntl.ioctl" and (number in typing_ioctls or number == -1):
            return refuse(
                "code.load",
                {"name": "ioctl"},
                "code",
                "ioctl TIOCSTI",
                "it would type into the terminal of whoever watches",
                None,
            )
        if number in (owner_ioctls if event == "fcntl.ioctl" else owner_fcntls) and not (
            type(args[2]) is int and args[2] == getpid()
        ):
            return refuse(
                "proc.signal",
                {"target": "?"},
                "signal",
                "F_SETOWN",
                "it would have the kernel signal another process",
                None,
            )
        return None
    target = args[0]
    if type(target) is not int:
        return refuse("proc.signal", {"target": "?"}, "signal", "?", "the process id is no plain int", None)
    if event == "resource.prlimit":
        return (
            None if target == 0 or target == getpid() else inquire("proc.signal", {"target": target, "signal": 0}, None)
        )
    if event == "os.kill" and target == getpid():
        return None
    number = args[1] if type(args[1]) is int else -1
    return inquire("proc.signal", {"target": target if event == "os.kill" else -target, "signal": number}, None)
