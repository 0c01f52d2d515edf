"""The scratch copy in real namespaces, as root and as an ordinary user."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.waiting import PATIENCE, comes

from agentbox.guard.kernel import syscalls
from agentbox.replay import _worker, scratch
from agentbox.replay.errors import ScratchFailed, ScratchUnavailable
from agentbox.replay.scratch import Scratch, plan_covers

NOBODY = 65534
PR_SET_DUMPABLE = 4  # <linux/prctl.h>


def forked(action: Callable[[], object], *, uid: int | None = None) -> object:
    """Run `action` in a forked child (as `uid` if given) and return its JSON value; its exception fails the test."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                # As after the exec that an ordinary user's process comes from: its /proc files are its own.
                syscalls.prctl(PR_SET_DUMPABLE, 1)
            answer = {"value": action()}
        except BaseException as error:
            answer = {"raised": f"{type(error).__name__}: {error}"}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    answer = json.loads(data)
    assert "raised" not in answer, answer["raised"]
    return answer["value"]


def _has_scratch(uid: int | None) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        try:
            forked(lambda: Scratch.open([folder]).close(), uid=uid)
        except AssertionError:
            return False
    return True


WHO = [
    pytest.param(
        None,
        id="this-user",
        marks=pytest.mark.skipif(not _has_scratch(None), reason="no user or mount namespaces for this user here"),
    ),
    pytest.param(
        NOBODY,
        id="ordinary-user",
        marks=pytest.mark.skipif(
            os.getuid() != 0 or not _has_scratch(NOBODY),
            reason="not root, or no user namespaces for ordinary users here",
        ),
    ),
]


@pytest.fixture(params=WHO)
def uid(request: pytest.FixtureRequest) -> int | None:
    """Who runs the test's actions."""
    found: int | None = request.param
    return found


@pytest.fixture
def tree(uid: int | None) -> Iterator[Path]:
    """A folder that belongs to `uid`, with names that overlayfs would take for syntax: `wo,rk:/{old,sub/inner}`."""
    base = Path(tempfile.mkdtemp())
    (base / "wo,rk:" / "sub").mkdir(parents=True)
    (base / "wo,rk:" / "old").write_text("real")
    (base / "wo,rk:" / "log").write_text("one, two")
    (base / "wo,rk:" / "sub" / "inner").write_text("real")
    if uid is not None:
        for path in [base, *base.rglob("*")]:
            os.chown(path, uid, uid)
    yield base / "wo,rk:"
    shutil.rmtree(base)


@pytest.fixture
def tree_of_this_user(tmp_path: Path) -> Path:
    """A folder to cover."""
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def snapshot(folder: Path) -> dict[str, str]:
    """Every path below `folder` with its content."""
    return {str(path): path.read_text() if path.is_file() else "" for path in sorted(folder.rglob("*"))}


def inside(view: Scratch, action: Callable[[], object]) -> object:
    """What `action` gives in a child that entered the copy."""

    def enter_and_act() -> object:
        view.enter()
        return action()

    return forked(enter_and_act)


def test_writes_land_in_the_copy_and_the_tree_stays(uid: int | None, tree: Path) -> None:
    """What the agent overwrites, makes, renames and removes shows to it, and not in the real tree."""
    before = snapshot(tree.parent)

    def change() -> object:
        (tree / "old").write_text("new")
        (tree / "made").mkdir()
        (tree / "made" / "file").write_text("x")
        os.rename(tree / "sub" / "inner", tree / "moved")
        (tree / "sub").rmdir()
        (tree / "sub").mkdir()
        return [sorted(os.listdir(tree)), os.listdir(tree / "sub"), (tree / "old").read_text()]

    def act() -> object:
        view = Scratch.open([str(tree)])
        try:
            return inside(view, change)
        finally:
            view.close()

    assert forked(act, uid=uid) == [["log", "made", "moved", "old", "sub"], [], "new"]
    assert snapshot(tree.parent) == before
    # The same without the copy reaches the tree: the test can fail.
    forked(change, uid=uid)
    assert snapshot(tree.parent) != before


