"""The SDK as an agent uses it, over a real socket to a supervisor's end that performs the real effects."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit.waiting import PATIENCE

import agentbox.client as box


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def agent(code, **environ):
    """Run `code` in a fresh interpreter, as a process of the run."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environ}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=PATIENCE)


def test_files_are_written_and_read(channel, services, tmp_path):
    """Text and bytes make the round trip, whatever is in them, by str, bytes or Path."""
    services.write = [tmp_path]
    box.write_text("a.txt", "grüße\r\n")
    assert box.read_text(tmp_path / "a.txt") == "grüße\r\n"
    assert box.read_bytes(b"a.txt") == "grüße\r\n".encode()
    box.write_bytes(tmp_path / "b", bytearray(range(256)))
    assert box.read_bytes("b") == bytes(range(256))
    box.write_text("l1", "ä", encoding="latin-1")
    assert (box.read_bytes("l1"), box.read_text("l1", encoding="latin-1")) == (b"\xe4", "ä")


def test_large_bodies_make_the_round_trip(channel, services, tmp_path):
    """Megabytes of text, of control characters and of noise arrive unchanged."""
    services.write = [tmp_path]
    for data in (b"x" * 3_000_000, b"\x01" * 3_000_000, os.urandom(3_000_000)):
        box.write_bytes("big", data)
        assert box.read_bytes("big") == data


def test_a_name_that_is_not_utf8(channel, services, tmp_path):
    """File names are bytes on Linux; the SDK carries them as Python spells them."""
    services.write = [tmp_path]
    box.write_text(b"caf\xe9", "x")
    assert os.listdir(os.fsencode(tmp_path)).count(b"caf\xe9") == 1


def test_relative_paths_follow_the_current_directory(channel, services, tmp_path, monkeypatch):
    """A path means what it means to `open` at that moment; the supervisor gets it absolute."""
    services.write = [tmp_path]
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir("sub")
    box.write_text("../x", "x")
    assert channel.calls[-1]["args"]["path"] == str(tmp_path / "sub") + "/../x"
    assert (tmp_path / "x").read_text() == "x"


@pytest.mark.parametrize(
    ("path", "expected"), [("none", FileNotFoundError), (".", IsADirectoryError), ("a/b", NotADirectoryError)]
)
def test_file_errors_are_the_usual_ones(path, expected, channel, services, tmp_path):
    """A missing file is FileNotFoundError with its path, and so on."""
    services.write = [tmp_path]
    (tmp_path / "a").write_text("x")
    with pytest.raises(expected) as caught:
        box.read_text(path)
    assert caught.value.filename == f"{tmp_path}/{path}"


@pytest.mark.parametrize(("path", "expected"), [("", FileNotFoundError), ("a\0b", ValueError), (3, TypeError)])
def test_what_is_no_path_never_reaches_the_supervisor(path, expected, channel):
    """Wrong arguments fail as they do for `open`."""
    with pytest.raises(expected):
        box.read_text(path)
    assert channel.calls == []


def test_a_denial_says_what_and_how_to_allow_it(channel):
    """`Denied` is a PermissionError with the operation, the target, the rule and the line that would allow it."""
    with pytest.raises(box.Denied) as caught:
        box.read_text("/etc/passwd")
    error = caught.value
    assert isinstance(error, PermissionError)
    assert (error.errno, error.op, error.target) == (errno.EACCES, "fs.read", "/etc/passwd")
    assert (error.rule, error.fix, error.hint) == (None, "read: /etc/passwd", "read: /etc/passwd")
    assert str(error) == "fs.read /etc/passwd: no rule allows it"


