"""The one error of this package: what went wrong with a trace, as one line that a user can act on.

It must never carry a traceback for text, and nothing in this package raises anything else on purpose.
"""

from __future__ import annotations

import errno
import os


class TraceError(Exception):
    """Something is wrong with a trace, a blob or a use of them.

    `str(error)` is one line: place, what was got, what was expected. `code` is stable and meant for programs
    (`exists`, `not-a-trace`, `io`, `full`, `sealed`, `usage`, `value`, `too-long`, `torn`, `blob`, `changed`,
    `malformed`, `moved`, `export`); `hint` is the way out, or empty.
    """

    def __init__(self, text: str, *, code: str = "io", hint: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.hint = hint


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def shown(path: str | bytes | os.PathLike[str]) -> str:
    """Return a path as one printable line, whatever bytes it holds."""
    text = os.fsdecode(path)
    return text if text.isprintable() else ascii(text)[1:-1]


def from_os(place: str, doing: str, error: OSError, *, hint: str = "") -> TraceError:
    """Translate an operating system error at the border: `place` is a path, `doing` what was attempted ("cannot be
    opened"), `hint` the way out where the error itself names none."""
    reason = (error.strerror or str(error)).lower()
    if error.errno == errno.ELOOP:
        return TraceError(
            f"{shown(place)}: {doing}: it is a symbolic link, expected a regular file",
            code="io",
            hint="name the file itself",
        )
    if error.errno in FULL:
        return TraceError(f"{shown(place)}: {doing}: {reason}", code="full", hint="free some space and run again")
    return TraceError(f"{shown(place)}: {doing}: {reason}", code="io", hint=hint)
