"""Sealed: the audit events that make, move, mark and remove files. Decides on names and targets, never on one alone.

Event names and arguments: CPython's audit events table (PEP 578), as measured on 3.11 to 3.13.
"""

from __future__ import annotations

from errno import EEXIST
from posix import lstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.judge import check_file, judge_file, place, reject, traced, unclear
    from agentbox.guard.python.report import Refusal, refuse
    from agentbox.guard.python.resolve import exact_text, resolve

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

EVENTS = ("os.rename", "os.link", "os.symlink", *SINGLE)


def on_single(
    op: str,
    path: Any,
    dir_fd: Any,
    *,
    place=place,
    unclear=unclear,
    check_file=check_file,
    traced=traced,
    judge_file=judge_file,
    ancestors=frozenset(),
    refuse=refuse,
    lstat=lstat,
    EEXIST=EEXIST,
    OSError=OSError,
    int=int,
    issubclass=issubclass,
    type=type,
) -> Refusal | None:
    """One changed path.

    What is removed is the link itself; what is changed in place must be allowed as link and as target.
    """
    removes = op in ("fs.remove", "fs.rmdir", "fs.mkdir", "fs.mknod")
    named = place(path, dir_fd, False)
    if named is None:
        return unclear(op, path)
    if op == "fs.truncate" and issubclass(type(path), int) and named.startswith("/dev/shm/"):
        return None  # shared memory gets its size so (shm_overview(7)); its descriptor is the process's own
    if op == "fs.rmdir" and named in ancestors:
        return refuse(op, {"path": named}, "write", named, "it holds files that agentbox protects", None)
    if not removes and not issubclass(type(path), int):
        target = place(path, dir_fd, True)
        if target is None:
            return unclear(op, path)
        if target != named and type(judge_file("write", target, opening=False)) is not int:
            named = target
    args: dict[str, Any] = {"path": traced(named)}
    if op == "fs.mkdir":
        try:
            lstat(named)
            args["exists"] = True  # it will fail, and replay must not take the folder for one that the run made
        except OSError:
            pass
        if "exists" in args and type(judge_file("write", named, opening=False)) is not int:
            return (EEXIST, "File exists", named)  # mkdir(2): nothing would be made, so no rule is missing
    return check_file(op, "write", named, args, opening=False)


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
    traced=traced,
    ancestors=frozenset(),
    type=type,
    int=int,
) -> Refusal | None:
    """rename and link: both names must be writable, as a hard link gives the file a second name to be written by."""
    old = place(source, source_fd, False)
    new = place(target, target_fd, False)
    if old is None or new is None:
        return unclear(op, source if old is None else target)
    args = {"path": traced(old), "to": traced(new)}
    if old in ancestors:
        return refuse(op, args, "write", old, "it holds files that agentbox protects", None)
    followed = place(source, source_fd, True) if op == "fs.link" else old
    for path in (old, followed, new):
        judged = judge_file("write", path, opening=False) if path is not None else "its link leads in a circle"
        if type(judged) is not int:
            return reject(op, "write", path or old, judged, args)
    return check_file(op, "write", new, args, opening=False)


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
    traced=traced,
    type=type,
    int=int,
) -> Refusal | None:
    """A symbolic link: its name must be writable, and where it leads must be something that the policy opens at all."""
    new = place(name, dir_fd, False)
    text = exact_text(target)
    if new is None or text is None:
        return unclear("fs.symlink", name if new is None else target)
    leads = resolve(text if text[:1] == "/" else new.rpartition("/")[0] + "/" + text, True)
    args = {"path": text, "to": traced(new)}
    if leads is not None and type(judge_file("write", new, opening=False)) is int:
        judged = judge_file("read", leads)
        if type(judged) is not int:
            return reject("fs.symlink", "read", leads, judged, args)
    return check_file("fs.symlink", "write", new, args, opening=False)


def on_changes(
    event: str, args: tuple[Any, ...], *, on_single=on_single, on_pair=on_pair, on_symlink=on_symlink, single=SINGLE
) -> Refusal | None:
    """The family's dispatcher."""
    if event in single:
        op, position = single[event]
        return on_single(op, args[0], args[position] if position > 0 else -1)
    if event == "os.symlink":
        return on_symlink(args[0], args[1], args[2])
    return on_pair("fs.rename" if event == "os.rename" else "fs.link", args[0], args[2], args[1], args[3])