def test_supervisor_writes_show_to_the_agent_and_states_are_of_the_copy(uid: int | None, tree: Path) -> None:
    """A skipped SDK write is put into the copy, where the agent's direct read and the final hash see it."""

    def act() -> object:
        view = Scratch.open(
            [str(tree)],
            make=[str(tree / "root")],
            hide=[str(tree / "sub"), str(tree / "nothing")],
            cut={str(tree / "log"): 3, str(tree / "old"): 100},
        )
        try:
            view.write(str(tree / "by-sdk"), b"\x00\xff")
            view.write(str(tree / "old"), b"short")
            seen = inside(view, lambda: [(tree / "by-sdk").read_bytes().hex(), sorted(os.listdir(tree))])
            return [seen, view.states([str(tree / name) for name in ("old", "log", "gone", "root", "by-sdk")])]
        finally:
            view.close()

    seen, states = forked(act, uid=uid)  # type: ignore[misc]
    assert seen == ["00ff", ["by-sdk", "log", "old", "root"]]
    assert states == {
        str(tree / "old"): hashlib.sha256(b"short").hexdigest(),
        str(tree / "log"): hashlib.sha256(b"one").hexdigest(),
        str(tree / "gone"): "absent",
        str(tree / "root"): "directory",
        str(tree / "by-sdk"): hashlib.sha256(b"\x00\xff").hexdigest(),
    }
    assert sorted(os.listdir(tree)) == ["log", "old", "sub"]


@pytest.fixture
def outside(uid: int | None) -> Iterator[Path]:
    """A folder of /dev, which is the machine's own in a copy as well."""
    base = Path(tempfile.mkdtemp(dir="/dev/shm"))
    (base / "folder").mkdir()
    for name in ("file", "folder/inner"):
        (base / name).write_text("kept")
    if uid is not None:
        for path in (base, *base.rglob("*")):
            os.chown(path, uid, uid)
    yield base
    shutil.rmtree(base)


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="this machine has no /dev/shm")
def test_no_path_of_a_trace_leads_out_of_the_copy(uid: int | None, tree: Path, outside: Path) -> None:
    """Neither by `..` nor by a link: whoever makes the trace would have files of the machine removed, or cut."""
    up = f"{tree}/{'/'.join(['..'] * 20)}{outside}"

    def ways(name: str) -> list[str]:
        return [f"{up}/{name}", f"{tree}/link/{name}"]

    def act() -> object:
        os.symlink(outside, tree / "link")
        os.symlink(outside / "file", tree / "last")
        reached = [os.path.samefile(path, outside / "file") for path in ways("file")]
        cut = dict.fromkeys(ways("file"), 1)
        view = Scratch.open([str(tree)], hide=[*ways("folder"), *ways("folder/inner")], cut=cut)
        try:
            for path in (*ways("file"), *ways("new"), f"{tree}/last", f"{tree}/nul\0"):
                with contextlib.suppress(ScratchFailed):
                    view.write(path, b"changed")
                    reached.append(path)
        finally:
            view.close()
        return reached

    assert forked(act, uid=uid) == [True, True]
    assert snapshot(outside) == {
        f"{outside}/file": "kept", f"{outside}/folder": "", f"{outside}/folder/inner": "kept"
    }  # fmt: skip


def test_a_socket_below_a_cover_can_be_exposed(uid: int | None, tree: Path) -> None:
    """The channel's folder, made after the copy, is the real one again: a unix socket in it can be connected to."""

    def act() -> object:
        view = Scratch.open([str(tree)])
        folder = tree / "run"
        folder.mkdir()
        try:
            with socket.socket(socket.AF_UNIX) as server:
                os.chdir(folder)  # the path of a socket is short (unix(7))
                server.bind("channel")
                server.listen()
                view.expose(str(folder))

                def connect() -> object:
                    os.chdir(folder)
                    with socket.socket(socket.AF_UNIX) as client:
                        client.connect("channel")
                    return "connected"

                return inside(view, connect)
        finally:
            view.close()

    assert forked(act, uid=uid) == "connected"


def attempts(tree: Path, port: int, abstract: str) -> dict[str, str]:
    """What a program without any guard tries by itself, each to its outcome."""
    found = {}

    def attempt(name: str, act: Callable[[], object]) -> None:
        try:
            act()
            found[name] = "done"
        except OSError as error:
            found[name] = errno.errorcode[error.errno or 0]

    def connect(family: int, kind: int, address: object) -> None:
        with socket.socket(family, kind) as client:
            client.settimeout(PATIENCE)
            client.connect(address)  # type: ignore[arg-type]
            client.send(b"x")

    attempt("overwrite", lambda: (tree / "old").write_text("changed"))
    attempt("overwrite outside", lambda: (tree.parent / "beside").write_text("changed"))
    attempt("make outside", lambda: (tree.parent / "new").touch())
    attempt("remove outside", lambda: (tree.parent / "beside").unlink())
    attempt("tcp", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)))
    attempt("udp", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port)))
    attempt("other machine", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 9)))
    attempt("abstract", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract))
    attempt("null", lambda: Path("/dev/null").write_text("x"))
    return found


