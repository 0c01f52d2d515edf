"""What a process says of itself on the guard channel, against what it then does: the record has what was done."""

import sys

import pytest
from test_confined import Box

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

LIES = """
import json, os, socket
channel = socket.socket(socket.AF_UNIX)
channel.connect(os.environ["AGENTBOX_CHANNEL"])
answers = channel.makefile("rb")
def say(**line):
    channel.sendall(json.dumps(line).encode() + b"\\n")
say(t="hello", v=1, role="guard", runtime="python", version="3", resume=True)
answers.readline()
def event(op, **args):
    say(t="event", op=op, args={**args, "path": os.getcwd() + "/" + args["path"]}, thread=1)
event("fs.write", path="old", flags="w", absent=True)
event("fs.write", path="old", flags="w", size=3)
event("fs.write", path="new", flags="w", size=7)
event("fs.mkdir", path="folder", exists=True)
say(t="ask", id=1, op="proc.exec", args={"file": "/bin/true", "argv": ["true"], "cwd": "/", "env_ok": True}, thread=1)
answers.readline()
open("old", "w").write("xx")
open("old", "a").close()
open("new", "w").close()
os.mkdir("folder")
os.spawnv(os.P_WAIT, "/bin/true", ["true"])
"""


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def facts_of(done, op, *facts):
    return [{name: entry["args"].get(name) for name in facts} for entry in done.of(op) if entry["kind"] == "observe"]


def by_the_kernel(done, op, *facts):
    return [{name: entry["args"].get(name) for name in facts} for entry in done.of(op) if entry["src"] == "kernel"]


def test_what_was_announced_wrongly_is_recorded_as_it_was(box):
    """What a file held before, whether a folder was there, where a program was started; all of it is said otherwise."""
    (box.ws / "old").write_text("four")
    done = box.run("write: .\nread: ../program.py\nexec: true\n", *box.python(LIES))
    assert done.status == 0, done.err
    told = facts_of(done, "fs.write", "size", "absent")
    assert told == [{"size": 4, "absent": None}, {"size": 2, "absent": None}, {"size": None, "absent": True}]
    assert facts_of(done, "fs.mkdir", "exists") == [{"exists": None}]
    assert facts_of(done, "proc.exec", "cwd") == [{"cwd": str(box.ws)}]
    assert not done.of("guard.claim")


def test_what_was_there_is_told_of_any_program(box):
    """A shell that makes a file, goes on with it, and writes it anew."""
    done = box.run("write: .\nexec: sh\n", "sh", "-c", "echo a > out; echo b >> out; echo c > out")
    assert by_the_kernel(done, "fs.write", "size", "absent") == [
        {"size": None, "absent": True}, {"size": 2, "absent": None}, {"size": 4, "absent": None},
    ]  # fmt: skip


def test_a_program_started_in_a_folder_by_another_name_is_one_entry(box):
    """The guard says where as the agent says it: over a link, from where it is itself, as bytes."""
    (box.ws / "real").mkdir()
    (box.ws / "link").symlink_to("real")
    code = """
        import os, subprocess
        for folder in ("link", "link/../real/", b"real", os.path.abspath("link"), None):
            subprocess.run(["true"], cwd=folder, check=True)
        """
    argv = box.python(code)
    done = box.run("read: .\nread: ../program.py\nexec: true\n", argv[0], argv[-1])
    assert done.status == 0, done.err
    told = [(entry["src"], entry["args"]["cwd"]) for entry in done.of("proc.exec")]
    assert told == [("guard", f"{box.ws}/real")] * 4 + [("guard", str(box.ws))]
