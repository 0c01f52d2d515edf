"""Waiting in tests: the one place that sleeps or reads a clock. No bound here decides what a test says of a sound
product: what is waited for comes long before `PATIENCE` is over, on however loaded a machine.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
PATIENCE = 120
"""Seconds after which what has not come is taken to never come."""
POLLED = """
def wait_until(condition, patience=120):
    import time
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)
"""
"""`wait_until` as source text, for an agent's program that may import nothing of the tests."""


def wait_until(condition: Callable[[], T], what: str = "", patience: float = PATIENCE) -> T:
    """Wait for a true value of `condition`, and return it. Fails, naming `what`, when it never comes."""
    end = time.monotonic() + patience
    while not (value := condition()):
        if time.monotonic() > end:
            pytest.fail(f"waited {patience} s in vain{what and ' for ' + what}")
        time.sleep(0.005)
    return value


def holds(condition: Callable[[], Any], seconds: float = 0.3) -> bool:
    """Whether `condition` holds now and for a while: for what must not happen. A slow machine only looks less often."""
    end = time.monotonic() + seconds
    while condition():
        if time.monotonic() > end:
            return True
        time.sleep(0.01)
    return False


def comes(descriptor: Any, patience: float = PATIENCE) -> bool:
    """Whether there is something to read, an end of file among it."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(patience * 1000))


def read_until(descriptor: int, text: bytes, seen: bytes = b"") -> bytes:
    """All that is read from a descriptor, a terminal's or a pipe's, until `text` is in it or nothing follows."""
    while text not in seen:
        if not comes(descriptor):
            pytest.fail(f"waited {PATIENCE} s in vain for {text!r}: {seen!r}")
        try:
            more = os.read(descriptor, 65536)
        except OSError:  # EIO: nobody has the terminal open any more
            break
        if not more:
            break
        seen += more
    return seen


def joined(*threads: threading.Thread) -> bool:
    """Whether all threads have ended; they are given their time."""
    for thread in threads:
        thread.join(PATIENCE)
    return not any(thread.is_alive() for thread in threads)


def has_ended(pid: int) -> bool:
    """Whether a process has ended: it is gone, or nobody has waited for it yet (proc_pid_stat(5))."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def in_seconds(seconds: float) -> float:
    """The time of the monotonic clock so many seconds from now, as a deadline for what takes one."""
    return time.monotonic() + seconds


def seconds_of(act: Callable[[], T]) -> tuple[float, T]:
    """How long an act took, and its result: for an act that goes on for ever when the product is wrong."""
    began = time.monotonic()
    result = act()
    return time.monotonic() - began, result


def won(attempt: Callable[[], T], tries: int, what: str) -> T:
    """The first true value of an attempt at a race. Skips the test by name if no try has won."""
    for _ in range(tries):
        if value := attempt():
            return value
    pytest.skip(f"{what}: not won in {tries} tries on this machine")
