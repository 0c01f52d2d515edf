"""The reader: the entries of a trace, one at a time, with flat memory.

It must never say that a chain holds; whoever needs that asks `verify` first.
"""

from __future__ import annotations

import os

from .chain import MAX_LINE, is_seal
from .errors import TraceError, from_os, shown
from .files import open_trace
from .record import parse, too_long

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from .record import Entry

_POLL = 0.1  # seconds between two looks at a trace that is being written


def read(path: str | os.PathLike[str], *, follow: bool = False) -> Iterator[Entry]:
    """Yield the entries of the trace at `path`, in order.

    With `follow`, wait for further entries until the seal arrives. Raises `TraceError`: `io` for a file that cannot
    be read, `not-a-trace` or `malformed` for a line that is no entry (with its number and what was expected), `torn`
    for a last line without its LF, after all entries before it were yielded, `too-long`.
    """
    name = os.fspath(path)
    place = shown(name)
    with open(open_trace(name), "rb", buffering=1 << 18) as file:
        for number, raw in enumerate(_lines(file, name, follow), 1):
            if len(raw) > MAX_LINE:
                raise too_long(f"{place}: line {number}", len(raw))
            entry = parse(raw, number, place)
            yield entry
            if follow and entry.op == "run.end" and is_seal(raw):
                return


def _lines(file: BinaryIO, name: str, follow: bool) -> Iterator[bytes]:
    """Yield raw lines; a last one without its LF only when nothing more can come."""
    rest = b""
    done = 0
    while True:
        try:
            raw = file.readline(MAX_LINE + 1 - len(rest))
        except OSError as error:
            raise from_os(name, "cannot be read", error) from None
        done += len(raw)
        raw = rest + raw
        if raw.endswith(b"\n") or len(raw) > MAX_LINE:
            rest = b""
            yield raw
        elif follow:
            rest = raw
            _wait(file, name, done)
        else:
            if raw:
                yield raw
            return


def _wait(file: BinaryIO, name: str, done: int) -> None:
    from time import sleep

    if os.fstat(file.fileno()).st_size < done:
        raise TraceError(
            f"{shown(name)}: became shorter while it was followed", code="changed", hint="see `agentbox verify`"
        )
    sleep(_POLL)
