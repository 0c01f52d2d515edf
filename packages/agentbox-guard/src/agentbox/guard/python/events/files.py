"""Sealed: the audit events of files that are opened and folders that are listed. Never judges a path by its spelling.

Event names and arguments: CPython's audit events table (PEP 578), as measured on 3.11 to 3.13.
"""

from __future__ import annotations

from posix import O_ACCMODE, O_APPEND, O_CREAT, O_TRUNC, lstat
from sys import _getframe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.digest import digest
    from agentbox.guard.python.judge import check_file, judge_file, place, reject, traced, unclear
    from agentbox.guard.python.report import Refusal, refuse, witness

EVENTS = ("open", "os.listdir", "os.scandir", "os.getxattr", "os.listxattr")
O_PATH = 0o10000000
O_TMPFILE = 0o20200000
"""Not in every `posix` module; the values are those of asm-generic/fcntl.h (O_PATH 2.6.39, O_TMPFILE 3.11)."""

WRITE_FLAGS = O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~0o200000)


def octal(flags: int) -> str:
    """Open flags as text, for the record."""
    return f"{flags:#o}"


def glance(path: str, *, lstat=lstat, OSError=OSError) -> tuple[None, int]:
    """In place of `digest` under kernel layers, which read the file anyway: -1 not there, -2 a directory, else 0."""
    try:
        return None, -2 if lstat(path).st_mode & 0o170000 == 0o040000 else 0
    except OSError:
        return None, -1


def is_folder(path: str, *, lstat=lstat, OSError=OSError) -> bool:
    """Whether a resolved path is a directory now."""
    try:
        return lstat(path).st_mode & 0o170000 == 0o040000
    except OSError:
        return False


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
    traced=traced,
    digest=digest,
    octal=octal,
    lstat=lstat,
    OSError=OSError,
    _getframe=_getframe,
    vault=None,
    contained=False,
    glance=glance,
    is_folder=is_folder,
    accmode=O_ACCMODE,
    write_flags=WRITE_FLAGS,
    o_path=O_PATH,
    issubclass=issubclass,
    int=int,
    str=str,
    type=type,
) -> Refusal | None:
    """`open(path, mode, flags)`: every file that is opened, by whatever call.

    `mode` is None for os.open, whose dir_fd the event lacks.
    """
    if issubclass(type(path), int):
        return None
    caller = _getframe(3).f_back  # behind on_open, on_files, dispatch and the hook; None for the script's own opening
    hashing = caller is not None and caller.f_globals is vault  # not recorded, but judged: a frame shows that namespace
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
        args: dict[str, Any] = {"path": traced(resolved), "flags": mode or octal(flags)}
        try:
            found = lstat(resolved)
            folder = found.st_mode & 0o170000 == 0o040000
            if folder and mode is not None:
                return None  # EISDIR (open(2)), but for an opener (tempfile), whose own open tells of another file
            if not folder:  # which O_TMPFILE names
                args["size"] = found.st_size
        except OSError:
            args["absent"] = True
        return check_file("fs.write", "write", resolved, args)
    judged = judge_file("read", resolved)
    if judged == 0 or (hashing and judged == 1):
        return None
    if judged != 1:
        if is_folder(resolved):
            return check_file("fs.list", "list", resolved, {"path": traced(resolved)})
        return reject("fs.read", "read", resolved, judged, {"path": resolved})
    args = {"path": traced(resolved)}
    if flags & o_path:  # it reads nothing, and the kernel's layers show no such open
        return None if contained else witness("fs.read", args, resolved)
    value, size = digest(resolved) if not contained else glance(resolved)
    if size == 0 and value is None:  # no regular file, or one that the supervisor hashes
        return witness("fs.read", args, resolved)
    if size == -2:
        return witness("fs.list", args, resolved)
    if size < 0:
        args["absent"] = True
    else:
        args["sha256"] = value
        args["size"] = size
    return witness("fs.read", args, resolved)


def on_listing(
    op: str,
    path: Any,
    *,
    place=place,
    unclear=unclear,
    check_file=check_file,
    is_folder=is_folder,
    traced=traced,
    listable=frozenset(),
) -> Refusal | None:
    """Names in a directory or its extended attributes: list access. A file's extended attributes: read access.

    The script's own directory is listed by every import.
    """
    resolved = place(path, -1, True)
    if resolved is None:
        return unclear(op, path)
    if op == "fs.list" and resolved in listable:
        return None
    access = "list" if op == "fs.list" or is_folder(resolved) else "read"
    return check_file(op, access, resolved, {"path": traced(resolved)})


def on_files(event: str, args: tuple[Any, ...], *, on_open=on_open, on_listing=on_listing) -> Refusal | None:
    """The family's dispatcher."""
    if event == "open":
        return on_open(args[0], args[1], args[2])
    if event == "os.listdir" or event == "os.scandir":
        return on_listing("fs.list", args[0])
    return on_listing("fs.xattr", args[0])
