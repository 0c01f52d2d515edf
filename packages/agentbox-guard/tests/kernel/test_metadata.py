"""What tells of files without opening them: watches and extended attributes are judged like reading."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentbox.guard.kernel import landlock, netns, seccomp

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")

PROGRAM = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def name(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
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
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
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
