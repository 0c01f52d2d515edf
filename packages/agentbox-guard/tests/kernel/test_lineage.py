"""Who counts as the agent, and what an exec must have become, with real processes."""

import ctypes
import os
import signal
import subprocess
import sys
import threading

import pytest
from confined_child import ORDINARY, in_child
from kit.waiting import wait_until

from agentbox.guard.kernel import syscalls
from agentbox.guard.kernel.lineage import Lineage, image
from agentbox.guard.kernel.process import stat_fields

CODE = "print('up', flush=True); input()"
NEXT = "import os, sys; print('up', flush=True); os.read(0, 1); os.execv(sys.argv[1], sys.argv[1:])"
ECHO = "/usr/bin/cat"


def stands():
    return True


def until(happened):
    """Wait for what another process is about to do."""
    wait_until(happened)


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


def lineage_of_this():
    """A lineage whose agent is this very process, looked at as after the launcher's exec."""
    lineage = Lineage(os.getpid())
    lineage.started = True
    assert lineage.waiting
    assert lineage.surprise(os.getpid(), os.getpid(), stands) == "" and not lineage.waiting
    return lineage


def test_forks_of_the_agent_are_the_agent_until_an_exec_was_seen():
    """A process that an exec was let through for is what it was, until another image is there."""
    lineage = lineage_of_this()
    made = forked(lambda: os.execv(sys.executable, [sys.executable, "-c", CODE]))
    with made:
        assert lineage.is_agent(os.getpid()) and lineage.is_agent(made.pid)
        lineage.expect(made.pid, made.pid, image(made.pid), [os.fsencode(sys.executable), b"-c", CODE.encode()])
        assert lineage.is_agent(made.pid)
        made.go()
        assert not lineage.is_agent(made.pid) and lineage.is_agent(os.getpid())
        assert lineage.surprise(made.pid, made.pid, stands) == "" and not lineage.waiting
        assert not lineage.is_agent(made.pid)


def is_cat(pid):
    """Whether the process has become `cat` as a whole: its arguments are there last."""
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read() == f"{ECHO}\0"


class forked:
    """A child of this process without an exec of its own, which calls `then` when it is told to `go`."""

    def __init__(self, then):
        down, self._down = os.pipe()
        self._up, up = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.read(down, 1)
                os.dup2(down, 0)
                os.dup2(up, 1)
                then()
            finally:
                os._exit(1)
        os.close(down)
        os.close(up)

    def go(self):
        """Tell it, and wait for the line that it prints; returns that."""
        os.write(self._down, b"x")
        return os.read(self._up, 100).decode().strip()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self._down)
        os.close(self._up)


def fork_and_become_cat():
    """Fork a child that waits, tell its number and its parent's, and become `cat`."""
    child = os.fork()
    if child == 0:
        signal.pause()
    os.write(1, b"%d\n" % child)
    os.execv(ECHO, [ECHO])


def test_a_child_from_before_its_parents_exec_is_the_agent():
    """What a process becomes after it has forked says nothing of its child; nor does it when the parent is gone."""
    lineage = lineage_of_this()
    with forked(fork_and_become_cat) as made:
        lineage.expect(made.pid, made.pid, identity(ECHO), [ECHO.encode()])
        child = int(made.go())
        try:
            until(lambda: is_cat(made.pid))
            assert not lineage.is_agent(made.pid) and lineage.is_agent(child)
            assert lineage.surprise(made.pid, made.pid, stands) == ""
            assert not lineage.is_agent(made.pid) and lineage.is_agent(child)
            os.kill(made.pid, 9)
            until(lambda: stat_fields(child)[1] != str(made.pid))
            assert lineage.is_agent(child)
        finally:
            os.kill(child, 9)


def test_the_agents_own_program_anew_is_another_and_so_are_its_orphans():
    """By an exec of its own a process has another layout; its children have it too, whoever is their parent."""
    lineage = lineage_of_this()
    code = "import os, signal; pid = os.fork()\nif pid: print(pid, flush=True)\nelse: signal.pause()"
    made = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    orphan = int(made.stdout.readline())
    made.wait()
    try:
        assert image(orphan) == image(os.getpid()) and not lineage.is_agent(orphan)
    finally:
        os.kill(orphan, 9)
        made.communicate()


