"""A Python of a virtual environment that some allowed program starts by its name finds its environment without rules,
and nobody in the run can change what is in it.
"""

import os
import subprocess
import sys

import pytest
from kit.waiting import PATIENCE
from test_confined import Box

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path)
    make = [sys.executable, "-m", "venv", "--without-pip", tmp_path / "outside/venv"]
    subprocess.run(make, check=True, timeout=PATIENCE)
    (made.site,) = (tmp_path / "outside/venv/lib").glob("python*/site-packages")
    (made.site / "own.py").write_text("print('own')\n")
    (made.ws / "s.py").write_text("import own\n")
    made.python = os.path.realpath(tmp_path / "outside/venv/bin/python3")
    made.path = {**os.environ, "PATH": f"{tmp_path}/outside/venv/bin:{os.environ['PATH']}"}
    return made


@pytest.mark.parametrize("rule", ["exec: {python}\n", "exec: *\n", "exec: ../outside/venv/bin/python3\n"])
def test_a_shell_starts_the_python_of_an_environment(box, rule):
    """Under each rule that allows the interpreter behind it, as without the sandbox."""
    argv = ["bash", "-c", "python3 s.py"]
    assert box.bare(*argv, env=box.path).stdout == "own\n"
    done = box.run(f"read: ./s.py\n{rule.replace('{python}', box.python)}", *argv, env=box.path)
    assert done.out == "own\n", done.err
    assert not [target for op, target in done.denied() if "/venv/" in target]


def test_an_environment_that_no_rule_leads_to_is_not_readable(box):
    """Only an interpreter that may be started has its environment read."""
    argv = ["cat", f"{box.site}/own.py"]
    assert box.bare(*argv).stdout
    done = box.run("read: ./s.py\nexec: true\n", *argv, env=box.path)
    assert not done.out and ("fs.read", f"{box.site}/own.py") in done.denied()


def test_an_environment_is_sealed(box):
    """Also where a write rule covers single files in it: they would be run by the next Python."""
    plant = f"echo 'print(1)' > {box.site}/plant.pth"
    rules = f"read: ./s.py\nexec: {box.python}\nwrite: ../outside/venv/**/*.pth\n"
    done = box.run(rules, "bash", "-c", f"{plant}; python3 s.py", env=box.path)
    assert done.out == "own\n" and not (box.site / "plant.pth").exists()
    assert ("fs.write", f"{box.site}/plant.pth") in done.denied()
    box.bare("bash", "-c", plant)
    assert (box.site / "plant.pth").exists()
