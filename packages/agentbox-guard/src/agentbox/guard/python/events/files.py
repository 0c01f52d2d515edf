"""Sealed: the audit events of the file system. Decides on the object that a path names, never on its spelling.

Event names and arguments: CPython's audit events table (PEP 578), as measured on 3.11 to 3.13.
"""

from __future__ import annotations

from errno import ENOENT
from posix import O_ACCMODE, O_APPEND, O_CREAT, O_TRUNC, getpid, lstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.digest import digest
    from agentbox.guard.python.report import Refusal, refuse, witness
    from agentbox.guard.python.resolve import exact_text, of_descriptor, resolve
    from agentbox.policy.forms.path import path_decide, path_fix, path_reason

O_PATH = 0o10000000
O_TMPFILE = 0o20200000
"""Not in every `posix` module; the values are those of asm-generic/fcntl.h (O_PATH 2.6.39, O_TMPFILE 3.11)."""

WRITE_FLAGS = O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~0o200000)
DEVICES = frozenset(("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx"))
OWN_PROC_REFUSED = ("/mem", "/pagemap", "/clear_refs")
HIDDEN_REASON = "it is agentbox's own record of this run, which no rule opens"
FOREIGN_REASON = "the memory, environment and files of another process are open to no rule"
FOREIGN_OPEN = frozenset(
    ("", "cmdline", "comm", "stat", "statm", "status", "io", "limits", "cgroup", "sched", "schedstat")
)
"""What a rule may open of another process's folder in /proc: numbers and names (proc(5))."""

SEALED_REASON = "the policy, agentbox's own code and the interpreter are never writable, whatever the rules say"

SINGLE = {
    "os.mkdir": ("fs.mkdir", 2),
    "os.rmdir": ("fs.rmdir", 1),
    "os.remove": ("fs.remove", 1),
    "os.truncate": ("fs.truncate", -1),
    "os.chmod": ("fs.chmod", 2),
    "os.chown": ("fs.chown", 3),
    "os.utime": ("fs.utime", 3),
    "os.setxattr": ("fs.xattr", -1),
    "os.removexattr": ("fs.xattr", -1),
}
"""Events that change one path: its op, and which argument is the dir_fd (-1: it has none)."""

EVENTS = (
    *("open", "os.listdir", "os.scandir", "os.getxattr", "os.listxattr", "os.rename", "os.link", "os.symlink"),
    *("sqlite3.connect", "sqlite3.enable_load_extension", "sqlite3.load_extension"),
    *SINGLE,
)


def shown(path: str, *, private=(), len=len) -> str:
    """The path as the trace names it: private folders by variable, as their real names differ in every run."""
    for name, tree, prefix in private:
        if path == tree or path.startswith(prefix):
            return "$" + name + path[len(tree) :]
    return path


def judge_file(
    access: str,
    path: str,
    *,
    hidden=(frozenset(), ()),
    sealed=(frozenset(), ()),
    readable=(frozenset(), ()),
    owned=(frozenset(), ()),
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
) -> int | str:
    """0: allowed and not recorded, 1: allowed and recorded, or the reason of a denial.

    Built-in protections come before the rules.
    """
    if path in hidden[0] or path.startswith(hidden[1]):
        return hidden_reason
    if path in owned[0] or path.startswith(owned[1]):
        return 1
    if path in devices or path.startswith("/dev/pts/"):
        return 0
    if access == "write":
        if path in sealed[0] or path.startswith(sealed[1]):
            return sealed_reason
    else:
        if path in readable[0] or path.startswith(readable[1]):
            return 0
    if path.startswith("/proc/") and path[6:7].isdigit():
        number, _, rest = path[6:].partition("/")
        if number != f"{getpid()}":
            if rest not in foreign_open:
                return foreign_reason
        elif path.endswith(refused):
            return foreign_reason
        elif access == "read":
            return 0
    if path_decide(access, path, rules) >= 0:
        return 1
    return path_reason(access, path, rules)


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
    if access == "read" and reason not in builtin:
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
    judge_file=judge_file,
    witness=witness,
    reject=reject,
    int=int,
    type=type,
) -> Refusal | None:
    """Judge one resolved path and record the outcome."""
    judged = judge_file(access, path)
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
    isinstance=isinstance,
    int=int,
    type=type,
    whole=int.__int__,
) -> str | None:
    """The resolved path of an event's (path, dir_fd) pair; None when it cannot be told, which the callers deny."""
    if path is None:
        return resolve(".", True)
    if isinstance(path, int):
        return of_descriptor(whole(path))
    text = exact_text(path)
    if text is None:
        return None
    if text[:1] != "/" and isinstance(dir_fd, int) and whole(dir_fd) >= 0:
        text = f"/proc/self/fd/{whole(dir_fd)}/{text}"
    return resolve(text, follow)


def unclear(op: str, what: Any, *, refuse=refuse, str=str, type=type) -> Refusal | None:
    """The refusal of a path that has no single meaning."""
    reason = f"a {type(what).__name__} here may mean one path now and another later; pass a plain str or bytes path"
    return refuse(op, {"path": "?"}, "read", "?", reason, None)


def octal(flags: int) -> str:
    """Open flags as text, for the record."""
    return f"{flags:#o}"


def on_open(
    path: Any,
    mode: Any,
    flags: Any,
    *,
    place=place,
    unclear=unclear,
    check_file=check_file,
    judge_file=judge_file,
    reject=reject,
    witness=witness,
    refuse=refuse,
    shown=shown,
    digest=digest,
    octal=octal,
    lstat=lstat,
    OSError=OSError,
    mark="",
    accmode=O_ACCMODE,
    write_flags=WRITE_FLAGS,
    o_path=O_PATH,
    isinstance=isinstance,
    int=int,
    str=str,
    type=type,
) -> Refusal | None:
    """`open(path, mode, flags)`: every file that is opened, by whatever call.

    `mode` is None for os.open, whose dir_fd the event lacks.
    """
    if isinstance(path, int):
        return None
    if type(path) is str and path.startswith(mark):
        return None
    if type(flags) is not int or not (mode is None or type(mode) is str):
        return unclear("fs.read", flags)
    if mode is None and type(path) is str and path[:1] != "/":
        reason = "a relative os.open that went around the guard's own os.open has no known folder"
        return refuse("fs.read", {"path": path}, "read", path, reason, None)
    resolved = place(path, -1, not (flags & o_path and flags & 0o400000))
    if resolved is None:
        return unclear("fs.read", path)
    writes = (
        flags & accmode
        or flags & write_flags
        or (mode is not None and ("w" in mode or "a" in mode or "+" in mode or "x" in mode))
    )
    if writes:
        args: dict[str, Any] = {"path": shown(resolved), "flags": mode or octal(flags)}
        try:
            args["size"] = lstat(resolved).st_size
        except OSError:
            args["absent"] = True
        return check_file("fs.write", "write", resolved, args)
    judged = judge_file("read", resolved)
    if judged == 0:
        return None
    if judged != 1:
        return reject("fs.read", "read", resolved, judged, {"path": resolved})
    args = {"path": shown(resolved)}
    if flags & o_path:
        return witness("fs.read", args, resolved)
    value, size = digest(resolved)
    if size == -2:
        return witness("fs.list", args, resolved)
    if size < 0:
        args["absent"] = True
    else:
        args["sha256"] = value
        args["size"] = size
    return witness("fs.read", args, resolved)


def on_listing(
    op: str, path: Any, *, place=place, unclear=unclear, check_file=check_file, shown=shown, listable=frozenset()
) -> Refusal | None:
    """Names in a directory, or a file's extended attributes: read access.

    The script's own directory is listed by every import.
    """
    resolved = place(path, -1, True)
    if resolved is None:
        return unclear(op, path)
    if op == "fs.list" and resolved in listable:
        return None
    return check_file(op, "read", resolved, {"path": shown(resolved)})


def on_single(
    op: str,
    path: Any,
    dir_fd: Any,
    *,
    place=place,
    unclear=unclear,
    check_file=check_file,
    shown=shown,
    judge_file=judge_file,
    ancestors=frozenset(),
    refuse=refuse,
    int=int,
    isinstance=isinstance,
    type=type,
) -> Refusal | None:
    """One changed path.

    What is removed is the link itself; what is changed in place must be allowed as link and as target.
    """
    removes = op in ("fs.remove", "fs.rmdir", "fs.mkdir", "fs.mknod")
    named = place(path, dir_fd, False)
    if named is None:
        return unclear(op, path)
    if op == "fs.rmdir" and named in ancestors:
        return refuse(op, {"path": named}, "write", named, "it holds files that agentbox protects", None)
    if not removes and not isinstance(path, int):
        target = place(path, dir_fd, True)
        if target is None:
            return unclear(op, path)
        if target != named and type(judge_file("write", target)) is not int:
            named = target
    return check_file(op, "write", named, {"path": shown(named)})


def on_pair(
    op: str,
    source: Any,
    source_fd: Any,
    target: Any,
    target_fd: Any,
    *,
    place=place,
    unclear=unclear,
    check_file=check_file,
    judge_file=judge_file,
    refuse=refuse,
    reject=reject,
    shown=shown,
    ancestors=frozenset(),
    type=type,
    int=int,
) -> Refusal | None:
    """rename and link: both names must be writable, as a hard link gives the file a second name to be written by."""
    old = place(source, source_fd, False)
    new = place(target, target_fd, False)
    if old is None or new is None:
        return unclear(op, source if old is None else target)
    args = {"path": shown(old), "to": shown(new)}
    if old in ancestors:
        return refuse(op, args, "write", old, "it holds files that agentbox protects", None)
    followed = place(source, source_fd, True) if op == "fs.link" else old
    for path in (old, followed, new):
        judged = judge_file("write", path) if path is not None else "its link leads in a circle"
        if type(judged) is not int:
            return reject(op, "write", path or old, judged, args)
    return check_file(op, "write", new, args)


def on_symlink(
    target: Any,
    name: Any,
    dir_fd: Any,
    *,
    place=place,
    unclear=unclear,
    exact_text=exact_text,
    resolve=resolve,
    check_file=check_file,
    judge_file=judge_file,
    reject=reject,
    shown=shown,
    type=type,
    int=int,
) -> Refusal | None:
    """A symbolic link: its name must be writable, and where it leads must be something that the policy opens at all."""
    new = place(name, dir_fd, False)
    text = exact_text(target)
    if new is None or text is None:
        return unclear("fs.symlink", name if new is None else target)
    leads = resolve(text if text[:1] == "/" else new.rpartition("/")[0] + "/" + text, True)
    args = {"path": text, "to": shown(new)}
    if leads is not None and type(judge_file("write", new)) is int:
        judged = judge_file("read", leads)
        if type(judged) is not int:
            return reject("fs.symlink", "read", leads, judged, args)
    return check_file("fs.symlink", "write", new, args)


def unescape(text: str, *, int=int, len=len, bytes=bytes, ValueError=ValueError) -> str:
    """%-escapes of a `file:` URI undone, as SQLite does (sqlite.org/uri.html)."""
    parts = text.split("%")
    out = parts[0].encode("utf-8", "surrogateescape")
    for part in parts[1:]:
        try:
            out += bytes((int(part[:2], 16),)) + part[2:].encode("utf-8", "surrogateescape")
        except ValueError:
            out += b"%" + part.encode("utf-8", "surrogateescape")
    return out.decode("utf-8", "surrogateescape")


def on_sqlite(
    database: Any,
    *,
    exact_text=exact_text,
    unclear=unclear,
    unescape=unescape,
    resolve=resolve,
    check_file=check_file,
    shown=shown,
    lstat=lstat,
    OSError=OSError,
) -> Refusal | None:
    """`sqlite3.connect(database)`: a path, or a `file:` URI when the caller said uri=True, which the event does not
    tell: both readings count.
    """
    text = exact_text(database)
    if text is None:
        return unclear("fs.write", database)
    if text == "" or text == ":memory:":
        return None
    readings = [(text, "write")]
    if text[:5] == "file:":
        location, _, query = text[5:].partition("#")[0].partition("?")
        if location[:2] == "//":
            location = "/" + location[2:].partition("/")[2]
        words = query.split("&")
        if "mode=memory" not in words and location != ":memory:" and location != "":
            readings.append((unescape(location), "read" if "mode=ro" in words else "write"))
        try:
            lstat(text.rpartition("/")[0] or ".")
        except OSError:  # no such folder: the literal reading cannot be opened
            del readings[0]
    for path, access in readings:
        resolved = resolve(path, True)
        if resolved is None:
            return unclear("fs.write", database)
        op = "fs.read" if access == "read" else "fs.write"
        refusal = check_file(op, access, resolved, {"path": shown(resolved), "flags": "sqlite3"})
        if refusal is not None:
            return refusal
    return None


def on_files(
    event: str,
    args: tuple[Any, ...],
    *,
    on_open=on_open,
    on_listing=on_listing,
    on_single=on_single,
    on_pair=on_pair,
    on_symlink=on_symlink,
    on_sqlite=on_sqlite,
    refuse=refuse,
    single=SINGLE,
) -> Refusal | None:
    """The family's dispatcher."""
    if event == "open":
        return on_open(args[0], args[1], args[2])
    if event == "os.listdir" or event == "os.scandir":
        return on_listing("fs.list", args[0])
    if event in single:
        op, position = single[event]
        return on_single(op, args[0], args[position] if position > 0 else -1)
    if event == "os.rename":
        return on_pair("fs.rename", args[0], args[2], args[1], args[3])
    if event == "os.link":
        return on_pair("fs.link", args[0], args[2], args[1], args[3])
    if event == "os.symlink":
        return on_symlink(args[0], args[1], args[2])
    if event == "sqlite3.connect":
        return on_sqlite(args[0])
    if event == "sqlite3.enable_load_extension" and not args[1]:
        return None
    if event[:7] == "sqlite3":
        return refuse(
            "code.load",
            {"name": event},
            "code",
            event,
            "SQLite extensions are native code, which no guard can follow",
            None,
        )
    return on_listing("fs.xattr", args[0])
