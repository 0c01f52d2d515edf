"""Opens that are remembered by name: only while nothing of the run can change what the name leads to."""

import os
import subprocess
import sys

import pytest
from kit.waiting import PATIENCE

from agentbox.guard.kernel import landlock, netns, seccomp
from agentbox.guard.kernel.judge import Judge, Trees

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()


@pytest.fixture
def leads(tmp_path):
    """`Judge.leads` of a run that may write below `tmp_path`/ws."""
    judge = Judge.__new__(Judge)
    judge._changeable = Trees([f"{tmp_path}/ws"])
    for name in ("ws", "system"):
        (tmp_path / name).mkdir()
    (tmp_path / "system" / "file").write_text("x")
    return lambda path: judge.leads(path, f"{tmp_path}/system/file")


def test_links_outside_of_write_roots_stay(leads, tmp_path):
    """One link and a chain of them, of folders and of the last name, relative and absolute."""
    (tmp_path / "lib").symlink_to("system")
    (tmp_path / "lib64").symlink_to(tmp_path / "lib")
    (tmp_path / "system" / "name").symlink_to("../system/file")
    assert leads(f"{tmp_path}/system/file")
    assert leads(f"{tmp_path}/system/../lib/file")
    assert leads(f"{tmp_path}/lib/file")
    assert leads(f"{tmp_path}/lib64/./name")


def test_links_that_the_run_may_change_do_not(leads, tmp_path):
    """A link in a write root, also when only a link outside of it leads there; a way through one; other ends; loops."""
    (tmp_path / "ws" / "lib").symlink_to("../system")
    (tmp_path / "lib").symlink_to("ws/lib")
    (tmp_path / "loop").symlink_to("loop")
    assert not leads(f"{tmp_path}/ws/lib/file")
    assert not leads(f"{tmp_path}/lib/file")
    assert not leads(f"{tmp_path}/ws/../system/file")
    assert not leads(f"{tmp_path}/system/other")
    assert not leads(f"{tmp_path}/loop")


SWAP = """
import os, sys
def seen():
    try:
        with open("lib/" + sys.argv[2], "rb") as file: return len(file.read(10))
    except PermissionError: return "refused"
os.symlink(os.path.dirname(sys.argv[1]), "lib")
print(seen(), seen())
os.unlink("lib")
os.symlink("../outside", "lib")
print(seen())
"""


@pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")
def test_a_system_file_that_was_opened_over_a_link_opens_nothing_else_afterwards(tmp_path):
    """The agent's link leads to a file of the interpreter, open to all programs, and then to a secret so named."""
    library = os.path.realpath(os.__file__)
    for name in ("ws", "outside", "state"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / os.path.basename(library)).write_text("the secret")
    (tmp_path / "program.py").write_text(SWAP)
    state = tmp_path / "state"
    (state / "policy").write_text("read: ../program.py\nwrite: .\n")
    program = [sys.executable, "-I", "-S", str(tmp_path / "program.py"), library, os.path.basename(library)]
    head = [sys.executable, "-m", "agentbox.cli", "run", "-p", f"{state}/policy", "-t", f"{state}/trace.jsonl", "--"]

    def run(command):
        done = subprocess.run(command, cwd=tmp_path / "ws", capture_output=True, text=True, timeout=PATIENCE)
        os.unlink(tmp_path / "ws" / "lib")
        return done.stdout.split()

    assert run(program) == ["10", "10", "10"]
    assert run([*head, *program]) == ["10", "10", "refused"]


@pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")
@pytest.mark.parametrize("way", ["/usr/lib/../../{0}", "/usr/lib/./../..{0}", "/usr//lib/../..{0}", "{0}/."])
def test_a_path_below_the_system_that_leads_out_of_it_opens_nothing_else(tmp_path, way):
    """Dots behind a system folder lead to a secret, a folder of secrets, or nothing: refused as by its own name."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "secret").write_text("the secret")
    (tmp_path / "agentbox.policy").write_text("exec: cat, exec: ls\n")
    target = str(tmp_path / "in") if way.endswith("/.") else str(tmp_path / "in" / "secret")
    command = ["ls" if way.endswith("/.") else "cat", way.format(target)]
    assert "secret" in subprocess.run(command, capture_output=True, text=True).stdout
    done = subprocess.run(
        [sys.executable, "-m", "agentbox.cli", "run", "-q", "--", *command],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert "secret" not in done.stdout and "Permission denied" in done.stderr
