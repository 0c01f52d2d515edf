"""The SDK from end to end: a real agent under a real supervisor, its effects in a real trace."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest
from kit.waiting import PATIENCE

from agentbox.guard.checkpoint import find_snapback

DRIVER = """
import os, sys
from agentbox.guard import RunOptions, run
from agentbox.policy import load
policy, checkpoint, *argv = sys.argv[1:]
say = lambda line: print("agentbox:", line, file=sys.stderr, flush=True)
sys.exit(run(RunOptions(policy=load(policy), argv=argv, cwd=os.getcwd(), trace="trace.jsonl", say=say,
                        checkpoint=checkpoint == "yes", layers=os.environ.get("LAYERS", "auto"))))
"""
TRY = """
import json
def attempt(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
def tell(*calls):
    print(json.dumps([attempt(call) for call in calls]))
"""


class Box:
    """A folder to run agents in; `trace` gives what the last run recorded."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "data").mkdir()
        (folder / "data/notes").write_text("notes")

    def start(self, code, policy="", checkpoint=False, confined=True, **environ):
        (self.folder / "agent.py").write_text(TRY + code)
        (self.folder / "agentbox.policy").write_text(f"read: ./data\nwrite: ./out/\n{policy}")
        agent = [sys.executable, "agent.py"]
        driver = [sys.executable, "-c", DRIVER, "agentbox.policy", "yes" if checkpoint else "no"]
        return subprocess.run(
            driver + agent if confined else agent,
            cwd=self.folder,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def run(self, code, policy="", **options):
        """What the agent's `tell` said."""
        done = self.start(code, policy, **options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def trace(self, kind="effect"):
        lines = [json.loads(line) for line in (self.folder / "trace.jsonl").read_text().splitlines()]
        return [line for line in lines if line["kind"] == kind]


@pytest.fixture
def sandbox(tmp_path):
    """An empty sandbox."""
    return Box(tmp_path)


def test_effects_are_performed_and_recorded(sandbox, make_server):
    """Files, HTTP, programs, clock and randomness work in a run, each one entry with its result and place."""
    server = make_server()
    server.routes["/"] = lambda handler: handler.answer(200, b"page")
    said = sandbox.run(
        f"""
import agentbox.client as box
tell(lambda: box.read_text("data/notes"), lambda: box.write_text("out/x", "content"), lambda: box.read_text("out/x"),
     lambda: box.get("{server.url}").text, lambda: box.run(["cat"], input="in").stdout, box.now, box.random)
""",
        f"net: 127.0.0.1:{server.port}\nexec: cat\n",
    )
    assert said[:5] == ["notes", None, "content", "page", "in"]
    effects = sandbox.trace()
    ops = ["fs.read", "fs.write", "fs.read", "http.request", "proc.run", "clock.now", "random.float"]
    assert [effect["op"] for effect in effects] == ops
    assert [effects[5]["result"]["value"], effects[6]["result"]["value"]] == said[5:]
    assert "body" not in effects[1]["args"]
    assert (sandbox.folder / "out/x").read_text() == "content"
    assert all(effect["site"].startswith(f"{sandbox.folder}/agent.py:") for effect in effects)


def test_what_no_rule_allows_is_denied_and_recorded(sandbox, make_server):
    """Reading, writing, dialling, being redirected and running are refused as the direct acts would be."""
    server, other = make_server(), make_server()
    server.routes["/"] = lambda handler: handler.answer(302, Location=other.url + "/secret")
    other.routes["/secret"] = lambda handler: handler.answer(200, b"secret")
    code = f"""
import agentbox.client as box
tell(lambda: box.read_text("/etc/passwd"), lambda: box.write_text("data/x", "x"), lambda: box.get("{other.url}"),
     lambda: box.get("{server.url}"), lambda: box.run(["ls"]), lambda: box.write_text("agentbox.policy", ""),
     lambda: box.read_text("trace.jsonl"))
"""
    said = sandbox.run(code, f"net: 127.0.0.1:{server.port}\n")
    assert [text.partition(": ")[0] for text in said] == ["Denied"] * 7
    targets = ["/etc/passwd", "/data/x", f":{other.port}", f":{other.port}", "/ls", "/agentbox.policy", "/trace.jsonl"]
    assert all(target in text for target, text in zip(targets, said, strict=True))
    ops = ["fs.read", "fs.write", "http.request", "http.request", "proc.run", "fs.write", "fs.read"]
    assert [text.split()[2] for text in said] == ops
    assert len(sandbox.trace("deny")) == 7
    assert other.seen == []


def test_a_program_started_by_the_sdk_is_confined(sandbox):
    """A Python program that `run` starts is guarded like the agent; without the sandbox it gets through."""
    argv = [sys.executable, "-c", "print(open('/etc/passwd').read(4))"]
    free = subprocess.run(argv, capture_output=True, text=True)
    assert (free.returncode, len(free.stdout)) == (0, 5)
    code = f"import agentbox.client as box\ntell(lambda: box.run({argv!r}).stderr)"
    (said,) = sandbox.run(code, f"exec: {sys.executable}\n")
    assert "fs.read denied: /etc/passwd" in said


def test_a_denial_is_worded_once(sandbox):
    """An agent that meets the same denial directly and through the SDK reads the same line."""
    code = """
import agentbox.client as box
tell(lambda: open("/etc/passwd"), lambda: box.read_text("/etc/passwd"), lambda: open("data/x", "w"),
     lambda: box.write_text("data/x", "x"))
"""
    said = [text[text.index("agentbox: ") :] for text in sandbox.run(code)]
    assert (said[0], said[2]) == (said[1], said[3])


def running(*argv):
    """Whether a process with these very arguments lives; a pid that the run saw may be another one's out here."""
    wanted = b"\0".join(map(os.fsencode, argv)) + b"\0"
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/cmdline", "rb") as file:
                    if file.read() == wanted:
                        return True
            except OSError:
                continue
    return False


def test_a_program_that_takes_too_long_is_ended_with_its_children(sandbox):
    """After the timeout nothing of it runs on."""
    seconds = f"600.{os.getpid()}"
    code = f"""
import os
import agentbox.client as box
for limit in (0.5, 4, 30, 100):  # until it is enough to begin
    tell(lambda: box.run(["sh", "-c", "sleep {seconds} & echo started > out/said; wait"], timeout=limit))
    if os.path.exists("out/said"):
        break
"""
    said = sandbox.run(code, "exec: sh\nread: ./out\n")
    assert all(line.startswith("TimeoutError: ") for line in said)
    assert (sandbox.folder / "out/said").read_text() == "started\n"
    assert not running("sleep", seconds)


def test_threads_tasks_and_forks_have_lanes_of_their_own(sandbox):
    """Calls of threads, tasks and a forked child are told apart in the trace."""
    sandbox.run(
        """
import asyncio, os, threading
import agentbox.client as box
box.write_text("out/main", "")
barrier = threading.Barrier(3)  # an ended thread's ident is given out again
def call():
    box.now()
    barrier.wait()
threads = [threading.Thread(target=call) for _ in range(3)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
async def task():
    return await box.aread_text("data/notes")
async def main():
    return await asyncio.gather(*[task() for _ in range(3)])
asyncio.run(main())
if os.fork() == 0:
    box.random()
    os._exit(0)
os.wait()
tell()
"""
    )
    lanes = {}
    for effect in sandbox.trace():
        lanes.setdefault(effect["op"], set()).add(effect["lane"])
    assert lanes["fs.write"] == {"0.0"}
    assert lanes["clock.now"] == {"0.1", "0.2", "0.3"}
    assert lanes["fs.read"] == {"0.0.0", "0.0.1", "0.0.2"}
    (child,) = lanes["random.float"]
    assert child.startswith("1.")


CANCELLED = """
import asyncio, concurrent.futures, threading
import agentbox.client as box
async def main():
    free = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
    loop.run_in_executor(None, free.wait)
    asked = asyncio.create_task(box.aread_text("data/notes"))
    await asyncio.sleep(0)
    asked.cancel()
    try:
        await asked
    except asyncio.CancelledError:
        print(json.dumps("cancelled"))
    free.set()
asyncio.run(main())
"""


def test_what_was_asked_for_is_done_though_its_await_is_cancelled(sandbox):
    """Also while it waits for a thread: else a replay, where others are free, would do more than the recorded run."""
    assert sandbox.run(CANCELLED) == "cancelled"
    assert [entry["op"] for entry in sandbox.trace()] == ["fs.read"]


CHANGES = {
    "write_text": "import agentbox.client as box; box.write_text('out/x', '1')",
    "run": "import agentbox.client as box; box.run(['true'])",
    "open": "open('out/x', 'w')",
    "mkdir": "import os; os.mkdir('out/x')",
    "exec": "import subprocess; subprocess.run(['true'])",
}


@pytest.fixture
def snapback(tmp_path):
    """A maker of `snapback` scripts, first on PATH; each writes what the tree held when it ran into `seen`."""

    def make(script):
        folder = tmp_path / "tools"
        folder.mkdir()
        (folder / "snapback").write_text(
            f"#!/bin/sh\nls out >> {tmp_path}/seen; echo once >> {tmp_path}/seen\n{script}\n"
        )
        (folder / "snapback").chmod(0o755)
        return f"{folder}:{os.environ['PATH']}"

    return make


@pytest.mark.parametrize("change", CHANGES)
def test_a_checkpoint_comes_right_before_the_first_change(change, sandbox, snapback):
    """Whatever changes something first, the snapshot is taken before it, once, and recorded."""
    path = snapback("echo snapback: snapshot id-1")
    read = "import agentbox.client\nagentbox.client.read_text('data/notes')"
    code = f"{read}\n{CHANGES[change]}\nopen('out/y', 'w')\ntell()"
    done = sandbox.start(code, "exec: true\n", checkpoint=True, PATH=path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "checkpoint" in line or "undo" in line]
    assert said[:2] == [
        "agentbox: checkpoint id-1 taken before first mutation",
        "agentbox: undo it with: snapback undo id-1",
    ]
    assert (sandbox.folder / "seen").read_text() == "once\n"
    effects = sandbox.trace()
    assert [effect["op"] for effect in effects][:2] == ["fs.read", "hook.checkpoint"]
    assert (effects[1]["args"], effects[1]["result"]) == ({"tool": "snapback"}, {"id": "id-1"})


@pytest.mark.parametrize("change", CHANGES)
def test_without_its_checkpoint_a_change_is_not_made(change, sandbox, snapback):
    """When snapback fails, the change is refused with the reason and nothing is there afterwards."""
    path = snapback("echo 'snapback: error: disk full' >&2; exit 1")
    code = f"def change():\n    {CHANGES[change]}\ntell(change)"
    (said,) = sandbox.run(code, "exec: true\n", checkpoint=True, PATH=path)
    sdk = change in ("write_text", "run")
    assert said.startswith("CheckpointError: no checkpoint" if sdk else "PermissionError: ")
    assert "snapback ended with status 1: snapback: error: disk full" in said
    assert os.listdir(sandbox.folder / "out") == []


def test_an_agent_that_only_reads_costs_no_snapshot(sandbox, snapback):
    """Reads, the clock and the run's private folder need no checkpoint."""
    path = snapback("echo snapback: snapshot id-1")
    code = """
import os, agentbox.client as box
tell(lambda: box.read_text("data/notes"), lambda: open("data/notes").read(), box.now,
     lambda: box.write_text(os.environ["TMPDIR"] + "/t", "x"), lambda: open(os.environ["TMPDIR"] + "/u", "w").close())
"""
    said = sandbox.run(code, checkpoint=True, PATH=path)
    assert said[:2] + said[3:] == ["notes", "notes", None, None]
    assert not (sandbox.folder / "seen").exists()


@pytest.mark.skipif(find_snapback(os.environ) is None, reason="needs snapback (pip install snapback-cli)")
def test_the_agent_cannot_undo_the_undo(sandbox):
    """Inside of a write root too, the snapshot's store is out of the agent's reach; the real undo works afterwards."""
    code = """
import os, shutil, agentbox.client as box
tell(lambda: box.write_text("data/notes", "changed"), lambda: box.write_text(".snapback/stack.json", ""),
     lambda: open(".snapback/stack.json", "w"), lambda: shutil.rmtree(".snapback"), lambda: os.rename(".snapback", "x"),
     lambda: open("snapback.toml", "w"))
"""
    said = sandbox.run(code, "write: .\n", checkpoint=True)
    assert said[0] is None
    assert [text.partition(":")[0] for text in said[1:]] == ["Denied"] + ["PermissionError"] * 4
    assert (sandbox.folder / "data/notes").read_text() == "changed"
    subprocess.run([find_snapback(os.environ), "undo"], cwd=sandbox.folder, check=True, capture_output=True)
    assert (sandbox.folder / "data/notes").read_text() == "notes"


STARTS = """
import agentbox.client as box
open("out/none", "w").close()
open("out/text", "w").write("no program")
import os
os.chmod("out/text", 0o700)
tell(*(lambda argv=argv: box.run(argv).status for argv in (["no-such-program"], ["out/none"], ["out/text"], ["true"])))
"""


@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_a_program_that_cannot_be_started_is_an_error_and_recorded(sandbox, layers):
    """As without a sandbox: not there, not executable, no program. Each is an effect with that result."""
    policy = "exec: *\nexec: ./out/none, ./out/text\n"
    told = sandbox.run(STARTS, policy, LAYERS=layers)
    assert [str(one).partition(":")[0] for one in told] == ["FileNotFoundError", "PermissionError", "OSError", "0"], (
        told
    )
    results = [(entry["args"]["argv"][0], entry["result"].get("error", {}).get("errno")) for entry in sandbox.trace()]
    assert results == [
        ("no-such-program", errno.ENOENT),
        ("out/none", errno.EACCES),
        ("out/text", errno.ENOEXEC),
        ("true", None),
    ]


CONFIGURE = """
import os
import agentbox.client as box
home = os.environ["HOME"]
tell(*(lambda name=name: box.write_text(f"{home}/{name}", "") for name in (".gitconfig", "other")))
"""


def test_a_rule_for_some_commands_of_git_keeps_calls_from_its_configuration_too(sandbox):
    """In the run's own home folder nothing else is protected, and nothing at all where git may do anything."""
    free = sandbox.run(CONFIGURE, "exec: git\n")
    assert not any(str(said).startswith("Denied") for said in free), free
    refused, other = sandbox.run(CONFIGURE, "exec: git status\n")
    assert refused.startswith("Denied") and "git configuration" in refused
    assert other == free[1]
    (entry,) = sandbox.trace("deny")
    assert (entry["op"], entry["args"]["path"]) == ("fs.write", "$HOME/.gitconfig")