def test_http(channel, server):
    """A response has status, headers in any case, body, text, JSON, hash and the URL that answered."""
    server.routes["/"] = lambda handler: handler.answer(
        200, b'{"a": 1}', Content_Type="application/json; charset=UTF-8"
    )
    response = box.get(server.url, headers={"X-A": "1"})
    assert (response.status, response.ok, response.url) == (200, True, server.url + "/")
    assert (response.headers["CONTENT-TYPE"], "content-type" in response.headers) == (
        "application/json; charset=UTF-8",
        True,
    )
    assert response.headers.get("x-none", "default") == "default"
    assert (response.body, response.text, response.json()) == (b'{"a": 1}', '{"a": 1}', {"a": 1})
    assert len(response.sha256) == 64
    assert server.seen[0][2]["x-a"] == "1"
    server.routes["/"] = lambda handler: handler.answer(404, b"\xff")
    response = box.get(server.url)
    assert (response.status, response.ok, response.text) == (404, False, "\ufffd")
    assert repr(response) == f"<Response 404 {server.url}/ 1 bytes>"


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        ("ä", "ä".encode(), None), (b"\xff", b"\xff", None), ({"a": [1]}, b'{"a": [1]}', "application/json"),
        ([1], b"[1]", "application/json"), (None, b"", None),
    ],
)  # fmt: skip
def test_request_bodies(body, sent, kind, channel, server):
    """Text, bytes and JSON are sent as such; only JSON brings its content type."""
    server.routes["/"] = lambda handler: handler.answer(200)
    box.request("POST", server.url, body=body)
    assert (server.seen[0][3], server.seen[0][2].get("content-type")) == (sent, kind)


def test_transport_failures_are_an_oserror(channel, services):
    """No answer is RequestFailed with an errno; a wrong URL is a ValueError."""
    services.hosts.add(("127.0.0.1", 1))
    with pytest.raises(box.RequestFailed, match=r"^GET http://127\.0\.0\.1:1: connection refused$") as caught:
        box.get("http://127.0.0.1:1")
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == errno.ECONNREFUSED
    with pytest.raises(ValueError, match=r"http\.request: url: got 'ftp://x'"):
        box.get("ftp://x")


def test_run(channel, services, tmp_path):
    """A program's status and output come back; `input` is its standard input, `cwd` its folder."""
    services.programs = {"/bin/sh"}
    done = box.run(["/bin/sh", "-c", "cat; pwd; echo err >&2; exit 3"], input="in\n", cwd=tmp_path)
    assert (done.status, done.ok, done.stderr, done.stderr_bytes) == (3, False, "err\n", b"err\n")
    assert done.stdout == f"in\n{tmp_path}\n"
    assert repr(done).endswith("status 3>")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        box.run(["/bin/sh", "-c", "echo out; exit 3"], check=True)
    assert (caught.value.returncode, caught.value.stdout) == (3, "out\n")


def test_run_errors(channel, services):
    """A timeout is a TimeoutError, a missing program a FileNotFoundError, a shell line a TypeError."""
    services.programs = {"/bin/sh", "/none"}
    with pytest.raises(TimeoutError, match=r"/bin/sh did not end within 0\.1 s"):
        box.run(["/bin/sh", "-c", "exec sleep 600"], timeout=0.1)
    with pytest.raises(FileNotFoundError) as caught:
        box.run(["/none"])
    assert caught.value.filename == "/none"
    with pytest.raises(FileNotFoundError) as caught:
        box.run(["/bin/sh", "-c", "true"], cwd="/no/such/folder")
    assert caught.value.filename == "/no/such/folder"
    with pytest.raises(TypeError, match="expected a list of arguments"):
        box.run("git status")
    with pytest.raises(box.Denied):
        box.run(["git", "status"])


def test_now_and_random(channel):
    """Both are what the supervisor says, so that a replay can say it again."""
    channel.answers["clock.now"] = lambda call: {"t": "result", "id": call["id"], "ok": True, "value": {"value": 12.5}}
    assert box.now() == 12.5
    assert 0 <= box.random() < 1
    assert box.random() != box.random()


def test_a_failed_checkpoint(channel):
    """A mutation without its checkpoint raises CheckpointError."""
    error = {"type": "checkpoint", "text": "no checkpoint"}
    channel.answers["fs.write"] = lambda call: {"t": "result", "id": call["id"], "ok": False, "error": error}
    with pytest.raises(box.CheckpointError, match="no checkpoint"):
        box.write_text("x", "x")


