"""Programs are told how much they may use, as outside of a sandbox, and of their control groups nothing else."""

import os

import pytest

from agentbox.guard.cgroups import limit_files, own_limit_files

ROOT = "/sys/fs/cgroup"


def test_the_unified_hierarchy_is_walked_up_to_its_root():
    """Version 2: the limits of the group and of all above it."""
    found = limit_files("0::/user.slice/user-1000.slice/session-2.scope\n")
    for group in ("/user.slice/user-1000.slice/session-2.scope", "/user.slice/user-1000.slice", "/user.slice", ""):
        assert {f"{ROOT}{group}/memory.max", f"{ROOT}{group}/cpu.max"} <= set(found)
    assert not [file for file in found if file.endswith((".procs", ".threads", ".events"))]
    assert len(found) == len(set(found))


def test_controllers_of_version_1_have_their_own_places():
    """Together in one hierarchy, each by its name and by both; a name without limits has none."""
    found = limit_files("4:memory:/a/b\n3:pids:/p\n1:cpu,cpuacct:/\n9:name=systemd:/x\n")
    assert {f"{ROOT}/memory/a/b/memory.limit_in_bytes", f"{ROOT}/memory/memory.limit_in_bytes"} <= set(found)
    for name in ("use_hierarchy", "stat", "memsw.limit_in_bytes"):
        assert f"{ROOT}/memory/a/b/memory.{name}" in found
    assert {f"{ROOT}/cpu/cpu.cfs_quota_us", f"{ROOT}/cpu,cpuacct/cpu.cfs_quota_us"} <= set(found)
    assert f"{ROOT}/pids/p/pids.max" in found
    assert not [file for file in found if "systemd" in file or "/x" in file]


@pytest.mark.parametrize("text", ["", "garbage", ":::", "0::", "0::/../../other\n", "0::relative\n", "\udcff\n"])
def test_no_text_leads_out_of_the_hierarchy(text):
    """Whatever the kernel may say, what comes of it is a file of limits below the mount."""
    for file in limit_files(text):
        assert file.startswith(f"{ROOT}/") and ".." not in file.split("/")


def test_this_process_has_some_where_there_are_any():
    """The files that are there can be read by anybody."""
    there = [file for file in own_limit_files() if os.path.exists(file)]
    if not os.path.exists(f"{ROOT}"):
        pytest.skip("no control groups are mounted here")
    for file in there:
        with open(file) as opened:
            opened.read(100)
