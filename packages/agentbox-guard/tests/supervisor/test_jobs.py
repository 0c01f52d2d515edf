"""Threads of the supervisor: what waits for others does not keep work from being done."""

import errno
import threading

import pytest
from kit.waiting import comes

from agentbox.guard import jobs as module
from agentbox.guard.jobs import MOST_THREADS, Jobs


def collected(jobs, count, results):
    """Collect until there are `count` results."""
    while len(results) < count:
        assert comes(jobs.wake)
        jobs.collect()


def test_waits_leave_the_threads_to_work():
    """More waits than there are threads for work, and work is done at once."""
    jobs, results, gate = Jobs(), [], threading.Event()
    for _ in range(MOST_THREADS + 20):
        jobs.wait(gate.wait, results.append)
    done = []
    jobs.run(lambda: "worked", done.append)
    collected(jobs, 1, done)
    assert done == ["worked"] and not results
    gate.set()
    collected(jobs, MOST_THREADS + 20, results)
    assert results == [True] * (MOST_THREADS + 20) and jobs.running == 0
    jobs.close()


@pytest.mark.parametrize("by", ["number", "descriptors"])
@pytest.mark.parametrize("most", [0, 3])
def test_a_wait_too_many_is_refused(monkeypatch, most, by):
    """It gets EAGAIN, as whoever can have no thread; places become free again. Each needs four descriptors to spare."""
    if by == "number":
        monkeypatch.setattr(module, "MOST_WAITS", most)
    else:
        monkeypatch.setattr(module.os, "sysconf", {"SC_OPEN_MAX": 4 * most + 3}.__getitem__)
    jobs, results, gate = Jobs(), [], threading.Event()
    for _ in range(most + 1):
        jobs.wait(gate.wait, results.append)
    collected(jobs, 1, results)
    assert results[0].errno == errno.EAGAIN
    gate.set()
    collected(jobs, most + 1, results)
    if most:
        jobs.wait(lambda: "again", results.append)
        collected(jobs, most + 2, results)
        assert results[-1] == "again"
    assert jobs.running == 0
    jobs.close()
