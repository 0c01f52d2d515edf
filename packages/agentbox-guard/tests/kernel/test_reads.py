"""Reads under the kernel layers: one entry for each, with the content that was there and the lane it was read in."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.waiting import PATIENCE, holds, wait_until

from agentbox.guard.kernel import landlock, netns, seccomp
from agentbox.guard.kernel.announced import MOST_ANNOUNCED, Announced

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()
needs_layers = pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")


@pytest.fixture
def run(tmp_path):
    """Runs a command in `ws` under a policy: what it said, and its entries of reads, listings and denials."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "state").mkdir()

    def run(policy, *argv, stdin=None, stdout=subprocess.PIPE):
        (tmp_path / "state" / "policy").write_text(policy)
        head = ["run", "-q", "-p", str(tmp_path / "state" / "policy"), "-t", str(tmp_path / "state" / "t.jsonl"), "--"]
        done = subprocess.run(
            [sys.executable, "-m", "agentbox.cli", *head, *argv],
            cwd=tmp_path / "ws", stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=PATIENCE,
        )  # fmt: skip
        entries = [json.loads(line) for line in (tmp_path / "state" / "t.jsonl").read_text().splitlines()]
        return done.stdout, [entry for entry in entries if entry["kind"] in ("observe", "deny")], done.stderr

    return run


def of(entries, op, path):
    return [entry for entry in entries if entry["op"] == op and entry["args"].get("path") == str(path)]


THREADS = """
import threading
barrier = threading.Barrier(4)  # one that ended would leave its ident, and so its lane, to a later one
def work():
    barrier.wait()
    for _ in range(50):
        with open("f", "rb") as file: file.read()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@needs_layers
def test_each_read_is_told_once_in_the_lane_of_its_thread(run, tmp_path):
    """Four threads read one file: the guard's lanes, the kernel's content, nothing twice."""
    (tmp_path / "ws" / "f").write_text("x")
    (tmp_path / "ws" / "agent.py").write_text(THREADS)
    _, entries, error = run("read: .\n", sys.executable, "agent.py")
    reads = of(entries, "fs.read", tmp_path / "ws" / "f")
    assert [entry["src"] for entry in reads] == ["guard"] * 200, error
    lanes = [entry["lane"] for entry in reads]
    assert sorted(lanes.count(lane) for lane in set(lanes)) == [50] * 4
    assert {entry["args"]["sha256"] for entry in reads} == {hashlib.sha256(b"x").hexdigest()}


CHANGING = """
import hashlib
for number in range(20):
    with open("out/f", "w") as file: file.write("x" * number)
    with open("out/f", "rb") as file: print(hashlib.sha256(file.read()).hexdigest())
"""


@needs_layers
def test_an_entry_holds_what_was_in_the_file_when_it_was_opened(run, tmp_path):
    """A file that changes between reads, within one tick of its times as well."""
    (tmp_path / "ws" / "agent.py").write_text(CHANGING)
    said, entries, error = run("read: .\nwrite: ./out/\n", sys.executable, "agent.py")
    reads = of(entries, "fs.read", tmp_path / "ws" / "out" / "f")
    assert [entry["args"]["sha256"] for entry in reads] == said.split(), error
    assert len(reads) == 20


@needs_layers
def test_what_could_not_be_opened_was_not_read(run, tmp_path):
    """The guard announces the look into a file as if it were a folder; the kernel refuses, and there is no entry."""
    (tmp_path / "ws" / "f").write_text("x")
    code = "import os\ntry: os.open('f', os.O_RDONLY | os.O_DIRECTORY)\nexcept NotADirectoryError: print('not')\n"
    (tmp_path / "ws" / "agent.py").write_text(code)
    said, entries, error = run("read: .\n", sys.executable, "agent.py")
    assert said == "not\n", error
    assert not of(entries, "fs.read", tmp_path / "ws" / "f")


@needs_layers
def test_what_one_program_holds_opens_nothing_to_another(run, tmp_path):
    """The secret is standard input, and may be opened again as that; its name stays refused."""
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    command = ["sh", "-c", f"cat /dev/stdin; cat {secret}"]
    with open(secret) as stdin:
        assert subprocess.run(command, stdin=stdin, capture_output=True, text=True).stdout == "secret\nsecret\n"
    with open(secret) as stdin:
        said, entries, error = run("exec: sh, exec: cat\n", *command, stdin=stdin)
    assert said == "secret\n", error
    assert [entry["kind"] for entry in of(entries, "fs.read", secret)] == ["deny"]


FOLDERS = """
import os
def names(slash=""):
    try: return sorted(os.listdir("in/d" + slash))
    except PermissionError: return "refused"
