"""The traces of earlier runs: each is kept, under a name of its own, in the folder `traces` beside the last one.

It must never overwrite or delete a trace, follow a link on its way, or move what is none.
"""

from __future__ import annotations

import os

from .errors import TraceError, from_os, shown
from .files import claim, open_own, way_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "traces"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST = 1 << 20  # bytes of line 0 that are looked at for its time and run


def older_folder(path: str | os.PathLike[str]) -> str:
    """Return where the traces of the runs before the one in `path` are kept."""
    return os.path.join(os.path.dirname(os.fspath(path)), FOLDER)


def older(path: str | os.PathLike[str]) -> list[str]:
    """Return the traces that were kept beside `path`, the oldest run first; none where there is no such folder."""
    folder = older_folder(path)
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, name) for name in sorted(names) if name.endswith(".jsonl")]


def rotate(path: str | os.PathLike[str]) -> str | None:
    """Keep the trace of an earlier run: move `trace.jsonl` to `traces/<time>-<run>.jsonl`, over nothing. Return the new
    path, or None where no trace is there. A `trace.prev.jsonl`, as earlier versions left it, is kept with it.

    Raises `TraceError`: `not-a-trace` when the file is something else (it is left alone), `exists` when the trace is
    being written now, `io`.
    """
    name = os.fspath(path)
    stem, suffix = os.path.splitext(name)
    fd = open_own(name)
    try:
        _keep_earlier(f"{stem}.prev{suffix}", name)
        return None if fd is None else _keep(fd, name, name)
    finally:
        if fd is not None:
            os.close(fd)


def _keep_earlier(earlier: str, name: str) -> None:
    if not os.path.lexists(earlier):
        return
    try:
        fd = open_own(earlier)
    except TraceError:
        return  # something of the user's, which nothing writes over any more
    if fd is not None:
        try:
            _keep(fd, earlier, name)
        finally:
            os.close(fd)


def _keep(fd: int, source: str, name: str) -> str:
    """Move the open trace `source` into the folder beside `name`; each step leaves it whole under one name."""
    folder = older_folder(name)
    try:
        claim(fd, source)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        at = os.open(folder, _OPEN)
    except OSError as error:
        raise _cannot(source, folder, error) from None
    try:
        _link_blobs(at)
        for target in _names(fd):
            try:
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=at))
            except FileExistsError:
                continue
            os.rename(source, target, dst_dir_fd=at)  # over the empty file that was just made, and nothing else
            os.fsync(at)
            return os.path.join(folder, target)
    except OSError as error:
        raise _cannot(source, folder, error) from None
    finally:
        os.close(at)
    raise AssertionError("names have no end")


def _cannot(source: str, folder: str, error: OSError) -> TraceError:
    return from_os(source, f"cannot be moved to {shown(folder)}", error, hint=way_out(error, source, folder))


def _link_blobs(at: int) -> None:
    """The bodies of all runs stay where they are; `traces/blobs` leads there, so that each lies beside its trace."""
    try:
        os.symlink("../blobs", "blobs", dir_fd=at)
    except OSError:
        pass  # there already, or a file system without links: docs/spec/trace.md, section 11


def _names(fd: int) -> Iterator[str]:
    from .strict import strict_object

    raw = os.pread(fd, _MOST, 0)
    doc = strict_object(raw[: raw.find(b"\n") + 1]) or {}
    args, ts = doc.get("args"), doc.get("ts")
    run = args.get("run") if isinstance(args, dict) else None
    name = f"{_utc(ts, os.fstat(fd).st_mtime)}-{_plain(run)}"
    yield f"{name}.jsonl"
    number = 2
    while True:
        yield f"{name}-{number}.jsonl"
        number += 1


def _utc(ts: object, otherwise: float) -> str:
    from time import gmtime

    for seconds in (ts, otherwise, 0):
        try:
            whole, part = divmod(round(float(seconds) * 1000), 1000)  # type: ignore[arg-type]
            at = gmtime(whole)
        except (TypeError, ValueError, OverflowError, OSError):
            continue
        return f"{at[0]:04}{at[1]:02}{at[2]:02}T{at[3]:02}{at[4]:02}{at[5]:02}.{part:03}Z"
    raise AssertionError("gmtime(0) is a time")


def _plain(run: object) -> str:
    text = run[:64] if isinstance(run, str) else ""
    return "".join(char for char in text if char.isascii() and (char.isalnum() or char in "_-")) or "unnamed"
