"""Who counts as the agent, and what an exec must have become, with real processes."""

import os
import subprocess
import sys

import pytest

from agentbox.guard.kernel.lineage import Lineage, image

CODE = "print('up', flush=True); input()"


@pytest.fixture
def child():
    """A process that waits, of this interpreter."""
    made = subprocess.Popen([sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert made.stdout.readline() == b"up\n"
    yield made.pid
    made.communicate(b"\n")


def test_forks_of_the_agent_are_the_agent_and_its_programs_are_not(child):
    """A process is the agent's own until an exec is let through for it."""
    lineage = Lineage(os.getpid())
    assert lineage.is_agent(os.getpid()) and lineage.is_agent(child)
    lineage.expect(child, image(child), [])
    assert not lineage.is_agent(child) and lineage.is_agent(os.getpid())


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


def test_a_failed_exec_is_no_surprise_and_another_program_is(child):
    """The stack's place tells whether an image is new; a new one must be the program and arguments decided on."""
    lineage = Lineage(os.getpid())
    lineage.expect(child, (1, 1), [b"x"])
    assert lineage.waiting and lineage.surprise(child) == ""  # still the old image: the exec has failed
    assert not lineage.waiting
    for program, argv, said in (
        ((1, 1), [], "another than the one"),
        (image(child), [b"other"], "arguments were others"),
        (image(child), [os.fsencode(sys.executable), b"-c", CODE.encode()], ""),
        (None, [b"script", b"-c", CODE.encode()], ""),
    ):
        lineage.expect(child, program, argv)
        lineage._starts[child].before = "0"  # as if the exec had happened
        found = lineage.surprise(child)
        assert said in found and bool(said) == bool(found)
