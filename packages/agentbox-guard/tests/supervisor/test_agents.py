"""Real guarded Python agents under the real supervisor: environment, SDK calls, children, checkpoint."""

import sys

from agentbox.trace import verify


def test_an_agent_reads_what_it_may_and_nothing_else(sandbox):
    """The allowed read is recorded with its hash, the other denied; without the sandbox both work."""
    code = "print(open('data/a.txt').read()); open('/etc/passwd')"
    done = sandbox.python(code)
    assert "alpha" in done.out and "PermissionError" in done.err and done.status == 1
    assert len(done.of("observe", "fs.read")[0]["args"]["sha256"]) == 64
    assert any(e["target"] == "/etc/passwd" for e in done.of("deny"))
    import subprocess

    assert subprocess.run([sys.executable, "-c", code], cwd=sandbox.folder, capture_output=True).returncode == 0


def test_the_agent_gets_a_private_home_and_tmpdir_and_no_secrets(sandbox):
    """TMPDIR is writable and gone afterwards; the user's variables are not there."""
    sandbox.environ["MY_SECRET"] = "s3cr3t-value"
    done = sandbox.python(
        """
        import os, tempfile
        with tempfile.NamedTemporaryFile() as file: file.write(b"x")
        open(os.environ["HOME"] + "/dot", "w").write("x")
        print("MY_SECRET" in os.environ, os.environ["TMPDIR"])
        """
    )
    assert done.status == 0, done.err
    assert done.out.split()[0] == "False" and not __import__("os").path.exists(done.out.split()[1])
    assert any(e["args"]["path"] == "$HOME/dot" for e in done.of("observe", "fs.write"))


def test_sdk_calls_are_performed_by_the_supervisor_and_recorded(sandbox):
    """All five are effects with results; the two that cannot be undone have their intent first."""
    done = sandbox.python(
        """
        import agentbox.client as box
        print(box.read_text("data/a.txt").strip(), box.run(["echo", "hi"]).stdout)
        box.write_text("out/b.txt", "beta")
        print(box.now() > 0, 0 <= box.random() < 1)
        """,
        policy="read: ./data\nwrite: ./out/\nexec: echo\n",
    )
    assert done.status == 0, done.err
    assert [e["op"] for e in done.of("effect")] == ["fs.read", "proc.run", "fs.write", "clock.now", "random.float"]
    assert [e["args"]["op"] for e in done.of(op="effect.begin")] == ["proc.run", "fs.write"]
    assert (sandbox.folder / "out" / "b.txt").read_text() == "beta"
    assert done.last == "agentbox: recorded 5 effects, 0 observations, 0 denials -> trace.jsonl"


def test_sdk_calls_obey_the_policy(sandbox):
    """A call is denied like the direct act, the record is out of reach, a missing program is the system's error."""
    done = sandbox.python(
        """
        import agentbox.client as box
        for act in (lambda: box.read_text("/etc/passwd"), lambda: box.write_text("agentbox.policy", "read: /"),
                    lambda: box.run(["cat", "/etc/passwd"]), lambda: box.read_text("trace.jsonl"),
                    lambda: box.run(["nosuchprogram"])):
            try: print("did", act())
            except PermissionError: print("denied")
            except OSError as error: print(type(error).__name__)
        """,
        policy="read: .\nwrite: .\nexec: echo\n",
    )
    assert done.out.split() == [*["denied"] * 4, "FileNotFoundError"], done.out
    assert len(done.of("deny")) == 4


