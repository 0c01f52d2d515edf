"""JSON lines over the socket between the replaying process and its scratch process.

It never interprets a message, and both ends are ours: a line that is not JSON is a defect and raises.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any


class Channel:
    """One end of the socket pair; blocking, one message at a time."""

    __slots__ = ("_reader", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._reader = sock.makefile("rb")

    def send(self, message: dict[str, Any]) -> None:
        """Send one message. Raises `OSError` when the other end is gone."""
        # The default ASCII form carries names that are not UTF-8 as escaped surrogates (PEP 383).
        self._socket.sendall(json.dumps(message).encode("ascii") + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The next message, or None when the other end is gone."""
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            return None
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Close this end; twice does no harm."""
        self._reader.close()
        self._socket.close()
