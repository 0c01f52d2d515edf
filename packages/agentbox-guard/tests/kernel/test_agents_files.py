"""Files that the run has made and the supervisor reads: none that could make it wait, no more than is quick."""

import os
import re
import shutil
import sys

import pytest
from compiled import Box
from hypothesis import given
from hypothesis import strategies as st

from agentbox.guard.kernel import gitconfig, gitmodules

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

FIFO = """
mkdir -p other/modules/x && mkfifo other/modules/x/config && echo "gitdir: other" > .git
ln -s nowhere link
echo end
"""


@linux
@pytest.mark.attempt("P4")
def test_a_fifo_in_place_of_a_submodules_configuration_keeps_nobody_waiting(tmp_path):
    """A new link is judged by the work trees of submodules, and a FIFO is none's configuration: the link is refused,
    and the run goes on.
    """
    box = Box(tmp_path)
    shutil.copy(os.path.realpath("/bin/sh"), tmp_path / "agent")
    assert box.plain("-c", FIFO).stdout == "end\n"
    shutil.rmtree(tmp_path / "ws")
    (tmp_path / "ws").mkdir()
    done = box.boxed("write: .\nexec: mkdir, mkfifo, ln\n", "-c", FIFO, command=("sh", "-c", FIFO))
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert "a link would lead them elsewhere" in next(e["reason"] for e in box.trace() if e["kind"] == "deny")


def test_more_configuration_than_is_quickly_read_counts_as_dangerous(tmp_path):
    """Of all submodules together: else each new link would keep all other processes waiting."""
    (tmp_path / ".git").mkdir()
    for number in range(10):
        folder = tmp_path / ".git" / "modules" / str(number)
        folder.mkdir(parents=True)
        (folder / "config").write_text("[core]\n" + "\tbare = false\n" * 100)
    assert not gitmodules.is_tree(f"{tmp_path}/src/link")
    for number in range(10):
        (tmp_path / ".git" / "modules" / str(number) / "config").write_text("[core]\n" + "\tbare = false\n" * 5000)
    assert gitmodules.is_tree(f"{tmp_path}/src/link")


def test_much_that_must_be_read_character_by_character_is_not_read():
    """Quotes and escapes cost a thousand times what a plain line does."""
    plain = b"[core]\n" + b"\tbare = false\n" * 15000
    assert len(gitconfig.entries(plain)) == 15000
    with pytest.raises(gitconfig.Unreadable, match="too much of it"):
        gitconfig.entries(b"[core]\n" + b'\tbare = "f\\"alse"\n' * 10000)


@given(st.lists(st.sampled_from([*'ab-=\n\t "\\#;[].\r0A', "\n[x]\n", '\n[x "y"]\n', "\na = b\n"]), max_size=40))
def test_what_is_read_quickly_is_read_as_character_by_character(parts):
    """The quick forms of sections and entries mean what git's own parser makes of them."""
    text = "".join(parts).encode()

    def read():
        try:
            return gitconfig.entries(text)
        except gitconfig.Unreadable:
            return None

    quick = read()
    never = re.compile("(?!)")
    kept = gitconfig._HEADER, gitconfig._PLAIN
    gitconfig._HEADER = gitconfig._PLAIN = never
    try:
        assert read() == quick
    finally:
        gitconfig._HEADER, gitconfig._PLAIN = kept
