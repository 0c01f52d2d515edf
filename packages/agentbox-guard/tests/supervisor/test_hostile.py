"""Hostile agents against the supervisor: its socket, its /proc, its memory, its patience, its trace."""

import json
import os
import signal
import subprocess
import sys

import pytest
from kit.waiting import PATIENCE, comes, holds, wait_until

from agentbox.guard import kernel

ACTS = """
import os
channel = os.environ["AGENTBOX_CHANNEL"]
folder = os.path.dirname(channel)

def swap(old, new):
    os.rename(old, new)
    os.rename(new, old)

for act in (
    lambda: swap(channel, channel + ".real"),
    lambda: swap(folder, folder + ".real"),
    lambda: os.chmod(channel, 0o600),
    lambda: os.remove(channel),
):
    try:
        act()
        print("done")
    except PermissionError:
        print("refused")
"""


def test_the_channel_cannot_be_replaced(sandbox, tmp_path):
    """Not under a write rule for the folder that run folders are made in either; without a sandbox each act works."""
    done = sandbox.python(ACTS, policy=f"write: {tmp_path}\n")
    assert done.status == 0 and done.out.split() == ["refused"] * 4, done.err
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "channel").touch()
    environ = {**os.environ, "AGENTBOX_CHANNEL": str(tmp_path / "plain" / "channel")}
    plain = subprocess.run([sys.executable, "-c", ACTS], env=environ, capture_output=True, text=True)
    assert plain.stdout.split() == ["done"] * 4, plain.stderr


PLANT = """
import os
for name in ("shutil", "traceback", "hashlib", "hmac", "json"):
    with open(name + ".py", "w") as file:
        file.write("import os\\nos.close(os.open('../ran', os.O_CREAT | os.O_WRONLY))\\n")
open(os.environ.get("TMPDIR", ".") + "/left", "w").close()  # to remove which agentbox loads more
"""


@pytest.mark.parametrize("safe", [[], ["-P"]])
def test_no_module_of_the_agents_making_runs_outside(tmp_path, safe):
    """Much is loaded at need, and the working folder or PYTHONPATH may come before where it is; a plain Python runs
    what lies there.
    """
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "agentbox.policy").write_text("write: .\n")
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if safe:
        environ["PYTHONPATH"] = f".:{environ.get('PYTHONPATH', '')}"
    command = [sys.executable, *safe, "-m", "agentbox.cli", "run", "--", sys.executable, "-c", PLANT]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (folder / "shutil.py").exists() and not (tmp_path / "ran").exists()
    subprocess.run([sys.executable, *safe, "-c", "import shutil"], cwd=folder, env=environ, check=True)
    assert (tmp_path / "ran").exists()


@pytest.mark.attempt("F11")
def test_the_interpreter_of_the_supervisor_is_sealed(sandbox):
    """Also from a program that is no Python: what is put there would run at the next start, before any policy."""
    place = os.path.dirname(os.path.dirname(subprocess.__file__)) + "/zz_agentbox_test"
    try:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))
        os.remove(place)
    except OSError:
        pytest.skip("this user cannot write there either")
    if len(kernel.choose("auto", tuple(kernel.LAYERS))) < len(kernel.LAYERS):
        pytest.skip("kernel layers: not all can be had")
    argv = ["/bin/sh", "-c", f"echo x > beside; echo x > {place}"]
    done = sandbox.end(sandbox.start("", "write: /\n", argv=argv, fake=False, layers="auto"))
    assert done.status != 0 and not os.path.exists(place), done.err
    assert (sandbox.folder / "beside").exists()


PTH = """
import os, subprocess, sys
import agentbox.client as box
place = next(path for path in sys.path if path.endswith("site-packages"))
for name in (place + "/zz.pth", sys.prefix + "/pyvenv.cfg", os.path.dirname(sys.executable) + "/pyvenv.cfg"):
    for write in (lambda: open(name, "a").write("x"), lambda: box.write_text(name, "x")):
        try:
            write()
            print("written")
        except PermissionError as error:
            print("never writable" in str(error))
box.write_text("beside.txt", "x")
print(subprocess.run([sys.executable, "-c", "print('child')"], capture_output=True, text=True).stdout.strip())
"""


