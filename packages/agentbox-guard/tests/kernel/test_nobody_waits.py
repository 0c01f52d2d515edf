"""A call that takes the supervisor long keeps no other process waiting: told by the order of what happens, not by a
clock.
"""

import os
import shutil
import sys

import pytest
from compiled import Box

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

HUGE = 256 << 30
"""Bytes, of a file without content on the disk: to hash it takes minutes."""
READS = 200
BESIDE = f"""
{{}} &
read line < there
i=0; while [ $i -lt {READS} ]; do read line < small; i=$((i+1)); done
echo finished
kill -9 $!; wait $!
"""


@pytest.mark.parametrize("way", ["read", "started"])
def test_calls_of_others_are_answered_while_a_huge_file_is_hashed(tmp_path, way):
    """What one process reads or starts is hashed in a thread; another one makes its calls meanwhile, and ends it."""
    box = Box(tmp_path)
    ws = tmp_path / "ws"
    os.mkfifo(ws / "there")
    (ws / "small").write_text("line\n")
    shutil.copy(os.path.realpath("/bin/true"), ws / "huge")
    try:
        os.truncate(ws / "huge", HUGE)
    except OSError as error:
        pytest.skip(f"no file of {HUGE >> 30} GiB can be made here: {error.strerror}")
    last = "exec ./huge" if way == "started" else "read line < huge"
    command = ("sh", "-c", BESIDE.format(f'sh -c "echo there > there; {last}"'))
    done = box.boxed("read: .\nexec: sh\nexec: ./huge\nwrite: ./there\n", command=command)
    assert done.stdout == "finished\n", done.stderr
    told = [entry["args"] for entry in box.trace() if entry["op"] in ("fs.read", "proc.exec")]
    assert sum(args.get("path", "").endswith("/small") for args in told) >= 1
    assert not [
        args for args in told if args.get("path", args.get("file", "")).endswith("/huge") and args.get("sha256")
    ]