def test_outside_of_a_sandbox(monkeypatch):
    """Without a supervisor every call says how to get one, and nothing is done."""
    monkeypatch.delenv("AGENTBOX_CHANNEL", raising=False)
    box._local.__dict__.clear()
    for call in (box.now, box.random, lambda: box.read_text("/etc/hostname"), lambda: box.run(["true"])):
        with pytest.raises(box.NotSandboxed, match=r"agentbox run -p agentbox.policy -- python agent.py"):
            call()


def test_one_connection_per_thread(channel):
    """Calls of one thread share a connection; 8 threads × 25 calls at once all get their own answers."""
    channel.answers["clock.now"] = lambda call: {
        "t": "result", "id": call["id"], "ok": True, "value": {"value": call["thread"] % 1000}
    }  # fmt: skip
    barrier = threading.Barrier(8)

    def work(_):
        barrier.wait()
        return {box.now() - threading.get_native_id() % 1000 for _ in range(25)}

    with ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(work, range(8))) == {0}
    assert len(channel.calls) == 200
    assert len(channel.hellos) == 8
    hello = channel.hellos[0]
    assert (hello["role"], hello["runtime"], hello["v"], hello["ppid"]) == ("sdk", "python", 1, os.getppid())


def test_the_place_of_a_call_is_the_agents_own_line(channel):
    """`site` names the first frame that is neither ours nor the standard library's."""
    box.now()
    line = sys._getframe().f_lineno - 1
    assert channel.calls[-1]["site"] == f"{__file__}:{line}"
    ThreadPoolExecutor(1).submit(box.now).result()
    assert "site" not in channel.calls[-1], "no line of the agent is on the stack of a pool's thread"


def test_tasks_are_told_apart(channel):
    """Each asyncio task has its own number, blocking calls in it too; async calls carry the awaiting task's thread."""

    async def one():
        await box.aget("http://nowhere.invalid/")

    async def two(n):
        box.now()
        await asyncio.sleep(0)
        with pytest.raises(box.Denied):
            await one()
        return n

    async def main():
        return await asyncio.gather(*map(two, range(5)))

    assert asyncio.run(main()) == list(range(5))
    calls = channel.calls
    assert {call["thread"] for call in calls} == {threading.get_native_id()}
    by_task = {}
    for call in calls:
        by_task.setdefault(call["task"], []).append(call["op"])
    assert sorted(by_task.values()) == [["clock.now", "http.request"]] * 5
    assert all(call["site"].startswith(__file__) for call in calls)
    box.now()
    assert "task" not in calls[-1]


def test_async_forms(channel, services, tmp_path, server):
    """Every blocking call has its form for coroutines, which runs beside the loop."""
    services.write, services.programs = [tmp_path], {"/bin/echo"}
    server.routes["/"] = lambda handler: handler.answer(200, b"x")

    async def main():
        await box.awrite_text("t", "text")
        await box.awrite_bytes("b", b"bytes")
        done = await box.arun(["/bin/echo", "hi"])
        responses = await asyncio.gather(*[box.arequest("POST", server.url, body={"n": n}) for n in range(5)])
        found = (await box.aread_text("t"), await box.aread_bytes("b"), done.stdout, (await box.aget(server.url)).body)
        return (*found, [response.status for response in responses])

    assert asyncio.run(main()) == ("text", b"bytes", "hi\n", b"x", [200] * 5)


def test_after_a_fork_the_child_has_its_own_connection(channel):
    """Parent and child both go on; the child says hello for itself."""
    box.now()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            box.now()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    box.now()
    assert [hello["ppid"] for hello in channel.hellos] == [os.getppid(), os.getpid()]


