"""The Landlock layer: its plan for every ABI, and what really holds in a child."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from confined_child import USERS, attempt, folder_of, in_child
from hypothesis import given
from hypothesis import strategies as st

from agentbox.guard.kernel import landlock
from agentbox.guard.kernel.landlock import LANDLOCK, Plan, handled_fs, plan_for
from agentbox.policy import Policy, parse

needs_landlock = pytest.mark.skipif(bool(LANDLOCK.probe()), reason=f"landlock: {LANDLOCK.probe()}")

CONTEXT: dict[str, Any] = {"readable": ["/etc/hosts"], "writable": {"TMPDIR": "/private/tmp"}, "layers": ("netns",)}


def policy(text: str, cwd: str = "/work") -> Policy:
    return parse(text, cwd=cwd)


def test_an_abi_handles_every_access_that_it_knows_and_no_other() -> None:
    """REFER came with ABI 2, TRUNCATE with 3, IOCTL_DEV with 5; asking an older kernel for them would fail."""
    assert handled_fs(1) == (1 << 13) - 1
    assert handled_fs(2) == (1 << 14) - 1
    assert handled_fs(3) == handled_fs(4) == (1 << 15) - 1
    assert handled_fs(5) == handled_fs(6) == handled_fs(7) == (1 << 16) - 1


@pytest.mark.parametrize(("abi", "size"), [(1, 8), (2, 8), (3, 8), (4, 16), (5, 16), (6, 24), (7, 24), (9, 24)])
def test_the_ruleset_attribute_is_as_long_as_the_abi_knows_it(abi: int, size: int) -> None:
    """A longer struct with anything set in its tail is refused by older kernels (E2BIG)."""
    assert len(Plan(abi, (), handled_net=0).attributes()) == size


@given(abi=st.integers(1, 12))
def test_a_plan_grants_only_what_it_handles(abi: int) -> None:
    """The kernel refuses a rule for an access that the ruleset does not handle."""
    made = plan_for(policy("write: ./out/\nread: ./data\n"), CONTEXT, abi=abi)
    assert all(access & ~made.handled_fs == 0 and access for _, access in made.paths)
    assert not made.handled_fs & ~handled_fs(7)


def test_nothing_is_granted_that_no_rule_names() -> None:
    """Under a policy of one write root, the home and the password file are not covered."""
    made = plan_for(policy("write: ./out/\n"), CONTEXT, abi=7)
    for access in ("read", "write", "exec"):
        assert not made.covers(access, "/home/user/.ssh/id")
        assert not made.covers(access, "/etc/passwd")
        assert not made.covers(access, "/work/other")
    assert made.covers("read", "/work/out/x") and made.covers("write", "/work/out/x")
    assert made.covers("read", "/etc/hosts") and not made.covers("write", "/etc/hosts")
    assert made.covers("write", "/private/tmp/x")


def test_programs_are_executed_from_system_trees_and_rules_but_not_from_write_roots() -> None:
    """A copy of a program in a write root is data, unless a rule names a program there."""
    made = plan_for(policy("write: ./out/\n"), CONTEXT, abi=7)
    assert made.covers("exec", "/usr/bin/env") and not made.covers("exec", "/work/out/env")
    anything = plan_for(policy("exec: *\nread: /opt/tool\n"), CONTEXT, abi=7)
    assert anything.covers("exec", "/opt/tool/bin/x") and not anything.covers("exec", "/opt/other/bin/x")


def test_a_rule_for_a_program_in_a_write_root_grants_its_folder(tmp_path: Path) -> None:
    """A program that is built again is another file, so the folder it is built in has to be granted."""
    (tmp_path / "out").mkdir()
    made = plan_for(policy("write: ./out/\nexec: ./out/bin/tool\n", str(tmp_path)), CONTEXT, abi=7)
    assert made.covers("exec", f"{tmp_path}/out/bin/tool")
    assert not made.covers("exec", f"{tmp_path}/other")


def test_a_glob_grants_its_matches_only_where_nobody_opens_files_for_the_run(tmp_path: Path) -> None:
    """With the seccomp layer files of a glob are opened outside; alone, Landlock gets what matches now."""
    for name in ("a.txt", "b.bin", ".c.txt"):
        (tmp_path / name).touch()
    rules = policy("read: ./*.txt\n", str(tmp_path))
    alone = plan_for(rules, CONTEXT, abi=7)
    assert alone.covers("read", f"{tmp_path}/a.txt")
    assert not alone.covers("read", f"{tmp_path}/b.bin") and not alone.covers("read", f"{tmp_path}/.c.txt")
    beside = plan_for(rules, {**CONTEXT, "layers": ("netns", "seccomp")}, abi=7)
    assert not beside.covers("read", f"{tmp_path}/a.txt")


def test_tcp_is_handled_only_where_there_is_no_network_namespace() -> None:
    """In an empty namespace a connection to the run's own server must work; without one none may be made directly."""
    rules = policy("read: ./x\n")
    assert plan_for(rules, {**CONTEXT, "layers": ("netns", "seccomp")}, abi=7).handled_net == 0
    assert plan_for(rules, {**CONTEXT, "layers": ("seccomp",)}, abi=7).handled_net == landlock.CONNECT_TCP
    assert plan_for(rules, {**CONTEXT, "layers": ("seccomp",)}, abi=3).handled_net == 0


