"""One HTTP exchange with an address that is already decided.

It must never look up a name, use a proxy or follow a redirect.
"""

from __future__ import annotations

import errno
import io
import socket
import ssl
import time
from functools import cache
from http.client import HTTPConnection, HTTPException, IncompleteRead, RemoteDisconnected

from agentbox.guard.effects._base import LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

    from agentbox.guard.effects._url import Target

    Headers = dict[str, str]

_AT_ONCE = 1024 * 1024


class Failed(Exception):
    """There is no answer; the text says why, `number` is the errno or 0."""

    def __init__(self, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.number = number


class Answer:
    """What came back: `status`, `headers` (lower-case names; repeated ones joined), `body`."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


def exchange(
    method: str, target: Target, headers: Headers, body: bytes | None, *, addresses: list[str], deadline: float
) -> Answer:
    """One request to the first of `addresses` that connects, ending at `deadline` (monotonic). Raises `Failed`."""
    try:
        sock = _dial(addresses, target, deadline)
        try:
            return _converse(sock, method, target, headers, body, deadline)
        finally:
            sock.close()
    except Failed:
        raise
    except (OSError, HTTPException, ValueError) as error:
        raise _failed(error) from error


@cache
def _tls() -> ssl.SSLContext:
    """The user's own trust (SSL_CERT_FILE is honoured); made once, since reading the certificates takes long."""
    return ssl.create_default_context()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(errno.ETIMEDOUT, os_text(errno.ETIMEDOUT))
    return left


def os_text(number: int) -> str:
    """The system's text for an errno, in lower case as our messages are."""
    import os

    text = os.strerror(number)
    return text[0].lower() + text[1:]


def _dial(addresses: list[str], target: Target, deadline: float) -> socket.socket:
    """A connection to the first address that takes one, under TLS for the target's name."""
    refused: OSError = ConnectionRefusedError(errno.EHOSTUNREACH, os_text(errno.EHOSTUNREACH))
    for address in addresses:
        try:
            sock = socket.create_connection((address, target.port), _left(deadline))
            break
        except TimeoutError:
            raise
        except OSError as error:
            refused = error
    else:
        raise refused
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if target.scheme == "https":
            sock.settimeout(_left(deadline))
            return _tls().wrap_socket(sock, server_hostname=target.host)
    except BaseException:
        sock.close()
        raise
    return sock


class _Reader(io.RawIOBase):
    """The receiving side, whose every wait ends at the deadline: a server that drips bytes cannot hold the call."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)


class _Wire:
    """What `HTTPConnection` needs of a socket. It cannot close it: the answer is read after the connection lets go."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._deadline))

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_left(self._deadline))
        self._sock.sendall(data)

    def close(self) -> None:
        pass


def _converse(
    sock: socket.socket, method: str, target: Target, headers: Headers, body: bytes | None, deadline: float
) -> Answer:
    connection = HTTPConnection(target.host, target.port)
    connection.sock = _Wire(sock, deadline)
    connection.putrequest(method, target.path, skip_host=True, skip_accept_encoding=True)
    for name, value in {"Host": target.authority, **headers, "Connection": "close"}.items():
        connection.putheader(name, value)
    if body is not None or method in ("POST", "PUT", "PATCH"):
        connection.putheader("Content-Length", str(len(body or b"")))
    connection.endheaders()
    if body:
        _send_body(connection, body)
    response = connection.getresponse()
    collected: Headers = {}
    for name, value in response.getheaders():
        key = name.lower()
        # The one field that must not be joined with commas (RFC 9110, 5.3).
        joint = "\n" if key == "set-cookie" else ", "
        collected[key] = collected[key] + joint + value if key in collected else value
    parts, total = [], 0
    while data := response.read(_AT_ONCE):
        total += len(data)
        if total > LIMIT:
            raise Failed(f"the answer's body is larger than {LIMIT} bytes", errno.EFBIG)
        parts.append(data)
    if response.length:
        # read(amount) does not tell a body that was cut from one that is complete.
        raise IncompleteRead(b"", response.length)
    return Answer(response.status, collected, b"".join(parts))


def _send_body(connection: HTTPConnection, body: bytes) -> None:
    """A server may answer, with 413 for one, and hang up before it has read everything: then its answer counts."""
    try:
        connection.send(body)
    except (BrokenPipeError, ConnectionResetError):
        pass


def _failed(error: Exception) -> Failed:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failed(f"the server's certificate is not valid: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return Failed(f"TLS failed: {(error.reason or str(error)).lower().replace('_', ' ')}")
    if isinstance(error, TimeoutError):
        return Failed("no complete answer in time", errno.ETIMEDOUT)
    if isinstance(error, RemoteDisconnected):
        return Failed("the server closed the connection without an answer", errno.ECONNRESET)
    if isinstance(error, IncompleteRead):
        return Failed("the answer ended before it was complete")
    if isinstance(error, OSError):
        number = error.errno or 0
        return Failed(os_text(number) if number > 0 else str(error), max(number, 0))
    return Failed(f"the answer is not valid HTTP ({type(error).__name__}: {str(error)[:200]!r})")
