"""The private folder of a run goes away whatever a run leaves in it, and nothing else does."""

import errno
import os

import pytest

from agentbox.guard.rundir import RunDir
from agentbox.policy import parse


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A new run's folder below `tmp_path`."""
    return RunDir.make({"TMPDIR": str(tmp_path)})


def test_no_denial_suggests_a_line_for_what_is_in_it(folder, tmp_path):
    """Policies know the folder by the shape of its name (docs/spec/policy.md, 5.11)."""
    name = os.path.basename(folder.path)
    policy = parse("read: ./data\n", cwd=str(tmp_path))
    for path in (folder.path, folder.tmp, folder.home + "/file.txt"):
        assert policy.decide("read", path).fix is None
        assert policy.decide("read", path.replace(name, "other")).fix
    folder.remove()


def test_a_folder_that_is_made_in_part_only_is_removed(tmp_path, monkeypatch):
    """As on a full disk, which takes the folder and nothing in it; the next place is tried then."""
    full, free = tmp_path / "full", tmp_path / "free"
    full.mkdir()
    free.mkdir()
    monkeypatch.setattr("agentbox.guard.rundir._bases", lambda environ: [str(full), str(free)])
    mkdir = os.mkdir

    def some(path, mode):
        if path.startswith(f"{full}/") and path.endswith("/home"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", some)
    made = RunDir.make({})
    assert os.path.dirname(made.path) == str(free) and os.listdir(full) == []
    made.remove()


def test_a_tree_deeper_than_any_path_is_removed(folder, tmp_path):
    """Folders in folders, far beyond what one path can name (PATH_MAX) or a call stack could follow."""
    here = os.open(folder.tmp, os.O_RDONLY)
    for number in range(3000):
        os.mkdir("d" * 20, dir_fd=here)
        inner = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
        os.close(os.open(f"file{number}", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        os.close(here)
        here = inner
    os.close(here)
    folder.remove()
    assert not os.path.exists(folder.path)


def test_closed_folders_and_links_are_removed_and_what_they_lead_to_stays(folder, tmp_path):
    """Modes that keep their owner out; links to a folder and a file outside."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    os.makedirs(f"{folder.home}/a/b/c")
    os.symlink(kept, f"{folder.home}/a/link")
    os.symlink(kept / "file", f"{folder.home}/a/b/link")
    os.mkfifo(f"{folder.tmp}/pipe")
    os.chmod(f"{folder.home}/a/b/c", 0)
    os.chmod(f"{folder.home}/a/b", 0)
    os.chmod(f"{folder.home}/a", 0)
    folder.remove()
    assert not os.path.exists(folder.path)
    assert (kept / "file").read_text() == "x"
