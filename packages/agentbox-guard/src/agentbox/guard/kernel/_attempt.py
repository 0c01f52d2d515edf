"""Trying something that changes the process for good: in a forked child, so that a probe has no side effect.

It never reports success for an attempt whose end it did not see.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def in_container() -> bool:
    """Whether this looks like the inside of a container, whose rules are in the way of much."""
    return os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv")


def tried(attempt: Callable[[], None]) -> str:
    """Run `attempt` in a forked child; "" when it returned, else the error that it raised, as one clause."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = "it did not return"
        try:
            attempt()
            text = ""
        except OSError as error:
            text = error.strerror or str(error)
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, text.encode("utf-8", "replace")[:4000])
            os._exit(1 if text else 0)
    os.close(writer)
    report = b""
    while chunk := os.read(reader, 4096):
        report += chunk
    os.close(reader)
    status = os.waitpid(pid, 0)[1]
    if status and not report:
        return f"the attempt ended with status {os.waitstatus_to_exitcode(status)}"
    return report.decode("utf-8", "replace")
