"""`fs.read` and `fs.write` against real files, links, FIFOs, folders and races."""

from __future__ import annotations

import errno
import hashlib
import os
import stat

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentbox.guard.context import EffectDenied, EffectUsage
from agentbox.guard.effects import EFFECTS, _base, _files, fs_write

READ, WRITE = EFFECTS["fs.read"], EFFECTS["fs.write"]


def do(effect, args, context):
    return effect.perform(effect.normalise(args, context), context)


def read(path, context):
    return do(READ, {"path": str(path)}, context)


def write(path, data, context):
    return do(WRITE, {"path": str(path), "body": data}, context)


@pytest.fixture
def tree(tmp_path, services):
    """A folder that may be read and written, beside one that may not."""
    services.read, services.write = [tmp_path / "in"], [tmp_path / "out"]
    for name in ("in", "out", "closed"):
        (tmp_path / name).mkdir()
    (tmp_path / "in/a").write_bytes(b"hello")
    (tmp_path / "closed/secret").write_bytes(b"secret")
    return tmp_path


def test_read_gives_content_hash_and_size(tree, context):
    """An allowed file comes back whole, with its SHA-256."""
    assert read("in/a", context) == {"body": b"hello", "sha256": hashlib.sha256(b"hello").hexdigest(), "size": 5}


def test_read_of_a_file_whose_size_claims_zero(services, context):
    """Files of /proc say size 0 and are read to their end all the same."""
    services.read = ["/proc/version"]
    assert read("/proc/version", context)["body"].startswith(b"Linux")


def test_paths_are_recorded_resolved(tree, context, services):
    """The recorded path is the object's, whatever link or `..` led there; private folders have a stable name."""
    (tree / "in/link").symlink_to("a")
    assert READ.normalise({"path": "out/../in/link"}, context)["path"] == str(tree / "in/a")
    services.read = [tree / "private"]
    assert READ.normalise({"path": str(tree / "private/x")}, context)["path"] == "$TMPDIR/x"


def test_a_link_out_of_the_root_is_denied(tree, context):
    """What counts is where a link leads."""
    (tree / "in/link").symlink_to(tree / "closed/secret")
    assert (tree / "in/link").read_text() == "secret"
    with pytest.raises(EffectDenied) as caught:
        read("in/link", context)
    assert caught.value.denial.target == str(tree / "closed/secret")


@pytest.mark.parametrize("what", ["link", "folder"])
@pytest.mark.parametrize("effect", [READ, WRITE])
def test_a_swap_after_the_check_is_refused(effect, what, tree, context, services):
    """A file, or a folder on its way, that becomes a link to elsewhere after it was decided is not followed."""
    services.write.append(tree / "in")
    (tree / "in/sub").mkdir()
    (tree / "in/sub/secret").write_bytes(b"mine")
    args = effect.normalise({"path": "in/sub/secret", "body": b"pwned"}, context)
    if what == "link":
        os.rename(tree / "in/sub/secret", tree / "in/old")
        (tree / "in/sub/secret").symlink_to(tree / "closed/secret")
    else:
        os.rename(tree / "in/sub", tree / "in/old")
        (tree / "in/sub").symlink_to(tree / "closed")
    assert (tree / "in/sub/secret").read_text() == "secret"
    with pytest.raises(EffectDenied, match="changed between the check and the use"):
        effect.perform(args, context)
    assert (tree / "closed/secret").read_bytes() == b"secret"


def test_a_swap_cannot_make_a_file_elsewhere(tree, context):
    """A folder that becomes a link after the check gets no new file behind it, not even an empty one."""
    (tree / "out/sub").mkdir()
    args = WRITE.normalise({"path": "out/sub/new", "body": b"x"}, context)
    (tree / "out/sub").rmdir()
    (tree / "out/sub").symlink_to(tree / "closed")
    with pytest.raises(EffectDenied):
        WRITE.perform(args, context)
    assert os.listdir(tree / "closed") == ["secret"]


def test_observe_mode_answers_a_swap_with_an_error(tree, context):
    """Where nothing is refused, a swap is reported and the call fails; it still follows no link."""
    context.observing = True
    args = READ.normalise({"path": "in/a"}, context)
    (tree / "in/a").unlink()
    (tree / "in/a").symlink_to(tree / "closed/secret")
    assert READ.perform(args, context)["error"]["errno"] == errno.ELOOP
    assert context.denials[0].enforced is False


@pytest.mark.parametrize("effect", [READ, WRITE])
@pytest.mark.parametrize(
    ("name", "number"),
    [("fifo", errno.EINVAL), ("sock", errno.EINVAL), ("dir", errno.EISDIR), ("none/x", errno.ENOENT)],
)
def test_what_has_no_content_is_an_os_error(effect, name, number, tree, context):
    """FIFOs, sockets and folders fail at once with the errno that a user expects, and never block."""
    import socket

    os.mkfifo(tree / "out/fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tree / "out/sock"))
    (tree / "out/dir").mkdir()
    error = do(effect, {"path": f"out/{name}", "body": b"x"}, context)["error"]
    assert (error["type"], error["errno"]) == ("os", number)


def test_devices_are_refused(services, context):
    """A device has no content to record."""
    services.write = ["/dev"]
    assert read("/dev/urandom", context)["error"]["text"] == "got a device, expected a regular file"
    assert write("/dev/null", b"x", context)["error"]["errno"] == errno.EINVAL


def test_a_missing_file_is_an_os_error(tree, context):
    """A file that is not there is ENOENT, as for `open`."""
    assert read("in/none", context) == {"error": {"type": "os", "text": "No such file or directory", "errno": 2}}


def test_a_file_over_the_limit_is_an_os_error(tree, context):
    """More than 64 MiB are refused before they are read."""
    with open(tree / "in/big", "wb") as file:
        file.truncate(_base.LIMIT + 1)
    error = read("in/big", context)["error"]
    assert error["errno"] == errno.EFBIG
    assert error["text"] == "the file has 67108865 bytes, one effect carries at most 67108864"


def test_write_makes_a_file(tree, context):
    """A new file has the content, mode 0644 without the umask's bits, and no temporary file stays beside it."""
    old = os.umask(0o027)
    try:
        assert write("out/new", b"data", context) == {"size": 4}
    finally:
        os.umask(old)
    assert (tree / "out/new").read_bytes() == b"data"
    assert stat.S_IMODE(os.stat(tree / "out/new").st_mode) == 0o640
    assert os.listdir(tree / "out") == ["new"]


def test_write_makes_a_file_without_unnamed_files(tree, context, monkeypatch):
    """Filesystems that have no O_TMPFILE get the file directly."""

    def unsupported(*_):
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(fs_write, "_create_whole", unsupported)
    assert write("out/new", b"data", context) == {"size": 4}
    assert (tree / "out/new").read_bytes() == b"data"


def test_write_overwrites_in_place(tree, context):
    """An old file keeps inode, mode and other names, and gets exactly the new content, longer or shorter."""
    (tree / "out/old").write_bytes(b"0123456789")
    os.chmod(tree / "out/old", 0o600)
    os.link(tree / "out/old", tree / "out/second")
    for data in (b"short", b"longer than it was before", b""):
        assert write("out/old", data, context) == {"size": len(data)}
        assert (tree / "out/second").read_bytes() == data
    assert stat.S_IMODE(os.stat(tree / "out/old").st_mode) == 0o600


def test_write_tells_before_it_overwrites(tree, context, services):
    """What the supervisor knows of the content is not true any more, and a program that is about to start stays."""
    (tree / "out/old").write_text("first")
    told = []

    def changing(descriptor):
        told.append((tree / "out/old").read_bytes())
        if len(told) > 1:
            raise OSError(errno.ETXTBSY, os.strerror(errno.ETXTBSY))

    services.changing = changing
    assert "error" not in write(tree / "out/old", b"second", context)
    assert write(tree / "out/old", b"third", context)["error"]["errno"] == errno.ETXTBSY
    assert told == [b"first", b"second"] and (tree / "out/old").read_text() == "second"


def test_write_through_a_link_reaches_the_decided_file(tree, context):
    """A link inside the root stays a link; its target is written, also when it is yet to be made."""
    (tree / "out/link").symlink_to("target")
    write("out/link", b"x", context)
    assert (tree / "out/link").is_symlink()
    assert (tree / "out/target").read_bytes() == b"x"


def test_write_does_not_make_folders(tree, context):
    """A missing folder is ENOENT, and a name with a slash at its end EISDIR, as for `open`."""
    assert write("out/none/x", b"", context)["error"]["errno"] == errno.ENOENT
    assert write("out/new/", b"", context)["error"]["errno"] == errno.EISDIR
    assert os.listdir(tree / "out") == []


def test_write_records_hash_and_size_and_no_content(tree, context):
    """What the trace gets of a write is where and what hash; replay matches on both."""
    args = WRITE.normalise({"path": "out/x", "body": {"base64": "aGVsbG8="}}, context)
    recorded = {name: value for name, value in args.items() if not name.startswith("_")}
    digest = hashlib.sha256(b"hello").hexdigest()
    assert recorded == {"path": str(tree / "out/x"), "sha256": digest, "size": 5}
    assert WRITE.identity(recorded) == {"path": str(tree / "out/x"), "sha256": digest}


def test_a_full_disk_leaves_the_old_content(tree, context, monkeypatch):
    """The room is reserved before the first old byte is touched."""
    (tree / "out/old").write_bytes(b"precious")

    def full(fd, offset, length):
        os.ftruncate(fd, length)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert write("out/old", b"much longer than before", context)["error"]["errno"] == errno.ENOSPC
    assert (tree / "out/old").read_bytes() == b"precious"


def test_a_file_replaced_by_others_is_still_read(tree, context, monkeypatch):
    """A name that is a link for a moment does not make a read fail: it is tried again."""
    real, calls = _files.open_regular, []

    def flaky(*args):
        calls.append(args)
        if len(calls) == 1:
            raise _files.Moved
        return real(*args)

    monkeypatch.setattr(_files, "open_regular", flaky)
    assert read("in/a", context)["body"] == b"hello"


@pytest.mark.parametrize(
    "args",
    [
        {}, {"path": 1}, {"path": ""}, {"path": "a\0b"}, {"path": ["a"]}, {"path": "out/x", "body": "text"},
        {"path": "out/x", "body": {"text": 1}}, {"path": "out/x", "body": {"base64": "%"}},
        {"path": "out/x", "body": {}},
        {"path": "out/x", "body": {"text": "a", "base64": ""}}, {"path": "out/x", "body": {"text": "\ud800"}},
    ],
)  # fmt: skip
def test_malformed_args_are_usage_errors(args, tree, context):
    """Whatever a hostile agent sends is one clear line, not a crash of the supervisor."""
    with pytest.raises(EffectUsage, match=r"^fs\.write: (path|body): got .*, expected "):
        WRITE.normalise(args, context)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
def test_what_is_written_is_read_back(tree, context, contents):
    """Any sequence of writes leaves exactly the last content."""
    for data in contents:
        write("out/x", data, context)
    assert read("out/x", context)["body"] == contents[-1]


def test_many_file_descriptors_do_not_leak(tree, context):
    """Success and every failure close what they opened."""
    before = len(os.listdir("/proc/self/fd"))
    os.mkfifo(tree / "out/fifo")
    for _ in range(5):
        for name in ("in/a", "in/none", "out/fifo", "in", "out/none/x"):
            read(name, context)
        for name in ("out/new", "out/fifo", "out", "out/none/x"):
            write(name, b"x", context)
    assert len(os.listdir("/proc/self/fd")) == before