def test_a_signal_handler_may_call_too(channel):
    """A call that interrupts a call gets its own answer, and so does the interrupted one."""
    inner = []
    old = signal.signal(signal.SIGUSR1, lambda *_: inner.append(box.random()))
    main = threading.get_ident()

    def slowly(call):
        if not inner:
            signal.pthread_kill(main, signal.SIGUSR1)
        return {"t": "result", "id": call["id"], "ok": True, "value": {"value": 7}}

    channel.answers["clock.now"] = slowly
    channel.answers["random.float"] = lambda call: {
        "t": "result",
        "id": call["id"],
        "ok": True,
        "value": {"value": 0.5},
    }
    try:
        assert box.now() == 7
        while not inner:
            pass
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert inner == [0.5]


def test_an_interrupted_call_does_not_shift_the_answers(channel):
    """After a KeyboardInterrupt in the middle of a call, the next call gets its own answer."""

    def stop(*_):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGUSR1, stop)
    main, go = threading.get_ident(), threading.Event()

    def slowly(call):
        signal.pthread_kill(main, signal.SIGUSR1)
        go.wait(PATIENCE)
        return {"t": "result", "id": call["id"], "ok": True, "value": {"value": 7}}

    channel.answers["clock.now"] = slowly
    try:
        with pytest.raises(KeyboardInterrupt):
            box.now()
    finally:
        signal.signal(signal.SIGUSR1, old)
        go.set()
    assert 0 <= box.random() < 1


def hang_up(call):
    """Make the server close the connection instead of answering."""
    raise ConnectionAbortedError


BROKEN = {
    "gone": hang_up,
    "garbled": lambda call: b"what?\n",
    "no object": lambda call: b"[1]\n",
    "another call's": lambda call: {"t": "result", "id": call["id"] + 1, "ok": True, "value": {"value": 1}},
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_supervisor_ends_the_process(how, channel):
    """When the channel is closed or garbled the process ends with status 70 and one line, whatever it catches."""
    channel.answers["clock.now"] = BROKEN[how]
    code = "import agentbox.client as box\ntry: box.now()\nexcept BaseException as e: print('caught', e)\nprint('on')"
    done = agent(code)
    assert (done.returncode, done.stdout) == (70, "")
    assert done.stderr.startswith("agentbox: the sandbox's supervisor cannot be reached (")
    assert done.stderr.count("\n") == 1


def test_a_refused_connection_ends_the_process(tmp_path):
    """A channel that nobody listens on is a supervisor that died."""
    done = agent("import agentbox.client as box; box.now()", AGENTBOX_CHANNEL=str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (70, "")
    assert "No such file or directory" in done.stderr


def test_the_import_loads_built_in_modules_only():
    """An agent pays for what the import loads: nothing but C modules that cost next to nothing."""
    code = "import sys; b = set(sys.modules); import agentbox.client; print(*sorted(set(sys.modules) - b))"
    allowed = {"__future__", "_json", "_socket", "agentbox", "agentbox.client", "errno"}
    done = agent(code)
    assert set(done.stdout.split()) <= allowed, done.stderr


def test_socket_defaults_of_the_agent_do_not_matter(channel):
    """`socket.setdefaulttimeout` is about the agent's own sockets."""
    code = (
        "import socket; socket.setdefaulttimeout(0.001)\nimport agentbox.client as box\n"
        "print(all(0 <= box.random() < 1 for _ in range(50)))"
    )
    assert agent(code).stdout == "True\n"


def test_everything_public_is_documented():
    """Every public name has a docstring and a line in the reference page."""
    page = pathlib.Path(__file__).parents[4] / "docs/reference/sdk.md"
    text = page.read_text()
    for name in box.__all__:
        assert getattr(box, name).__doc__, name
        assert f"`{name}" in text, name


def test_lines_are_plain_json(channel, services, tmp_path):
    """What goes over the channel is ASCII JSON, lone surrogates escaped (docs/spec/channel.md, Transport 2)."""
    line = box._dump({"a": "\udcff\u4e2d", "b": [1, 2.5, None, True]})
    assert line.isascii()
    assert json.loads(line) == {"a": "\udcff\u4e2d", "b": [1, 2.5, None, True]}
    with pytest.raises(TypeError, match="got set, expected a value that JSON can carry"):
        box.request("GET", "http://h/", timeout={1})