def test_other_processes_are_shown_only_where_they_are_the_runs_own() -> None:
    """Without a process namespace /proc as a whole would show the command lines of everybody."""
    rules = policy("read: ./x\n")
    assert plan_for(rules, {**CONTEXT, "layers": ()}, abi=7).covers("read", "/proc/1/cmdline") is False
    assert plan_for(rules, CONTEXT, abi=7).covers("read", "/proc/1/cmdline")


def write(path: str) -> None:
    with open(path, "w") as file:
        file.write("x")


def attempts(base: Path) -> dict[str, str]:
    """Acts inside and outside of what the test's policy allows, and how each ended."""
    return {
        "read data": attempt(lambda: os.close(os.open(base / "data/a", os.O_RDONLY))),
        "read secret": attempt(lambda: os.close(os.open(base / "secret", os.O_RDONLY))),
        "list base": attempt(lambda: os.listdir(base)),
        "write out": attempt(lambda: write(f"{base}/out/new")),
        "write data": attempt(lambda: write(f"{base}/data/a")),
        "write outside": attempt(lambda: write(f"{base}/new")),
        "make folder outside": attempt(lambda: os.mkdir(base / "folder")),
        "link outside in": attempt(lambda: os.link(base / "secret", base / "out/link")),
        "rename in": attempt(lambda: os.rename(base / "moved", base / "out/moved")),
        "truncate outside": attempt(lambda: os.truncate(base / "secret", 0)),
        "rename inside": attempt(lambda: os.rename(base / "out/new", base / "out/sub/new")),
        "run true": attempt(lambda: run(["/usr/bin/env", "true"])),
        "run copy": attempt(lambda: run([f"{base}/out/copy"])),
    }


def run(argv: list[str]) -> None:
    os.waitpid(os.posix_spawn(argv[0], argv, {"PATH": "/usr/bin:/bin"}), 0)


def furnish(base: Path, user: int) -> None:
    import shutil

    def make() -> None:
        for name in ("data", "out", "out/sub"):
            (base / name).mkdir()
        for name in ("data/a", "secret", "moved"):
            (base / name).write_text("x")
        shutil.copy("/usr/bin/env", base / "out/copy")

    in_child(make, user)


@needs_landlock
@pytest.mark.parametrize("abi", range(1, 8))
@pytest.mark.parametrize("user", USERS)
def test_a_child_is_held_to_the_plan_on_every_abi(user: int, abi: int) -> None:
    """What the policy allows works, what it does not fails, also as on older kernels; without the layer all works."""
    from agentbox.guard.kernel import syscalls

    if abi > syscalls.landlock_abi():
        pytest.skip(f"landlock: the kernel has no ABI {abi}")
    with folder_of(user) as base:
        furnish(base, user)
        rules = policy("write: ./out/\nread: ./data\n", str(base))
        made = plan_for(rules, CONTEXT, abi=abi)

        def confined() -> dict[str, str]:
            landlock.apply(made)
            return attempts(base)

        got = in_child(confined, user)
        control = in_child(lambda: attempts(base), user)
    assert set(control.values()) == {"ok"}
    allowed = {"read data", "write out", "run true"} | ({"rename inside"} if abi >= 2 else set())
    open_before_abi_3 = {"truncate outside"} if abi < 3 else set()
    assert {name for name, how in got.items() if how == "ok"} == allowed | open_before_abi_3
    assert {got[name] for name in control if got[name] != "ok"} <= {"EACCES", "EXDEV", "EPERM"}


@needs_landlock
@pytest.mark.parametrize("user", USERS)
def test_signals_and_abstract_sockets_of_others_are_out_of_reach(user: int) -> None:
    """ABI 6 scopes both; in the control run both reach."""
    from agentbox.guard.kernel import syscalls

    if syscalls.landlock_abi() < 6:
        pytest.skip("landlock: scopes need ABI 6")
    name = f"\0kernel-test-{os.getpid()}-{user}"

    def both() -> tuple[str, str]:
        waiting = os.fork()
        if waiting == 0:
            signal.pause()
            os._exit(0)
        server = socket.socket(socket.AF_UNIX)
        server.bind(name)
        server.listen()

        def try_it() -> tuple[str, str]:
            client = socket.socket(socket.AF_UNIX)
            return attempt(lambda: client.connect(name)), attempt(lambda: os.kill(waiting, 0))

        def confined() -> tuple[str, str]:
            landlock.apply(plan_for(policy("read: ./x\n"), CONTEXT, abi=7))
            return try_it()

        try:
            assert in_child(try_it) == ("ok", "ok")
            return in_child(confined)  # type: ignore[no-any-return]
        finally:
            os.kill(waiting, signal.SIGKILL)
            os.waitpid(waiting, 0)

    assert in_child(both, user) == ("EPERM", "EPERM")
