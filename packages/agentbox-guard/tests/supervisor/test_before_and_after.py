"""What is made and said before an agent starts, and how what it leaves behind is told at the end."""

import os
import signal
import subprocess
import sys

import pytest
from kit.waiting import PATIENCE

from agentbox.guard import GuardError, RunOptions, roots, run
from agentbox.policy import parse


def notes(done):
    return [line for line in done.err.splitlines() if line.startswith("agentbox: note: ")]


EARLY = """
import os, signal, sys
from agentbox.guard import RunOptions, run
from agentbox.policy import parse
number, ignored = int(sys.argv[1]), len(sys.argv) > 2
if ignored:
    signal.signal(number, signal.SIG_IGN)
def session(options, rundir):
    os.kill(os.getpid(), number)
options = RunOptions(
    policy=parse("write: ./out/\\n", cwd=os.getcwd()),
    argv=[sys.executable, "-c", "open('out/started', 'w')"],
    cwd=os.getcwd(),
    trace="trace.jsonl",
    say=lambda line: None,
)
status = run(options, session)
print(status, os.path.exists("out/started"))
"""


@pytest.mark.parametrize("ignored", [(), ("ignored",)], ids=["", "ignored"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_before_there_is_an_agent_starts_none(tmp_path, number, ignored):
    """It leaves nothing behind either; one that is ignored, as SIGHUP is under nohup, changes nothing."""
    for name in ("ws", "tmp"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-c", EARLY, str(int(number)), *ignored]
    environ = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    done = subprocess.run(command, cwd=tmp_path / "ws", env=environ, capture_output=True, text=True, timeout=PATIENCE)
    if ignored:  # the factory gives no session, so one that records is made
        assert done.stdout == "0 True\n", done.stderr
    else:
        assert done.stdout == f"{128 + number} False\n", done.stderr
    assert os.listdir(tmp_path / "tmp") == []


def test_an_interpreter_that_is_interrupted_while_it_starts_is_no_failure_of_ours(sandbox):
    """Python ends with 1 then, before its guard is live; the status is that of Ctrl-C."""
    process = sandbox.start(
        """
        import signal
        signal.signal(2, lambda *_: os._exit(1))
        print("up", flush=True)
        rest()
        """
    )
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    done = sandbox.end(process)
    assert done.status == 130 and done.said("the guard was never live"), done.err


def test_missing_folders_outside_are_left_to_the_user(sandbox):
    """A write root below neither the working directory nor the home is not made; one line says how to make it."""
    outside = sandbox.folder.parent / "be side" / "deep"
    done = sandbox.fake(
        "Link().armed()", policy=f"write: {outside}/\nwrite: ./in/\nwrite: /nonexist/x/\n", layers="guard"
    )
    assert done.status == 0
    assert (sandbox.folder / "in").is_dir()
    assert not outside.parent.exists() and not os.path.exists("/nonexist")
    assert notes(done) == [
        f"agentbox: note: a write: rule names the folder {place}, which does not exist; only folders below the working "
        f"directory or your home are created: mkdir -p {word}"
        for place, word in ((outside, f"'{outside}'"), ("/nonexist/x", "/nonexist/x"))
    ]


def test_missing_folders_of_the_home_are_made(sandbox):
    """They are said with their full path, control characters escaped."""
    home = sandbox.folder.parent / "me\tyou"
    home.mkdir()
    sandbox.environ["HOME"] = str(home)
    done = sandbox.fake("Link().armed()", policy="write: ~/state/deep/\n", layers="guard")
    assert (home / "state" / "deep").is_dir()
    shown = str(home).replace("\t", "\\x09")
    assert f"agentbox: created {shown}/state/deep/ (named by a write: rule, did not exist)" in done.err.splitlines()


def test_nothing_is_made_for_a_run_that_cannot_be_recorded(sandbox):
    """The trace is opened before folders are made."""
    for trace in ("none/trace.jsonl", "data"):
        done = sandbox.fake("Link().armed()", policy="write: ./out/deep/\n", trace=trace, layers="guard")
        assert done.status == 73 and not done.said("created ./out"), done.err
        assert not (sandbox.folder / "out").exists()


def test_a_folder_that_cannot_be_made_is_known_before_the_trace(sandbox):
    """One line, status 73, no trace, and an older trace stays where it is."""
    sandbox.fake("Link().armed()", layers="guard")
    before = (sandbox.folder / "trace.jsonl").read_bytes()
    done = sandbox.fake("Link().armed()", policy="write: ./data/a.txt/deep/\n", layers="guard")
    assert done.status == 73 and len(done.err.splitlines()) == 1
    assert done.said("the folder of a write: rule cannot be made")
    assert (sandbox.folder / "trace.jsonl").read_bytes() == before


def test_a_trace_may_lie_in_a_folder_that_is_made(sandbox):
    """A write root that the trace is to lie in is made first."""
    done = sandbox.fake("Link().armed()", policy="write: ./out/\n", trace="out/trace.jsonl", layers="guard")
    assert done.status == 0 and done.said("created ./out/") and done.trace


def test_a_run_of_no_words(tmp_path):
    """What the command line refuses itself is an error of one line for a program that embeds a run, too."""
    rules, folder = parse("read: ./data\n"), str(tmp_path)
    with pytest.raises(GuardError, match="got an empty name, expected a program"):
        run(RunOptions(policy=rules, argv=[], cwd=folder, trace=f"{folder}/trace.jsonl", say=print))


def test_how_a_folder_is_written_for_a_shell():
    """The command of the advice can be pasted."""
    assert roots.advice("/srv/a-b_c.d").endswith(": mkdir -p /srv/a-b_c.d")
    assert roots.advice("/srv/it's").endswith(": mkdir -p '/srv/it'\\''s'")


def test_rules_that_name_nothing_are_noted(sandbox):
    """A read or exec rule for what is not there is said before the agent starts, and is no error."""
    policy = "# mine\nread: ./daat\nexec: nosuchprogram x\nread: ./data\n"
    done = sandbox.fake("Link().armed(); print('ran', file=sys.stderr)", policy=policy, layers="guard")
    assert done.status == 0
    assert done.err.splitlines()[:3] == [
        "agentbox: note: agentbox.policy:2: read: ./daat: nothing is there",
        "agentbox: note: agentbox.policy:3: exec: nosuchprogram x: no such program in PATH outside of the write roots",
        "ran",
    ]


def test_a_dropped_pythonpath_is_said(sandbox):
    """One line names it and the ways out; without the variable, or for another program, there is none."""
    sandbox.environ.pop("PYTHONPATH", None)
    assert notes(sandbox.python("pass")) == []
    sandbox.environ["PYTHONPATH"] = "/some/where"
    assert notes(sandbox.python("import os; assert 'PYTHONPATH' not in os.environ", layers="guard")) == [
        "agentbox: note: PYTHONPATH is not passed on, so modules in /some/where are not found: install the package "
        "(pip install -e .) with a read: rule for its folder, start the agent from that folder, or add the rules "
        "env: PYTHONPATH and read: for these folders"
    ]
    assert notes(sandbox.fake("Link().armed()", layers="guard")) == []


def test_a_missing_snapback_is_said_before_and_what_it_blocked_after(sandbox):
    """`--checkpoint` without snapback: a note at the start, and at the end how many changes were blocked and why."""
    sandbox.environ["PATH"] = "/usr/bin:/bin"
    code = """
        for name in ("out/a.txt", "out/b.txt"):
            try: open(name, "w")
            except PermissionError: pass
    """
    done = sandbox.python(code, policy="write: ./out/\n", checkpoint=True, no_snapback=True, layers="guard")
    assert notes(done) == [
        "agentbox: note: --checkpoint: snapback is not on PATH, so every change will be blocked; "
        "install it: pip install snapback-cli"
    ]
    assert done.said("blocked 2 changes: no checkpoint, so nothing is changed: snapback is not on PATH")
    assert os.listdir(sandbox.folder / "out") == []
    assert not notes(sandbox.python("pass", policy="write: ./out/\n", layers="guard"))


@pytest.mark.parametrize(("does", "ended"), [("os.read(ended, 1)", False), ("rest()", True)], ids=["ends", "stays"])
def test_what_ends_by_itself_is_not_said_to_be_ended(sandbox, does, ended):
    """A helper that ends with the agent, as multiprocessing's resource tracker does, is no news. Given enough time: how
    much it gets is tested below.
    """
    code = f"Link().armed()\nended, ours = os.pipe()\nif os.fork() == 0:\n    os.close(ours); {does}; os._exit(0)\n"
    done = sandbox.fake(code, layers="guard", **({} if ended else {"grace": PATIENCE}))
    assert done.said("outlived the agent") is ended


def test_what_is_at_work_gets_longer_to_end_by_itself(sandbox):
    """On a loaded machine the tracker has not had its turn yet after a tenth of a second; what only waits is ended."""
    busy = "while time.process_time() < 0.25: pass\n    os._exit(0)"
    done = sandbox.fake(f"Link().armed()\nif os.fork() == 0:\n    {busy}\n", layers="guard", graces=1000)
    assert done.status == 0 and not done.said("outlived"), done.err


def test_multiprocessing_ends_without_a_word(sandbox):
    """A pool whose resource tracker ends after the main process."""
    code = """
        import multiprocessing as m
        m.set_start_method("spawn")
        lock = m.Lock()
        from multiprocessing import shared_memory
        block = shared_memory.SharedMemory(create=True, size=10)
        block.close(); block.unlink()
    """
    done = sandbox.python(code, policy=f"exec: {sys.executable}\nwrite: /dev/shm\n", layers="guard")
    assert done.status == 0 and not done.said("outlived"), done.err
