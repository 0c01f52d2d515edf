"""Running a piece of a test in a forked child: confinement is for good, so it never happens to the test itself."""

from __future__ import annotations

import encodings.idna  # noqa: F401 (a child that has become another user may not reach the library any more)
import errno
import os
import pickle
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from kit.waiting import PATIENCE

from agentbox.guard.kernel import syscalls

ORDINARY = 65534
USERS = [
    pytest.param(os.getuid(), id="as-is"),
    pytest.param(
        ORDINARY, id="ordinary", marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can be another")
    ),
]


def in_child(work: Callable[[], Any], user: int = -1, timeout: int = PATIENCE) -> Any:
    """What `work` returned, or the exception that it raised, in a forked child that has become `user`."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        signal.alarm(timeout)
        try:
            become(user)
            result: Any = work()
        except BaseException as error:
            result = error
            if not isinstance(error, OSError):
                result = AssertionError("".join(traceback.format_exception(error)))
        with os.fdopen(writer, "wb") as file:
            pickle.dump(result, file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    status = os.waitpid(pid, 0)[1]
    if not data:
        raise AssertionError(f"the child ended with {os.waitstatus_to_exitcode(status)} and no result")
    result = pickle.loads(data)
    if isinstance(result, AssertionError):
        raise result
    return result


def become(user: int) -> None:
    """Be another user for good; the process stays dumpable, as a program that this user starts is."""
    if user not in (-1, os.getuid()):
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)


def attempt(work: Callable[[], Any]) -> str:
    """`ok`, or the name of the errno that `work` failed with."""
    try:
        work()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


@contextmanager
def folder_of(user: int) -> Iterator[Path]:
    """A folder that `user` owns, somewhere everybody can reach; removed at the end."""
    path = Path(mkdtemp(prefix="kernel-test-", dir="/tmp")).resolve()
    try:
        if user != os.getuid():
            os.chown(path, user, user)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
