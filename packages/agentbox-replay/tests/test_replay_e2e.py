"""Replays of real agents through the real supervisor and guard."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.waiting import PATIENCE

from agentbox.guard.session import Event
from agentbox.replay.errors import ScratchUnavailable
from agentbox.replay.scratch import Scratch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor needs Linux")

POLICY = """
read:  ./in
write: ./out/
net:   127.0.0.1
exec:  echo
"""


def _has_scratch() -> bool:
    try:
        Scratch.open([os.path.dirname(__file__)]).close()
    except ScratchUnavailable:
        return False
    return True


def missing_layers() -> str:
    """What keeps the kernel layers from being applied here; "" when nothing does."""
    from agentbox.guard.kernel import landlock, netns, seccomp

    return netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()


needs_scratch = pytest.mark.skipif(not _has_scratch(), reason="no user or mount namespaces for this user here")


class Workshop:
    """A folder with a policy, an input and an agent; records and replays it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tmp = root / "tmp"
        self.folder = root / "work"
        for path in (self.tmp, self.folder, self.folder / "in"):
            path.mkdir()
        (self.folder / "in" / "a").write_text("alpha")
        (self.folder / "in" / "b").write_text("beta")
        (self.folder / "agentbox.policy").write_text(POLICY)

    def agent(self, code: str, *, policy: str = POLICY) -> None:
        """Write the agent's program; `box`, `os` and `sys` are imported."""
        (self.folder / "agentbox.policy").write_text(policy)
        text = "import os, sys\nimport agentbox.client as box\n" + textwrap.dedent(code)
        (self.folder / "agent.py").write_text(text)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`agentbox WORDS...` in the folder."""
        return subprocess.run(
            [sys.executable, "-m", "agentbox.cli", *words],
            cwd=self.folder,
            env={**os.environ, "TMPDIR": str(self.tmp), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def record(self, *options: str, status: int = 0) -> str:
        """Record the agent; its standard output."""
        done = self.run("run", *options, "--", sys.executable, "agent.py")
        assert done.returncode == status, done.stderr
        return done.stdout

    def replay(self, *options: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        """Replay it, and check that nothing new is left in the folder or in TMPDIR."""
        before = self.files()
        done = self.run("replay", *options, "--", sys.executable, "agent.py")
        assert done.returncode == status, done.stderr
        assert self.files() == before
        return done

    def diverges(self, *options: str) -> list[str]:
        """Replay it; the report's lines without prefix."""
        return [line.removeprefix("agentbox: ") for line in self.replay(*options, status=3).stderr.splitlines()]

    def files(self) -> dict[str, str]:
        """Every file with its content's hash."""
        return {
            str(path.relative_to(self.root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            for path in sorted(self.root.rglob("*"))
        }


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """A place to record and replay in."""
    return Workshop(tmp_path)


class Server:
    """A loopback HTTP server that counts requests and can be stopped."""

    def __init__(self) -> None:
        self.count = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.count += 1
                body = f"answer {outer.count} to {self.path}".encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._live = True

    def stop(self) -> None:
        """No more answers: the port is closed."""
        if self._live:
            self._live = False
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    """A running server."""
    found = Server()
    yield found
    found.stop()


def last(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of standard error."""
    return done.stderr.splitlines()[-1]


def test_http_is_served_with_the_server_dead(shop: Workshop, server: Server) -> None:
    """Requests are answered from the trace, each with its own recorded answer; nothing reaches the network."""
    shop.agent(f"""
        for path in ("x", "x", "y"):
            print(box.get("{server.url}/" + path).text)
    """)
    output = shop.record()
    assert server.count == 3
    server.stop()
    done = shop.replay()
    assert done.stdout == output
    assert last(done) == "agentbox: replay ok — 3/3 recorded steps matched"


def test_clock_and_random_are_the_recorded_ones(shop: Workshop) -> None:
    """Time and random numbers of the SDK, a program's output and errors are the recorded ones."""
    shop.agent("""
        print(box.now(), box.random(), box.random())
        print(box.run(["echo", "hello"]).stdout)
        try:
            box.read_text("in/none")
        except FileNotFoundError as error:
            print(error)
    """)
    output = shop.record()
    assert shop.replay().stdout == output


def test_sdk_writes_are_skipped_and_checked(shop: Workshop) -> None:
    """An SDK write does not touch the tree; another content ends the replay."""
    shop.agent('box.write_text("out/report", "one")')
    shop.record()
    (shop.folder / "out" / "report").write_text("mine")
    shop.replay()
    assert (shop.folder / "out" / "report").read_text() == "mine"
    shop.agent('box.write_text("out/report", "two")')
    report = shop.diverges()
    assert report[0] == "replay diverged at step 1 of 1"
    assert "  cause:    the call differs from the recorded one" in report


@needs_scratch
def test_direct_writes_land_in_a_copy(shop: Workshop) -> None:
    """Direct writes, renames and removals work in a replay, are seen by the agent, and leave the tree as it was."""
    shop.agent("""
        os.mkdir("out/sub")
        with open("out/sub/new", "x") as file:
            file.write("made")
        os.rename("out/sub/new", "out/moved")
        with open("out/log", "a") as file:
            file.write("line")
        os.remove("out/log")
        print(open("out/moved").read(), sorted(os.listdir("out")))
    """)
    output = shop.record()
    assert output == "made ['moved', 'sub']\n"
    assert shop.replay().stdout == output
    assert sorted(os.listdir(shop.folder / "out")) == ["moved", "sub"]


@needs_scratch
def test_final_content_of_direct_writes_is_checked(shop: Workshop) -> None:
    """The same steps with another content written directly are found at the end, with both hashes."""
    shop.agent('open("out/file", "w").write("one")')
    shop.record()
    shop.agent('open("out/file", "w").write("two")')
    report = shop.diverges()
    one, two = (hashlib.sha256(text).hexdigest() for text in (b"one", b"two"))
    path = shop.folder / "out" / "file"
    assert report[0] == "replay diverged at step 1 of 1"
    assert f"  cause:    the content differs at the end: {path}: recorded sha256 {one}, now sha256 {two}" in report
    assert path.read_text() == "one"


@needs_scratch
def test_a_cache_that_was_missing_is_missing_again(shop: Workshop) -> None:
    """A replay right after the recording starts as the recording did, though its outputs are in the tree."""
    shop.agent("""
        try:
            print("cached", open("out/cache").read())
        except FileNotFoundError:
            open("out/cache", "w").write("fresh")
            print("made", open("out/cache").read())
    """)
    assert shop.record() == "made fresh\n"
    assert shop.replay().stdout == "made fresh\n"


@needs_scratch
def test_missing_write_folders_are_made_only_in_the_copy(shop: Workshop) -> None:
    """A write root that does not exist any more is there for the agent, and is not made for real."""
    shop.agent('open("out/file", "w").write("one")')
    shop.record()
    (shop.folder / "out" / "file").unlink()
    (shop.folder / "out").rmdir()
    shop.replay()
    assert not (shop.folder / "out").exists()


@needs_scratch
def test_folders_that_a_run_does_not_make_are_not_in_the_copy_either(shop: Workshop) -> None:
    """A write root outside of the working directory and the home is left to the user: a write below it fails again."""
    outside = shop.folder.parent / "outside"
    outside.mkdir()
    shop.agent(
        f"""
        try: open("{outside}/deep/file", "w")
        except FileNotFoundError: print("not there")
        """,
        policy=f"{POLICY}write: {outside}/deep\n",
    )
    output = shop.record()
    assert output == "not there\n"
    assert shop.replay().stdout == output


@needs_scratch
@pytest.mark.skipif(
    "private" not in Event.__slots__, reason="this supervisor keeps the content of SDK writes to itself"
)
def test_sdk_writes_show_to_direct_reads(shop: Workshop) -> None:
    """What the SDK wrote is what the agent then reads itself, though the tree never had it."""
    shop.agent("""
        box.write_text("out/note", "from the SDK")
        print(open("out/note").read())
    """)
    output = shop.record()
    (shop.folder / "out" / "note").unlink()
    assert shop.replay().stdout == output
    assert not (shop.folder / "out" / "note").exists()


@needs_scratch
def test_appending_begins_at_the_old_length(shop: Workshop) -> None:
    """A replay right after a recording that appended to a file appends to what was there before that."""
    shop.agent("""
        with open("out/log", "a") as file:
            file.write("line\\n")
        print(open("out/log").read())
    """)
    (shop.folder / "out").mkdir()
    (shop.folder / "out" / "log").write_text("first\n")
    output = shop.record()
    lines = [json.loads(line) for line in (shop.folder / "trace.jsonl").read_text().splitlines()]
    if not any("size" in line["args"] for line in lines if (line["kind"], line["op"]) == ("observe", "fs.write")):
        pytest.skip("this guard does not say how long a file was before a write")
    assert shop.replay().stdout == output


def test_changed_input_file(shop: Workshop) -> None:
    """A direct read of a file that changed names both hashes and the agent's line."""
    shop.agent('print(open("in/a").read())')
    shop.record()
    (shop.folder / "in" / "a").write_text("other")
    report = shop.diverges()
    old, new = (hashlib.sha256(text).hexdigest() for text in (b"alpha", b"other"))
    assert report[0] == "replay diverged at step 1 of 1"
    assert f"  cause:    the file changed: recorded sha256 {old}, now sha256 {new}" in report
    assert any(line.startswith("  at:") and line.endswith("agent.py:3") for line in report)


def test_large_files_are_verified(shop: Workshop) -> None:
    """A file of some size, which is hashed in another way when recorded, replays, and is found changed."""
    big = shop.folder / "in" / "big"
    big.write_bytes(bytes(2_000_000))
    shop.agent('print(len(open("in/big", "rb").read()))')
    shop.record()
    assert shop.replay().stdout == "2000000\n"
    big.write_bytes(bytes(1_999_999))
    assert any(line.startswith("  cause:    the file changed: recorded sha256") for line in shop.diverges())


def test_sdk_reads_are_served_from_the_trace(shop: Workshop) -> None:
    """A file that is read through the SDK is the recorded one, whatever is in the tree now."""
    shop.agent('print(box.read_text("in/a"))')
    shop.record()
    (shop.folder / "in" / "a").unlink()
    assert shop.replay().stdout == "alpha\n"


@pytest.mark.parametrize(
    ("code", "headline", "cause"),
    [
        (
            "box.read_text('in/b'); box.read_text('in/a'); box.now()",
            "at step 1 of 3",
            "it was recorded as step 2, after",
        ),
        (
            "box.read_text('in/a'); box.read_text('in/b'); box.now(); box.now()",
            "after step 3 of 3",
            "this is call 2 of it",
        ),
        ("box.read_text('in/a'); box.read_text('in/b')", "at step 3 of 3", "the agent stopped early at step 3 of 3"),
        (
            "box.read_text('in/a'); box.now(); box.read_text('in/b')",
            "at step 2 of 3",
            "it was recorded as step 3, after",
        ),
        ("box.read_text('in/a'); box.read_text('in/c')", "at step 2 of 3", "nothing like it was recorded"),
    ],
    ids=["order", "extra", "missing", "swapped", "other"],
)
def test_changed_agent(shop: Workshop, code: str, headline: str, cause: str) -> None:
    """Another order, one call more, one less, another call: each is named at its step with its cause."""
    shop.agent("box.read_text('in/a'); box.read_text('in/b'); box.now()")
    shop.record()
    shop.agent(code)
    report = shop.diverges()
    assert report[0] == f"replay diverged {headline}"
    assert cause in next(line for line in report if line.startswith("  cause:"))


def test_agent_that_catches_everything_is_ended(shop: Workshop) -> None:
    """The supervisor ends a diverged run itself: an agent that swallows every exception cannot go on."""
    shop.agent("box.now()")
    shop.record()
    shop.agent("""
        while True:
            try:
                box.random()
                print("still here")
            except BaseException:
                pass
    """)
    done = shop.replay(status=3)
    assert "still here" not in done.stdout


def test_threads_replay_in_any_order(shop: Workshop, server: Server) -> None:
    """Threads whose calls interleave otherwise than when recorded get their own answers, time after time."""
    shop.agent(f"""
        import threading
        found = {{}}
        def work(name):
            found[name] = [box.get(f"{server.url}/{{name}}/{{turn}}").text for turn in range(5)]
        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(sorted(found.items()))
    """)
    output = shop.record()
    server.stop()
    for _ in range(3):
        done = shop.replay()
        assert done.stdout == output
        assert last(done) == "agentbox: replay ok — 20/20 recorded steps matched"


def test_asyncio_tasks_replay(shop: Workshop, server: Server) -> None:
    """Tasks of asyncio.gather get their own answers."""
    shop.agent(f"""
        import asyncio
        async def work(name):
            return [(await asyncio.to_thread(box.get, f"{server.url}/{{name}}/{{turn}}")).text for turn in range(3)]
        async def main():
            print(await asyncio.gather(*(work(name) for name in "abc")))
        asyncio.run(main())
    """)
    output = shop.record()
    server.stop()
    assert shop.replay().stdout == output


def test_sdk_tasks_with_direct_reads_replay(shop: Workshop, server: Server) -> None:
    """Tasks that await the SDK and read files themselves may interleave in another way than when recorded."""
    shop.agent(f"""
        import asyncio
        async def work(number, name):
            first = (await box.aget(f"{server.url}/{{number}}")).text
            second = open("in/" + name).read()
            return first, second, (await box.aread_text("in/" + name))
        async def main():
            print(await asyncio.gather(*(work(*pair) for pair in enumerate("abab"))))
        asyncio.run(main())
    """)
    output = shop.record()
    server.stop()
    for _ in range(3):
        done = shop.replay()
        assert done.stdout == output
        assert last(done) == "agentbox: replay ok — 12/12 recorded steps matched"


def test_forked_processes_replay(shop: Workshop) -> None:
    """Forked children are the agent: their steps are matched by what they do, whoever comes first."""
    shop.agent("""
        children = []
        for name in "ab":
            child = os.fork()
            if child == 0:
                print(name, box.read_text("in/" + name), open("in/" + name).read(), flush=True)
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        box.now()
    """)
    output = shop.record()
    done = shop.replay()
    assert sorted(done.stdout.splitlines()) == sorted(output.splitlines())
    assert last(done) == "agentbox: replay ok — 5/5 recorded steps matched"


def test_direct_network_never_goes_live(shop: Workshop, server: Server) -> None:
    """A direct connection is refused in a replay though policy and trace have it: nobody is dialled."""
    shop.agent(f"""
        from urllib.request import urlopen
        print(urlopen("{server.url}/x").read())
    """)
    shop.record()
    assert server.count == 1
    report = shop.diverges()
    assert server.count == 1
    assert any("which replay refuses: it never goes live" in line for line in report)
    assert any(line.startswith("  cause:    replay never goes live") for line in report)
    assert any(line.startswith("  fix:") and "box.get()" in line for line in report)


def test_direct_starts_never_go_live(shop: Workshop) -> None:
    """A program that the agent starts itself is refused in a replay, and box.run is named as the way out."""
    shop.agent("""
        import subprocess
        subprocess.run(["echo", "hello"])
    """)
    assert shop.record() == "hello\n"
    done = shop.replay(status=3)
    assert done.stdout == ""
    assert "fix:" in last(done)
    assert "box.run()" in last(done)


def test_guarded_program_of_box_run_is_served(shop: Workshop) -> None:
    """A Python program started by box.run is recorded with all that it does, and served as one step."""
    (shop.folder / "in" / "child.py").write_text('print(open("in/a").read())')
    shop.agent(
        f"""
        print(box.run(["{sys.executable}", "in/child.py"]).stdout)
        print(open("in/b").read())
        """,
        policy=f"{POLICY}exec: {sys.executable}\n",
    )
    output = shop.record()
    assert "alpha" in output
    done = shop.replay()
    assert done.stdout == output
    assert last(done) == "agentbox: replay ok — 2/2 recorded steps matched"


def test_a_program_that_is_gone_is_served_and_one_that_has_come_is_not(shop: Workshop) -> None:
    """What box.run met is served, whatever is there now."""
    tool = shop.folder / "in" / "tool"
    tool.write_text("#!/bin/sh\necho made\n")
    tool.chmod(0o755)
    shop.agent(
        """
        print(box.run(["in/tool"]).stdout)
        try:
            box.run(["in/later"])
        except FileNotFoundError as error:
            print(error)
        """,
        policy=f"{POLICY}exec: *\nexec: ./in/tool\n",
    )
    output = shop.record()
    assert output.startswith("made\n")
    tool.rename(shop.folder / "in" / "later")
    done = shop.replay()
    assert done.stdout == output
    assert last(done) == "agentbox: replay ok — 2/2 recorded steps matched"


def test_exit_status(shop: Workshop) -> None:
    """A failing agent that fails the same way is a good replay with its status; another status is a divergence."""
    shop.agent("box.now(); sys.exit(7)")
    shop.record(status=7)
    done = shop.replay(status=7)
    assert last(done) == "agentbox: replay ok — 1/1 recorded steps matched"
    shop.agent("box.now(); sys.exit(0)")
    report = shop.diverges()
    assert report[0] == "replay diverged after step 1 of 1"


def test_denials_are_the_same(shop: Workshop) -> None:
    """What was denied when recorded is denied again, and is no step."""
    shop.agent("""
        try:
            open("/etc/passwd")
        except PermissionError:
            print("denied")
        box.now()
    """)
    shop.record()
    done = shop.replay()
    assert done.stdout == "denied\n"
    assert last(done) == "agentbox: replay ok — 1/1 recorded steps matched"


@pytest.mark.skipif(bool(missing_layers()), reason=f"kernel layers: {missing_layers()}")
@pytest.mark.parametrize("layers", ["auto", "kernel"])
def test_what_is_protected_is_denied_again(shop: Workshop, layers: str) -> None:
    """The kernel's layers have refused it when recorded; a guard alone does in a replay. It is no step."""
    shop.agent("""
        try:
            open("out/.bashrc", "w")
        except PermissionError:
            print("denied")
        box.now()
    """)
    shop.record()
    done = shop.replay("--layers", layers)
    assert done.stdout == "denied\n"
    assert last(done) == "agentbox: replay ok — 1/1 recorded steps matched", done.stderr


def test_a_narrower_policy_is_warned_of_and_named(shop: Workshop) -> None:
    """Under a policy that denies a recorded read, the warning and the cause both say so."""
    code = """
        try:
            open("in/a")
        except PermissionError:
            pass
        box.now()
    """
    shop.agent(code)
    shop.record()
    shop.agent(code, policy="read: ./in/b\n")
    report = shop.diverges()
    assert report[0] == "warning: another policy than the recorded one, so it may deny or allow something else"
    assert any(line.startswith("  cause:    the policy denies the recorded step now") for line in report)


def test_recorded_policy_is_used_when_there_is_none(shop: Workshop) -> None:
    """Without a policy file the text in the trace is the policy."""
    shop.agent('print(open("in/a").read())')
    shop.record()
    (shop.folder / "agentbox.policy").unlink()
    assert shop.replay().stdout == "alpha\n"


def test_hash_order_is_the_recorded_one(shop: Workshop) -> None:
    """Sets are ordered as when recorded: the hash seed is kept."""
    shop.agent("print(list({str(number) for number in range(50)}))")
    output = shop.record()
    assert shop.replay().stdout == output


def test_json_outcome(shop: Workshop) -> None:
    """With --json the outcome is one object, for a good replay and for a divergence."""
    shop.agent("box.now()")
    shop.record()
    assert json.loads(last(shop.replay("--json"))) == {
        "result": "ok",
        "matched": 1,
        "guarded": True,
        "steps": 1,
        "denials": {"now": 0, "recorded": 0},
        "status": 0,
    }
    shop.agent("box.random()")
    found = json.loads(last(shop.replay("--json", status=3)))
    assert (found["result"], found["step"], found["steps"], found["cause"]) == ("diverged", 1, 1, "no-such-step")
    assert found["recorded"]["op"] == "clock.now"
    assert found["now"]["op"] == "random.float"
    assert found["at"].endswith("agent.py:3")


def test_broken_traces_are_refused(shop: Workshop) -> None:
    """A trace that does not verify, or is not there, ends before the agent starts, in one line."""
    shop.agent('print("started"); box.now()')
    shop.record()
    trace = shop.folder / "trace.jsonl"
    whole = trace.read_bytes()
    for data, status in ((whole.replace(b"clock.now", b"clock.not"), 4), (b"\x00garbage", 4), (b"", 4), (None, 66)):
        if data is None:
            trace.unlink()
        else:
            trace.write_bytes(data)
        done = shop.replay(status=status)
        assert "started" not in done.stdout
        assert len(done.stderr.splitlines()) == 1
        assert "Traceback" not in done.stderr


def test_unsealed_traces_need_a_word(shop: Workshop) -> None:
    """What a crash left is replayed only when asked for."""
    shop.agent("box.now()")
    shop.record()
    trace = shop.folder / "trace.jsonl"
    trace.write_bytes(b"".join(trace.read_bytes().splitlines(keepends=True)[:-1]))
    assert "--allow-unsealed" in shop.replay(status=4).stderr
    assert last(shop.replay("--allow-unsealed")) == "agentbox: replay ok — 1/1 recorded steps matched"


def test_private_folders_work_for_real(shop: Workshop) -> None:
    """Temporary files, under whatever random names, work in a replay as when recorded, and are gone after it."""
    shop.agent("""
        import tempfile
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write("x")
            file.seek(0)
            print(file.read())
        box.now()
    """)
    shop.record()
    done = shop.replay()
    assert done.stdout == "x\n"
    assert last(done) == "agentbox: replay ok — 1/1 recorded steps matched"


@needs_scratch
def test_write_root_that_holds_the_private_folder(shop: Workshop) -> None:
    """A write rule over the temporary directory covers the run's private folder too, and its channel still works."""
    shop.agent(
        f"""
            open("{shop.tmp}/file", "w").write("x")
            print(box.read_text("in/a"))
            open(os.environ["TMPDIR"] + "/y", "w")
        """,
        policy=f"{POLICY}\nwrite: {shop.tmp}\n",
    )
    output = shop.record()
    assert shop.replay().stdout == output


@pytest.mark.parametrize("direct", [True, False])
def test_machine_without_namespaces(shop: Workshop, direct: bool, tmp_path: Path) -> None:
    """Without namespaces direct writes are refused before the agent starts; SDK writes are checked, not made."""
    shop.agent('open("out/f", "w").write("x")' if direct else 'box.write_text("out/f", "x")')
    shop.record()
    program = textwrap.dedent("""
        import sys
        from agentbox.guard.kernel import syscalls
        def refuse(flags):
            raise OSError(1, "unshare: Operation not permitted")
        syscalls.unshare = refuse
        from agentbox.cli.main import main
        sys.exit(main(sys.argv[1:]))
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, "replay", "--", sys.executable, "agent.py"],
        cwd=shop.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    lines = done.stderr.splitlines()
    reason = "user or mount namespaces are refused here (unshare: Operation not permitted)"
    if direct:
        assert lines[0].startswith(f"agentbox: no scratch copy for direct writes: {reason}")
        assert (done.returncode, len(lines)) == (69, 1)
        assert "user namespaces or as root" in lines[0]
    else:
        assert done.returncode == 0
        assert lines[0] == (
            f"agentbox: replay runs without its scratch copy and empty network: {reason}; "
            "what native code does by itself would be real"
        )
        assert lines[-1] == "agentbox: replay ok — 1/1 recorded steps matched"


@needs_scratch
def test_native_code_changes_no_file_and_has_no_network(shop: Workshop) -> None:
    """SQLite opens an attached file in C, past the guard: recorded under the guard alone it is made, and a replay makes
    no such file, within the write roots or elsewhere, though the trace has no write; its network is another one.
    """
    shop.agent("""
        import sqlite3
        for path in ("out/native", "in/native"):
            try:
                base = sqlite3.connect(":memory:")
                base.execute(f"ATTACH '{path}' AS native")
                base.execute("CREATE TABLE native.t (a)")
                print("made", path)
            except sqlite3.OperationalError as error:
                print(error)
        print(os.readlink("/proc/self/ns/net"))
    """)
    network = os.readlink("/proc/self/ns/net")
    made = ["made out/native", "made in/native", network]
    assert shop.record("--layers", "guard").splitlines() == made
    for folder in ("in", "out"):
        (shop.folder / folder / "native").unlink()
    lines = shop.replay().stdout.splitlines()
    assert lines[:2] == ["made out/native", "unable to open database: in/native"]
    assert lines[2].startswith("net:[")
    assert lines[2] != network


@needs_scratch
def test_a_write_root_that_cannot_be_covered(shop: Workshop) -> None:
    """Under a write rule for / the folders of recorded writes are covered; everything else is read-only."""
    shop.agent('box.write_text("out/f", "x")\nprint(open("in/a").read())', policy="read: .\nwrite: /\n")
    (shop.folder / "out").mkdir()
    shop.record()
    done = shop.replay()
    assert done.stdout == "alpha\n"
    assert done.stderr.splitlines() == ["agentbox: replay ok — 2/2 recorded steps matched"]


NAMED = """
    try:
        open("/etc/shadow")
    except PermissionError as error:
        box.write_text("out/one", str(error))
    try:
        box.read_text("/etc/shadow")
    except PermissionError as error:
        box.write_text("out/two", str(error))
    try:
        os.posix_spawn("/bin/true", ["true"], os.environ)
    except PermissionError as error:
        box.write_text("out/three", str(error))
"""


@pytest.mark.parametrize("way", ["renamed", "named", "recorded"])
def test_denials_name_the_recorded_policy(shop: Workshop, way: str) -> None:
    """An agent that keeps the text of a denial replays when the policy file has another name now, or is gone."""
    shop.agent(NAMED)
    policy = shop.folder / "agentbox.policy"
    if way == "named":
        policy.rename(shop.folder / "first.policy")
        shop.record("-p", "first.policy")
        (shop.folder / "first.policy").rename(policy)
    else:
        shop.record()
    name = "first.policy" if way == "named" else "agentbox.policy"
    assert name in (shop.folder / "out" / "one").read_text()
    options = []
    if way == "renamed":
        policy.rename(shop.folder / "my.policy")
        options = ["-p", "my.policy"]
    elif way == "recorded":
        policy.unlink()
    assert last(shop.replay(*options)) == "agentbox: replay ok — 3/3 recorded steps matched"


@needs_scratch
def test_another_working_directory(shop: Workshop) -> None:
    """A project that was moved with its trace replays where it is now, which is warned of; a changed file is found."""
    shop.agent(
        """
            here = os.getcwd()
            print(open("in/a").read(), box.read_text(here + "/in/b"))
            print(box.run(["echo", "x"], cwd=here + "/out").stdout)
            with open(here + "/out/direct", "w") as file:
                file.write("x")
            box.write_text("out/sdk", "y")
            print(open("out/direct").read(), sorted(os.listdir("out")))
        """
    )
    output = shop.record()
    old = shop.folder
    shop.folder = shop.root / "elsewhere" / "work"
    shop.folder.parent.mkdir()
    old.rename(shop.folder)
    done = shop.replay()
    assert done.stdout == output
    assert done.stderr.splitlines() == [
        f"agentbox: warning: another working directory: recorded {old}, now {shop.folder}; "
        "recorded paths below it are read as paths below the present one",
        "agentbox: replay ok — 7/7 recorded steps matched",
    ]
    (shop.folder / "in" / "a").write_text("other")
    report = shop.diverges()
    assert any(line.startswith("  cause:    the file changed: recorded sha256") for line in report)
    assert report[-1].startswith(f"  fix:      replay in the recorded working directory, {old}; or put")


def test_a_trace_of_observe(shop: Workshop) -> None:
    """What --observe let pass and the policy denies ends the replay with that cause; with the rule added it replays."""
    code = """
        try:
            print(len(open("/etc/passwd").read()) > 0)
        except PermissionError:
            print("denied")
        box.now()
    """
    shop.agent(code)
    assert shop.record("--observe") == "True\n"
    report = shop.diverges()
    assert report[0] == (
        "warning: the trace was recorded under --observe, which let 1 call pass that its policy denies; "
        "the first of them that is denied now ends the replay"
    )
    assert report[1] == "replay diverged at step 1 of 1"
    assert any(line.startswith("  cause:    recorded under --observe, where nothing was denied") for line in report)
    shop.agent(code, policy=f"{POLICY}read: /etc/passwd\n")
    done = shop.replay()
    assert done.stdout == "True\n"
    assert last(done) == "agentbox: replay ok — 1/1 recorded steps matched"


@needs_scratch
def test_a_database_that_the_run_made(shop: Workshop) -> None:
    """A replay right after the first run finds no database, as that run did; the one that is there stays as it is."""
    shop.agent("""
        import sqlite3
        with sqlite3.connect("out/base.db") as base:
            base.execute("CREATE TABLE t (a)")
            base.execute("INSERT INTO t VALUES (1)")
            print(base.execute("SELECT count(*) FROM t").fetchone())
        base.close()
        box.now()
    """)
    assert shop.record() == "(1,)\n"
    for _ in range(2):
        done = shop.replay()
        assert done.stdout == "(1,)\n"
        assert last(done) == "agentbox: replay ok — 2/2 recorded steps matched"


@needs_scratch
def test_a_run_that_removed_its_input_is_undone_by_its_checkpoint(shop: Workshop) -> None:
    """The report names the snapshot that puts the removed file back, and with that the replay is good."""
    snapback = Path(sys.executable).with_name("snapback")
    if not snapback.exists():
        pytest.skip("snapback is not installed")
    shop.agent(
        """
            if os.path.exists("in/todo"):
                os.remove("in/todo")
                box.now()
        """,
        policy="write: ./in\n",
    )
    (shop.folder / "snapback.toml").write_text('[snapshot]\nignore = ["trace*.jsonl", "blobs"]\n')
    (shop.folder / "in" / "todo").write_text("x")
    shop.record("--checkpoint")
    report = shop.diverges()
    assert "stopped early at step 1 of 2" in next(line for line in report if line.startswith("  cause:"))
    hint = next(line for line in report if "the recorded run itself removed" in line)
    command = hint.partition("`")[2].partition("`")[0].split()
    assert command[:2] == ["snapback", "undo"]
    subprocess.run([snapback, *command[1:]], cwd=shop.folder, check=True, capture_output=True)
    assert last(shop.replay()) == "agentbox: replay ok — 2/2 recorded steps matched"


@pytest.fixture
def as_nobody(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs agentbox as an ordinary user, with the system's Python, in a folder of that user."""
    python = "/usr/bin/python3"
    if os.getuid() != 0 or not os.access(python, os.X_OK):
        pytest.skip("needs root, to become an ordinary user, and a system Python that one can run")
    if subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).returncode:
        pytest.skip("the system's Python is older than 3.11")
    import agentbox

    sources = os.pathsep.join(agentbox.__path__[index].rpartition("/")[0] for index in range(len(agentbox.__path__)))

    def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, "-B", "-m", "agentbox.cli", *words],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": sources},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            user=65534,
            group=65534,
            extra_groups=[],
        )

    return run


@needs_scratch
def test_ordinary_user(as_nobody: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """An ordinary user replays direct writes as well, in a user namespace."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "agentbox.policy").write_text("write: ./out/\n")
        (folder / "agent.py").write_text('import os\nos.mkdir("out/d")\nopen("out/d/f", "w").write("x")\n')
        os.chown(folder, 65534, 65534)
        command = ("--", "/usr/bin/python3", "agent.py")
        done = as_nobody(folder, "run", *command)
        if "No module named" in done.stderr or "Permission denied" in done.stderr:
            pytest.skip("the checkout cannot be read by an ordinary user")
        assert done.returncode == 0, done.stderr
        shutil.rmtree(folder / "out" / "d")
        done = as_nobody(folder, "replay", *command)
        assert done.returncode == 0, done.stderr
        assert last(done) == "agentbox: replay ok — 2/2 recorded steps matched"
        assert os.listdir(folder / "out") == []
    finally:
        shutil.rmtree(folder)


def test_a_program_without_a_guard_is_refused_before_it_runs(shop: Workshop) -> None:
    """It could be answered nothing and would be compared with nothing: that is said, with what can be done."""
    (shop.folder / "agentbox.policy").write_text("read: ./in\nwrite: ./out/\n")
    (shop.folder / "out").mkdir()
    words = ("--", "sh", "-c", "read x < in/a; echo $x > out/c")
    assert shop.run("run", *words).returncode == 0
    (shop.folder / "out" / "c").unlink()
    done = shop.run("replay", *words)
    assert done.returncode == 69 and not (shop.folder / "out" / "c").exists()
    assert "sh: replay answers and compares what a guard inside the program tells of" in done.stderr
    assert "--layers kernel" in done.stderr and "--layers guard" not in done.stderr


@needs_scratch
@pytest.mark.skipif(bool(missing_layers()), reason=f"kernel layers: {missing_layers()}")
@pytest.mark.parametrize(
    ("command", "change", "status", "says"),
    [
        ("read x < in/a; echo $x > out/c", "", 0, "replay ok — no file or exit status differs"),
        ("read x < in/a; echo $x > out/c", "gamma", 3, "file-changed"),
        ("read x < in/b; echo $x > out/c", "", 3, "no-such-step"),
        ("read x < in/a; echo $x > out/d", "", 3, "no-such-step"),
        ("read x < in/a; exit 4", "", 3, "exit-status"),
        ("echo x | cat", "", 3, "live-spawn"),
    ],
)
def test_a_replay_without_a_guard_compares_files(
    shop: Workshop, command: str, change: str, status: int, says: str
) -> None:
    """Under kernel layers, and it says first what it cannot show; nothing is written to the real tree."""
    (shop.folder / "agentbox.policy").write_text("read: ./in\nwrite: ./out/\nexec: *\n")
    (shop.folder / "out").mkdir()
    assert shop.run("run", "--", "sh", "-c", "read x < in/a; echo $x > out/c").returncode == 0
    (shop.folder / "out" / "c").unlink()
    if change:
        (shop.folder / "in" / "a").write_text(change)
    done = shop.run("replay", "--layers", "kernel", *([] if status == 0 else ["--json"]), "--", "sh", "-c", command)
    assert done.returncode == status and says in done.stderr, done.stderr
    assert "warning: no guard runs inside sh: each file that it reads or writes must be in the trace" in done.stderr
    assert not list((shop.folder / "out").iterdir())


@needs_scratch
def test_a_folder_that_was_there_is_there_in_the_replay(shop: Workshop) -> None:
    """mkdir of a folder that holds what the agent then writes anew: it failed, and the agent resumes both times."""
    shop.agent("""
        try:
            os.mkdir("out/d")
        except FileExistsError:
            print("there")
        print("resume" if os.path.exists("out/d/f") else "fresh")
        open("out/d/f", "w").write("x")
        os.makedirs("out/new/e")
        os.makedirs("out/new/e", exist_ok=True)
    """)
    (shop.folder / "out" / "d").mkdir(parents=True)
    (shop.folder / "out" / "d" / "f").write_text("before")
    recorded = shop.run("run", "--", sys.executable, "agent.py")
    assert recorded.stdout == "there\nresume\n", recorded.stderr
    replayed = shop.run("replay", "--", sys.executable, "agent.py")
    assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr


@needs_scratch
@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_a_read_that_the_system_refuses_is_a_step_like_any(shop: Workshop, layers: str) -> None:
    """An allowed file of a mode that keeps its reader out: the same entry with the layers and without, and replayed."""
    if layers == "auto" and missing_layers():
        pytest.skip(f"kernel layers: {missing_layers()}")
    shop.agent("""
        try:
            print(open("in/a").read())
        except PermissionError as error:
            print(error.strerror)
    """)
    (shop.folder / "in" / "a").chmod(0)
    words: tuple[str, ...] = ()
    if os.getuid() == 0:  # whom no mode keeps out
        for path in (shop.root, *shop.root.rglob("*")):
            os.chown(path, 65534, 65534)
        os.chown(shop.folder / "in" / "a", 0, 0)
        os.chmod(shop.root.parent, 0o711)
        words = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env")  # it may enter folders
    command = [*words, sys.executable, "-m", "agentbox.cli"]

    def agentbox(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *more, "--", sys.executable, "agent.py"], cwd=shop.folder, capture_output=True, text=True,
            env={**os.environ, "TMPDIR": str(shop.tmp), "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip

    if words and subprocess.run([*command, "--version"], cwd="/", capture_output=True).returncode:
        pytest.skip("an ordinary user cannot read this environment")
    recorded = agentbox("run", "--layers", layers)
    assert recorded.stdout == "Permission denied\n", recorded.stderr
    (entry,) = [json.loads(line) for line in (shop.folder / "trace.jsonl").read_text().splitlines() if "in/a" in line]
    assert entry["args"] == {"path": str(shop.folder / "in" / "a"), "absent": True}
    replayed = agentbox("replay")
    assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_of_the_agents_own_is_named_as_what_a_replay_lacks(shop: Workshop, host: str) -> None:
    """It is allowed in the network of its run without a rule; a replay says so, and does not blame the policy."""
    if missing_layers():
        pytest.skip(f"kernel layers: {missing_layers()}")
    code = f"""
        import socket, threading
        server = socket.create_server(("{host}", 0))
        threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
        print(socket.create_connection(server.getsockname()).recv(1))
    """
    shop.agent(code, policy="read: ./in\n")
    assert shop.record() == "b''\n"
    report = shop.diverges()
    assert any("loopback of its own" in line for line in report), report
    assert not any("policy that the trace was recorded with" in line for line in report)


@pytest.mark.parametrize("policy", ["read: ./in", "net: 0.0.0.0, 127.0.0.1"], ids=["no rule", "rules"])
@pytest.mark.parametrize("layers", ["auto", "kernel"])
def test_a_socket_that_only_gets_an_address_is_replayed(shop: Workshop, policy: str, layers: str) -> None:
    """Libraries look so for IPv6 when they are imported, or for a free port: nobody is reached by it."""
    if missing_layers():
        pytest.skip(f"kernel layers: {missing_layers()}")
    code = """
        import socket
        for host in ("", "127.0.0.1"):
            with socket.create_server((host, 0)) as found:
                print(found.getsockname()[1] > 0)
        print(box.now())
    """
    shop.agent(code, policy=policy + "\n")
    recorded = shop.record()
    assert recorded.startswith("True\nTrue\n")
    assert shop.replay("--layers", layers).stdout == recorded


SHARED = """
    import multiprocessing
    with multiprocessing.get_context("fork").Lock():
        name = f"/dev/shm/{os.getpid()}"
        print(os.listdir("/dev/shm"))
        with open(name, "w") as file:
            file.write("shared")
        with open(name) as file:
            box.write_text("out/copy", file.read())
"""


@needs_scratch
@pytest.mark.skipif(bool(missing_layers()), reason=f"kernel layers: {missing_layers()}")
@pytest.mark.parametrize("layers", ["auto", "kernel"])
def test_a_dev_shm_of_its_own_is_one_in_replay(shop: Workshop, layers: str) -> None:
    """Empty, with names that do not count, and nothing of it on the machine."""
    shop.agent(SHARED)
    Path("/dev/shm", shop.root.name).touch()
    try:
        assert shop.record() == "[]\n"
        before = set(os.listdir("/dev/shm"))
        done = shop.replay("--layers", layers)
        assert done.stdout == "[]\n" and "1/1 recorded steps matched" in done.stderr
        left = set(os.listdir("/dev/shm")) - before
        assert not any(name.isdigit() for name in left)
    finally:
        Path("/dev/shm", shop.root.name).unlink()


@needs_scratch
def test_what_had_none_of_its_own_has_none_in_replay(shop: Workshop) -> None:
    """A recording under the guard alone: /dev/shm was the machine's and denied, and is so again."""
    shop.agent("""
        try:
            open("/dev/shm/never", "x")
        except PermissionError:
            box.write_text("out/denied", "yes")
    """)
    shop.record("--layers", "guard")
    shop.replay()
    assert not os.path.exists("/dev/shm/never")
