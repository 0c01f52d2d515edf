"""`--checkpoint` for what no guard announces: commands without one, and native code in an agent that has one."""

import os
import signal
import sys

import pytest
from kit.waiting import wait_until

NATIVE = """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    private = os.environb[b"TMPDIR"] + b"/x"
    print(libc.open(private, os.O_CREAT | os.O_WRONLY, 0o600) >= 0, libc.open(b"/dev/null", os.O_WRONLY) >= 0)
    print(libc.unlink(b"data/a.txt"), os.path.exists("../calls"))
    print(libc.unlink(b"out/old.txt"), os.strerror(ctypes.get_errno()))
"""
"""A change that is no guard's to announce, after what costs no snapshot: a private file, a device, what is denied."""
POLICY = "read: ../calls\nwrite: ./out/\nexec: rm\n"


def snapback(sandbox, script):
    """Puts a `snapback` on PATH that notes what is in `out` when it runs, then does `script`; gives that note."""
    folder = sandbox.folder.parent / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "snapback").write_text(f"#!/bin/sh\nls out >> ../calls\n{script}\n")
    (folder / "snapback").chmod(0o755)
    sandbox.environ["PATH"] = f"{folder}:/usr/bin:/bin"
    (sandbox.folder / "out").mkdir(exist_ok=True)
    (sandbox.folder / "out/old.txt").touch()
    return sandbox.folder.parent / "calls"


def start(sandbox, **more):
    argv = ["sh", "-c", "rm out/old.txt"]
    return sandbox.start("", POLICY, argv=argv, fake=False, layers="auto", checkpoint=True, **more)


@pytest.mark.skipif(sys.platform != "linux", reason="a command without a guard runs under kernel layers only")
def test_a_command_without_a_guard_starts_after_its_checkpoint(sandbox):
    """It may change anything, so the snapshot comes before its start."""
    calls = snapback(sandbox, "echo snapback: snapshot s1")
    done = sandbox.end(start(sandbox))
    assert done.status == 0 and done.said("checkpoint s1 taken before first mutation"), done.err
    assert calls.read_text() == "old.txt\n" and not (sandbox.folder / "out/old.txt").exists()
    assert [entry["op"] for entry in done.trace][:3] == ["run.start", "hook.checkpoint", "proc.exec"]
    assert done.of("effect")[0]["result"] == {"id": "s1"}


@pytest.mark.skipif(sys.platform != "linux", reason="a command without a guard runs under kernel layers only")
@pytest.mark.parametrize(
    ("script", "more", "reason"),
    [("echo no >&2; exit 9", {}, "snapback ended with status 9: no"), (None, {"no_snapback": True}, "is not on PATH")],
)
def test_a_command_without_a_guard_is_not_started_without_its_checkpoint(sandbox, script, more, reason):
    """Nothing is changed, the reason is said, and the record knows of no start."""
    snapback(sandbox, script or "")
    if script is None:
        sandbox.environ["PATH"] = "/usr/bin:/bin"
    done = sandbox.end(start(sandbox, **more))
    assert done.status == 70 and (sandbox.folder / "out/old.txt").exists()
    assert done.said("sh: was not started: no checkpoint, so nothing is changed: ") and done.said(reason)
    assert done.of(op="proc.exec") == [] and reason in done.trace[-1]["args"]["failure"]


@pytest.mark.skipif(sys.platform != "linux", reason="a command without a guard runs under kernel layers only")
def test_a_signal_ends_the_wait_for_the_checkpoint(sandbox):
    """The user does not wait for a long snapshot to its end, and the command is not started without one."""
    calls = snapback(sandbox, "exec sleep 60")
    process = start(sandbox)
    wait_until(calls.exists, "the checkpoint to begin")
    process.send_signal(signal.SIGTERM)
    done = sandbox.end(process)
    assert done.status in (143, -signal.SIGTERM) and (sandbox.folder / "out/old.txt").exists()
    assert done.said("sh: was not started: a signal came before its checkpoint was taken")
    assert done.trace[-1]["op"] == "run.end" and done.of(op="proc.exec") == []


@pytest.mark.skipif(sys.platform != "linux", reason="what native code changes is seen by the kernel's layers only")
@pytest.mark.parametrize(
    ("script", "said", "left"),
    [("echo snapback: snapshot s1", "Permission denied", []), ("exit 9", "Operation not permitted", ["old.txt"])],
)
def test_a_change_by_native_code_waits_for_the_checkpoint(sandbox, script, said, left):
    """The kernel shows what no guard has announced, before it is done; without a snapshot it is not done."""
    calls = snapback(sandbox, script)
    done = sandbox.python(NATIVE, policy=POLICY, layers="auto", checkpoint=True)
    assert done.out.splitlines() == ["True True", "-1 False", f"{-1 if left else 0} {said}"], done.err
    assert calls.read_text() == "old.txt\n" and os.listdir(sandbox.folder / "out") == left
    ops = [e["op"] for e in done.trace if e["op"] in ("hook.checkpoint", "fs.remove") and e["kind"] != "deny"]
    assert ops == (["hook.checkpoint"] if left else ["hook.checkpoint", "fs.remove"])
    assert done.said("blocked 1 change: no checkpoint") is bool(left)
