"""Look-ups in the name of a process: this one stands for the asking one, in the real tree."""

import errno
import os
import signal

import pytest

from agentbox.guard.kernel.process import AT_FDCWD, Askers
from agentbox.guard.kernel.walk import Tree

ME = os.getpid


@pytest.fixture
def tree():
    made = Tree(os.open("/", os.O_PATH | os.O_DIRECTORY), Askers(False))
    yield made
    made.close()


def path_of(found):
    try:
        return found.text
    finally:
        found.close()


def failure(call):
    with pytest.raises(OSError) as error:
        call().close()
    return error.value.errno


def test_names_lead_to_objects_over_links(tree, tmp_path):
    """Links in the way are followed, the last one only when asked to be."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "link").symlink_to("folder/file")
    root = os.fsencode(tmp_path)
    assert path_of(tree.find(ME(), root + b"/link")) == f"{tmp_path}/real/file"
    assert path_of(tree.find(ME(), root + b"/link", follow=False)) == f"{tmp_path}/link"
    assert path_of(tree.find(ME(), root + b"/folder/../real/./file")) == f"{tmp_path}/real/file"
    assert failure(lambda: tree.find(ME(), root + b"/none")) == errno.ENOENT
    assert failure(lambda: tree.find(ME(), root + b"/real/file/x")) == errno.ENOTDIR


def test_names_with_dots_lead_there_while_others_rename(tree, tmp_path):
    """openat2(2) says EAGAIN for `..` in such a moment, which no open(2) ever does."""
    (tmp_path / "a").mkdir()
    (tmp_path / "file").write_text("x")
    pid = os.fork()
    if pid == 0:
        signal.alarm(120)
        os.chdir(tmp_path / "a")
        os.mkdir("0")
        while True:
            os.rename("0", "1")
            os.rename("1", "0")
    try:
        path = os.fsencode(tmp_path) + b"/a/.." * 20 + b"/file"
        for _ in range(3000):
            assert path_of(tree.find(ME(), path)) == f"{tmp_path}/file"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_relative_names_start_at_the_askers_folder_or_descriptor(tree, tmp_path, monkeypatch):
    """AT_FDCWD, a descriptor of a folder, and one that is not open."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_text("x")
    monkeypatch.chdir(tmp_path)
    assert path_of(tree.find(ME(), b"a/f", AT_FDCWD)) == f"{tmp_path}/a/f"
    folder = os.open(tmp_path / "a", os.O_RDONLY)
    assert path_of(tree.find(ME(), b"f", folder)) == f"{tmp_path}/a/f"
    os.close(folder)
    assert failure(lambda: tree.find(ME(), b"f", folder)) == errno.EBADF
    assert failure(lambda: tree.find(ME(), b"")) == errno.ENOENT


def test_the_place_of_what_is_not_there_is_where_links_lead(tree, tmp_path):
    """A dangling link names what would be made behind it; a circle of links names nothing."""
    (tmp_path / "out").mkdir()
    (tmp_path / "dangling").symlink_to("out/new")
    (tmp_path / "round").symlink_to("round")
    root = os.fsencode(tmp_path)
    found = tree.place(ME(), root + b"/dangling", follow=True)
    assert (found.fd, found.leaf, found.text) == (-1, b"new", f"{tmp_path}/out/new")
    os.close(os.open(found.leaf, os.O_CREAT | os.O_WRONLY, dir_fd=found.folder))
    found.close()
    assert (tmp_path / "out" / "new").exists()
    assert failure(lambda: tree.place(ME(), root + b"/round", follow=True)) == errno.ELOOP
    assert failure(lambda: tree.place(ME(), root + b"/none/new")) == errno.ENOENT


@pytest.mark.attempt("P2")
def test_proc_self_is_the_askers(tree, tmp_path):
    """Also behind links and in the middle of a path; its root and folder lead out of /proc again."""
    pid = ME()
    assert path_of(tree.find(pid, b"/proc/self/status")) == f"/proc/{pid}/status"
    assert path_of(tree.find(pid, b"/proc/thread-self/comm")) == f"/proc/{pid}/task/{pid}/comm"
    assert path_of(tree.find(pid, b"/proc/self/root/usr/bin")) == "/usr/bin"
    assert path_of(tree.find(pid, b"/proc/self/cwd")) == os.getcwd()
    (tmp_path / "me").symlink_to("/proc/self/status")
    assert path_of(tree.find(pid, os.fsencode(tmp_path / "me"))) == f"/proc/{pid}/status"


def test_descriptors_by_name_are_the_askers_own(tree, tmp_path):
    """/dev/fd, a file without a name, and a pipe: held through the asker's descriptor, and known as such."""
    (tmp_path / "f").write_text("x")
    fd = os.open(tmp_path / "f", os.O_RDONLY)
    found = tree.find(ME(), b"/dev/fd/%d" % fd)
    assert (found.text, found.own, found.no_name) == (f"{tmp_path}/f", fd, False)
    found.close()
    os.unlink(tmp_path / "f")
    found = tree.find(ME(), b"/proc/self/fd/%d" % fd)
    assert (found.own, found.no_name) == (fd, True)
    found.close()
    os.close(fd)
    reader, writer = os.pipe()
    found = tree.find(ME(), b"/proc/self/fd/%d" % reader)
    assert found.no_name and found.text.startswith("pipe:")
    found.close()
    os.close(reader)
    os.close(writer)


def test_a_name_that_says_deleted_is_a_name(tree, tmp_path):
    """The kernel puts " (deleted)" behind names that are gone, and nothing keeps a file from being called so."""
    (tmp_path / "x (deleted)").write_text("x")
    found = tree.find(ME(), os.fsencode(tmp_path / "x (deleted)"))
    assert (found.text, found.no_name) == (f"{tmp_path}/x (deleted)", False)
    found.close()
