"""What tells of files without opening them: watches and extended attributes are judged like reading."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.waiting import PATIENCE

from agentbox.guard.kernel import landlock, netns, seccomp

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")

START = """
import ctypes, errno, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def name(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
"""

PROGRAM = (
    START
    + """
def watch(path, mask=0x100):
    queue = libc.inotify_init1(0o4000)
    made = libc.inotify_add_watch(queue, path.encode(), ctypes.c_uint32(mask))
    if made < 0:
        return errno.errorcode[ctypes.get_errno()]
    return made, libc.inotify_rm_watch(queue, made), name(os.read, queue, 4096) != b""
here = sys.argv[1]
for path in (here, here + "/file", here + "/link"):
    print("watch", path, watch(path), watch(path, 0x02000100))
print("value", name(os.getxattr, here + "/file", "user.secret"), name(os.getxattr, here + "/link", "user.secret"))
print("long", len(name(os.getxattr, here + "/file", "user.long")))
print("names", name(os.listxattr, here + "/file"), name(lambda: os.listxattr(here + "/link", follow_symlinks=False)))
print("plain", name(os.getxattr, here + "/file", "system.posix_acl_access"), name(os.getxattr, here + "/no", "user.x"))
print("bad", watch(here + "/no"), errno.errorcode[name(lambda: libc.inotify_add_watch(77, here.encode(), 1)
      and ctypes.get_errno())])
"""
)


def scene(folder: Path) -> Path:
    folder.mkdir()
    (folder / "file").touch()
    (folder / "link").symlink_to("file")
    try:
        os.setxattr(folder / "file", "user.secret", b"told")
        os.setxattr(folder / "file", "user.long", b"x" * 3000)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            pytest.skip("file system: keeps no extended attributes")
        raise
    return folder


def run(folder: Path, place: Path, policy: str | None) -> list[str]:
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-I", "-S", str(folder / "program.py"), str(place)]
    if policy is not None:
        (folder / "agentbox.policy").write_text(f"{policy}read: ./program.py\n")
        command = [sys.executable, "-m", "agentbox.cli", "run", "-q", "-t", "trace.jsonl", "--", *command]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_read_rule_gives_all_that_there_is_without_the_layers(tmp_path: Path) -> None:
    """Watches, values, names and errors are the same; each act is recorded."""
    place = scene(tmp_path / "place")
    bare = run(tmp_path, place, None)
    assert "told" in bare[3] and bare[4] == "long 3000" and "user.secret" in bare[5], bare
    assert run(tmp_path, place, "read: ./place\n") == bare
    entries = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    seen = {(entry["op"], entry["args"]["path"]) for entry in entries if entry["op"].startswith("fs.")}
    assert {("fs.list", str(place)), ("fs.read", f"{place}/file"), ("fs.xattr", f"{place}/file")} <= seen


def test_without_a_rule_nothing_is_told(tmp_path: Path) -> None:
    """No watch, no value and no name of one; the list that belongs to the mode stays as empty as it is."""
    place = scene(tmp_path / "place")
    (tmp_path / "ws").mkdir()
    lines = run(tmp_path, place, "write: ./ws\n")
    assert [line.split(" ", 2)[2] for line in lines[:3]] == ["EACCES EACCES"] * 3
    assert lines[3:6] == ["value EACCES EACCES", "long 6", "names [] []"]
    assert lines[6] == "plain ENODATA ENOENT"
    entries = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    denied = {(entry["op"], entry["target"]) for entry in entries if entry["kind"] == "deny"}
    assert {("fs.list", str(place)), ("fs.read", f"{place}/file"), ("fs.xattr", f"{place}/file")} <= denied


RECORD = (
    START
    + """
queues = {}
for path in ("trace.jsonl", "blobs"):
    queues[path] = queue = libc.inotify_init1(0o4000)
    made = libc.inotify_add_watch(queue, path.encode(), ctypes.c_uint32(0xFFF))
    print(path, "watched" if made > 0 else errno.errorcode[ctypes.get_errno()])
print("read", name(lambda: open("trace.jsonl").read(1)), "list", name(os.listdir, "blobs"))
print("write", name(lambda: open("trace.jsonl", "a").close()), flush=True)
input()
for path, queue in queues.items():
    told = name(os.read, queue, 65536)
    while type(told) is bytes and told:
        number, mask, cookie, length = struct.unpack_from("iIII", told)
        print(path, hex(mask & 0xFFF), told[16 : 16 + length].rstrip(b"\\0"))
        told = told[16 + length :]
"""
)


def watched(folder: Path, policy: str | None) -> list[str]:
    """What the program prints, whose watches meet a change of the trace, a new file in `blobs`, and its new name."""
    (folder / "program.py").write_text(RECORD)
    (folder / "blobs").mkdir()
    command = [sys.executable, "-I", "-S", "program.py"]
    if policy is None:
        (folder / "trace.jsonl").write_text("{}\n")
    else:
        (folder / "agentbox.policy").write_text(policy)
        command = [sys.executable, "-m", "agentbox.cli", "run", "-q", "-t", "trace.jsonl", "--", *command]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdin and run.stdout and run.stderr
        lines = []
        while not lines or not lines[-1].startswith("write "):
            lines.append(run.stdout.readline().rstrip("\n"))
            assert lines[-1], run.stderr.read()
        os.utime(folder / "trace.jsonl")
        (folder / "blobs" / "content").touch()
        (folder / "blobs").rename(folder / "moved")
        rest, error = run.communicate("\n", timeout=PATIENCE)
    assert run.returncode == 0, error
    return lines + rest.splitlines()


def test_a_watch_of_the_record_tells_what_one_of_its_folder_would(tmp_path: Path) -> None:
    """Where a rule opens the folder: that the trace changes, and that the blobs' folder goes, but no name in it.
    Reading, listing and writing stay refused.
    """
    (tmp_path / "bare").mkdir()
    bare = watched(tmp_path / "bare", None)
    assert bare[:4] == ["trace.jsonl watched", "blobs watched", "read { list []", "write None"]
    assert {"trace.jsonl 0x4 b''", "blobs 0x100 b'content'", "blobs 0x800 b''"} <= set(bare)
    (tmp_path / "run").mkdir()
    lines = watched(tmp_path / "run", "read: .\n")
    assert lines[:4] == ["trace.jsonl watched", "blobs watched", "read EACCES list EACCES", "write EACCES"]
    assert "trace.jsonl 0x4 b''" in lines
    assert [line for line in lines[4:] if line.startswith("blobs")] == ["blobs 0x800 b''"]


def test_no_watch_of_the_record_where_no_rule_opens_its_folder(tmp_path: Path) -> None:
    """It is refused and recorded."""
    lines = watched(tmp_path, "read: ./program.py\n")
    assert lines == ["trace.jsonl EACCES", "blobs EACCES", "read EACCES list EACCES", "write EACCES"]
    entries = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    denied = [(entry["op"], Path(entry["target"]).name) for entry in entries if entry["kind"] == "deny"]
    assert denied[:2] == [("fs.read", "trace.jsonl"), ("fs.list", "blobs")]
