"""Sealed: stand-ins for functions of the standard library that open, name or change something without an audit event.

They make values plain and have the hook judge and call the real one (events/natives.py). What runs code of the agent's
(methods of C types, what `_ssl` does) is called here, after the event that it lacks was raised: who looks for the real
one finds it, as the type below ours.
"""

from __future__ import annotations

from sys import audit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.facades._plain import native, plain_path


def own_name(name: Any, *, plain_path=plain_path, shared="") -> str:
    """A name of shared memory as the run has it: its own begin alike, so that no other program's is reached."""
    text = plain_path(name)
    return text if text.startswith(shared) else shared + (text[1:] if text[:1] == "/" else text)


def shm_open(
    path: Any,
    flags: int,
    mode: int = 0o777,
    *,
    native=native,
    own_name=own_name,
    index=int.__index__,
    OSError=OSError,
) -> int:
    """Open a shared memory object.  Returns a file descriptor (integer)."""
    try:
        fd: int = native("_posixshmem.shm_open", own_name(path), index(flags), index(mode))
    except OSError as error:
        error.filename = path
        raise
    return fd


def shm_unlink(path: Any, *, native=native, own_name=own_name, OSError=OSError) -> None:
    """Remove a shared memory object (similar to unlink())."""
    try:
        native("_posixshmem.shm_unlink", own_name(path))
    except OSError as error:
        error.filename = path
        raise


def semaphore_new(
    cls: Any, kind: int, value: int, maxvalue: int, name: Any, unlink: bool, *, real=None, own_name=own_name
) -> Any:
    """A semaphore whose name is the run's own."""
    return real(cls, kind, value, maxvalue, own_name(name), unlink)


def semaphore_rebuild(
    cls: Any, handle: int, kind: int, maxvalue: int, name: Any, /, *, real=None, own_name=own_name
) -> Any:
    """The semaphore of that name, from another process of the run."""
    return real(handle, kind, maxvalue, None if name is None else own_name(name))


def semaphore_unlink(name: Any, /, *, native=native, own_name=own_name) -> None:
    """Remove a semaphore's name."""
    native("_multiprocessing.sem_unlink", own_name(name))


def load_cert_chain(
    self: Any,
    certfile: Any,
    keyfile: Any = None,
    password: Any = None,
    *,
    real=None,
    plain_path=plain_path,
    audit=audit,
) -> None:
    """Load a private key and the corresponding certificate."""
    certificate = plain_path(certfile)
    audit("open", certificate, "rb", 0)
    key = None
    if keyfile is not None:
        key = plain_path(keyfile)
        audit("open", key, "rb", 0)
    real(self, certificate, key, password)


def load_verify_locations(
    self: Any,
    cafile: Any = None,
    capath: Any = None,
    cadata: Any = None,
    *,
    real=None,
    plain_path=plain_path,
    audit=audit,
) -> None:
    """Load a set of "certification authority" (CA) certificates."""
    file = folder = None
    if cafile is not None:
        file = plain_path(cafile)
        audit("open", file, "rb", 0)
    if capath is not None:
        folder = plain_path(capath)
        audit("os.listdir", folder)
    real(self, file, folder, cadata)


def decode_cert(path: Any, /, *, real=None, plain_path=plain_path, audit=audit) -> Any:
    """What a certificate file says."""
    file = plain_path(path)
    audit("open", file, "rb", 0)
    return real(file)


def bindtextdomain(domain: Any, folder: Any, /, *, native=native, plain_path=plain_path) -> Any:
    """Bind the C library's domain to dir."""
    return native("_locale.bindtextdomain", plain_path(domain), None if folder is None else plain_path(folder))


def setpriority(which: int, who: int, priority: int, *, native=native, index=int.__index__) -> None:
    """Set program scheduling priority."""
    native("posix.setpriority", index(which), index(who), index(priority))


def sched_setaffinity(pid: int, mask: Any, /, *, native=native, index=int.__index__) -> None:
    """Set the CPU affinity of the process identified by pid to mask."""
    processors: tuple[int, ...] = ()
    for number in mask:
        processors += (index(number),)
    native("posix.sched_setaffinity", index(pid), processors)


def sched_setparam(pid: int, param: Any, /, *, native=native, index=int.__index__) -> None:
    """Set scheduling parameters for the process identified by pid."""
    native("posix.sched_setparam", index(pid), index(param.sched_priority))


def sched_setscheduler(pid: int, policy: int, param: Any, /, *, native=native, index=int.__index__) -> None:
    """Set the scheduling policy for the process identified by pid."""
    native("posix.sched_setscheduler", index(pid), index(policy), index(param.sched_priority))


def getgrouplist(user: Any, group: int, /, *, native=native, plain_path=plain_path, index=int.__index__) -> Any:
    """Returns a list of groups to which a user belongs."""
    return native("posix.getgrouplist", plain_path(user), index(group))


def clock_settime(clk_id: int, time: Any, /, *, native=native, index=int.__index__) -> None:
    """Refused: the clock is the machine's."""
    native("time.clock_settime", index(clk_id))


def clock_settime_ns(clk_id: int, time: Any, /, *, native=native, index=int.__index__) -> None:
    """Refused: the clock is the machine's."""
    native("time.clock_settime_ns", index(clk_id))


def getpwuid(uid: int, /, *, native=native, index=int.__index__) -> Any:
    """Return the password database entry for the given numeric user ID: one's own, root's, or as a rule opens it."""
    return native("pwd.getpwuid", index(uid))


def getpwnam(name: str, /, *, native=native, plain_path=plain_path) -> Any:
    """Return the password database entry for the given user name: one's own, root's, or as a rule opens it."""
    return native("pwd.getpwnam", plain_path(name))


def getpwall(*, native=native) -> Any:
    """Return a list of all available password database entries: one's own, root's, or as a rule opens it."""
    return native("pwd.getpwall", None)


def getgrgid(id: int, *, native=native, index=int.__index__) -> Any:
    """Return the group database entry for the given numeric group ID: the own groups', or as a rule opens it."""
    return native("grp.getgrgid", index(id))


def getgrnam(name: str, *, native=native, plain_path=plain_path) -> Any:
    """Return the group database entry for the given group name: the own groups', or as a rule opens it."""
    return native("grp.getgrnam", plain_path(name))


def getgrall(*, native=native) -> Any:
    """Return a list of all available group database entries: the own groups', or as a rule opens it."""
    return native("grp.getgrall", None)
