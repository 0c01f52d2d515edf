"""What the standard library does without an audit event, held by the guard alone: each attempt works without agentbox,
is refused by it, and what honest programs do so still works.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pty
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

POLICY = f"read: ./attempts.py\nread: ./honest.py\nwrite: ./out/\nexec: {sys.executable}\nenv: SCENE\n"

ATTEMPTS = """
import json, os, ssl, subprocess, sys, time
import _imp, _multiprocessing, _posixshmem, grp, pwd
from importlib.machinery import ModuleSpec

scene = json.loads(os.environ["SCENE"])
secret, victim = scene["secret"], scene["victim"]

def shm_open():
    assert os.read(_posixshmem.shm_open(scene["shared"], os.O_RDONLY, 0o600), 99) == b"top secret"

def shm_open_of_a_second_copy():
    spec = ModuleSpec("other._posixshmem", None, origin=_posixshmem.__file__)
    _imp.create_dynamic(spec).shm_open(scene["shared"], os.O_RDONLY, 0o600)

def shm_unlink():
    _posixshmem.shm_unlink(scene["shared2"])

def semaphore_rebuild():
    _multiprocessing.SemLock._rebuild(0, 1, 1, scene["semaphore"])

def semaphore_unlink():
    _multiprocessing.sem_unlink(scene["semaphore"])

def opened_by_openssl(how):
    try:
        how(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    except ssl.SSLError:
        pass  # it was read, and is no certificate

def ssl_load_cert_chain():
    opened_by_openssl(lambda context: context.load_cert_chain(secret))

def ssl_load_key():
    opened_by_openssl(lambda context: context.load_cert_chain(ssl.get_default_verify_paths().cafile or secret, secret))

def ssl_load_verify_locations():
    opened_by_openssl(lambda context: context.load_verify_locations(secret))

def ssl_verify_folder():
    opened_by_openssl(lambda context: context.load_verify_locations(capath=os.path.dirname(secret)))

def ssl_dh_params():
    opened_by_openssl(lambda context: context.load_dh_params(secret))

def ssl_keylog():
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).keylog_filename = scene["made"]

def ssl_decode_cert():
    opened_by_openssl(lambda context: ssl._ssl._test_decode_cert(secret))

def ssl_cert_file_variable():
    os.environ["SSL_CERT_FILE"] = secret

def zone(value):
    os.environ["TZ"] = value
    time.tzset()
    assert time.tzname[0] == "QSECRET", time.tzname

def tz_file():
    zone(":" + scene["zone"])

def tz_upwards():
    zone("../" * 12 + scene["zone"])

def tz_by_link():
    os.symlink(scene["zone"], "out/zone")
    zone(":" + os.path.abspath("out/zone"))

def tz_link_later():
    os.mkdir("out/later")
    os.environ["TZ"] = ":" + os.path.abspath("out/later/zone")
    os.symlink(scene["zone"], "out/later/zone")
    time.tzset()
    assert time.tzname[0] == "QSECRET", time.tzname

def tz_of_a_child():
    code = "import time; print(time.tzname[0])"
    environ = {**os.environ, "TZ": ":" + scene["zone"]}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert "QSECRET" in done.stdout, done

def setpriority():
    os.setpriority(os.PRIO_PROCESS, victim, os.getpriority(os.PRIO_PROCESS, victim))

def setpriority_of_a_group():
    os.setpriority(os.PRIO_PGRP, os.getpgid(victim), os.getpriority(os.PRIO_PROCESS, victim))

def setscheduler():
    os.sched_setscheduler(victim, os.SCHED_OTHER, os.sched_param(0))

def setparam():
    os.sched_setparam(victim, os.sched_param(0))

def setaffinity():
    os.sched_setaffinity(victim, os.sched_getaffinity(victim))

def clock_settime():
    try:
        time.clock_settime(time.CLOCK_MONOTONIC, 0.0)
    except PermissionError:
        raise
    except OSError:
        pass  # nobody may set that one, but the kernel was asked

