"""The run's own command is in the record like every other program: the file that it led to, its hash, its arguments."""

import hashlib
import os
import shutil
import subprocess
import sys
import threading

import pytest
from kit.waiting import PATIENCE
from test_confined import Box

from agentbox.guard import command as commands
from agentbox.guard.command import Command
from agentbox.guard.jobs import Jobs

CAT = os.path.realpath(shutil.which("cat") or "/bin/cat")
kernel = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


@pytest.mark.parametrize("layers", [pytest.param("auto", marks=kernel), "guard"])
def test_a_guarded_command_is_told(box, layers):
    """Right after the header, by the file behind a virtual environment's link; its process has the first lane."""
    done = box.run("read: .\n", sys.executable, "-c", "open('none')", options=["--layers", layers])
    entry, start = done.trace[1:3]
    assert (entry["kind"], entry["op"], entry["src"], entry["lane"]) == ("meta", "proc.exec", "supervisor", "0.0")
    file = os.path.realpath(sys.executable)
    args = {"file": file, "argv": [sys.executable, "-c", "open('none')"], "cwd": str(box.ws), "sha256": digest(file)}
    assert entry["args"] == args
    assert (start["op"], start["lane"], start["pid"]) == ("process.start", "0.0", entry["pid"])


@kernel
def test_a_native_command_is_told(box):
    """A program found by PATH, and a script: as elsewhere, the script is the file, and what it starts comes after."""
    (box.ws / "a").write_text("x")
    done = box.run("read: .\n", "cat", "a")
    entry = done.trace[1]
    assert entry["args"] == {"file": CAT, "argv": ["cat", "a"], "cwd": str(box.ws), "sha256": digest(CAT)}
    assert {one["lane"] for one in done.trace} == {"0.0"}
    assert {one["pid"] for one in done.of("fs.read")} == {entry["pid"]}
    script = box.ws / "script"
    script.write_text("#!/bin/sh\ncat a\n")
    script.chmod(0o755)
    done = box.run("read: .\nexec: cat\n", "./script")
    assert [one["args"]["file"] for one in (*done.of("proc.exec", "meta"), *done.of("proc.exec"))] == [str(script), CAT]
    assert done.trace[1]["args"]["sha256"] == digest(script)


@kernel
def test_a_program_of_the_sdk_is_told(box):
    """Which its effect names by the words that the agent gave, and no more."""
    code = "from agentbox import client\nclient.run(['cat', '/dev/null'])"
    done = box.run("exec: cat\n", sys.executable, "-c", code)
    assert done.status == 0, done.err
    _, entry = done.of("proc.exec", "meta")
    assert (entry["args"]["file"], entry["args"]["sha256"], entry["src"]) == (CAT, digest(CAT), "kernel")
    assert not done.of("proc.exec")


@pytest.mark.parametrize("layers", [pytest.param("auto", marks=kernel), "guard"])
def test_a_replay_is_the_same_run(box, layers):
    """The entry is about the run and no step of it."""
    command = [sys.executable, "-c", "print(1)"]
    assert box.run("read: .\n", *command, options=["--layers", layers]).status == 0
    words = box.command("read: .\n", command)
    words[words.index("run")] = "replay"
    done = subprocess.run(words, cwd=box.ws, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and "replay ok" in done.stderr, done.stderr


@kernel
def test_what_could_not_be_started_is_not_told(box):
    """A file that is no program leaves a record of a run that failed, and of no start."""
    (box.ws / "empty").write_text("")
    (box.ws / "empty").chmod(0o755)
    done = box.run("read: .\n", "./empty")
    assert done.status == 126 and not done.of("proc.exec", "meta"), done.err


class Slow:
    """Hashes that take until they are told to end."""

    def __init__(self):
        self.end = threading.Event()

    def file(self, path):
        assert self.end.wait(PATIENCE)
        return "0" * 64


def test_a_very_large_program_is_told_when_it_is_hashed(monkeypatch):
    """The run does not wait for it, but for its end at the latest; it is told once."""
    monkeypatch.setattr(commands, "_HASHED_HERE", 0)
    monkeypatch.setattr(commands, "_WAITED_FOR", 0)
    told = []
    for late in (False, True):
        jobs, hashes = Jobs(), Slow()
        command = Command(CAT, ["cat"], "/", hashes, jobs)
        command.begin(told.append)
        assert not told
        hashes.end.set()
        while not late and not told:
            jobs.collect()
        command.finish()
        command.finish()
        jobs.collect()
        assert told == [{"file": CAT, "argv": ["cat"], "cwd": "/", "sha256": "0" * 64}]
        told.clear()
        jobs.close()
