"""What a program learns of accounts without a rule: the lines of its own user, of root, and of the own groups.

Runtimes, shells and tools look up the user's name and home folder at their start (getpwuid(3)). The file that they get
names nobody else; members of groups are left out.
"""

from __future__ import annotations

import os

FILES = ("/etc/passwd", "/etc/group")


def descriptor(path: str) -> int:
    """A new descriptor, for reading, of what stands for `path`, which is one of FILES. Raises `OSError`."""
    made = os.memfd_create("accounts", os.MFD_CLOEXEC)
    try:
        os.write(made, os.fsencode(users() if path == FILES[0] else groups()))
        return os.open(f"/proc/self/fd/{made}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(made)


def users() -> str:
    """passwd(5)"""
    import pwd

    found = ""
    for number in dict.fromkeys((0, os.getuid())):
        try:
            entry = pwd.getpwuid(number)
        except KeyError:
            continue
        found += f"{entry.pw_name}:x:{entry.pw_uid}:{entry.pw_gid}::{entry.pw_dir}:{entry.pw_shell}\n"
    return found


def groups() -> str:
    """group(5)"""
    import grp

    found = ""
    for number in dict.fromkeys((0, os.getgid(), *os.getgroups())):
        try:
            entry = grp.getgrgid(number)
        except KeyError:
            continue
        found += f"{entry.gr_name}:x:{entry.gr_gid}:\n"
    return found
