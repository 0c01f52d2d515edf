"""Who counts as the agent, and what an exec must have become, with real processes."""

import os
import subprocess
import sys

import pytest

from agentbox.guard.kernel.lineage import Lineage, image
from agentbox.guard.kernel.process import stat_fields

CODE = "print('up', flush=True); input()"
NEXT = "import os, sys; print('up', flush=True); os.read(0, 1); os.execv(sys.argv[1], sys.argv[1:])"
ECHO = "/usr/bin/cat"


def stands():
    return True


@pytest.fixture
def child():
    """A process that waits, of this interpreter, and then becomes `cat`, which waits as well."""
    made = subprocess.Popen(
        [sys.executable, "-c", NEXT, ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert made.stdout.readline() == b"up\n"
    yield made
    made.kill()
    made.communicate()


def become(child):
    child.stdin.write(b"\nthere\n")
    assert child.stdout.readline() == b"there\n"


def identity(path):
    info = os.stat(path)
    return info.st_dev, info.st_ino


def test_forks_of_the_agent_are_the_agent_until_an_exec_was_seen():
    """A process that an exec was let through for is what it was, until another image is there."""
    lineage = Lineage(os.getpid())
    made = subprocess.Popen(
        [sys.executable, "-c", NEXT, sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert made.stdout.readline() == b"up\n"
        assert lineage.is_agent(os.getpid()) and lineage.is_agent(made.pid)
        lineage.expect(made.pid, made.pid, image(made.pid), [os.fsencode(sys.executable), b"-c", CODE.encode()])
        assert lineage.is_agent(made.pid)
        made.stdin.write(b"\n")
        made.stdin.flush()
        assert made.stdout.readline() == b"up\n"
        assert not lineage.is_agent(made.pid) and lineage.is_agent(os.getpid())
        assert lineage.surprise(made.pid, made.pid, stands) == "" and not lineage.waiting
        assert not lineage.is_agent(made.pid)
    finally:
        made.communicate(b"\n")


def test_another_image_than_the_agents_came_through_an_exec():
    """Even when who started it is gone: only an allowed exec can have changed the program."""
    lineage = Lineage(os.getpid())
    assert lineage.is_agent(os.getpid())
    other = subprocess.Popen(["sleep", "10"])
    try:
        while image(other.pid) == image(os.getpid()):
            pass
        assert not lineage.is_agent(other.pid)
    finally:
        other.kill()
        other.wait()


def test_an_unknown_process_counts_as_the_agent():
    """Strictness is the safe side."""
    assert Lineage(os.getpid()).is_agent(2**22 + 1)


def test_only_the_thread_of_a_failed_exec_ends_the_wait(child):
    """Another thread's call says nothing: the exec may be about to happen; and a failed exec leaves the agent."""
    lineage = Lineage(os.getpid())
    lineage.expect(child.pid, child.pid, (1, 1), [b"x"])
    assert lineage.surprise(child.pid, child.pid + 1, stands) == "" and lineage.waiting
    assert lineage.surprise(child.pid, child.pid, lambda: False) == "" and lineage.waiting
    assert lineage.surprise(child.pid, child.pid, stands) == "" and not lineage.waiting
    assert lineage.is_agent(child.pid)


@pytest.mark.parametrize(
    ("program", "tail", "whole", "said"),
    [
        (identity("/usr/bin/env"), [ECHO.encode()], True, "another than the one"),
        (identity(ECHO), [b"other"], True, "arguments were others"),
        (identity(ECHO), [ECHO.encode()], True, ""),
        (identity(ECHO), [ECHO.encode()], False, ""),
        (identity(ECHO), [b"script", ECHO.encode()], False, "arguments were others"),
        (None, [ECHO.encode()], True, "another than the one"),
    ],
)
def test_a_new_image_must_be_the_one_decided_on(child, program, tail, whole, said):
    """Its program and arguments; what is another is not taken for an allowed one, whoever's call shows it."""
    lineage = Lineage(os.getpid())
    lineage.expect(child.pid, child.pid + 1, program, tail, whole=whole)
    become(child)
    found = lineage.surprise(child.pid, child.pid, stands)
    assert said in found and bool(said) == bool(found)
    assert (child.pid in lineage._programs) == (not said)


def test_an_image_that_makes_no_call_is_found_by_the_calls_of_others(child):
    """And so is what it has started before: it is of the same file, and no decided start lies behind it."""
    lineage = Lineage(os.getpid())
    lineage.expect(child.pid, child.pid, identity("/usr/bin/env"), [])
    assert lineage.others(os.getpid()) == []
    become(child)
    assert lineage.others(child.pid) == []
    assert lineage.others(os.getpid()) == [child.pid]
    assert "another than" in lineage.surprise(child.pid, child.pid, stands)
    lineage._programs[child.pid] = stat_fields(child.pid)[19]  # as if another start of that file had been decided on
    assert lineage.surprise(child.pid, child.pid, stands) == ""


def test_memory_that_is_gone_tells_of_an_exec_by_itself():
    """The same program with the same place of its stack, as without address randomisation, is another image."""
    lineage = Lineage(os.getpid())
    fixed = ["setarch", "-R", sys.executable, "-c", NEXT, sys.executable, "-c", NEXT, sys.executable]
    made = subprocess.Popen(fixed, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert made.stdout.readline() == b"up\n"
        lineage.expect(made.pid, made.pid, image(made.pid), [b"other"])
        (start,) = lineage._starts[made.pid].values()
        made.stdin.write(b"\n")
        made.stdin.flush()
        assert made.stdout.readline() == b"up\n"
        assert not start._lives()
        assert "arguments" in lineage.surprise(made.pid, made.pid, stands)
    finally:
        made.kill()
        made.communicate()