def accounts():
    pwd.getpwnam("daemon")

def accounts_by_number():
    pwd.getpwuid(pwd_of_daemon)

def all_accounts():
    assert len(pwd.getpwall()) > 2

def groups():
    grp.getgrnam("daemon")

def all_groups():
    assert any(entry.gr_name == "daemon" for entry in grp.getgrall())

def a_second_imp():
    assert _imp.create_builtin(ModuleSpec("_imp", None)) is not _imp

def a_second_pwd():
    copy = _imp.create_builtin(ModuleSpec("pwd", None))
    _imp.exec_builtin(copy)
    copy.getpwnam("daemon")

def by_the_guards_event():
    box = []
    sys.audit("agentbox.native", "_posixshmem.shm_open", (scene["shared"], os.O_RDONLY, 0o600), box)
    if not box:
        _posixshmem.shm_open(scene["shared"], os.O_RDONLY, 0o600)
    elif not box[0][0]:
        raise box[0][1]

def terminal_of_others():
    os.close(os.open(scene["terminal"], os.O_RDWR | os.O_NOCTTY))

pwd_of_daemon = 1
results = {}
for name in sys.argv[1:]:
    try:
        globals()[name]()
        results[name] = "got it"
    except Exception as error:
        results[name] = f"{type(error).__name__}: {error}"
    os.environ.pop("TZ", None)
print(json.dumps(results))
"""
NAMES = [line[4:-3] for line in ATTEMPTS.splitlines() if line.startswith("def ") and line.endswith("():")]

HONEST = """
import json, locale, multiprocessing, os, pwd, socket, ssl, sys, time
from multiprocessing import shared_memory

def work(name, lock, queue):
    block = shared_memory.SharedMemory(name=name)
    with lock:
        queue.put(bytes(block.buf[:5]).decode())
    block.close()

if __name__ == "__main__":
    results = {}
    context = multiprocessing.get_context("spawn")
    block = shared_memory.SharedMemory(create=True, size=16)
    block.buf[:5] = b"hello"
    queue, lock = context.Queue(), context.Lock()
    child = context.Process(target=work, args=(block.name, lock, queue))
    child.start()
    results["shared"] = queue.get()
    results["affinity"] = os.sched_setaffinity(child.pid, os.sched_getaffinity(0)) if child.is_alive() else None
    child.join()
    results["child"] = child.exitcode
    block.close()
    block.unlink()
    left = shared_memory.SharedMemory(create=True, size=16)
    from multiprocessing import resource_tracker
    resource_tracker.unregister(left._name, "shared_memory")
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    ssl.create_default_context()
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    os.environ["TZ"] = "CET-1CEST"
    time.tzset()
    results["zone"] = time.tzname[0]
    master, slave = os.openpty()
    os.close(os.open(os.ttyname(slave), os.O_RDWR | os.O_NOCTTY))
    results["user"] = pwd.getpwuid(os.getuid()).pw_uid == os.getuid()
    results["home"] = os.path.expanduser("~root") != "~root"
    print(json.dumps(results))