@pytest.mark.parametrize("covered", [True, False], ids=["covered", "read-only"])
def test_native_code_changes_nothing_and_reaches_nobody(uid: int | None, tree: Path, covered: bool) -> None:
    """What no guard sees still ends in the copy, at a read-only file system or in an empty network; without the copy it
    all gets through.
    """
    (tree.parent / "beside").write_text("real")
    if uid is not None:
        os.chown(tree.parent / "beside", uid, uid)
    before = snapshot(tree.parent)
    abstract = f"agentbox-test-{os.getpid()}-{covered}-{uid}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind("\0" + abstract)
        local.listen()
        port = server.getsockname()[1]

        def act() -> object:
            view = Scratch.open([str(tree)] if covered else [])
            try:
                return [
                    view.has_copy,
                    view.network,
                    view.open_mounts,
                    inside(view, lambda: attempts(tree, port, abstract)),
                ]
            finally:
                view.close()

        assert forked(act, uid=uid) == [
            covered,
            "",
            [],
            {
                "overwrite": "done" if covered else "EROFS",
                "overwrite outside": "EROFS",
                "make outside": "EROFS",
                "remove outside": "EROFS",
                "tcp": "ENETUNREACH",
                "udp": "ENETUNREACH",
                "other machine": "ENETUNREACH",
                "abstract": "ECONNREFUSED",
                "null": "done",
            },
        ]
        assert snapshot(tree.parent) == before
        free = forked(lambda: attempts(tree, port, abstract), uid=uid)
        assert isinstance(free, dict)
        free.pop("other machine")  # what this machine's own network says
        assert set(free.values()) == {"done"}
        assert snapshot(tree.parent) != before


def test_the_private_folder_stays_writable(uid: int | None, tree: Path) -> None:
    """Where all else is read-only, an exposed folder outside of the covers is the real one, and can be written."""
    folder = tree.parent / "run"

    def act() -> object:
        folder.mkdir()
        view = Scratch.open([str(tree)])
        try:
            view.expose(str(folder))
            return inside(view, lambda: (folder / "file").write_text("x"))
        finally:
            view.close()

    assert forked(act, uid=uid) == 1
    assert (folder / "file").read_text() == "x"


@pytest.mark.skipif(not _has_scratch(None), reason="no user or mount namespaces for this user here")
def test_a_refused_network_namespace_is_told(tree_of_this_user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the empty network is refused there is a copy all the same, and the reason."""
    unshare = syscalls.unshare

    def refuse(flags: int) -> None:
        if flags & syscalls.CLONE_NEWNET:
            raise OSError(28, "unshare: No space left on device")
        unshare(flags)

    monkeypatch.setattr(syscalls, "unshare", refuse)
    view = Scratch.open([str(tree_of_this_user)])
    try:
        assert view.network == "network namespaces are refused here (unshare: No space left on device)"
        ours = os.readlink("/proc/self/ns/net")
        assert inside(view, lambda: os.readlink("/proc/self/ns/net")) == ours
    finally:
        view.close()


def test_it_ends_with_its_supervisor(uid: int | None, tree: Path) -> None:
    """A supervisor that is killed takes the process inside the copy with it."""

    def act() -> object:
        reader, writer = os.pipe()
        supervisor = os.fork()
        if supervisor == 0:
            view = Scratch.open([str(tree)])
            os.write(writer, str(view.pid).encode())
            signal.pause()
        pid = int(os.read(reader, 32))
        watched = os.pidfd_open(pid)
        os.kill(supervisor, signal.SIGKILL)
        os.waitpid(supervisor, 0)
        return comes(watched)

    assert forked(act, uid=uid) is True


def test_close_leaves_nothing(uid: int | None, tree: Path) -> None:
    """After `close` there is no process, no mount and no new file."""

    def left() -> list[object]:
        return [os.listdir(tempfile.gettempdir()), Path("/proc/self/mountinfo").read_text()]

    def act() -> object:
        tempfile.tempdir = tempfile.mkdtemp()  # in a forked child; others make files in /tmp meanwhile
        before = left()
        view = Scratch.open([str(tree)])
        view.write(str(tree / "x"), b"x")
        view.close()
        view.close()
        after = left()
        os.rmdir(tempfile.tempdir)
        try:
            os.kill(view.pid, 0)
        except ProcessLookupError:
            return before == after
        return "still alive"

    assert forked(act, uid=uid) is True


def test_old_kernels_fall_back_to_a_folder_that_is_removed(
    uid: int | None, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a tmpfs keeps no user attributes (before Linux 6.6), a private folder holds the copy, and goes with it."""
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o777)
    monkeypatch.setattr(_worker, "keeps_attributes", lambda store: False)
    monkeypatch.setattr(tempfile, "tempdir", folder)

    def act() -> object:
        view = Scratch.open([str(tree)])
        used = os.listdir(folder)
        inside(
            view,
            lambda: [shutil.rmtree(tree / "sub"), (tree / "sub").mkdir(), os.symlink("/", tree / "sub" / "link")][:0],
        )
        view.close()
        return [len(used), os.listdir(folder), sorted(os.listdir(tree / "sub"))]

    used, left, real = forked(act, uid=uid)  # type: ignore[misc]
    assert (left, real) == ([], ["inner"])
    assert used == (0 if uid is None and os.getuid() == 0 else 1)
    os.rmdir(folder)


