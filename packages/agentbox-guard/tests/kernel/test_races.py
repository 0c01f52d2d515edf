"""What is decided is what happens, though names, links and memory change all the while: the supervisor opens what it
has looked at, and never lets the kernel look again.
"""

import os
import subprocess
import sys
import textwrap

import pytest
from test_confined import Box

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

# Both read until they have met everything that is wanted, and often enough: how long that takes is up to the machine.
READER = """
    import errno, sys
    least, *wanted = sys.argv[1:]
    seen, tries = set(), 0
    while (tries < int(least) or not seen >= set(wanted)) and tries < 1_000_000:
        try:
            seen.add(open("link").read().strip())
        except OSError as error:
            seen.add(errno.errorcode[error.errno])
        tries += 1
    print("|".join(sorted(seen)))
    """
SWAPPER = """
    import os, threading
    os.symlink("mine", "link"); os.symlink("{secret}", "other")
    def swap():
        while True:
            os.rename("link", "t"); os.rename("other", "link"); os.rename("t", "other")
    threading.Thread(target=swap, daemon=True).start()
    """
EXCHANGER = """
    import ctypes
    libc = ctypes.CDLL(None)
    while True:
        libc.renameat2(-100, b"link", -100, b"other", 2)  # RENAME_EXCHANGE
    """
FLIPS = """
    import ctypes, errno, os, sys, threading
    secret, least, *wanted = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    names = [name.encode().ljust(len(secret) + 1, b"\\0") for name in ("one", "two", secret)]
    path = ctypes.create_string_buffer(names[0], len(names[0]) + 1)
    def flip():
        while not over:
            for name in names:
                ctypes.memmove(path, name, len(name))
    over = False
    threading.Thread(target=flip).start()
    got, seen, tries = [], set(), 0
    while (tries < int(least) or not seen >= set(wanted)) and tries < 1_000_000:
        fd = libc.open(path, os.O_RDONLY)
        if fd >= 0:
            got.append(os.read(fd, 20).decode().strip())
            os.close(fd)
        seen.add(got[-1] if fd >= 0 else errno.errorcode[ctypes.get_errno()])
        tries += 1
    over = True
    print("|".join(got))
    """


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


@pytest.fixture
def exchanges(box):
    """Somebody outside who exchanges two links all the while, faster than anybody inside could."""
    (box.ws / "mine").write_text("mine\n")
    (box.ws / "link").symlink_to("mine")
    (box.ws / "other").symlink_to(box.folder / "secret")
    exchanger = subprocess.Popen([sys.executable, "-c", textwrap.dedent(EXCHANGER)], cwd=box.ws)
    yield
    assert exchanger.poll() is None
    exchanger.kill()
    exchanger.wait()


@pytest.mark.attempt("F2")
def test_a_link_that_is_exchanged_never_shows_what_no_rule_opens(box, exchanges):
    argv = box.python(READER)
    assert box.bare(*argv, "1", "mine", "the secret").stdout == "mine|the secret\n"
    done = box.run("read: .\nread: ../program.py\n", *argv, "3000", "mine", "EACCES")
    assert done.out == "EACCES|mine\n", done.err


@pytest.mark.attempt("F2")
def test_a_swapped_link_never_shows_the_secret(box):
    """Two names are exchanged all the time by a thread of the program: what is handed over is what was decided on."""
    argv = box.python(SWAPPER.format(secret=box.folder / "secret") + READER)
    (box.ws / "mine").write_text("mine\n")
    bare = box.bare(*argv, "1", "mine", "the secret")
    assert {"mine", "the secret"} <= set(bare.stdout.strip().split("|")), bare.stderr
    for name in ("link", "other", "t"):
        (box.ws / name).unlink(missing_ok=True)
    done = box.run("write: .\nread: ../program.py\n", *argv, "1000", "mine", "EACCES")
    assert set(done.out.strip().split("|")) - {"ENOENT"} == {"EACCES", "mine"}, done.err


@pytest.mark.attempt("P3")
def test_memory_that_changes_makes_no_difference_between_record_and_read(box):
    """A second thread rewrites the path of every open: no secret is read, and the record is the reads, in order."""
    for name in ("one", "two"):
        (box.ws / name).write_text(f"{name}\n")
    argv = box.python(FLIPS)
    secret = str(box.folder / "secret")
    bare = box.bare(*argv, secret, "1", "one", "two", "the secret")
    assert set(bare.stdout.strip().split("|")) == {"one", "two", "the secret"}, bare.stderr
    done = box.run("read: .\nread: ../program.py\n", *argv, secret, "1000", "one", "two", "EACCES")
    got = done.out.strip().split("|")
    reads = [os.path.basename(entry["args"]["path"]) for entry in done.of("fs.read") if entry["src"] == "kernel"]
    assert set(got) == {"one", "two"} and got == [name for name in reads if name != "program.py"], done.err
    assert ("fs.read", secret) in done.denied()
