"""Numbers of processes that have ended and were given to others: nobody is taken for another, and nobody is ended."""

import os
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from kit.waiting import won

from agentbox.guard.family import Family
from agentbox.guard.kernel.announced import Announced
from agentbox.guard.kernel.scribe import Scribe
from agentbox.guard.kernel.traps import peers
from agentbox.guard.session import Denial

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")


def test_a_peers_number_is_who_it_was_when_the_connection_was_made():
    """A child's number stands for the asker, until it is a living process's; what the kernel does not tell is known."""
    family = SimpleNamespace(has=lambda pid: pid in (500, 600))
    askers = SimpleNamespace(ids=lambda pid: SimpleNamespace(inner=pid - 490))
    known = {(500, 0): 3}
    box = SimpleNamespace(peers=known, acting=set(), desk=SimpleNamespace(family=family), askers=askers, pidns=True)

    def inner(pid, lives):
        return peers._inner(box, pid, lambda: (lives, 0))

    assert inner(500, False) == inner(500, None) == 3
    assert inner(500, True) == 10
    box.acting.add(500)  # the child itself is still there
    assert inner(500, True) == 3
    assert inner(600, True) == inner(600, None) == 110
    assert inner(600, False) == 0  # it has ended, and another one has its number
    assert inner(700, True) == 0
    box.pidns = False
    assert inner(700, True) == 700


def test_a_child_that_ends_while_it_is_asked_for_is_no_other_process():
    """It was still there when its connection was looked at, and another has its number a moment later."""
    box = SimpleNamespace(peers={(500, 0): 3}, acting={500}, pidns=True)

    def ended():
        box.acting.discard(500)
        return True, 0

    assert peers._inner(box, 500, ended) == 3


def test_a_number_of_two_children_is_each_of_them():
    """The connection of the first is asked for when the number is the second's, which is there or has ended as well."""
    box = SimpleNamespace(peers={(500, 71): 3, (500, 72): 4, (500, 0): 4}, acting=set(), pidns=True)
    box.desk = SimpleNamespace(family=SimpleNamespace(has=lambda pid: False))
    for acting in (set(), {500}):
        box.acting = acting
        assert [peers._inner(box, 500, lambda inode=inode: (False, inode)) for inode in (71, 72)] == [3, 4]
        assert peers._inner(box, 500, lambda: (True, 73)) == 0  # some other process that had the number


@pytest.mark.skipif(os.geteuid() != 0, reason="only root chooses the number of a process (proc(5), ns_last_pid)")
def test_two_children_of_one_number_stand_for_whom_each_of_them_did(tmp_path):
    """Two connections are made before anybody asks, by children that had the same number one after the other."""
    if not peers._inode_of(os.getppid()):
        pytest.skip("all pidfds have one inode here (before Linux 6.9)")
    askers, family = SimpleNamespace(ids=lambda pid: SimpleNamespace(inner=pid)), SimpleNamespace(has=lambda pid: False)
    desk = SimpleNamespace(family=family)

    def connected(box, server, name):
        """Connect in the name of a process, and return the number that the kernel has noted, and the other end."""
        with socket.socket(socket.AF_UNIX) as one:
            peers.act_as(box, name, lambda: one.connect(server.getsockname()))
        other = server.accept()[0]
        return struct.unpack("=iII", other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0], other

    def met():
        box = SimpleNamespace(peers={}, acting=set(), askers=askers, desk=desk, pidns=True)
        with ExitStack() as stack:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind("")  # an abstract name of the kernel's choice (unix(7))
            server.listen()
            number, first = connected(box, server, 3)
            stack.enter_context(first)
            with open("/proc/sys/kernel/ns_last_pid", "w") as file:
                file.write(str(number - 1))
            again, second = connected(box, server, 4)
            stack.enter_context(second)
            found = [peers._inner(box, number, lambda one=one: peers._peer(one)) for one in (first, second)]
            return found if number == again else None

    assert won(met, 200, "a number that is given out again") in ([3, 4], [0, 4])  # 0: not told (before Linux 6.16)


def test_children_in_whose_name_nobody_asks_any_more_are_forgotten(monkeypatch):
    """A run may make any number of connections."""
    monkeypatch.setattr(peers, "_MOST_KNOWN", 6)  # two for each child
    monkeypatch.setattr(peers, "_inode_of", lambda child: child)
    box = SimpleNamespace(peers={}, acting=set(), askers=SimpleNamespace(ids=lambda pid: SimpleNamespace(inner=pid)))
    for number in range(5):
        peers.act_as(box, number, lambda: None)
    assert sorted(box.peers.values()) == [2, 2, 3, 3, 4, 4]
    assert not box.acting


def test_what_one_process_was_told_of_is_told_of_the_next_by_its_number():
    """A denial is recorded once for each process, and not for a number."""
    denied = []
    session = SimpleNamespace(deny=lambda event, denial: denied.append(event.lane))
    number = [0]
    processes = SimpleNamespace(seen=lambda pid: SimpleNamespace(number=number[0]))
    scribe = Scribe(session, processes, Announced(), {}, observing=False, reads=True, begin=lambda: None)
    for _ in range(2):
        for _ in range(2):
            scribe.deny_once(9, "sys.call", "ptrace", {"name": "ptrace"}, Denial("call", "ptrace", "no"))
        number[0] += 1
    assert denied == ["0.0", "1.0"]


def test_only_processes_of_the_run_are_ended_by_their_number():
    """A program of an SDK call that has ended may have left its number to anybody."""
    foreign = subprocess.Popen(["sleep", "600"])
    own = subprocess.Popen(["sh", "-c", "sleep 600 & wait"])
    try:
        family = Family(own.pid)
        family.end_tree(foreign.pid)
        family.end_tree(own.pid)
        assert own.wait() == -9 and foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()
