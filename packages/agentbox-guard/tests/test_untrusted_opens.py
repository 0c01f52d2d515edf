"""The supervisor never waits in an open of a file that a program of the run may have made: every open in its source is
of such a kind, or of a file that is none of theirs.
"""

import ast
import os
from pathlib import Path

import pytest

from agentbox.guard import untrusted

SOURCE = Path(untrusted.__file__).parent
INSIDE = {"python"}
"""Runs in the agent."""
KINDS = ("O_NONBLOCK", "O_PATH", "O_DIRECTORY", "O_EXCL")
"""An open with one of these does not wait for whoever is at the other end of a FIFO."""
MACHINES = ("/proc/", "/sys/", "/dev/", "os.devnull")
TRUSTED = {
    ("procfs.py", "read_entry"): "an entry of /proc",
    ("procfs.py", "read_long"): "an entry of /proc",
    ("kernel/confined.py", "_text"): "an entry of /proc",
    ("kernel/netns.py", "_read"): "an entry of /proc or /sys",
    ("kernel/netns.py", "_write"): "an entry of /proc",
    ("kernel/broker.py", "hosts_names"): "the machine's hosts file",
    ("kernel/rehearsal.py", "_ask"): "a file of the machine's, before any run",
    ("kernel/traps/binds.py", "_opened"): "entries of /proc",
    ("kernel/traps/opens.py", "_again"): "a regular file that nothing of the run can change",
    ("rundir.py", "_remove_if_dead"): "for reading and writing, which waits for nobody (fifo(7))",
    ("effects/fs_write.py", "_create_whole"): "O_TMPFILE makes a file of its own",
}
"""What is of no program of a run, or cannot wait for another reason."""


def opens(path):
    """Calls of open() and os.open() as (function, path argument, flags), constants of the module put in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {
        target.id: f"({ast.unparse(node.value)})"
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        local = {
            target.id: f"({ast.unparse(node.value)})"
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("open", "os.open"):
                words = [ast.unparse(one) for one in node.args]
                flags = words[1] if len(words) > 1 and ast.unparse(node.func) == "os.open" else ""
                for known in (local, constants):
                    for name, value in known.items():
                        flags = flags.replace(name, value)
                yield function.name, words[0], flags


def waits(place, flags):
    plain = place.lstrip("bf").strip("'\"")
    return not plain.startswith(MACHINES) and not any(kind in flags for kind in KINDS)


def test_no_other_place_of_the_supervisor_opens_what_could_be_a_fifo():
    """`agentbox.guard.untrusted` is for such files; an open elsewhere names the machine's own, or cannot wait."""
    found = {
        (str(path.relative_to(SOURCE)), function)
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in INSIDE
        for function, place, flags in opens(path)
        if waits(place, flags)
    }
    assert found == set(TRUSTED)


@pytest.fixture
def there(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    return tmp_path


def test_only_regular_files_are_read_and_no_more_than_was_asked_for(there):
    """A FIFO without a writer, a folder and a link are refused at once; so is a file that is longer."""
    assert untrusted.read_regular(f"{there}/file", 5) == b"12345"
    assert untrusted.read_regular(f"{there}/link", 5, follow=True) == b"12345"
    for name in ("fifo", "folder", "link"):
        with pytest.raises(OSError):
            untrusted.read_regular(f"{there}/{name}", 5)
    with pytest.raises(OSError, match="too large"):
        untrusted.read_regular(f"{there}/file", 4)


def test_a_fifo_is_not_even_opened(there):
    """Whoever waits to write to it goes on waiting: an open for reading, even a quick one, would let it through."""
    with pytest.raises(OSError):
        untrusted.read_regular(f"{there}/fifo", 5)
    with pytest.raises(OSError):
        os.open(f"{there}/fifo", os.O_WRONLY | os.O_NONBLOCK)  # ENXIO: nobody reads
