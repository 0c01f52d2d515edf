"""Core files: a program that crashes leaves none, wherever it may write, and hands none to a program of the host."""

import os
import resource
import sys

import pytest
from bench import MACHINES, Bench

from agentbox.guard.kernel import callnumbers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

CRASH = """
    import ctypes, json, os, resource, sys
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    told = {"limit": hard}
    libc = ctypes.CDLL(None)
    none = (ctypes.c_ulong * 2)(0, 0)
    acts = {
        "soft": lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
        "hard": lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, resource.RLIM_INFINITY)),
        "wrong": lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, 0)),
    }
    if sys.argv[1:]:
        acts |= {
            "none": lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
            "of a child": lambda: resource.prlimit(0, resource.RLIMIT_CORE, (0, 0)),
            "of its own": lambda: resource.prlimit(os.getpid(), resource.RLIMIT_CORE, (0, 0)),
            "by its number": lambda: 1 / (libc.syscall(int(sys.argv[1]), 4, none) == 0),
        }
    for name, act in acts.items():
        try:
            act()
            told[name] = 0
        except (OSError, ValueError, ArithmeticError):
            told[name] = 1
    told["left"] = resource.getrlimit(resource.RLIMIT_CORE)
    told["other"] = resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE) == resource.getrlimit(resource.RLIMIT_NOFILE)
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
    """The limit of one byte, at which the kernel starts no program for a core either (core(5)), cannot be raised, nor
    lowered to nothing, at which it does; a program that lowers it sees that it got no core files.
    """
    bench = Bench(tmp_path, CRASH, "write: .\n")
    setrlimit = callnumbers.table(os.uname().machine)["setrlimit"]
    inside = bench.told(bench.boxed(setrlimit, without=lacking), lacking)
    assert inside == {
        "limit": 1, "soft": 0, "hard": 1, "wrong": 1, "none": 0, "of a child": 0, "of its own": 0,
        "by its number": 0, "left": [1, 1], "other": True,
    }  # fmt: skip
    outside = bench.told(bench.bare(setrlimit))
    assert [outside[name] for name in ("none", "of a child", "of its own", "by its number")] == [0, 0, 0, 0]
    assert outside["left"] == [0, 0]
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