def test_the_interpreters_own_environment_is_sealed_for_sdk_calls(sandbox):
    """A virtual environment in the workspace is as closed to the SDK as to the agent's own writes, so that a Python
    child of it may still be started."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=sandbox.folder, check=True)
    (packages,) = (sandbox.folder / ".venv").glob("lib/python*/site-packages")
    (packages / "agentbox.pth").write_text("".join(f"{path}\n" for path in sorted({p for p in sys.path if p})))
    done = sandbox.end(
        sandbox.start(
            "",
            "read: .\nwrite: .\nexec: *\n",
            argv=[str(sandbox.folder / ".venv" / "bin" / "python"), "-c", PTH],
            fake=False,
            layers="guard",
        )
    )
    assert done.status == 0, done.err
    assert done.out.split() == ["True"] * 6 + ["child"]
    assert not (packages / "zz.pth").exists() and (sandbox.folder / "beside.txt").exists()


def test_an_sdk_call_reads_nothing_of_the_supervisor(sandbox):
    """Its environment, which the agent does not get, is in no answer, under `read: /` either; the agent's own is."""
    sandbox.environ["MY_SECRET"] = "s3cr3t-value"
    code = """
    import os
    import agentbox.client as box
    for name in (f"/proc/{os.getppid()}/environ", "/proc/self/environ"):
        try:
            content = box.read_bytes(name)
            print(b"s3cr3t" in content, b"AGENTBOX_CHANNEL" in content)
        except PermissionError as error:
            print("refused", "another process" in str(error))
    """
    done = sandbox.python(code, policy="read: /\n", layers="guard")
    assert done.out.splitlines() == ["refused True", "False True"], done.err
    environ = {**sandbox.environ, "TMPDIR": "/tmp"}
    plain = "import os; print(b's3cr3t' in open(f'/proc/{os.getppid()}/environ', 'rb').read())"
    middle = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {plain!r}])"
    done = subprocess.run([sys.executable, "-c", middle], env=environ, capture_output=True, text=True)
    assert done.stdout == "True\n"


def states(done):
    return {e["args"]["path"].rpartition("/")[2]: e["args"]["sha256"] for e in done.of(op="fs.state")}


def test_the_closing_record_opens_nothing_without_an_end(sandbox):
    """A sparse file is told by its size, a FIFO and a link are never opened, what was only claimed is not looked at."""
    done = sandbox.fake(
        """
        link = Link().armed()
        here = os.getcwd()
        open("sparse", "w").truncate(1 << 42)
        os.mkfifo("fifo")
        os.mkdir("folder")
        os.symlink("/etc", "etc")
        open("plain", "w").write("beta")
        for name in ("sparse", "fifo", "folder", "etc", "plain", "etc/passwd", "folder/../../agent.py", "trace.jsonl"):
            link.event("fs.write", path=f"{here}/{name}", flags="w")
        for path in ("/proc/kmsg", "/etc/passwd", "/dev/zero", "relative"):
            link.event("fs.write", path=path, flags="w")
        """,
        policy="write: .\n",
    )
    assert done.status == 0 and done.trace[-1]["op"] == "run.end", done.err
    assert states(done) == {
        "sparse": "too large (4398046511104 bytes)",
        "fifo": "special",
        "folder": "directory",
        "etc": "link",
        "plain": "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753",
        "passwd": "not hashed (a link leads to it)",
    }


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_closing_work(sandbox, number):
    """What is left to hash then is left out, and the trace is sealed."""
    process = sandbox.start(
        """
        link = Link().armed()
        for name in range(300):
            open(f"f{name}", "w").truncate(1 << 30)
            link.event("fs.write", path=f"{os.getcwd()}/f{name}", flags="w")
        print("written", flush=True)
        """,
        policy="write: .\n",
        most_seconds=1e9,
    )
    assert process.stdout.readline() == "written\n"
    wait_until(lambda: not children_of(process.pid))  # once the agent is gone the supervisor hashes
    while process.poll() is None:  # 300 GiB; a signal that comes at the same time is the agent's, so it comes again
        process.send_signal(number)
        holds(lambda: process.poll() is None)
    done = sandbox.end(process)
    assert done.status == 0 and done.trace[-1]["op"] == "run.end", done.err
    assert states(done)["f299"] == "not hashed (no time was left)"


