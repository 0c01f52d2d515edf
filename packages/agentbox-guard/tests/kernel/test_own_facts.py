"""What programs ask of the machine, of their user and of their own processes without anybody's fault is no denial, and
tells of nobody else.
"""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
from typing import Any

import pytest

FACTS = (
    "/proc/cgroups", "/proc/cpuinfo", "/proc/meminfo", "/proc/self/cgroup", "/proc/sys/fs/file-max",
    "/proc/sys/kernel/cap_last_cap", "/proc/sys/kernel/ngroups_max", "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/proc/sys/net/core/somaxconn",
    "/proc/sys/vm/mmap_min_addr", "/proc/sys/vm/overcommit_memory", "/proc/version", "/etc/os-release",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource", "/sys/devices/system/cpu/online",
    "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
)  # fmt: skip
POLICY = "read: ./agent.py\nread: ./agent.cjs\nwrite: ./out/\nexec: *\n"


class Work:
    """A folder with a policy; what a run said and recorded."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        (path / "agentbox.policy").write_text(POLICY)

    def run(self, *command: str, layers: str = "auto", status: int = 0) -> str:
        words = [sys.executable, "-m", "agentbox.cli", "run", "-q", "--layers", layers, "--", *command]
        done = subprocess.run(words, cwd=self.path, capture_output=True, text=True, timeout=120)
        if done.returncode == 69:
            pytest.skip(f"layers: {done.stderr.strip()}")
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def denials(self) -> list[Any]:
        lines = [json.loads(line) for line in (self.path / "trace.jsonl").read_text().splitlines()]
        return [line["args"] for line in lines if line["kind"] == "deny"]


@pytest.fixture
def work(tmp_path: pathlib.Path) -> Work:
    return Work(tmp_path)


def needs(*programs: str) -> Any:
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@pytest.mark.parametrize("how", ["native", "guarded", "guard alone", "node"])
def test_the_machines_facts_are_read_without_a_rule(work: Work, how: str) -> None:
    """The same verdict in the kernel layers and in both guards."""
    there = [path for path in FACTS if os.path.exists(path)]
    (work.path / "agent.py").write_text(f"for path in {there!r}: open(path, 'rb').read(9)\n")
    (work.path / "agent.cjs").write_text(f"for (const path of {there!r}) require('fs').readFileSync(path);\n")
    if how == "node":
        if shutil.which("node") is None:
            pytest.skip("not installed: node")
        work.run("node", "agent.cjs", layers="guard")
    elif how == "native":
        work.run("cat", *there)
    else:
        work.run(sys.executable, "agent.py", layers="guard" if how == "guard alone" else "auto")
    assert work.denials() == []


@pytest.mark.parametrize("flags", [(), ("-I",)], ids=["guarded", "isolated"])
def test_a_program_learns_its_own_user_and_no_other(work: Work, flags: tuple[str, ...]) -> None:
    """getpwuid(3) as without agentbox, no denial; other accounts are not there."""
    me = pwd.getpwuid(os.getuid())
    other = next((entry.pw_name for entry in pwd.getpwall() if entry.pw_uid not in (0, os.getuid())), None)
    code = (
        "import pwd, grp, os\n"
        "me = pwd.getpwuid(os.getuid())\n"
        "print(me.pw_name, me.pw_dir, grp.getgrgid(os.getgid()).gr_name, sep='|')\n"
        "print([entry.pw_uid for entry in pwd.getpwall()], [one.gr_mem for one in grp.getgrall() if one.gr_mem])\n"
        f"try: print(pwd.getpwnam({other!r}))\n"
        "except KeyError: print('nobody of that name')\n"
    )
    said = work.run(sys.executable, *flags, "-c", code).splitlines()
    assert said[0].startswith(f"{me.pw_name}|{me.pw_dir}|")
    assert said[1] == f"{sorted({0, os.getuid()})} []"
    assert other is None or said[2] == "nobody of that name"
    assert work.denials() == []


@needs("id", "cat")
def test_the_whole_file_is_still_for_a_rule(work: Work) -> None:
    """Who reads /etc/passwd as a file is denied; with the rule the real one is there."""
    assert work.run("id", "-un").strip() == pwd.getpwuid(os.getuid()).pw_name
    assert work.denials() == []
    work.run("cat", "/etc/passwd", status=1)
    assert work.denials() == [{"path": "/etc/passwd"}]
    (work.path / "agentbox.policy").write_text(POLICY + "read: /etc/passwd\n")
    code = "import sys; sys.stdout.write(open('/etc/passwd').read())"
    assert work.run(sys.executable, "-I", "-c", code) == pathlib.Path("/etc/passwd").read_text()


@needs("cat", "sleep")
def test_the_runs_own_processes_show_their_numbers(work: Work) -> None:
    """stat, status, cmdline and threads of a child; not its environment, and nothing of processes outside."""
    script = "sleep 60 & p=$!; cat /proc/$p/stat /proc/$p/status /proc/$p/cmdline; ls /proc/$p/task; kill $p"
    said = work.run("sh", "-c", script)
    assert "(sleep) " in said
    assert work.denials() == []
    work.run("sh", "-c", "sleep 60 & p=$!; cat /proc/$p/environ; s=$?; kill $p; exit $s", status=1)
    assert [args["path"].endswith("/environ") for args in work.denials()] == [True]


@needs("ls", "sleep")
def test_a_listing_of_processes_shows_the_runs_own(work: Work) -> None:
    """In a process namespace /proc is the run's own; without one it is denied."""
    with subprocess.Popen(["sleep", "60"]) as outside:
        try:
            numbers = [int(word) for word in work.run("ls", "/proc").split() if word.isdigit()]
        finally:
            outside.kill()
    assert numbers
    assert len(numbers) < 10
    assert work.denials() == []


def test_a_guard_alone_shows_children_only(work: Work) -> None:
    """A process that this one has started, and no other of the machine."""
    (work.path / "agent.py").write_text(
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "print(open(f'/proc/{child.pid}/stat').read().split()[0] == str(child.pid))\n"
        "for path in (f'/proc/{child.pid}/environ', f'/proc/{os.getppid()}/stat'):\n"
        "    try: open(path); print('opened', path)\n"
        "    except PermissionError: pass\n"
        "child.communicate(b'')\n"
    )
    assert work.run(sys.executable, "agent.py", layers="guard") == "True\n"
    assert len(work.denials()) == 2


@needs("java")
def test_java_starts_without_a_denial(work: Work) -> None:
    """Its configuration in /etc, its user, processors, control groups and huge pages."""
    work.run("java", "-version")
    assert [args for args in work.denials() if not args["path"].startswith("/tmp/hsperfdata_")] == []


@needs("node")
def test_node_asks_for_its_user(work: Work) -> None:
    """os.userInfo() throws where the account cannot be found."""
    name = pwd.getpwuid(os.getuid()).pw_name
    assert work.run("node", "-p", "os.userInfo().username + os.cpus().length").startswith(name)
    assert work.denials() == []
