"""36 attempts of an unguarded program: each works without the sandbox, and none within it, for root and an ordinary
user.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

import pytest
from kit.waiting import PATIENCE
from scenes import scenes, source_folders

HERE = os.path.dirname(os.path.abspath(__file__))
COUNT = 36

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")


class Servers:
    """What listens outside: TCP, UDP, and local sockets by path and by abstract name; each answers `hello`."""

    def __init__(self, folder):
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.bind(f"{folder}/s.sock")
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0{folder}/s.sock")
        self.datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagram.bind(f"{folder}/d.sock")
        for path in ("s.sock", "d.sock"):
            os.chmod(f"{folder}/{path}", 0o777)
        self.tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
        self.hits = []
        for one in (self.stream, self.abstract):
            one.listen()
        for one in (self.tcp, self.stream, self.abstract):
            threading.Thread(target=self._accept, args=(one,), daemon=True).start()
        for one in (self.udp, self.datagram):
            threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    def _accept(self, one):
        while True:
            try:
                connection, _ = one.accept()
            except OSError:
                return
            self.hits.append(one.family)
            connection.sendall(b"hello")
            connection.close()

    def _answer(self, one):
        while True:
            try:
                data, peer = one.recvfrom(1000)
            except OSError:
                return
            self.hits.append(one.family)
            if data:
                one.sendto(b"hello", data.decode() if one.family == socket.AF_UNIX else peer)

    def close(self):
        for one in (self.tcp, self.udp, self.stream, self.abstract, self.datagram):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()


class Scene:
    """A workspace, a folder outside of it with victims, a secret, and a process of the host, for the attempts of
    `script`.
    """

    script = "battery.py"

    def __init__(self, uid):
        self.uid = uid
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="battery-"))
        os.chmod(self.folder, 0o755)
        for name in ("ws/.git/hooks", "ws/.git/objects", "ws/.git/refs", "outside", "state", "tries"):
            os.makedirs(f"{self.folder}/{name}")
        for name in ("victim", "unlinked", "truncated", "renamed", "linked"):
            self.write(f"outside/{name}", "as it was\n")
        self.write("ws/.git/config", "[core]\n\tbare = false\n")
        self.write("ws/.git/HEAD", "ref: refs/heads/main\n")
        self.write("secret", "the secret\n")
        self.write("state/agentbox.policy", "write: .\nread: ../tries, ../scene.json\n")
        for name in (self.script, "tries.py"):
            shutil.copy(f"{HERE}/{name}", f"{self.folder}/tries/{name}")
        self.servers = Servers(self.folder)
        self.own()
        self.host = subprocess.Popen(
            [self.python, "-c", "import signal; signal.signal(signal.SIGUSR1, lambda *a: print('hit', flush=True)); "
             "print('ready', flush=True); [signal.pause() for _ in range(9)]"],
            stdout=subprocess.PIPE, env={**os.environ, "HOST_SECRET": "the secret"}, preexec_fn=self.drop,
        )  # fmt: skip
        self.host.stdout.readline()
        self.descriptor = os.open(f"{self.folder}/secret", os.O_RDONLY)
        self.facts = {
            "outside": f"{self.folder}/outside", "secret": f"{self.folder}/secret", "host": self.host.pid,
            "tcp": self.servers.tcp.getsockname()[1], "udp": self.servers.udp.getsockname()[1],
            "stream": f"{self.folder}/s.sock", "datagram": f"{self.folder}/d.sock", "descriptor": self.descriptor,
        }  # fmt: skip
        self.prepare()
        self.write("scene.json", json.dumps(self.facts))
        self.before = self.outside()

    def prepare(self):
        """Add what other attempts need."""

    @property
    def python(self):
        """An interpreter that the user can execute."""
        if self.uid is None:
            return sys.executable
        return "/usr/bin/python3"

    def write(self, name, text):
        with open(f"{self.folder}/{name}", "w") as file:
            file.write(text)

    def own(self):
        if self.uid is not None:
            for base, folders, files in os.walk(self.folder):
                for name in (*folders, *files, ""):
                    os.chown(os.path.join(base, name), self.uid, self.uid)

    def drop(self):
        if self.uid is not None:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)

    def outside(self):
        """Everything about the files outside."""
        found = {}
        for base, folders, files in os.walk(f"{self.folder}/outside"):
            for name in (*folders, *files):
                path = os.path.join(base, name)
                info = os.lstat(path)
                attributes = os.listxattr(path, follow_symlinks=False)
                found[path] = (info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns, attributes)
        return found

    def run(self, boxed):
        command = [self.python, "-I", f"{self.folder}/tries/{self.script}", f"{self.folder}/scene.json"]
        environ = {
            **os.environ,
            "BATTERY_ONE": "the secret",
            "BATTERY_TWO": "the secret",
            "TMPDIR": f"{self.folder}/state",
        }
        if boxed:
            state = f"{self.folder}/state"
            command = [
                self.python, "-m", "agentbox.cli", "run", "-p", f"{state}/agentbox.policy",
                "-t", f"{state}/trace.jsonl", "--", *command,
            ]  # fmt: skip
            environ["PYTHONPATH"] = ":".join(source_folders())
        done = subprocess.run(
            command, cwd=f"{self.folder}/ws", env=environ, capture_output=True, text=True, timeout=PATIENCE,
            pass_fds=(self.descriptor,), preexec_fn=self.drop,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    def trace(self):
        with open(f"{self.folder}/state/trace.jsonl") as file:
            return [json.loads(line) for line in file]

    def close(self):
        self.servers.close()
        os.close(self.descriptor)
        self.host.kill()
        self.host.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


scene = scenes(Scene)


def test_each_attempt_works_without_the_sandbox(scene):
    """Without agentbox every attempt of the battery succeeds: a machine on which one cannot proves nothing for it."""
    results, _ = scene.run(False)
    assert len(results) == COUNT
    failed = {name: why for name, why in results.items() if why}
    assert not {name for name in failed if name not in ("set_up_io_uring", "connect_multipath")}, failed
    assert scene.outside() != scene.before and scene.servers.hits


@pytest.mark.attempt("F1", "F4", "F5", "F6", "F7", "N1", "N8", "N9", "P1", "F9", "F10")
def test_no_attempt_works_in_the_sandbox(scene):
    """With the default layers none succeeds, nothing outside has changed, nobody outside was reached, and it is
    told.
    """
    results, said = scene.run(True)
    assert len(results) == COUNT
    assert {name for name, why in results.items() if not why} == set()
    assert scene.outside() == scene.before
    assert scene.servers.hits == []
    scene.host.kill()
    assert scene.host.stdout.read() == b""
    entries = scene.trace()
    assert entries[0]["args"]["layers"] == ["netns", "landlock", "seccomp"]
    outside, workspace = f"{scene.folder}/outside", f"{scene.folder}/ws"
    told = {(entry["op"], entry["target"]) for entry in entries if entry["kind"] == "deny"}
    for op, target in (
        ("fs.read", f"{scene.folder}/secret"), ("fs.write", f"{outside}/written"), ("fs.write", f"{outside}/victim"),
        ("fs.remove", f"{outside}/unlinked"), ("fs.mkdir", f"{outside}/made"), ("fs.truncate", f"{outside}/truncated"),
        ("fs.rename", f"{outside}/renamed"), ("fs.write", f"{outside}/dangling"), ("fs.link", f"{outside}/linked"),
        ("fs.write", f"{outside}/by-root"), ("fs.write", f"{outside}/by-cwd"), ("fs.chmod", f"{outside}/victim"),
        ("fs.utime", f"{outside}/victim"), ("fs.xattr", f"{outside}/victim"), ("sys.call", "ptrace"),
        ("fs.write", f"{workspace}/.git/hooks/post-commit"), ("fs.write", f"{workspace}/.git/config"),
        ("fs.write", f"{workspace}/.bashrc"), ("fs.write", f"{workspace}/.claude/settings.json"),
        ("fs.write", f"{workspace}/.vscode/tasks.json"), ("net.connect", f"unix:{scene.folder}/s.sock"),
        ("net.send", f"unix:{scene.folder}/d.sock"), ("sys.call", "sendto with MSG_FASTOPEN"),
    ):  # fmt: skip
        assert (op, target) in told, (op, target, said)
    # Honest programs ask for it whenever they start, so it is recorded and no denial.
    absent = [entry["args"] for entry in entries if (entry["kind"], entry["op"]) == ("meta", "sys.call")]
    assert absent == [{"name": "io_uring_setup", "absent": True}]
    assert not os.path.exists(f"{workspace}/.bashrc") and not os.listdir(f"{workspace}/.git/hooks")