ABSURD = [
    {"t": "event", "op": "fs.write", "args": {"path": "/tmp/a\0b", "to": "\0"}},
    {"t": "event", "op": "fs.write", "args": {"path": "HERE/\ud800", "sha256": ["\udfff"]}},
    *({"t": "event", "op": "fs.read", "args": {"path": path}}
      for path in ("\0", "/\0", "/\ud800", 7, None, "", "x", ["/"], "/proc/kmsg", "/dev/zero", "/etc/shadow", "HERE/")),
    {"t": "event", "op": "fs.rename", "args": {"path": 1, "to": []}, "thread": -(10**30),
     "task": 10**40, "site": "\ud800"},
    {"t": "deny", "op": "fs.read", "args": {"path": "\0"}, "key": "\ud800", "target": "\ud800\0", "reason": "\0",
     "rule": None, "fix": "\ud800", "enforced": True},
    *({"t": "ask", "op": "proc.exec", "args": {"file": "echo", "argv": ["echo"], "cwd": "/", "env_ok": True, **more}}
      for more in ({"file": "\0"}, {"file": "/\ud800"}, {"argv": ["\ud800"]}, {"argv": ["a\0"]}, {"argv": []},
                   {"cwd": "\0"}, {"cwd": "\ud800"}, {"path": "\0:\ud800"}, {"file": "python3", "argv": [""]},
                   {"file": sys.executable, "argv": ["a\0/b"]}, {"file": sys.executable, "argv": ["p"], "path": "\0"},
                   {"file": sys.executable, "cwd": "\ud800", "argv": ["./p"]}, {"file": sys.executable, "argv": []},
                   {"file": "/usr/bin/env", "argv": ["env", "\ud800"]}, {"file": "x/" * 3000}, {"file": ""})),
    *({"t": "ask", "op": "net.resolve", "args": {"host": host, "port": port, "family": "any"}}
      for host in ("\0", "\ud800", "a\0.example", "x" * 70000, "a." * 2000, "\u2100", "xn--\u00fc", "")
      for port in (0, -5, 10**30)),
    *({"t": "ask", "op": op, "args": {"family": "inet6", "address": host, "port": 10**30}}
      for op in ("net.connect", "net.bind") for host in ("\0", "\ud800", "::1%\ud800", "1" * 5000)),
    *({"t": "ask", "op": op, "args": {"path": path}}
      for op in ("net.connect", "net.bind") for path in ("\ud800", "\0\ud800", "@\0\0", "/a\0b", "", "x/" * 3000)),
    *({"t": "ask", "op": "proc.signal", "args": {"target": target, "signal": 10**30}}
      for target in (10**30, -(10**30), -1)),
    *({"t": "call", "op": op, "args": {**args, **more}}
      for op, args in (("fs.read", {}), ("fs.write", {"body": {"text": "x"}}))
      for more in ({}, {"path": "\ud800"}, {"path": "HERE/\ud800"}, {"path": "a\0b"}, {"path": "HERE/" + "n" * 300},
                   {"path": "x/" * 3000}, {"path": "HERE/.."}, {"path": "/dev/zero"}, {"path": "/dev/tty"},
                   {"path": "HERE/q", "body": {"text": "\ud800"}}, {"path": "HERE/q", "body": {"base64": "\ud800"}},
                   {"path": "HERE/q", "body": {"text": 1}}, {"path": {"\ud800": 1}}, {"path": "/proc/self/mem"})),
    *({"t": "call", "op": "http.request", "args": {"method": "GET", "url": "http://127.0.0.1:9/", **more}}
      for more in ({"url": "http://[::1%25lo]/"}, {"url": "http://\ud800/"}, {"url": "http://127.0.0.1/\ud800"},
                   {"url": "http://x:99999/"}, {"url": "http://" + "a." * 5000}, {"url": "http://[v1.x]/"},
                   {"url": "http://a\u2100b/"}, {"url": "http://127.0.0.1/\0"}, {"url": "http://\ud800@127.0.0.1/"},
                   {"method": "G\nET"}, {"method": "\u017f"}, {"method": "\ud800"}, {"method": ""},
                   {"headers": {"\ud800": "x"}}, {"headers": {"x": "\ud800"}}, {"headers": [["a", "b\r\nc: d"]]},
                   {"headers": {"x": 1}}, {"headers": 5}, {"timeout": 1e-9}, {"timeout": 10**400}, {"timeout": -1},
                   {"body": {"text": "\ud800"}}, {"url": None}, {"url": ""}, {"url": "http://127.0.0.1:\u0669/"})),
    *({"t": "call", "op": "proc.run", "args": {"argv": ["echo"], **more}}
      for more in ({"argv": ["echo", "\ud800"]}, {"argv": [""]}, {"argv": [0]}, {"argv": []}, {"argv": ["\ud800"]},
                   {"argv": ["a\0"]}, {"argv": ["."]}, {"argv": ["HERE"]}, {"argv": ["echo"] * 100000},
                   {"argv": ["echo", "x" * 200000]}, {"cwd": "/nowhere"}, {"cwd": "\ud800"}, {"cwd": "a\0"}, {"cwd": 5},
                   {"timeout": 1e-9}, {"timeout": True}, {"timeout": 10**400}, {"input": {"text": "\ud800"}})),
    {"t": "call", "op": "\ud800", "args": {"\ud800": {}}},
    {"t": "call", "op": "clock.now", "args": {"x": {"\0": "\ud800"}}, "id": 10**30},
    {"t": "call", "op": "random.float", "args": {}, "id": -1, "task": -(10**30)},
]  # fmt: skip


