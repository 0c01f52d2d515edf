"""Sealed: lines to and from the supervisor (docs/spec/channel.md), built without the json module. Decides nothing.

All of it works on raw descriptors with calls that raise no audit event, so that it can run inside the hook.
"""

from __future__ import annotations

from _json import encode_basestring_ascii as quote
from _socket import AF_UNIX, SOCK_STREAM
from _socket import socket as Socket
from _thread import get_native_id
from posix import _exit, close, fstat, getpid, read, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ONE_WAY_LIMIT = 32 * 1024
TEXT_LIMIT = 4096
LIST_LIMIT = 64


def scalar(value: Any, *, str=str, int=int, bool=bool, type=type, repr=int.__repr__, quote=quote) -> str:
    """JSON of one plain value; anything that is not exactly str, int, bool or None becomes null."""
    kind = type(value)
    if kind is str:
        return quote(value)
    if kind is int:
        return repr(value)
    if kind is bool:
        return "true" if value else "false"
    return "null"


def members(
    args: dict[str, Any], cut: int, *, scalar=scalar, quote=quote, str=str, list=list, type=type, len=len
) -> str:
    """The members of a JSON object of plain values and lists of them; what is longer than `cut` is cut and says so."""
    parts = []
    for name, value in args.items():
        if type(value) is list:
            items = []
            for item in value[: cut // 64] if cut else value:
                items.append(scalar(item[:cut] if cut and type(item) is str else item))
            parts.append(quote(name) + ":[" + ",".join(items) + "]")
            short = len(items) == len(value)
        else:
            short = not cut or type(value) is not str or len(value) <= cut
            parts.append(quote(name) + ":" + scalar(value if short else value[:cut]))
        if not short:
            parts.append('"cut":true')
    return ",".join(parts)


def gone(why: str, *, write=write, _exit=_exit, OSError=OSError) -> None:
    """End this process: unsupervised, nothing that it does would be recorded (channel.md, Failing closed)."""
    text = b"agentbox: the guard lost its supervisor; this process ends: " + why.encode("utf-8", "replace") + b"\n"
    try:
        write(2, text)
    except OSError:
        pass  # standard error may be closed, or a full pipe
    _exit(70)


def dial(*, Socket=Socket, AF_UNIX=AF_UNIX, SOCK_STREAM=SOCK_STREAM, channel="", gone=gone, OSError=OSError) -> int:
    """A new blocking connection to the supervisor, as a bare descriptor: a socket object would warn when dropped."""
    try:
        sock = Socket(AF_UNIX, SOCK_STREAM)
        sock.settimeout(None)
        sock.connect(channel)
        return sock.detach()
    except OSError as error:
        gone(f"{channel}: {error.strerror}")
    return -1


def send_all(fd: int, data: bytes, *, write=write, len=len, gone=gone, OSError=OSError) -> None:
    """Write everything, or end the process.

    Short one-way lines go out in the first write, whole (channel.md, Transport 4).
    """
    try:
        while data:
            data = data[write(fd, data) :]
    except OSError as error:
        gone(error.strerror)


def receive_lines(fd: int, count: int, *, read=read, gone=gone, OSError=OSError) -> list[bytes]:
    """The next `count` lines, without more than them having been sent yet; end of file ends the process."""
    data = b""
    try:
        while data.count(b"\n") < count:
            more = read(fd, 65536)
            if not more:
                break
            data += more
    except OSError as error:
        gone(error.strerror)
    if data.count(b"\n") < count:
        gone("it closed the channel")
    return data.split(b"\n")


def tell(
    kind: str,
    op: str,
    args: dict[str, Any],
    extra: str,
    link: tuple[int, int, int, int],
    hello: str,
    *,
    members=members,
    quote=quote,
    get_native_id=get_native_id,
    getpid=getpid,
    fstat=fstat,
    dial=dial,
    send_all=send_all,
    close=close,
    limit=ONE_WAY_LIMIT,
    text_limit=TEXT_LIMIT,
    len=len,
    str=str,
    OSError=OSError,
) -> None:
    """Send a one-way line.

    `link` is (pid, descriptor, device, inode) and never changes: a forked child, or a program that closed or replaced
    our descriptor, dials anew for each line.
    """
    head = f'{{"t":"{kind}","op":{quote(op)},"thread":{get_native_id()}{extra},"args":{{'
    body = members(args, 0)
    if len(head) + len(body) > limit - 64:
        body = members(args, text_limit)
        if len(head) + len(body) > limit - 64:
            body = members(args, 256)
    line = head + body + "}}\n"
    if link[0] == getpid():
        try:
            status = fstat(link[1])
            if status.st_ino == link[3] and status.st_dev == link[2]:
                send_all(link[1], line.encode())
                return
        except OSError:
            pass
    fd = dial()
    try:
        send_all(fd, (hello + line).encode())
    finally:
        close(fd)


def ask(
    op: str,
    args: dict[str, Any],
    site: str,
    hello: str,
    *,
    members=members,
    quote=quote,
    get_native_id=get_native_id,
    dial=dial,
    send_all=send_all,
    receive_lines=receive_lines,
    close=close,
    scan=None,
) -> dict[str, Any]:
    """Ask the supervisor and wait: the verdict object of docs/spec/channel.md.

    Uses a connection of its own, as threads may ask at once.
    """
    fd = dial()
    try:
        head = f'{{"t":"ask","id":1,"op":{quote(op)},"thread":{get_native_id()},"site":{quote(site)},"args":{{'
        line = head + members(args, 0) + "}}\n"
        send_all(fd, (hello + line).encode())
        return scan(receive_lines(fd, 2)[1].decode(), 0)[0]
    finally:
        close(fd)
