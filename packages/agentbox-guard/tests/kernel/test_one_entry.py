"""One act of the network, or one start, makes one entry, whoever tells of it: a guard and the kernel's layers, or
these alone.

The entry says how the act ended: allowed as it went on, or refused, also where only the kernel's layers refuse.
"""

import hashlib
import json
import os
import shutil
import socket
import sys
import textwrap
import threading

import pytest
from bench import Bench
from test_confined import Box

from agentbox.guard.kernel.accounts import MOST_ACCOUNTS, Accounts
from agentbox.guard.session import Event

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

ACTS = """
import socket
server = socket.create_server(("127.0.0.1", 0))
mail = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
mail.bind(("127.0.0.1", 0))
shut = socket.socket()
shut.bind(("127.0.0.1", 0))
def attempt(act, *words):
    try:
        act(*words)
        return 0
    except OSError as error:
        return error.errno
def connect(place):
    with socket.socket() as one:
        one.connect(place)
def send(place):
    mail.sendto(b"x", place)
for name, act, one in (("open", connect, server), ("shut", connect, shut), ("sent", send, mail), ("kept", send, shut)):
    print(name, one.getsockname()[1], attempt(act, one.getsockname()))
"""
CONNECT = """
import socket
with socket.socket() as one:
    print(one.connect_ex(("127.0.0.1", 9)))
"""
WAYS = ["guarded", "native"]


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def command(box, way, code=ACTS):
    argv = box.python(code)
    return [argv[0], argv[-1]] if way == "guarded" else argv


def outcomes(done):
    """What the program has met, by the act's name: port and errno."""
    return {name: (int(port), int(number)) for name, port, number in map(str.split, done.out.splitlines())}


def told(done, op, port):
    """The kinds of all entries about a port."""
    return [entry["kind"] for entry in done.trace if entry["op"] == op and entry["args"].get("port") == port]


@pytest.mark.parametrize("way", WAYS)
def test_what_goes_on_inside_is_one_entry(box, way):
    """A connection to the run's own server and a datagram to its own socket: allowed. To a port at which nobody of the
    run listens: denied, and a closed port to the program; a datagram to it is refused.
    """
    bare = box.bare(*command(box, way))
    assert [line.split()[2] for line in bare.stdout.splitlines()] == ["0", "111", "0", "0"]
    done = box.run("read: ../program.py\n", *command(box, way))
    ends = outcomes(done)
    assert {name: number for name, (_, number) in ends.items()} == {"open": 0, "shut": 111, "sent": 0, "kept": 13}
    assert told(done, "net.connect", ends["open"][0]) == ["observe"]
    assert told(done, "net.connect", ends["shut"][0]) == ["deny"]
    assert told(done, "net.send", ends["sent"][0]) == ["observe"]
    assert told(done, "net.send", ends["kept"][0]) == ["deny"]
    assert [entry["args"]["port"] for entry in done.of("net.bind")] == [0, 0, 0]


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_that_fails_outside_is_one_entry(box, way):
    """A port of the host that a rule opens and at which nobody listens: it was allowed and tried."""
    done = box.run("read: ../program.py\nnet: 127.0.0.1:9\n", *command(box, way, CONNECT))
    assert done.out == "111\n", done.err
    assert told(done, "net.connect", 9) == ["observe"]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_let_pass_is_one_entry(box, way):
    """Under `--observe` the denial is the entry, and that it then happened is no second one."""
    done = box.run("read: .\n", *command(box, way), options=("--observe",))
    ends = outcomes(done)
    assert told(done, "net.connect", ends["open"][0]) == ["observe"]
    assert told(done, "net.connect", ends["shut"][0]) == ["deny"]
    assert told(done, "net.send", ends["kept"][0]) == ["deny"]


@pytest.mark.parametrize("way", WAYS)
def test_the_bytes_of_a_connection_are_of_the_process_that_made_it(box, way):
    """Two children of the first process talk to a server of the host; each has its own lane, opened and closed."""
    child = "import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
    child += " c.sendall(b'x' * int(sys.argv[2])); c.recv(99); c.close()"
    code = f"""
        import subprocess, sys
        isolated = ["-I", "-S"] if {way == "native"} else []
        for size in ("500", "7000"):
            subprocess.run([sys.executable, *isolated, "-c", {child!r}, sys.argv[1], size], check=True)
        """
    argv = command(box, way, textwrap.dedent(code))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve():
            for size in (500, 7000):
                one, _ = server.accept()
                with one:
                    while size:
                        size -= len(one.recv(65536))
                    one.sendall(b"thanks")

        thread = threading.Thread(target=serve)
        thread.start()
        done = box.run(f"read: ../program.py\nnet: 127.0.0.1:{port}\nexec: *\n", *argv, str(port))
        thread.join()
    assert done.status == 0, done.err
    opened, closed = done.of("net.connect"), done.of("net.close")
    assert [(one["args"]["sent"], one["args"]["received"]) for one in closed] == [(500, 6), (7000, 6)]
    who = [(one["pid"], one["lane"].split(".")[0]) for one in closed]
    assert who == [(one["pid"], one["lane"].split(".")[0]) for one in opened] and len(set(who)) == 2
    assert done.trace[0]["pid"] not in dict(who) and "0" not in dict(who).values()


def test_a_guards_account_keeps_its_thread_and_place(box):
    """The entry that the kernel's notice makes is of the thread that the guard has named, at the line it was in."""
    code = """
        import socket, threading
        server = socket.create_server(("127.0.0.1", 0))
        def work():
            socket.create_connection(server.getsockname()).close()
        one = threading.Thread(target=work)
        one.start()
        one.join()
        """
    argv = box.python(code)
    done = box.run("read: ../program.py\n", argv[0], argv[-1])
    (entry,) = done.of("net.connect")
    assert entry["src"] == "guard" and entry["lane"] == "0.1", entry


