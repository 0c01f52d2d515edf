"""Load and exhaustion: many processes at once lose and double nothing, and what runs out or stops opens no way."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from kit.waiting import PATIENCE, comes, wait_until
from soak_run import Soak

from agentbox.guard.kernel import landlock, netns, seccomp
from agentbox.trace import verify

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")


@pytest.mark.attempt("P4")
@pytest.mark.parametrize(
    ("guarded", "opens", "execs", "connects"), [(False, 20_000, 500, 200), (True, 4_000, 100, 100)]
)
def test_fifty_processes_at_once_lose_and_double_nothing(tmp_path, guarded, opens, execs, connects):
    """Every act is once in the trace, the chain holds, and the supervisor has neither more descriptors nor memory."""
    assert Soak(tmp_path, 50, opens, execs, connects, guarded=guarded).run() == []


class Box:
    """A folder with a secret outside the workspace, and runs of unguarded Python programs in it."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "ws").mkdir()
        (folder / "state").mkdir()
        (folder / "secret").write_text("the secret\n")
        (folder / "ws" / "mine").write_text("mine\n")

    def command(self, code):
        (self.folder / "program.py").write_text(code)
        state = self.folder / "state"
        (state / "policy").write_text("read: .\nread: ../program.py\nwrite: .\n")
        head = [sys.executable, "-m", "agentbox.cli", "run", "-p", f"{state}/policy", "-t", f"{state}/trace.jsonl"]
        return [*head, "--", *self.bare()]

    def bare(self):
        return [sys.executable, "-I", "-S", f"{self.folder}/program.py"]

    def run(self, command):
        return subprocess.run(command, cwd=self.folder / "ws", capture_output=True, text=True, timeout=PATIENCE)

    @contextmanager
    def start(self, command):
        with subprocess.Popen(command, cwd=self.folder / "ws", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            try:
                yield run
            finally:
                run.kill()

    def trace(self):
        path = str(self.folder / "state" / "trace.jsonl")
        assert verify(path).ok
        with open(path) as file:
            return [json.loads(line) for line in file]

    def left(self):
        """The processes that still run the program."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if words[1:3] == [b"-I", b"-S"] and os.fsencode(self.folder / "program.py") in words:
                found.append(int(pid))
        return found


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


BOMB = """
import os, signal
reader, writer = os.pipe()
def grow(left):
    while left > 0:
        share = (left + 1) // 2
        if os.fork() == 0:
            try: os.setsid()
            except OSError: pass
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            try: got = os.read(os.open("../secret", os.O_RDONLY), 1)
            except PermissionError: got = b"."
            os.write(writer, got)
            os.closerange(0, 3)
            grow(share - 1)
            while True: signal.pause()
        left -= share
grow(200)
said = b""
while len(said) < 200: said += os.read(reader, 200)
os.write(1, b"%d told, %d refused" % (len(said), said.count(b".")))
"""


@pytest.mark.attempt("P10")
def test_two_hundred_processes_that_fork_each_other_are_refused_and_ended(box):
    """They leave their session, ignore SIGTERM and outlive the agent: each is refused the secret, and none is left."""
    done = box.run(box.command(BOMB))
    assert (done.stdout, done.returncode) == ("200 told, 200 refused", 0), done.stderr
    assert box.left() == []
    trace = box.trace()
    denied = [entry for entry in trace if entry["kind"] == "deny"]
    assert len(denied) == len({entry["pid"] for entry in denied}) == 200
    assert trace[-1]["op"] == "run.end"


def test_the_same_processes_read_the_secret_without_the_sandbox(box):
    """What the test above refuses works without."""
    box.command(BOMB)
    try:
        done = box.run(box.bare())
    finally:
        for pid in box.left():
            os.kill(pid, signal.SIGKILL)
    assert done.stdout == "200 told, 0 refused"


EXHAUSTED = """
import errno, os, resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
def name(call, *arguments):
    try: call(*arguments)
    except OSError as error: return errno.errorcode[error.errno]
    return "ok"
held, failed = [], ""
while not failed:
    try: held.append(os.open("mine", os.O_RDONLY))
    except OSError as error: failed = errno.errorcode[error.errno]
print(failed, len(held) > 20, name(os.open, "mine", os.O_RDONLY), name(os.mkdir, "made"), name(socket.socket))
print(name(os.open, "new", os.O_CREAT | os.O_WRONLY), name(os.open, "../secret", os.O_RDONLY))
for fd in held: os.close(fd)
print(name(os.open, "mine", os.O_RDONLY), name(os.open, "../secret", os.O_RDONLY))
"""


@pytest.mark.attempt("P4", "P10")
def test_an_agent_without_descriptors_fails_as_it_would_and_gains_nothing(box):
    """Out of descriptors, opens fail with EMFILE and the secret stays refused; with some again, all is as before."""
    done = box.run(box.command(EXHAUSTED))
    first, second, third = done.stdout.splitlines()
    assert first == "EMFILE True EMFILE ok EMFILE"
    assert second == "EMFILE EACCES"
    assert third == "ok EACCES"
    assert done.returncode == 0
    reads = [entry for entry in box.trace() if entry["op"] == "fs.read" and entry["args"]["path"].endswith("/ws/mine")]
    assert len(reads) >= 20
    box.command(EXHAUSTED)
    os.rmdir(box.folder / "ws" / "made")
    assert box.run(box.bare()).stdout.splitlines()[2] == "ok ok"


STOPPED = """
import os
while True:
    try:
        with open("../secret", "rb") as secret: os.write(1, secret.read())
    except PermissionError: pass
    os.close(os.open("mine", os.O_RDONLY))
    os.write(1, b".")
"""


def said_within(stream, seconds):
    """What comes from a pipe until nothing has come for `seconds`; None if more than a pipe holds has come by then."""
    said = b""
    while len(said) < 1 << 20:
        if not comes(stream, seconds):
            return said
        piece = os.read(stream.fileno(), 65536)
        if not piece:
            return said
        said += piece
    return None


@pytest.mark.attempt("P4")
def test_a_stopped_supervisor_lets_nothing_through(box):
    """While it is stopped the agent waits, and goes on afterwards; killed while stopped, it takes the run along."""
    with box.start(box.command(STOPPED)) as run:
        assert run.stdout.read(5) == b"....."
        os.kill(run.pid, signal.SIGSTOP)
        said = said_within(run.stdout, 0.2)
        assert said is not None and not said.strip(b".")
        os.kill(run.pid, signal.SIGCONT)
        assert run.stdout.read(5) == b"....."
        os.kill(run.pid, signal.SIGSTOP)
        assert said_within(run.stdout, 0.2) is not None
        os.kill(run.pid, signal.SIGKILL)
        assert run.stdout.read().strip(b".") == b""
        wait_until(lambda: not box.left(), "the end of the agent")


def test_the_same_program_reads_the_secret_and_does_not_wait_without_the_sandbox(box):
    """What the test above refuses works without, and goes on and on."""
    box.command(STOPPED)
    with box.start(box.bare()) as run:
        assert run.stdout.read(11) == b"the secret\n"
        assert len(run.stdout.read(100_000)) == 100_000