print(names(), names("/"))
os.rmdir("in/d")
os.symlink("../../outside", "in/d")
print(names(), names("/"))
os.unlink("in/d")
open("in/d", "w").close()
for name in ("in/d", "in/d/"):
    try: os.close(os.open(name, os.O_RDONLY)); print("a file")
    except NotADirectoryError: print("no folder")
"""


@needs_layers
def test_folders_are_remembered_only_while_they_are_the_same(run, tmp_path):
    """A folder that was listed becomes a link to one outside of the rules, then a file."""
    (tmp_path / "ws" / "in" / "d").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("x")
    program = tmp_path / "program.py"
    program.write_text(FOLDERS)
    command = [sys.executable, "-I", "-S", str(program)]
    bare = subprocess.run(command, cwd=tmp_path / "ws", capture_output=True, text=True).stdout.splitlines()
    assert bare == ["[] []", "['secret'] ['secret']", "a file", "no folder"]
    os.unlink(tmp_path / "ws" / "in" / "d")
    (tmp_path / "ws" / "in" / "d").mkdir()
    said, entries, error = run("read: ../program.py\nread: .\nwrite: ./in\n", *command)
    assert said.splitlines() == ["[] []", "refused refused", "a file", "no folder"], error
    assert [entry["kind"] for entry in of(entries, "fs.list", tmp_path / "ws" / "in" / "d")] == ["observe"] * 2
    assert [entry["kind"] for entry in of(entries, "fs.list", tmp_path / "outside")] == ["deny"] * 2


@needs_layers
@pytest.mark.parametrize("name", ["nothing", "no/such/folder/x", "in/link", "/lib/no/such/x", "in/loose/x"])
def test_names_that_are_not_there_are_not_there(run, tmp_path, name):
    """Missing names and folders, a link that leads nowhere, and a folder that is such a link: as without the layers."""
    (tmp_path / "ws" / "in").mkdir()
    (tmp_path / "ws" / "in" / "link").symlink_to("gone")
    (tmp_path / "ws" / "in" / "loose").symlink_to("gone")
    said, _, error = run("read: .\nexec: cat\n", "sh", "-c", f"cat {name}; cat {name}")
    assert error.count("No such file or directory") == 2 and not said, error


@needs_layers
def test_links_to_own_descriptors_are_the_askers(run, tmp_path):
    """A link in the workspace to /proc/self leads to nothing of the supervisor, also below a folder it is used as."""
    (tmp_path / "ws" / "own").symlink_to("/proc/self/fd")
    (tmp_path / "ws" / "stdin").symlink_to("/proc/self/fd/0")
    said, _, error = run("read: .\nexec: cat\n", "sh", "-c", "echo a | cat own/0; echo b | cat stdin; cat own/9999")
    assert said == "a\nb\n", error
    assert "No such file" in error


def test_announcements_are_bounded():
    """A process that announces and never opens takes no more than so much, and others' are not mixed up with its."""
    announced = Announced()
    for number in range(3 * MOST_ANNOUNCED):
        announced.add_read(1, f"/{number}", "0.0", "")
        announced.add_read(1, "/same", f"0.{number}", "")
    assert (
        sum(announced.take_read(1, f"/{number}") is not None for number in range(3 * MOST_ANNOUNCED)) < MOST_ANNOUNCED
    )
    assert announced.take_read(2, "/same") is None
    for pid in range(10, 30_000):
        announced.add_read(pid, "/x", "0.0", "")
    assert announced.take_read(29_999, "/x") == ("0.0", "") and announced.take_read(10, "/x") is None


def test_announced_reads_are_taken_in_order():
    """Two threads announce the same file: the first to announce is the first to be told of."""
    announced = Announced()
    announced.add_read(1, "/x", "0.1", "a.py:1")
    announced.add_read(1, "/x", "0.2", "")
    assert [announced.take_read(1, "/x") for _ in range(3)] == [("0.1", "a.py:1"), ("0.2", ""), None]


AGAIN = """
import os, sys
name = os.path.abspath("in/k")
with open(name, "w") as file: file.write("x")
for _ in range(2): open(name).close()
os.unlink(name)
os.symlink(sys.argv[1], name)
try: os.close(os.open(name, os.O_RDONLY | os.O_NONBLOCK)); print("opened")
except PermissionError: print("refused")
"""


