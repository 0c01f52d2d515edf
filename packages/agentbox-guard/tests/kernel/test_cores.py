"""Core files: a program that crashes leaves none, wherever it may write, and hands none to a program of the host."""

import os
import resource
import sys

import pytest
from bench import MACHINES, Bench

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

CRASH = """
    import json, os, resource
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    told = {"limit": hard}
    for name, limit in (("soft", (hard, hard)), ("hard", (hard, resource.RLIM_INFINITY))):
        try:
            resource.setrlimit(resource.RLIMIT_CORE, limit)
            told[name] = 0
        except (OSError, ValueError):
            told[name] = 1
    print(json.dumps(told), flush=True)
    os.abort()
"""


def pattern():
    try:
        with open("/proc/sys/kernel/core_pattern") as file:
            return file.read().strip()
    except OSError:
        return "|"


@pytest.mark.parametrize("lacking", MACHINES)
def test_a_crash_leaves_no_core_file(tmp_path, lacking):
    """The limit of one byte, at which the kernel starts no program for a core either (core(5)), cannot be raised."""
    bench = Bench(tmp_path, CRASH, "write: .\n")
    inside = bench.told(bench.boxed(without=lacking), lacking)
    assert inside == {"limit": 1, "soft": 0, "hard": 1}
    assert os.listdir(bench.ws) == []


@pytest.mark.skipif("/" in pattern() or pattern().startswith(("|", "@")), reason="cores do not lie where they are made")
@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_CORE)[1] in (0, 1), reason="core files are off")
def test_the_same_crash_leaves_one_without_agentbox(tmp_path):
    """The program raises its own limit."""
    bench = Bench(tmp_path, CRASH)
    assert bench.told(bench.bare())["soft"] == 0
    assert os.listdir(bench.ws) != []


def test_a_lower_limit_of_the_caller_stays(tmp_path):
    """Nobody may raise a hard limit, and the run starts all the same."""
    bench = Bench(tmp_path, CRASH)
    command = ["bash", "-c", 'ulimit -c 0; exec "$@"', "-", *bench.boxed()]
    assert bench.told(command)["limit"] in (0, 1)