"""


def guarded(*options: str) -> list[str]:
    return [sys.executable, "-m", "agentbox.cli", "run", "--layers", "guard", *options, "--"]


class Scene:
    """A workspace, and beside it what belongs to others: a process, a file, shared memory, a semaphore, a terminal."""

    def __init__(self, base: pathlib.Path) -> None:
        self.base = base
        mark = f"kept-{os.urandom(6).hex()}"
        self.kept = [pathlib.Path("/dev/shm", name) for name in (mark, mark + "2", "sem." + mark)]
        for place in self.kept[:2]:
            place.write_bytes(b"top secret")
        from _multiprocessing import SemLock

        SemLock(1, 1, 1, "/" + mark, False)
        self.victim = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
        self.master, slave = pty.openpty()
        (base / "secret").write_text("top secret\n")
        zone = struct.pack(">4sc15x6I", b"TZif", b"\0", 0, 0, 0, 0, 1, 8) + struct.pack(">iBB", 3600, 0, 0)
        (base / "zone").write_bytes(zone + b"QSECRET\0")
        self.facts = {
            "secret": str(base / "secret"), "zone": str(base / "zone"), "made": str(base / "made"),
            "shared": "/" + mark, "shared2": f"/{mark}2", "semaphore": "/" + mark,
            "victim": self.victim.pid, "terminal": os.ttyname(slave),
        }  # fmt: skip
        self.work = base / "ws"
        (self.work / "out").mkdir(parents=True)
        (self.work / "attempts.py").write_text(ATTEMPTS)
        (self.work / "honest.py").write_text(textwrap.dedent(HONEST))
        (self.work / "agentbox.policy").write_text(POLICY)

    def run(self, prefix: list[str], file: str, *words: str) -> dict[str, Any]:
        environ = {**os.environ, "SCENE": json.dumps(self.facts)}
        command = [*prefix, sys.executable, file, *words]
        done = subprocess.run(command, cwd=self.work, env=environ, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def close(self) -> None:
        os.close(self.master)
        self.victim.communicate(b"\n")
        for place in self.kept:
            with contextlib.suppress(FileNotFoundError):
                place.unlink()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("natives").resolve())
    yield made
    made.close()


@pytest.fixture(scope="module")
def boxed(scene: Scene) -> dict[str, str]:
    """The results with the guard alone; what attempts destroy is there for the bare run, which comes after."""
    return scene.run(guarded(), "attempts.py", *NAMES)


@pytest.fixture(scope="module")
def bare(scene: Scene, boxed: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    assert boxed
    subprocess.run("rm -rf out/*", shell=True, cwd=scene.work, check=True)
    last = ("semaphore_unlink",)  # what takes others their object away
    return scene.run([], "attempts.py", *(name for name in NAMES if name not in last), *last)


@pytest.mark.parametrize("name", NAMES)
def test_the_guard_alone_refuses_what_works_without_it(name: str, bare: dict[str, str], boxed: dict[str, str]) -> None:
    """An attempt that fails bare would prove nothing here."""
    assert bare[name] == "got it"
    assert boxed[name] != "got it"


def test_denials_name_the_file_and_the_rule(scene: Scene, boxed: dict[str, str]) -> None:
    """Files that a C library would read are denied like any other."""
    assert f"fs.read denied: {scene.facts['secret']}" in boxed["ssl_load_verify_locations"]
    assert f"add this line to agentbox.policy: read: {scene.facts['zone']}" in boxed["tz_file"]
    assert "only processes of this run" in boxed["setaffinity"]


def test_honest_programs_keep_what_they_use(scene: Scene) -> None:
    """Shared memory and semaphores between processes, own priorities, terminals, zones and names; nothing is left."""
    before = set(os.listdir("/dev/shm"))
    found = scene.run(guarded(), "honest.py")
    assert found == {
        "shared": "hello", "affinity": None, "child": 0, "zone": "CET", "user": True, "home": True,
    }  # fmt: skip
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "agentbox-" in name]
    entries = [json.loads(line) for line in (scene.work / "trace.jsonl").read_text().splitlines()]
    assert [entry["args"] for entry in entries if entry["kind"] == "deny"] == []


def test_a_rule_opens_the_accounts(scene: Scene) -> None:
    """`read: /etc/passwd` gives what it gives without agentbox, and the reading is recorded."""
    policy = scene.work / "agentbox.policy"
    policy.write_text(POLICY + "read: /etc/passwd\n")
    try:
        assert scene.run(guarded(), "attempts.py", "accounts", "all_groups") == {
            "accounts": "got it",
            "all_groups": "AssertionError: ",
        }
    finally:
        policy.write_text(POLICY)
    entries = [json.loads(line) for line in (scene.work / "trace.jsonl").read_text().splitlines()]
    assert [entry["op"] for entry in entries if entry["args"].get("path") == "/etc/passwd"] == ["fs.read"]
