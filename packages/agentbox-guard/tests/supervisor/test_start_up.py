"""What a run loads, and when: every module that the agent's start waits for takes a tenth of a millisecond or more."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentbox.guard import kernel

LIGHT = {
    "__future__", "_ctypes", "_json", "_sha2", "_sha256", "_signal", "_socket", "_struct", "errno", "fcntl", "pwd",
    "resource", "select", "struct",
}  # fmt: skip
"""What a run may load besides our own: no module of Python code but the two that are a few lines."""

AT_NEED = {
    "the first SDK call": {"calls", "context", "services", "effects", "spawn"},
    "the first question of a guard": {
        "decisions.net_endpoint", "decisions.net_resolve", "decisions.proc_exec", "decisions.proc_signal",
    },
    "the first connection": {
        "kernel.broker", "kernel.dial", "kernel.dns", "kernel.dnswire", "kernel.insiders", "kernel.outside",
        "kernel.synthetic", "kernel.traffic",
    },
    "the first call of a family": {
        "kernel.traps.changes", "kernel.traps.metadata", "kernel.traps.peers", "kernel.traps.refusals",
        "kernel.traps.sends", "kernel.traps.signals", "kernel.traps.sockets",
    },
    "the first link, or change of git's configuration": {
        "kernel.gitconfig", "kernel.gitentries", "kernel.gitmodules",
    },
    "--checkpoint": {"checkpoint"},
    "the child alone": {"kernel.bpf", "kernel.init", "kernel.landlock", "kernel.rows", "kernel.seccomp"},
    "no Linux": {"kernel.seatbelt"},
}  # fmt: skip
"""What the supervisor loads only for these occasions; names below `agentbox.guard`."""

GUARDED = {"kernel.traps.peers", "kernel.traps.sockets"}
"""What a guard's own connection to the channel is an occasion for."""

DRIVER = """
import os, sys
before, fork = set(sys.modules), os.fork
notes = {}
def noting():
    notes.setdefault("fork", sorted(set(sys.modules) - before))
    return fork()
os.fork = noting
from agentbox.cli.main import main
status = main(["run", *sys.argv[1:]])
notes["end"] = sorted(set(sys.modules) - before)
import json
print(json.dumps({"status": status, **notes}))
"""


def loaded(folder: Path, *words: str) -> dict[str, Any]:
    """The modules that the supervisor of a run has loaded when it forks first, and at its end."""
    (folder / "agentbox.policy").write_text("read: .\nenv: HOME\nnet: api.example\nexec: git status\n")
    # Without site: what a .pth file loads is not our doing.
    paths = f"import sys; sys.path += {[path for path in sys.path if path]!r}\n"
    command = [sys.executable, "-S", "-E", "-c", paths + DRIVER, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["status"] == 0, done.stderr
    return found


def foreign(names: list[str]) -> set[str]:
    return {name for name in names if name.partition(".")[0] != "agentbox"}


def hashing(program: str) -> set[str]:
    """What is loaded in a thread beside the start to hash a large program, which takes longer without it."""
    return {"hashlib", "_hashlib", "_blake2"} if Path(program).resolve().stat().st_size > 64 * 1024 else set()


def ours(names: list[str]) -> set[str]:
    return {name.removeprefix("agentbox.guard.") for name in names}


@pytest.mark.skipif(len(kernel.choose("auto", tuple(kernel.LAYERS))) < len(kernel.LAYERS), reason="kernel layers")
@pytest.mark.parametrize("guarded", [False, True])
def test_a_run_loads_what_it_needs(tmp_path: Path, guarded: bool) -> None:
    """With all layers: nothing heavy at all, and of our own nothing that waits for an occasion."""
    program = [sys.executable, "-c", "pass"] if guarded else [str(shutil.which("true"))]
    found = loaded(tmp_path, "--", *program)
    assert foreign(found["end"]) <= LIGHT | hashing(program[0])
    for occasion, names in AT_NEED.items():
        assert not ours(found["end"]) & names - (GUARDED if guarded else set()), occasion


def test_a_guarded_run_loads_what_it_needs(tmp_path: Path) -> None:
    """The same without kernel layers, of which next to nothing is loaded then."""
    found = loaded(tmp_path, "--layers", "guard", "--", sys.executable, "-c", "pass")
    assert foreign(found["end"]) <= LIGHT | hashing(sys.executable)
    own = {"kernel", "kernel.gitdirs", "kernel.protect", "kernel.protected", "kernel.syscalls"}
    assert {name for name in ours(found["end"]) if name.startswith("kernel")} <= own
    assert "record" not in ours(found["fork"]) and "serve" not in ours(found["fork"])


def test_every_occasion_is_of_modules_that_there_are() -> None:
    """A name that nobody has any more would guard nothing."""
    place = Path(kernel.__file__).parents[1]
    for names in AT_NEED.values():
        for name in names:
            path = place / name.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), name
