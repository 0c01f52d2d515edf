"""ioctl(2): file systems are not changed by requests through descriptors that may only read; what only tells passes."""

import os
import shutil
import subprocess
import sys

import pytest
from bench import Bench
from test_bpf import MACHINES, Filter

from agentbox.guard.kernel import bpf, ioctls

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
CHANGES = (
    0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x800C6613, 0x40806685, 0xC0045877, 0xC0185879, 0x5000940E,
    0x50009401, 0x50009417, 0x5000940F, 0x50009402, 0x4008941A, 0x40047211, 0xC0189436, 0x125D, 0x1277, 0xC020BC10,
    0x40046F04, 0x4004CF03, 0x0000F501, 0x41009432,
)  # fmt: skip
"""Of ext4, XFS, verity, Btrfs (SUBVOL_CREATE, SNAP_CREATE, _V2, SNAP_DESTROY, DEFRAG, SUBVOL_SETFLAGS, a label), FAT,
deduplication, block devices, bcachefs, OCFS2, SMB and F2FS.
"""
TUNNELS = (0x400454CA, 0x400454CB, 0x400454CC, 0x400454CD)  # TUNSETIFF, TUNSETPERSIST, TUNSETOWNER, TUNSETLINK
CONSOLE = (0x4B47, 0x4B49, 0x5606)  # KDSKBENT, KDSKBSENT and VT_ACTIVATE
USUAL = (0x5401, 0x5402, 0x541B, 0x5421, 0x5450, 0x5451, 0x80045430, 0xC0104500, 0x40107446, 0xC0046400)
"""Terminals and descriptors (TCGETS, TCSETS, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, TIOCGPTN), devices."""

CODE = """
    import errno, fcntl, json, struct, sys
    told = {}
    def attempt(name, act):
        try:
            act()
            told[name] = 0
        except OSError as error:
            told[name] = errno.errorcode[error.errno]
    file = open("file", "rb")
    fd = file.fileno()
    GET, SET, NODUMP = 0x80086601, 0x40086602, 0x40
    flags = struct.unpack("=q", fcntl.ioctl(fd, GET, bytes(8)))[0] & 0xFFFFFFFF
    attempt("set flags", lambda: fcntl.ioctl(fd, SET, struct.pack("=q", flags | NODUMP)))
    told["changed"] = bool(struct.unpack("=q", fcntl.ioctl(fd, GET, bytes(8)))[0] & NODUMP)
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    def raw(request):
        if libc.syscall(ctypes.c_long(int(sys.argv[1])), ctypes.c_long(fd), ctypes.c_ulong(request), bytes(4096)) < 0:
            raise OSError(ctypes.get_errno(), "")
    for request in map(int, sys.argv[2:]):
        attempt(hex(request), lambda: raw(request))
    print(json.dumps(told))
"""


@pytest.mark.parametrize("machine", MACHINES)
def test_families_that_change_files_are_handed_over_and_what_only_tells_is_not(machine):
    """By bits 8 to 15 of the request, whatever its upper half says; terminals cost nothing."""
    found = Filter(machine)
    for request in (*CHANGES, *CONSOLE, *TUNNELS, *ioctls.TTY_INPUT):
        assert found("ioctl", 0, request) == found("ioctl", 0, request | 7 << 32) == bpf.NOTIFY, hex(request)
    for request in (*ioctls.FILE_READS, *USUAL):
        assert found("ioctl", 0, request) == found("ioctl", 0, request | 7 << 32) == bpf.ALLOW, hex(request)


@linux
def test_no_request_changes_a_file_that_is_open_for_reading(tmp_path):
    """Flags are set so without agentbox; within, the number alone decides, on any file and with any high bits."""
    bench = Bench(tmp_path, CODE, "read: ./file\n")
    (bench.ws / "file").write_text("x")
    number = {"x86_64": 16, "aarch64": 29}[os.uname().machine]
    changes = [request | high for request in CHANGES for high in (0, 1 << 32)]
    words = (number, *changes)
    inside = bench.told(bench.boxed(*words))
    assert not inside.pop("changed")
    assert set(inside.values()) == {"EPERM"}, inside
    assert {f"ioctl {request:#x}" for request in CHANGES} <= set(bench.denied())
    bare = bench.told(bench.bare(number, *(0x5000940E,)))
    assert bare["0x5000940e"] == "ENOTTY"  # which no policy has decided
    if bare["set flags"] != 0:
        pytest.skip(f"the file system has no flags: {bare['set flags']}")
    assert bare["changed"]


@linux
def test_files_are_cloned_and_looked_at_as_without_the_layers(tmp_path):
    """FICLONE says what it says without agentbox, on a descriptor for writing and on one for reading alike."""
    code = """
        import errno, fcntl, json
        told = []
        open("copy", "w").close()
        source = open("file", "rb")
        for mode in ("r+b", "rb"):
            for request, argument in ((0x40049409, source.fileno()), (2, bytes(4)), (0x5421, bytes(4))):
                try:
                    told.append(fcntl.ioctl(open("copy", mode), request, argument) and 0)
                except OSError as error:
                    told.append(errno.errorcode[error.errno])
        print(json.dumps(told))
    """
    bench = Bench(tmp_path, code, "write: .\n")
    (bench.ws / "file").write_text("x" * 4096)
    assert bench.told(bench.boxed()) == bench.told(bench.bare()) and not bench.denied()


SNAPSHOT = """
    import errno, fcntl, json, os, struct, sys
    where, outside = sys.argv[1:]
    told = {}
    def attempt(name, folder, request, data):
        try:
            fcntl.ioctl(folder, request, bytearray(data))
            told[name] = 0
        except OSError as error:
            told[name] = errno.errorcode[error.errno]
    root, other = os.open(where, os.O_RDONLY), os.open(outside, os.O_RDONLY)
    attempt("subvolume", root, 0x5000940E, struct.pack("=q4088s", 0, b"tree"))
    attempt("snapshot outside", other, 0x50009417, struct.pack("=qQQ32x4040s", root, 0, 0, b"planted"))
    print(json.dumps(told))
"""


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("mkfs.btrfs"), reason="only root mounts a Btrfs")
def test_btrfs_plants_no_snapshot_outside(tmp_path):
    """A snapshot is a new folder of any content in any folder that the user may write; without agentbox it is made."""
    image, mounted = tmp_path / "image", tmp_path / "mounted"
    mounted.mkdir()
    with open(image, "wb") as file:
        file.truncate(128 << 20)
    subprocess.run(["mkfs.btrfs", "-q", str(image)], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], check=True)
    try:
        bench = Bench(tmp_path, SNAPSHOT, f"read: {mounted}\nwrite: {mounted}/ws\n")
        (mounted / "ws").mkdir()
        words = (mounted, mounted)
        assert set(bench.told(bench.boxed(*words)).values()) == {"EPERM"}
        assert sorted(os.listdir(mounted)) == ["ws"]
        assert set(bench.told(bench.bare(*words)).values()) == {0}
        assert sorted(os.listdir(mounted)) == ["planted", "tree", "ws"]
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