def test_a_mount_inside_a_cover(uid: int | None, tree: Path) -> None:
    """A file system mounted below a cover is covered as well by root; an ordinary user is told that it cannot be."""
    if os.getuid() != 0:
        pytest.skip("only root can mount the file system that this needs")
    point = tree / "sub"
    syscalls.mount("tmpfs", str(point), "tmpfs", 0, "mode=0777")
    try:
        (point / "there").write_text("real")

        def act() -> object:
            try:
                view = Scratch.open([str(tree)])
            except ScratchUnavailable as error:
                return str(error)
            try:
                return inside(view, lambda: [os.listdir(point), (point / "there").write_text("changed")])
            finally:
                view.close()

        answer = forked(act, uid=uid)
        if uid is None:
            assert answer == [["there"], 7]
        else:
            assert f"{point} is a mount point inside of it, which only root can cover" in str(answer)
        assert (point / "there").read_text() == "real"
    finally:
        _umount(point)


def _umount(point: Path) -> None:
    import ctypes

    assert ctypes.CDLL(None).umount2(os.fsencode(point), 2) == 0


def test_refused_namespaces_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without namespaces gives one line with the step, the system's answer and the way out."""

    def refuse(flags: int) -> None:
        raise OSError(1, "unshare: Operation not permitted")

    monkeypatch.setattr(syscalls, "unshare", refuse)
    with pytest.raises(ScratchUnavailable) as caught:
        Scratch.open([str(tmp_path)])
    assert str(caught.value) == (
        "no scratch copy for direct writes: "
        "user or mount namespaces are refused here (unshare: Operation not permitted)"
    )
    assert "allows user namespaces" in caught.value.hint


@pytest.mark.skipif(not _has_scratch(None), reason="no user or mount namespaces for this user here")
def test_a_dead_process_is_an_error(tmp_path: Path) -> None:
    """When the process inside has died, every request says so instead of hanging."""
    view = Scratch.open([str(tmp_path)])
    os.kill(view.pid, signal.SIGKILL)
    os.waitpid(view.pid, 0)
    with pytest.raises(ScratchFailed, match="the scratch copy's process is gone"):
        view.states(["/x"])
    view.close()


@pytest.mark.skipif(not _has_scratch(None), reason="no user or mount namespaces for this user here")
def test_writes_outside_of_the_covers_are_refused(tmp_path: Path) -> None:
    """The process inside never writes where no cover is: that would be the real tree."""
    (tmp_path / "in").mkdir()
    view = Scratch.open([str(tmp_path / "in")])
    try:
        with pytest.raises(ScratchFailed, match="not inside the scratch copy"):
            view.write(str(tmp_path / "out"), b"x")
    finally:
        view.close()
    assert not (tmp_path / "out").exists()


def test_plan_takes_the_deepest_existing_folders(tmp_path: Path) -> None:
    """Files, missing folders and globs are covered by the deepest existing folder; nested ones are dropped."""
    for name in ("a/b", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "c" / "file").touch()
    roots = ["a/b/*.txt", "a/b/new/deep", "c/file", "c", "[x]/y"]
    assert plan_covers(str(tmp_path / root) for root in roots[:4]) == [str(tmp_path / "a" / "b"), str(tmp_path / "c")]
    assert plan_covers(str(tmp_path / root) for root in roots) == [str(tmp_path)]


def test_plan_follows_links_and_leaves_devices_out(tmp_path: Path) -> None:
    """A root that is a link covers the folder it leads to, and kernel file systems are never covered."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert plan_covers([str(tmp_path / "link"), "/dev/shm/x", "/proc/self/comm"]) == [str(tmp_path / "real")]


def test_plan_refuses_the_root() -> None:
    """`/` itself cannot be covered, and that is said instead of writing for real."""
    with pytest.raises(ScratchUnavailable, match="directly under /"):
        plan_covers(["/no-such-file-here"])


def test_is_under_knows_whole_names() -> None:
    """A path is under a root only at a slash."""
    assert scratch.is_under("/a/b", ["/a"])
    assert scratch.is_under("/a", ["/"])
    assert not scratch.is_under("/ab", ["/a"])
