"""Every attempt of attempts.py gets through without the sandbox and is refused inside, with no effect outside and an
entry that says why.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kit.waiting import PATIENCE, joined

HERE = pathlib.Path(__file__).parent
AGENTBOX = [sys.executable, "-m", "agentbox.cli"]
POLICY = """\
read: ./data
read: ./attempts.py
write: ./out/
exec: echo
exec: {python}
env: SCENE
env: SCENE_PORT
"""


HELPERS = ("read_secret", "read_by_vault", "write_profile")


def names() -> list[str]:
    """The attempts, in the order of the file."""
    source = (HERE / "attempts.py").read_text()
    prefixes = ("read_", "write_", "exec_", "net_", "tamper_", "env_")
    found = [line[4:].partition("(")[0] for line in source.splitlines() if line.startswith("def ")]
    return [name for name in found if name.startswith(prefixes) and name not in HELPERS]


class Scene:
    """A workspace with one readable and one writable folder, and beside it what must stay out of reach."""

    def __init__(self, base: pathlib.Path) -> None:
        self.base = base.resolve()
        self.workspace = self.base / "ws"
        for folder in ("ws/data", "ws/out", "private", "outside"):
            (self.base / folder).mkdir(parents=True)
        (self.workspace / "data/notes.txt").write_text("notes\n")
        (self.workspace / "attempts.py").write_text((HERE / "attempts.py").read_text())
        (self.workspace / "agentbox.policy").write_text(POLICY.format(python=sys.executable))
        (self.base / "private/secret.txt").write_text("top secret\n")
        (self.base / "outside/victim.txt").write_text("victim\n")
        (self.base / "outside/removable.txt").write_text("")
        with contextlib.closing(sqlite3.connect(self.base / "private/secret.db")) as database:
            database.execute("create table t(v)")
            database.execute("insert into t values('top secret')")
            database.commit()
        self.servers = [socket.create_server(("127.0.0.1", 0))]
        self.port = self.servers[0].getsockname()[1]
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(str(self.base / "private/u.sock"))
        unix.listen()
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind("\0" + str(self.base))
        abstract.listen()
        self.servers += [unix, abstract]
        self.hits = 0
        self.threads = [threading.Thread(target=self._accept, args=(server,), daemon=True) for server in self.servers]
        for thread in self.threads:
            thread.start()

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                server.accept()[0].close()
                self.hits += 1

    def close(self) -> None:
        for server in self.servers:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()
        assert joined(*self.threads)

    def run(self, *prefix: str) -> dict[str, list[Any]]:
        """All attempts in one process, bare or behind `prefix`."""
        environ = dict(os.environ, SCENE=str(self.base), SCENE_PORT=str(self.port), SCENE_HIDDEN="hidden")
        done = subprocess.run(
            [*prefix, sys.executable, "attempts.py", *names()],
            cwd=self.workspace,
            env=environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        self.stderr = done.stderr
        result: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
        return result

    def outside(self) -> list[tuple[str, int, int, float]]:
        """What can be seen of the places that must not change."""
        found = []
        for folder in ("outside", "private", "ws/data"):
            for path in sorted((self.base / folder).rglob("*")):
                status = path.lstat()
                found.append((str(path.relative_to(self.base)), status.st_size, status.st_mode, status.st_mtime))
        return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    """The results without the sandbox."""
    scene = Scene(tmp_path_factory.mktemp("bare"))
    try:
        yield scene.run()
    finally:
        scene.close()


@pytest.fixture(scope="module")
def boxed(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Scene, dict[str, list[Any]], list[Any], list[dict[str, Any]]]]:
    """The scene, the results inside, what was outside before, and the trace."""
    scene = Scene(tmp_path_factory.mktemp("boxed"))
    try:
        before = scene.outside()
        results = scene.run(*AGENTBOX, "run", "--layers", "guard", "--")
        entries = [json.loads(line) for line in (scene.workspace / "trace.jsonl").read_text().splitlines()]
        yield scene, results, before, entries
    finally:
        scene.close()


def control(name: str) -> Any:
    """The control of an attempt; skipped where the machine refuses by itself what the sandbox is to refuse."""
    marks = []
    if name == "write_stdlib" and not os.access(os.path.dirname(os.__file__), os.W_OK):
        marks.append(pytest.mark.skip(reason="write_stdlib: this user cannot write the standard library's folder"))
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [control(name) for name in names() if name != "read_facade_defaults"])
def test_the_attempt_works_without_the_sandbox(name: str, bare: dict[str, list[Any]]) -> None:
    """Else a refusal inside would prove nothing."""
    assert bare[name][0], bare[name][1]


@pytest.mark.attempt("F1", "F4", "F5", "F6", "F8", "F9", "F11", "N1", "N5", "N8", "N9", "N11", "P7", "P8")
@pytest.mark.parametrize("name", names())
def test_the_attempt_is_refused_inside(name: str, boxed: Any) -> None:
    """The same code, the same scene, one policy."""
    assert not boxed[1][name][0], boxed[1][name][1]


def test_nothing_changed_outside(boxed: Any) -> None:
    """No file outside of the write roots was made, changed or touched, and nobody was connected to."""
    scene, _, before, _ = boxed
    assert scene.outside() == before
    assert scene.hits == 0


def test_denials_say_op_target_and_the_line_that_would_allow(boxed: Any) -> None:
    """Every kind of operation was denied with an entry that names it."""
    denials = [entry for entry in boxed[3] if entry["kind"] == "deny"]
    ops = {entry["op"] for entry in denials}
    assert ops >= {
        "fs.read", "fs.write", "fs.mkdir", "fs.mknod", "fs.remove", "fs.rename", "fs.link", "fs.symlink",
        "fs.chmod", "fs.chown", "fs.utime", "fs.truncate",
        "net.connect", "net.bind", "net.send", "net.resolve", "proc.exec", "proc.signal", "code.load",
    }  # fmt: skip
    secret = str(boxed[0].base / "private/secret.txt")
    assert any(
        entry["op"] == "fs.read" and entry["args"]["path"] == secret and entry["fix"] == f"read: {secret}"
        for entry in denials
    )
    assert all(entry["reason"] for entry in denials)


def test_the_denial_that_the_agent_sees_is_a_permission_error(boxed: Any) -> None:
    """Type, errno and text as code expects them, with the policy line that would help."""
    text = boxed[1]["read_open"][1]
    assert text.startswith("PermissionError: [Errno 13] agentbox: fs.read denied: ")
    assert "add this line to agentbox.policy: read: " in text
    assert boxed[1]["tamper_ctypes"][1].startswith("ImportError: ")
