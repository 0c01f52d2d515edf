"""Arguments that no handler expects: the call is refused and recorded, and the run goes on."""

import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from kit.waiting import PATIENCE

from agentbox.guard.kernel import landlock, netns, seccomp
from agentbox.guard.kernel.wall import Wall

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()

ODD = """
import ctypes, errno, struct
libc = ctypes.CDLL(None, use_errno=True)
for flags in (1 << 31, 1 << 32, 1 << 63):
    how = struct.pack("=3Q", flags, 0, 0)
    found = libc.syscall(437, -100, b"f", how, 24)
    print(found < 0 and errno.errorcode[ctypes.get_errno()])
print(open("f").read())
"""


@pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")
def test_flags_that_no_open_has_end_nothing(tmp_path):
    """openat2(2) with bits beyond an int: the kernel's own error, and the program goes on."""
    (tmp_path / "f").write_text("x")
    (tmp_path / "program.py").write_text(ODD)
    command = [sys.executable, "-I", "program.py"]
    bare = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    (tmp_path / "agentbox.policy").write_text("read: .\n")
    box = [sys.executable, "-m", "agentbox.cli", "run", "--", *command]
    done = subprocess.run(box, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert bare.stdout.split() == ["EINVAL"] * 3 + ["x"]
    assert (done.stdout.split(), done.returncode) == (bare.stdout.split(), 0), done.stderr


@pytest.mark.parametrize("error", [KeyError(3), OverflowError("too large"), ValueError("no")])
def test_a_handler_that_fails_refuses_its_call(error):
    """Whatever a handler stumbles over is a recorded refusal of this one call."""
    told, answered = [], []

    def handler(box, call, name):
        raise error

    wall = Wall.__new__(Wall)
    wall._arch, wall._handlers, wall._names = 1, {7: (handler, "openat")}, {7: "openat"}
    wall._loop = SimpleNamespace(connected=False, lazy=False)
    wall.lineage = SimpleNamespace(waiting=False)
    wall.box = SimpleNamespace(
        ids=lambda call: SimpleNamespace(process=42),
        scribe=SimpleNamespace(deny=lambda pid, op, args, denial: told.append((pid, op, args, denial.reason))),
    )
    wall.listener = SimpleNamespace(fail=lambda call, code: answered.append(code))
    wall.take(SimpleNamespace(receive=lambda: SimpleNamespace(pid=42, number=7, arch=1)))
    assert answered == [errno.EINVAL]
    ((pid, op, args, reason),) = told
    assert (pid, op, args) == (42, "sys.call", {"name": "openat"}) and type(error).__name__ in reason


def test_what_cannot_be_recorded_still_ends_the_run():
    """A full disk is no refusal: it reaches whoever ends the run."""
    from agentbox.trace import TraceError

    def handler(box, call, name):
        raise TraceError("full", code="full")

    wall = Wall.__new__(Wall)
    wall._arch, wall._handlers, wall._names = 1, {7: (handler, "openat")}, {7: "openat"}
    wall._loop = SimpleNamespace(connected=False, lazy=False)
    wall.lineage = SimpleNamespace(waiting=False)
    wall.box = None
    with pytest.raises(TraceError):
        wall.take(SimpleNamespace(receive=lambda: SimpleNamespace(pid=os.getpid(), number=7, arch=1)))


def test_a_process_that_is_ended_is_told_of_once():
    """It may be met again between the signal and its end; another one by its number is told of."""
    told = []
    wall = Wall.__new__(Wall)
    wall._ended = {}
    wall.box = SimpleNamespace(
        scribe=SimpleNamespace(deny=lambda pid, op, args, denial: told.append(pid), flush=lambda: None)
    )
    with subprocess.Popen(["sleep", "60"]) as one:
        wall._end(one.pid, "other")
        wall._end(one.pid, "other")  # not waited for, so it is there still
        assert told == [one.pid]
        wall._ended[one.pid] += 1
        wall._end(one.pid, "other")
    assert told == [one.pid] * 2 and one.returncode == -9