@needs_layers
def test_nothing_but_what_was_decided_is_opened_again(run, tmp_path):
    """A known name becomes a link to a pipe outside, whose writer waits there: it must not notice."""
    (tmp_path / "ws" / "in").mkdir()
    (tmp_path / "program.py").write_text(AGAIN)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-I", "-S", str(tmp_path / "program.py"), str(pipe)]

    def met(start):
        """Whether a writer of the pipe found a reader while `start` ran."""
        writer = subprocess.Popen([sys.executable, "-I", "-S", "-c", f"open({str(pipe)!r}, 'w')"])
        try:
            waiting = Path(f"/proc/{writer.pid}/wchan")
            wait_until(lambda: waiting.read_text() in ("wait_for_partner", "fifo_open"), "a writer that waits")
            said = start()
            if said == "opened\n":
                writer.wait(PATIENCE)
            return said, not holds(lambda: writer.poll() is None)
        finally:
            writer.kill()
            writer.wait()

    def bare():
        done = subprocess.run(command, cwd=tmp_path / "ws", capture_output=True, text=True)
        os.unlink(tmp_path / "ws" / "in" / "k")
        return done.stdout

    assert met(bare) == ("opened\n", True)
    assert met(lambda: run("read: ../program.py\nwrite: ./in\n", *command)[0]) == ("refused\n", False)


STALE = """
import hashlib, mmap, os, sys
memory = mmap.mmap(1, 4096)
for letter in b"ABC":
    memory[0] = letter
    with open(sys.argv[1], "rb") as file: print(hashlib.sha256(file.read()).hexdigest(), file=sys.stderr)
"""


@needs_layers
def test_what_standard_output_may_change_is_hashed_each_time(run, tmp_path):
    """Standard output is a file of the rules, which the program maps and changes past its times."""
    data = tmp_path / "ws" / "data"
    data.write_bytes(b"x" * 4096)
    (tmp_path / "program.py").write_text(STALE)
    with open(data, "r+b") as opened:
        _, entries, error = run(
            "read: ../program.py\nread: .\n", sys.executable, "-I", "-S", str(tmp_path / "program.py"), "data",
            stdout=opened,
        )  # fmt: skip
    hashes = [entry["args"]["sha256"] for entry in of(entries, "fs.read", data)]
    assert hashes == [line for line in error.split() if len(line) == 64] and len(set(hashes)) == 3, error


@needs_layers
def test_flags_that_open_does_not_know_are_passed_over(run, tmp_path):
    """The highest bit of the flags, with and without a file to be made: as without the layers (open(2))."""
    code = """
import ctypes
libc = ctypes.CDLL(None)
for flags in (1 << 31, 1 << 31 | 0o101): print(libc.syscall(257, -100, b"in/f", flags, 0o600) >= 0)
print(libc.syscall(257, -100, b"in/f", 1 << 31, 0) >= 0)
"""
    (tmp_path / "ws" / "in").mkdir()
    said, _, error = run("write: ./in\n", sys.executable, "-I", "-S", "-c", code)
    assert said.split() == ["False", "True", "True"], error


@needs_layers
def test_a_terminal_that_is_closed_does_not_end_the_run(run):
    """Three pseudo terminals, the first of which are gone when the third is opened."""
    code = """
import os
def master(): return os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
first, second = master(), master()
os.close(first); os.close(second)
print(master() >= 0)
"""
    said, _, error = run("read: .\n", sys.executable, "-I", "-S", "-c", code)
    assert said == "True\n", error


@needs_layers
def test_many_pipes_may_wait_and_work_goes_on(run, tmp_path):
    """Three hundred processes wait for pipes, and find their writers; a long file is hashed meanwhile."""
    code = """
import os
children = []
for number in range(300):
    os.mkfifo(f"in/{number}")
    child = os.fork()
    if not child:
        os.open(f"in/{number}", os.O_RDONLY); os._exit(0)
    children.append(child)
print(len(open("long", "rb").read()))
for number in range(300): os.close(os.open(f"in/{number}", os.O_WRONLY))
print(sum(os.waitpid(child, 0)[1] for child in children))
"""
    (tmp_path / "ws" / "in").mkdir()
    (tmp_path / "ws" / "long").write_bytes(b"x" * 1_000_000)
    said, _, error = run("read: .\nwrite: ./in\n", sys.executable, "-I", "-S", "-c", code)
    assert said.split() == ["1000000", "0"], error