@pytest.mark.parametrize(("mode", "layers"), [("record", "guard"), ("record", "auto"), ("observe", "guard")])
def test_absurd_values_are_answered(sandbox, mode, layers):
    """NUL, lone surrogates and values without sense in any argument: an answer or a line of the trace, and the run goes
    on to its seal."""
    (sandbox.folder / "absurd.json").write_text(json.dumps(ABSURD).replace("HERE", str(sandbox.folder)))
    done = sandbox.fake(
        """
        link = Link().armed()
        for line in json.load(open("absurd.json")):
            link.send({"thread": 1, "id": 1, **line})
            if line["t"] in ("ask", "call"):
                answer = link.receive()
                assert answer["t"] in ("verdict", "result"), answer
        print("all answered")
        """,
        policy="read: /\nwrite: .\nexec: *\nnet: *\nnet: 127.0.0.1\n",
        mode=mode,
        layers=layers,
    )
    assert done.out == "all answered\n", done.err[-3000:]
    assert done.status == 0 and done.trace[-1]["op"] == "run.end" and "internal" not in done.err


@pytest.mark.parametrize(
    "args",
    [
        '{"path":1e999}',
        '{"size":-1e999}',
        '{"a":' * 3000 + "1" + "}" * 3000,
        "{" + '"a":' + "[" * 900 + "]" * 900 + "}",
    ],
)
@pytest.mark.parametrize("kind", ["event", "call"])
def test_numbers_and_depths_that_no_trace_can_hold_end_their_process(sandbox, kind, args):
    """One clear line, and an entry that says it."""
    op = "fs.read" if kind == "event" else "clock.now"
    line = f'{{"t":"{kind}","op":"{op}","thread":1,"id":1,"args":{args}}}\n'
    done = sandbox.fake(f"link = Link().armed(); link.raw({line!r}.encode()); rest()")
    assert done.status == 128 + 9 and done.said("channel: got"), done.err[-2000:]
    assert "channel.broken" in [entry["op"] for entry in done.trace] and done.trace[-1]["op"] == "run.end"


