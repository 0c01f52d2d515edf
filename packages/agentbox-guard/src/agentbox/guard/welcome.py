"""What a guard is told in its welcome: which system files a program needs to start, what is sealed, hidden and private
in this run.

The lists are fixed and short; a file that is not needed to start or to behave as without agentbox does not belong here.
"""

from __future__ import annotations

import os
import sys

from agentbox.guard.cgroups import own_limit_files
from agentbox.guard.paths import existing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from agentbox.guard.options import RunOptions
    from agentbox.guard.runtimes._base import Launch
    from agentbox.guard.supervisor import Run

SYSTEM_FILES = (
    # time zones: tzset(3)
    "/etc/localtime", "/etc/timezone", "/usr/share/zoneinfo", "/usr/lib/zoneinfo", "/usr/share/lib/zoneinfo",
    # certificate authorities: where the distributions build OpenSSL to look
    "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem", "/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust/extracted", "/etc/ca-certificates",
    "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/usr/lib/ssl", "/etc/crypto-policies",
    # name service: nsswitch.conf(5), resolv.conf(5), gai.conf(5); the names themselves are decided by `net:` rules
    "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services",
    "/etc/protocols", "/run/systemd/resolve/stub-resolv.conf", "/run/systemd/resolve/resolv.conf",
    # locale, terminal, file types, the system's name
    "/usr/share/locale", "/usr/lib/locale", "/usr/share/i18n", "/etc/locale.alias", "/usr/share/terminfo",
    "/usr/lib/terminfo", "/lib/terminfo", "/etc/terminfo", "/etc/inputrc", "/etc/mime.types", "/usr/share/mime",
    "/etc/apache2/mime.types", "/etc/os-release", "/usr/lib/os-release", "/etc/lsb-release", "/etc/debian_version",
    # the loader: ld.so(8)
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
    # devices without content of anybody
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
    # the machine's capacity, limits and load: proc(5), cgroups(7), what os.cpu_count, thread pools and servers read
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version",
    "/proc/filesystems", "/proc/cgroups", "/proc/pressure", "/proc/vmstat", "/proc/sys/crypto/fips_enabled",
    "/proc/sys/kernel/ostype", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/version",
    "/proc/sys/kernel/random/uuid", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/random/entropy_avail",
    "/proc/sys/kernel/cap_last_cap", "/proc/sys/kernel/ngroups_max", "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/threads-max", "/proc/sys/kernel/perf_event_paranoid", "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/kernel/sem", "/proc/sys/kernel/shmall", "/proc/sys/kernel/shmmax", "/proc/sys/kernel/shmmni",
    "/proc/sys/vm/max_map_count", "/proc/sys/vm/mmap_min_addr", "/proc/sys/vm/nr_hugepages",
    "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/overcommit_ratio", "/proc/sys/vm/swappiness",
    "/proc/sys/net/core/rmem_max", "/proc/sys/net/core/somaxconn", "/proc/sys/net/core/wmem_max",
    "/proc/sys/fs/aio-max-nr", "/proc/sys/fs/epoll", "/proc/sys/fs/file-max", "/proc/sys/fs/file-nr",
    "/proc/sys/fs/inotify", "/proc/sys/fs/nr_open", "/proc/sys/fs/pipe-max-size",
    "/sys/devices/system/clocksource", "/sys/devices/system/cpu", "/sys/devices/system/node",
    "/sys/kernel/mm/hugepages", "/sys/kernel/mm/transparent_hugepage",
)  # fmt: skip
"""Files and trees that are readable without a rule and without an entry (docs/reference/architecture.md)."""


GUARDED_KINDS = frozenset({"env", "exec", "list", "net", "read", "write"})
"""The rule kinds that an interpreter's guard, the launcher and the supervisor hold together without a kernel layer."""


