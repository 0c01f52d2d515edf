"""Programs that multiply and leave their parents: all end with the run, with a process namespace and without one."""

import subprocess

import pytest
from bench import MACHINES, Bench
from kit.waiting import PATIENCE, comes

HOPS = """
    import os, sys
    def hop():
        for _ in range(10**6):
            if os.path.exists("stop"):
                break
            if os.fork():
                os._exit(0)
    for number in range(4):
        if not os.fork():
            os.setsid()
            hop()
            os._exit(0)
    print("over", flush=True)
"""


@pytest.mark.attempt("P10", "P11")
@pytest.mark.parametrize("lacking", MACHINES)
def test_what_flees_from_process_to_process_ends_with_the_run(tmp_path, lacking):
    """Each is gone before anybody has its number; the end of the output tells that none is left."""
    bench = Bench(tmp_path, HOPS)
    with subprocess.Popen(bench.bare(), cwd=bench.ws, stdout=subprocess.PIPE) as bare:
        try:
            assert bare.stdout.readline() == b"over\n" and bare.wait() == 0
            assert not comes(bare.stdout, 0.5)  # whoever is left has it open
        finally:
            (bench.ws / "stop").touch()
    command = bench.boxed(without=lacking)
    (bench.ws / "stop").unlink()
    try:  # they get more than their share of a processor, so that on a loaded machine the run takes long
        done = bench.run(command, lacking, timeout=PATIENCE)
    finally:
        (bench.ws / "stop").touch()
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr
