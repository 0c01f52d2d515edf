"""Sealed: the audit events of SQLite, which opens its files in C. Never lets it load native code.

Event names and arguments: CPython's audit events table (PEP 578); the reading of URIs: sqlite.org/uri.html.
"""

from __future__ import annotations

from posix import lstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.guard.python.judge import check_file, judge_file, reject, traced, unclear
    from agentbox.guard.python.report import Refusal, refuse
    from agentbox.guard.python.resolve import exact_text, resolve

EVENTS = ("sqlite3.connect", "sqlite3.enable_load_extension", "sqlite3.load_extension")
NATIVE_REASON = "SQLite extensions are native code, which no guard can follow"


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


def literally(
    text: str,
    *,
    resolve=resolve,
    judge_file=judge_file,
    reject=reject,
    lstat=lstat,
    OSError=OSError,
    type=type,
    int=int,
) -> Refusal | None:
    """The refusal of a `file:` text taken as a plain name, which it is without uri=True; not recorded when allowed.

    Where the folder of that name is missing, as it mostly is, nothing can be opened so.
    """
    try:
        lstat(text.rpartition("/")[0] or ".")
    except OSError:
        return None
    resolved = resolve(text, True)
    judged = judge_file("write", resolved) if resolved is not None else "its links lead in a circle"
    return None if type(judged) is int else reject("fs.write", "write", resolved or text, judged, {"path": text})


def on_database(
    database: Any,
    *,
    literally=literally,
    exact_text=exact_text,
    unclear=unclear,
    unescape=unescape,
    resolve=resolve,
    check_file=check_file,
    traced=traced,
    lstat=lstat,
    OSError=OSError,
) -> Refusal | None:
    """`sqlite3.connect(database)`: a path, or a `file:` URI when the caller said uri=True.

    The event does not tell which, so both readings count.
    """
    text = exact_text(database)
    if text is None:
        return unclear("fs.write", database)
    if text == "" or text == ":memory:":
        return None
    path, access = text, "write"
    if text[:5] == "file:":
        refusal = literally(text)
        if refusal is not None:
            return refusal
        location, _, query = text[5:].partition("#")[0].partition("?")
        if location[:2] == "//":
            location = "/" + location[2:].partition("/")[2]
        mode = ""
        for word in query.split("&"):
            name, _, value = word.partition("=")
            if unescape(name) == "mode":
                mode = unescape(value) if mode == "" else "rwc"  # which of two SQLite obeys is not ours to guess
        if mode == "memory" or location == ":memory:" or location == "":
            return None
        path, access = unescape(location), "read" if mode == "ro" else "write"
    resolved = resolve(path, True)
    if resolved is None:
        return unclear("fs.write", database)
    details: dict[str, Any] = {"path": traced(resolved), "flags": "sqlite3"}
    try:
        details["size"] = lstat(resolved).st_size
    except OSError:
        details["absent"] = True
    return check_file("fs.read" if access == "read" else "fs.write", access, resolved, details)


def on_sqlite(
    event: str, args: tuple[Any, ...], *, on_database=on_database, refuse=refuse, reason=NATIVE_REASON
) -> Refusal | None:
    """The family's dispatcher."""
    if event == "sqlite3.connect":
        return on_database(args[0])
    if event == "sqlite3.enable_load_extension" and args[1] is False:
        return None
    return refuse("code.load", {"name": event}, "code", event, reason, None)
