"""Socket objects of descriptors. The descriptor may be anything, as a program names it: nothing is left open when it is
no socket.

`socket(fileno=...)` does not take a descriptor over when it fails, and whoever asks a hundred times for what is no
socket would use up the supervisor's descriptors.
"""

from __future__ import annotations

import os
from _socket import socket as Socket  # the module around it loads enum and selectors, 3 ms of a start


def owned(descriptor: int) -> Socket:
    """The socket that `descriptor` is, which it takes over and closes if it is none. Raises `OSError` (ENOTSOCK)."""
    try:
        return Socket(fileno=descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def twin(descriptor: int) -> Socket:
    """A socket of a duplicate: `descriptor` stays the caller's. Raises `OSError` (ENOTSOCK, EMFILE)."""
    return owned(os.dup(descriptor))
