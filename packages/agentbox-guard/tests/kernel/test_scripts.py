"""The entry of a script's start tells what its interpreter then read, also when the script is swapped in between."""

import hashlib
import os
import shutil
import sys

import pytest
from compiled import Box

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler"),
]

INTERPRETER = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* Says that it is there, waits for leave, and tells the second line of the script. */
int main(int c, char **v) {
    char text[4096] = {0}, byte;
    int there = open("there", O_WRONLY); close(there);
    int go = open("go", O_RDONLY); read(go, &byte, 1);
    int script = open(v[1], O_RDONLY);
    if (script < 0) { puts("refused"); return 9; }
    read(script, text, sizeof text - 1);
    char *line = strchr(text, '\n'); fputs(line ? line + 1 : "", stdout); return 0;
}
"""
RUN = "./tool & read x < there; {}; echo > go; wait $!"
WAYS = {"renamed": "mv other tool", "written": "cat other > tool", "linked": "ln -sf other tool"}


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path)
    made.compile(INTERPRETER, name="interpreter")
    return made


def scene(box):
    ws = box.folder / "ws"
    shutil.rmtree(ws)
    ws.mkdir()
    for name, word in (("tool", "meant"), ("other", "evil")):
        (ws / name).write_text(f"#!{box.folder}/interpreter\n{word}\n")
        (ws / name).chmod(0o755)
    for name in ("there", "go"):
        os.mkfifo(ws / name)
    return hashlib.sha256((ws / "tool").read_bytes()).hexdigest()


def started(box):
    return [
        e["args"].get("sha256") for e in box.trace() if e["op"] == "proc.exec" and e["args"]["file"].endswith("/tool")
    ]


@pytest.mark.attempt("F1")
@pytest.mark.parametrize("way", WAYS)
def test_a_script_that_is_swapped_before_it_is_read_is_not_what_is_run(box, way):
    """By rename and by a link its interpreter does not get it; written to it cannot be until it has been read."""
    policy = f"write: .\nexec: ./tool\nexec: mv, cat, ln\nexec: {box.folder}/interpreter\n"
    command = ("sh", "-c", RUN.format(WAYS[way]))
    shutil.copy(os.path.realpath("/bin/sh"), box.folder / "agent")
    scene(box)
    assert box.plain("-c", command[2]).stdout == "evil\n"
    digest = scene(box)
    done = box.boxed(policy, command=command)
    assert digest in started(box)
    wanted = "meant\n" if way == "written" else "refused\n"
    assert done.stdout == wanted, done.stderr
    told = [e["reason"] for e in box.trace() if e["kind"] == "deny" and "another than the one" in e["reason"]]
    assert bool(told) is (way != "written")


def test_a_script_that_is_replaced_by_the_same_content_is_the_same(box):
    """As a build does that writes its files anew: only the content counts, and what comes after the start is free."""
    digest = scene(box)
    again = RUN.format("cat tool > copy; chmod 755 copy; mv copy tool") + "; cat other > tool"
    done = box.boxed(
        f"write: .\nexec: ./tool\nexec: mv, cat, chmod\nexec: {box.folder}/interpreter\n", command=("sh", "-c", again)
    )
    assert (done.stdout, started(box)) == ("meant\n", [digest]), done.stderr
    assert (box.folder / "ws" / "tool").read_text().endswith("evil\n")