def test_unread_answers_are_not_piled_up(sandbox):
    """Twelve calls of twenty megabytes each, none of which is read: the supervisor holds a few of them at most, and all
    are answered, in order, as soon as they are read. Another process is answered before that."""
    (sandbox.folder / "data" / "big").write_bytes(b"\xff" * (20 << 20))
    done = sandbox.fake(
        """
        link = Link().armed()
        calls = [Link(role="sdk"), Link(role="sdk")]
        for number in range(12):
            line = {"t": "call", "id": number, "op": "fs.read", "thread": 1, "args": {"path": "data/big"}}
            calls[number % 2].send(line)
        print(link.ask("net.connect", family="inet", address="192.0.2.1", port=80)["allow"] is False)
        answers = [calls[number % 2].reader.readline(60) + calls[number % 2].reader.readline() for number in range(12)]
        print([int(answer.partition(b'"id":')[2].split(b",")[0]) for answer in answers] == list(range(12)))
        status = open(f"/proc/{os.getppid()}/status").read()
        print(int(status.partition("VmHWM:")[2].split()[0]) < 300_000)
        """,
        layers="guard",
    )
    assert done.out.split() == ["True"] * 3, done.out + done.err
    assert len(done.of("effect", "fs.read")) == 12


@pytest.mark.parametrize(("act", "said"), [("unlink", "was deleted"), ("rename", "was moved")])
def test_a_trace_that_was_taken_away_from_outside_is_a_failure(sandbox, act, said):
    """Status 74 and a line that says it, with the head, whatever the agent's own status was."""
    os.mkfifo(sandbox.folder / "go")
    process = sandbox.start("Link().armed(); print('ready', flush=True); open('go').read()")
    assert process.stdout.readline() == "ready\n"
    path = sandbox.folder / "trace.jsonl"
    path.unlink() if act == "unlink" else path.rename(sandbox.folder / "away.jsonl")
    (sandbox.folder / "go").write_text("")
    done = sandbox.end(process)
    assert done.status == 74 and done.said(f"trace.jsonl: is not there any more: the trace {said}"), done.err
    assert done.said("head ") and not done.said("recorded ") and "internal" not in done.err


@pytest.mark.parametrize(("limit", "status"), [(10, 69), (30, 69), (64, 0)])
@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_too_few_descriptors_are_said_before_anything_runs(sandbox, limit, status, layers):
    """A limit that agentbox itself would run into is one clear line; the smallest that it takes is enough."""
    code = [sys.executable, "-c", "print('ran')"]
    command = sandbox.wish("read: ./data\n", code, fake=False, layers=layers)
    lower = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{lower}; os.execv(sys.argv[1], sys.argv[1:])", *command],
        cwd=sandbox.folder,
        env=sandbox.environ,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (status, "ran\n" if status == 0 else ""), done.stderr
    if status:
        assert f"open files: the limit is {limit}, expected at least 64" in done.stderr
        assert not (sandbox.folder / "trace.jsonl").exists()


DAEMON = """
Link().armed()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        rest()
    os._exit(0)
rest()
"""


@pytest.mark.attempt("P13")
def test_kill_9_of_the_supervisor_ends_a_silent_daemon_where_there_is_a_process_namespace(sandbox):
    """Standard output, which the daemon still has, comes to its end; with the guard alone it does not
    (docs/reference/architecture.md, "When the supervisor dies")."""
    if "netns" not in kernel.choose("auto", []):
        pytest.skip("no process namespace on this machine")
    process = sandbox.start(DAEMON, layers="auto")
    process.stdout.readline()
    process.kill()
    process.communicate(timeout=PATIENCE)
    process = sandbox.start(DAEMON, layers="guard")
    daemon = int(process.stdout.readline())
    process.kill()
    process.wait()
    assert not comes(process.stdout, 0.5)
    os.kill(daemon, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