def test_accounts_that_nothing_follows_are_dropped():
    """A guard that asks for ever and does nothing takes no memory; the latest account of an act is the one told."""
    accounts = Accounts()
    for number in range(MOST_ACCOUNTS + 10):
        accounts.add((number,), Event("net.connect", {}, pid=7))
    assert accounts.take(7, (3,)) is None
    accounts.add((100,), Event("net.connect", {}, pid=7, lane="0.9"))
    lanes = [accounts.take(7, (100,)) for _ in range(3)]
    assert [event and event.lane for event in lanes] == ["0.9", "0.0", None]
    accounts.forget(7)
    assert accounts.take(7, (101,)) is None


BINDS = """
import json, socket, sys
told = {}
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    for host, port in (("0.0.0.0", 0), ("127.0.0.1", 0), ("::", 0), ("0.0.0.0", int(sys.argv[1]))):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind) as one:
            try:
                one.bind((host, port))
                told[f"{kind:d} {host} {bool(port)}"] = 0
            except OSError as error:
                told[f"{kind:d} {host} {bool(port)}"] = error.errno
print(json.dumps(told))
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lacking", [(), ("netns",)], ids=["all-layers", "no-namespaces"])
def test_a_datagram_socket_needs_no_rule_for_any_port_of_a_network_of_the_run(tmp_path, way, lacking):
    """As clients bind (dgram of Node, DatagramSocket of Java), where a rule speaks of this machine; a server needs one,
    and all do where the network is the machine's.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    bench = Bench(tmp_path, BINDS, "net: 127.0.0.1:9\n")
    command = bench.bare(port)
    assert set(bench.told(command).values()) == {0}
    inner = [command[0], *command[-2:]] if way == "guarded" else command
    told = bench.told(bench.boxed(without=lacking, command=inner), lacking)
    free = {name for name, number in told.items() if number == 0}
    assert free == (set() if lacking else {"2 0.0.0.0 False", "2 :: False"}), told
    assert set(told.values()) <= {0, 13}
    with open(bench.state / "trace.jsonl") as file:
        kinds = [entry["kind"] for entry in map(json.loads, file) if entry["op"] == "net.bind"]
    assert sorted(kinds) == ["deny"] * (8 - len(free)) + ["observe"] * len(free)


STARTS = """
import os, subprocess, sys
def put(text):
    with open("new", "w") as file:
        file.write(text)
    os.chmod("new", 0o755)
    os.rename("new", "tool")
put("#!/bin/sh\\n:\\n")
before = {"plain": None, "replaced": lambda: put("#!/bin/sh\\necho other\\n")}[sys.argv[1]]
sys.stdout.buffer.write(subprocess.check_output(["./tool", os.environ["TMPDIR"] + "/x"], preexec_fn=before))
"""


def started(box, *options, policy="exec: ./tool", way="plain"):
    done = box.run(f"write: .\nread: ../program.py\n{policy}\n", *command(box, "guarded", STARTS), way, options=options)
    assert done.status == 0, done.err
    entries = [one for one in done.of("proc.exec") + done.of("proc.exec", "deny") if one["args"]["argv"][0] == "./tool"]
    return done, entries


def test_a_start_that_a_guard_has_asked_for_makes_one_entry(box):
    """Its arguments name private folders alike for both."""
    (entry,) = started(box)[1]
    assert (entry["src"], entry["args"]["argv"]) == ("guard", ["./tool", "$TMPDIR/x"])


def test_a_start_that_is_let_pass_for_observing_makes_one_entry(box):
    (entry,) = started(box, "--observe", policy="")[1]
    assert (entry["kind"], entry["src"]) == ("deny", "guard")


def test_what_is_started_is_recorded_though_its_guard_has_asked_for_another(box):
    """The file is replaced between the question and the start."""
    done, (started_,) = started(box, way="replaced")
    assert done.out == "other\n"
    assert started_["args"]["sha256"] == hashlib.sha256((box.ws / "tool").read_bytes()).hexdigest()


PROTECTED = """
import os
def attempt(act, *words):
    try:
        act(*words)
    except OSError as error:
        print(error.errno, end=" ")
def write(name):
    with open(name, "w") as file:
        file.write("x")
write("free")
write("moved")
attempt(write, ".bashrc")
attempt(os.mkdir, ".vscode")
attempt(write, ".vscode/tasks.json")
attempt(os.rename, "moved", ".envrc")
attempt(os.symlink, "free", ".profile")
attempt(os.link, "free", ".zshrc")
"""


def test_what_is_built_in_is_refused_with_one_entry(box):
    """A guard leaves it to the kernel's layers, and only tells of it."""
    argv = command(box, "guarded", PROTECTED)
    assert box.bare(*argv).stdout == ""
    for name in os.listdir(box.ws):
        shutil.rmtree(box.ws / name) if name == ".vscode" else os.unlink(box.ws / name)
    done = box.run("write: .\nread: ../program.py\n", *argv)
    assert done.out.split() == ["13"] * 5, done.err
    acts = [(one["kind"], one["op"]) for one in done.trace if one["op"].startswith("fs.") and one["kind"] != "meta"]
    denied = [one for one in done.trace if one["kind"] == "deny"]
    free, made = [("observe", "fs.write")] * 2, ("observe", "fs.mkdir")
    written = [*free, ("deny", "fs.write"), made, ("deny", "fs.write")]
    assert acts == [*written, ("deny", "fs.rename"), ("deny", "fs.symlink"), ("deny", "fs.link")]
    assert {one["src"] for one in denied} == {"guard"}