def members(run: Run, *, mode: str, ask: str, extra_sealed: Iterable[str] = ()) -> dict[str, Any]:
    """What is true of a run: the welcome's members for role `guard`, and with live kernel layers what their traps judge
    by (`kernel.grounds.widen`).
    """
    from agentbox.guard.decisions._variables import judged

    options, how = run.options, run.how
    message: dict[str, Any] = {
        "mode": mode,
        "ask": ask,
        "policy": options.policy.normal_form(),
        "cwd": options.cwd,
        "engine": _engine(),
        "readable": [*existing([*SYSTEM_FILES, *own_limit_files()]), *_own_files(how)],
        "listable": [how.listable] if how.listable else [],
        "writable": run.private,
        "sealed": [*_sealed(options), *extra_sealed, *_interpreters(options, how)],
        "hidden": [*trace_files(options), *run.rundir.own],
        "env": dict(run.variables),
        "judged": judged(),
    }
    if run.grounds is not None:
        run.grounds.widen(message)
    if not message.get("contained"):
        from agentbox.guard.kernel.protect import Protection

        message["protected"] = Protection(options.policy, tuple(run.private.values())).tuples()
    return message


def planned_from(run: Run) -> dict[str, Any]:
    """What the layers of a run are planned from. Paths are not resolved: a layer opens them itself, and the agent's
    start waits for it.
    """
    context: dict[str, Any] = {
        "readable": [*SYSTEM_FILES, *own_limit_files(), *_own_files(run.how)],
        "listable": [],
        "writable": run.rundir.private,
        "sealed": _sealed(run.options),
    }
    if run.grounds is not None:
        run.grounds.widen(context)
    from agentbox.guard.kernel import shm

    context["free_shm"] = shm.is_free(run.options.policy, _used(run, context))
    return context


def _used(run: Run, context: dict[str, Any]) -> Iterator[str]:
    """What a run needs to find where it is, beside what its rules name."""
    yield from (run.rundir.path, run.options.cwd, *trace_files(run.options))
    yield from (run.how.file, *_own_files(run.how), *context["sealed"], *context.get("installed", ()))


WELCOME = (
    "mode", "ask", "policy", "cwd", "engine", "readable", "listable", "writable", "sealed", "hidden", "env", "judged",
    "protected", "contained",
)  # fmt: skip
"""The members that a guard is sent."""


def trace_files(options: RunOptions) -> list[str]:
    """The trace, those of earlier runs (and where earlier versions put one), and the bodies beside them; resolved."""
    trace = os.path.realpath(os.path.join(options.cwd, options.trace))
    stem, suffix = os.path.splitext(trace)
    beside = os.path.dirname(trace)
    return [trace, f"{stem}.prev{suffix}", *(os.path.join(beside, name) for name in ("blobs", "traces"))]


def code_roots() -> list[str]:
    """The folders that agentbox's own code was loaded from: every part of the namespace."""
    import agentbox

    return sorted({os.path.realpath(path) for path in agentbox.__path__})


def _sealed(options: RunOptions) -> list[str]:
    """The policy, every link on the way to it from the name that the user gave it, and agentbox's own code."""
    policy = options.policy.path
    if not policy:
        return code_roots()
    target = os.path.realpath(os.path.join(options.cwd, policy))
    *links, end = _way(os.path.join(options.cwd, options.policy.name))
    # A policy that came from a trace or by descriptor has a name that leads elsewhere now, or nowhere.
    return [*(links if end == target else ()), target, *code_roots()]


def _way(path: str) -> list[str]:
    """The links that resolving the absolute `path` goes through, each by its own resolved place, and where it ends
    (path_resolution(7)).
    """
    found: list[str] = []
    at = "/"
    parts = path.split("/")[::-1]
    while parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, part)
        if len(found) < _MOST_LINKS and os.path.islink(here):
            found.append(here)
            target = os.readlink(here)
            at = "/" if target.startswith("/") else at
            parts += target.split("/")[::-1]
        else:
            at = here
    return [*found, at]


_MOST_LINKS = 40
"""path_resolution(7): what has more leads nowhere."""


def _interpreters(options: RunOptions, how: Launch) -> list[str]:
    """What a run must not change of its own interpreter, which the guard seals as well, but not for SDK calls, and of
    ours, which loads code while the agent runs, and at the next run before there is any policy.
    """
    from agentbox.guard.runtimes import python

    files = [how.file] if how.runtime == "python" else []
    if sys.executable and options.policy.rules_of(("write",)):
        files.append(sys.executable)
    return list(dict.fromkeys(home for file in dict.fromkeys(files) for home in python.homes(file)))


def _engine() -> str:
    """The policy package's path form, which the guard executes as sealed code."""
    from agentbox.policy.forms import path

    return os.path.realpath(path.__file__)


def _own_files(how: Launch) -> list[str]:
    return [*([how.script] if how.script else []), *how.readable]