def test_threads_and_children_share_one_sound_chain(sandbox):
    """4 threads with 50 SDK calls each and 3 guarded child processes."""
    done = sandbox.python(
        f"""
        import subprocess, threading
        import agentbox.client as box
        together = threading.Barrier(4)  # the number of a thread that has ended is given out again
        def calls():
            together.wait()
            for _ in range(50): box.now()
            together.wait()
        threads = [threading.Thread(target=calls) for _ in range(4)]
        for thread in threads: thread.start()
        for _ in range(3):
            subprocess.run([{sys.executable!r}, "-c", "open('data/a.txt').read()"], check=True)
        for thread in threads: thread.join()
        """,
        policy=f"read: ./data\nexec: {sys.executable}\n",
    )
    assert done.status == 0, done.err
    assert len(done.of("effect")) == 200 and len(done.of(op="process.start")) == 4
    assert len({e["lane"] for e in done.of("effect")}) == 4
    assert {e["lane"] for e in done.of("observe", "fs.read")} == {"1.0", "2.0", "3.0"}
    assert verify(sandbox.folder / "trace.jsonl").ok


def test_a_python_child_is_guarded_or_refused(sandbox):
    """-I is refused; an empty environment gets the guard's variables all the same, and the child is held."""
    done = sandbox.python(
        f"""
        import subprocess
        try: subprocess.run([{sys.executable!r}, "-I", "-c", "print('ran')"])
        except PermissionError: print("refused")
        for env in (None, {{}}):
            subprocess.run([{sys.executable!r}, "-c", "open('/etc/passwd')"], env=env, stderr=subprocess.DEVNULL)
        """,
        policy=f"exec: {sys.executable}\n",
    )
    assert done.out == "refused\n", done.err
    assert [e["target"] for e in done.of("deny", "fs.read")].count("/etc/passwd") == 2


def test_a_failed_checkpoint_blocks_the_change(sandbox):
    """Without snapback nothing is written, by no road; reads go on."""
    sandbox.environ["PATH"] = "/usr/bin:/bin"
    fake = sandbox.folder.parent / "bin"
    fake.mkdir()
    (fake / "snapback").write_text("#!/bin/sh\necho no >&2; exit 9\n")
    (fake / "snapback").chmod(0o755)
    sandbox.environ["PATH"] = f"{fake}:/usr/bin:/bin"
    done = sandbox.python(
        """
        import agentbox.client as box
        print(box.read_text("data/a.txt").strip())
        for act in (lambda: box.write_text("out/x", "x"), lambda: open("out/y", "w")):
            try: act()
            except Exception as error: print(type(error).__name__)
        """,
        policy="read: ./data\nwrite: ./out/\n",
        checkpoint=True,
    )
    assert done.out.split() == ["alpha", "CheckpointError", "PermissionError"], done.out + done.err
    assert list((sandbox.folder / "out").iterdir()) == []


def test_a_checkpoint_is_taken_once_before_the_first_change(sandbox):
    """Not for reads; right before the first write, recorded as an effect."""
    fake = sandbox.folder.parent / "bin"
    fake.mkdir()
    (fake / "snapback").write_text(
        "#!/bin/sh\necho \"$@\" >> ../calls\nls out >> ../calls\necho 'snapback: snapshot s1'\n"
    )
    (fake / "snapback").chmod(0o755)
    sandbox.environ["PATH"] = f"{fake}:/usr/bin:/bin"
    done = sandbox.python(
        """
        import agentbox.client as box
        box.read_text("data/a.txt")
        box.now()
        open("out/y", "w").write("y")
        box.write_text("out/x", "x")
        """,
        policy="read: ./data\nwrite: ./out/\n",
        checkpoint=True,
    )
    assert done.status == 0, done.err
    assert [e["op"] for e in done.of("effect")] == ["fs.read", "clock.now", "hook.checkpoint", "fs.write"]
    calls = (sandbox.folder.parent / "calls").read_text()
    assert calls.count("snap") == 1 and "\ny" not in calls
    assert done.said("checkpoint s1 taken before first mutation")


def test_layers_that_are_not_live_are_named(sandbox):
    """At the end of a run with less than the platform has, and of no other."""
    line = "agentbox: layers: guard (without netns, landlock, seccomp)"
    degraded = sandbox.python("pass", layers="guard")
    assert (line in degraded.err.splitlines()) is (sys.platform == "linux")
    assert not sandbox.python("pass", layers="auto").said("layers: ")