def test_another_image_than_the_agents_came_through_an_exec():
    """Even when who started it is gone: only an allowed exec can have changed the program."""
    lineage = lineage_of_this()
    assert lineage.is_agent(os.getpid())
    other = subprocess.Popen(["sleep", "10"])
    try:
        until(lambda: image(other.pid) != image(os.getpid()))
        assert not lineage.is_agent(other.pid)
    finally:
        other.kill()
        other.wait()


def hide():
    """Have /proc tell an ordinary user nothing any more, then wait."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    os.write(1, b"hidden\n")
    signal.pause()


def test_who_hides_proves_nothing():
    """An exec that fails, while the program makes itself unreadable, does not make it another one."""

    def scene():
        lineage = lineage_of_this()
        with forked(hide) as made:
            lineage.expect(made.pid, made.pid + 1, None, [b"x"])
            assert made.go() == "hidden" and image(made.pid) is None
            lineage.surprise(made.pid, made.pid, stands)
            return lineage.is_agent(made.pid)

    assert in_child(scene, ORDINARY if os.getuid() == 0 else -1)


def end_of_the_main_thread():
    """The process goes on in another thread, and shows as a zombie."""

    def rest():
        until(lambda: stat_fields(os.getpid())[0] == "Z")
        os.write(1, b"ended\n")
        while os.read(0, 1) != b"x":
            pass
        os.execv(ECHO, [ECHO])

    threading.Thread(target=rest, daemon=True).start()
    ctypes.CDLL(None).syscall(ctypes.c_long({"x86_64": 60, "aarch64": 93}[os.uname().machine]), 0)  # exit of a thread


def test_a_start_is_waited_for_though_the_main_thread_has_ended():
    """What looks like a zombie may still execute: the check of its start is not given up, nor is it another program."""
    lineage = lineage_of_this()
    with forked(end_of_the_main_thread) as made:
        assert made.go() == "ended" and image(made.pid) is None
        lineage.expect(made.pid, made.pid + 1, identity("/usr/bin/env"), [])
        assert lineage.others(os.getpid()) == [] and lineage.waiting and lineage.is_agent(made.pid)
        os.write(made._down, b"x\n")
        until(lambda: is_cat(made.pid))
        assert lineage.others(os.getpid()) == [made.pid]


def test_a_number_that_is_given_out_again_proves_nothing():
    """What was looked at is known by its number and the start of its life."""
    lineage = lineage_of_this()
    with forked(signal.pause) as made:
        lineage._programs[made.pid] = str(int(stat_fields(made.pid)[19]) - 1)
        assert lineage.is_agent(made.pid)
        lineage._programs[made.pid] = stat_fields(made.pid)[19]
        assert not lineage.is_agent(made.pid)


def test_an_unknown_process_counts_as_the_agent():
    """Strictness is the safe side."""
    assert lineage_of_this().is_agent(2**22 + 1)


def test_only_the_thread_of_a_failed_exec_ends_the_wait(child):
    """Another thread's call says nothing: the exec may be about to happen; and a failed exec lets nobody in."""
    lineage = lineage_of_this()
    lineage.expect(child.pid, child.pid, (1, 1), [b"x"])
    assert lineage.surprise(child.pid, child.pid + 1, stands) == "" and lineage.waiting
    assert lineage.surprise(child.pid, child.pid, lambda: False) == "" and lineage.waiting
    assert lineage.surprise(child.pid, child.pid, stands) == "" and not lineage.waiting
    assert child.pid not in lineage._programs


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
    lineage = lineage_of_this()
    lineage.expect(child.pid, child.pid + 1, program, tail, whole=whole)
    become(child)
    found = lineage.surprise(child.pid, child.pid, stands)
    assert said in found and bool(said) == bool(found)
    assert (child.pid in lineage._programs) == (not said)


def test_an_image_that_makes_no_call_is_found_by_the_calls_of_others(child):
    """And so is what it has started before: it is of the same file, and no decided start lies behind it."""
    lineage = lineage_of_this()
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
    lineage = lineage_of_this()
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
