"""Programs that multiply and leave their parents: all end with the run, with a process namespace and without one."""

import subprocess

import pytest
from bench import MACHINES, Bench

HOPS = """
    import os, sys, time
    def hop(end):
        while time.monotonic() < end and not os.path.exists("stop"):
            if os.fork():
                os._exit(0)
    for number in range(4):
        if not os.fork():
            os.setsid()
            hop(time.monotonic() + 300)
            os._exit(0)
    time.sleep(0.3)
    print("over", flush=True)
"""


@pytest.mark.attempt("P10", "P11")
@pytest.mark.parametrize("lacking", MACHINES)
def test_what_flees_from_process_to_process_ends_with_the_run(tmp_path, lacking):
    """Each is gone before anybody has its number; the end of the output tells that none is left."""
    bench = Bench(tmp_path, HOPS)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(bench.bare(), cwd=bench.ws, capture_output=True, timeout=2)
    (bench.ws / "stop").touch()
    command = bench.boxed(without=lacking)
    (bench.ws / "stop").unlink()
    try:  # they get more than their share of a processor, so that on a loaded machine the run takes long
        done = bench.run(command, lacking, timeout=120)
    finally:
        (bench.ws / "stop").touch()
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr
