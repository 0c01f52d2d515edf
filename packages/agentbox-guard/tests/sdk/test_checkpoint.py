"""`--checkpoint` with the real snapback, and with ones that are missing, fail, hang or talk nonsense."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import pytest
from kit.waiting import has_ended, wait_until

from agentbox.guard import checkpoint as module
from agentbox.guard.checkpoint import Checkpoint, CheckpointError, find_snapback

SNAPBACK = find_snapback({"PATH": os.environ.get("PATH", "")})
needs_snapback = pytest.mark.skipif(SNAPBACK is None, reason="needs snapback (pip install snapback-cli)")


@pytest.fixture
def fake(tmp_path):
    """A maker of `snapback` scripts; gives the environment that finds them."""

    def make(script):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "snapback").write_text("#!/bin/sh\n" + script)
        (folder / "snapback").chmod(0o755)
        return {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}

    return make


@needs_snapback
def test_a_real_checkpoint_can_be_undone(tmp_path):
    """One snapshot is taken, once, and the command that is said brings the files back; the trace stays."""
    said = []
    (tmp_path / "data").write_text("before")
    (tmp_path / "trace.jsonl").write_text("1\n")
    (tmp_path / "snapback.toml").write_text('[snapshot]\nignore = ["trace.jsonl", "blobs"]\n')
    point = Checkpoint(str(tmp_path), said.append, run_id="r1", keep=["trace.jsonl", "blobs"])
    first = point.take()
    (tmp_path / "data").write_text("after")
    (tmp_path / "trace.jsonl").write_text("1\n2\n")
    assert point.take() == first
    assert said == [
        f"checkpoint {first} taken before first mutation",
        f"undo it with: snapback --root {tmp_path} undo {first}",
    ]
    listed = subprocess.run([SNAPBACK, "--root", tmp_path, "list"], capture_output=True, text=True, check=True).stdout
    assert (listed.count("\n"), "agentbox run r1" in listed) == (1, True)
    command = said[1].partition(": ")[2].split()
    subprocess.run([SNAPBACK, *command[1:]], check=True, capture_output=True)
    assert (tmp_path / "data").read_text() == "before"
    assert (tmp_path / "trace.jsonl").read_text() == "1\n2\n"


@needs_snapback
def test_what_an_undo_would_roll_back_is_said(tmp_path, monkeypatch):
    """Without `ignore` the trace would be rolled back too, and the hint says what to write where."""
    monkeypatch.chdir(tmp_path)
    said = []
    (tmp_path / "trace.jsonl").write_text("1\n")
    point = Checkpoint(
        str(tmp_path), said.append, keep=[str(tmp_path / "trace.jsonl"), "blobs", "/elsewhere/trace.jsonl"]
    )
    snapshot = point.take()
    assert said[1:] == [
        f"undo it with: snapback undo {snapshot}",
        'hint: that rolls "trace.jsonl", "blobs" back too;'
        ' put `ignore = ["trace.jsonl", "blobs"]` under [snapshot] in snapback.toml',
    ]


def test_the_answer_is_parsed_and_the_call_is_exact(tmp_path, fake):
    """snapback gets the root and the run's name, the user's environment and no standard input."""
    said = []
    environ = fake('echo "$@" >&2; echo "$@" > "$PWD/args"; cat >> "$PWD/args"; echo "snapback: snapshot 2026-1.b_c"')
    assert Checkpoint(str(tmp_path), said.append, run_id="abc", environ=environ).take() == "2026-1.b_c"
    assert (tmp_path / "args").read_text() == f"--root {tmp_path} snap -m agentbox run abc\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'snapback: error: disk full' >&2; exit 1", "snapback ended with status 1: snapback: error: disk full"),
        ("exit 3", "snapback ended with status 3: it said nothing"),
        ("kill -9 $$", "snapback ended with status -9: it said nothing"),
        ("true", "snapback printed '', expected `snapback: snapshot <id>`"),
        ("echo hello", "snapback printed 'hello\\n', expected"),
        ("echo 'snapback: snapshot '", "expected `snapback: snapshot <id>`"),
        ("echo 'snapback: snapshot a b'", "expected `snapback: snapshot <id>`"),
        ("echo 'snapback: snapshot $(x)'", "expected `snapback: snapshot <id>`"),
        ("printf 'snapback: snapshot a\\nsnapback: snapshot b\\n'", "expected `snapback: snapshot <id>`"),
        ("printf '\\377\\376'", "expected `snapback: snapshot <id>`"),
    ],
)
def test_whatever_goes_wrong_is_one_clear_error(script, said, tmp_path, fake):
    """A snapback that fails or talks nonsense blocks the mutation, for good: it is not run again."""
    environ = fake(f"echo x >> {tmp_path}/runs\n{script}\n")
    point = Checkpoint(str(tmp_path), pytest.fail, environ=environ)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"^no checkpoint, so nothing is changed: ") as caught:
            point.take()
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "runs").read_text() == "x\n"


def test_a_snapback_that_cannot_be_started(tmp_path, fake):
    """A script without an interpreter is an error with the system's reason."""
    environ = fake("")
    (tmp_path / "bin/snapback").write_text("#!/no/such/interpreter\n")
    with pytest.raises(CheckpointError, match="snapback cannot be started: No such file or directory"):
        Checkpoint(str(tmp_path), pytest.fail, environ=environ).take()


def test_a_hanging_snapback_is_ended_with_its_children(tmp_path, fake):
    """After the timeout nothing of it is left."""
    environ = fake(f"sleep 600 & echo $! > {tmp_path}/begun; mv {tmp_path}/begun {tmp_path}/child; wait")

    def begun(seconds):
        with pytest.raises(CheckpointError, match=rf"snapback did not end within {seconds} s"):
            Checkpoint(str(tmp_path), pytest.fail, environ=environ, timeout=seconds).take()
        return (tmp_path / "child").exists()

    assert any(begun(seconds) for seconds in (1, 10, 100))  # until it is enough to begin
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: has_ended(child), "the end of its child")


def test_a_missing_snapback_names_the_install_command(tmp_path, monkeypatch):
    """Not on PATH and not beside the interpreter: the error says how to get it."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(CheckpointError, match="install it with `pip install snapback-cli`"):
        Checkpoint(str(tmp_path), pytest.fail, environ={"PATH": "/nowhere"}).take()


def test_relative_folders_of_path_are_not_searched(tmp_path, fake, monkeypatch):
    """The agent may write to the current directory, so a program there is never the user's."""
    fake("true")
    monkeypatch.chdir(tmp_path / "bin")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert find_snapback({"PATH": ".::bin"}) is None
    assert find_snapback({"PATH": f".:{tmp_path}/bin"}) == f"{tmp_path}/bin/snapback"


def test_threads_share_one_checkpoint(tmp_path, fake):
    """Mutations that come at once wait for the one snapshot."""
    point = Checkpoint(
        str(tmp_path), lambda _: None, environ=fake(f"echo x >> {tmp_path}/runs; echo snapback: snapshot 1")
    )
    threads = [threading.Thread(target=point.take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "runs").read_text() == "x\n"


def test_what_a_session_and_the_guard_must_know(tmp_path):
    """It is an effect of its own, matched by its tool; its store must not be writable by the agent."""
    point = Checkpoint("/r", pytest.fail)
    assert (point.op, point.mutates, point.irreversible) == ("hook.checkpoint", False, False)
    assert point.identity(point.args) == {"tool": "snapback"}
    assert point.sealed == ("/r/.snapback", "/r/snapback.toml")
    assert re.match(r"pip install [\w-]+$", module.INSTALL)
