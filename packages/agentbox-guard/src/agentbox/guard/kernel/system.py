"""What any program needs merely to start: system trees, devices, and where a program keeps its own libraries.

The lists are short, and hold nothing in which a machine keeps what belongs to somebody: no /etc as a whole, no /home,
/tmp, /run or /var.
"""

from __future__ import annotations

import os

from agentbox.guard.paths import existing
from agentbox.guard.untrusted import LARGEST_TEXT, open_regular, read_regular

SYSTEM_TREES = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store",
)  # fmt: skip
"""Programs and libraries of the system (hier(7), and two package managers' stores): readable and executable."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts")
"""Devices without content of anybody, readable and writable; /dev/random and /dev/urandom are only readable."""

_BESIDE = ("bin", "sbin", "lib", "lib64", "libexec", "share", "include", "pyvenv.cfg")
_SHARED_HOMES = ("share",)
_MOST_LINKS = 40
_LONGEST_LINE = 256  # execve(2): what the kernel reads of a script's first line


def program_trees(file: str, path: str = "") -> tuple[str, ...]:
    """The trees that the program `file` (absolute) needs to start: what lies beside its folder `bin`, for it, for each
    file that its links lead over (a virtual environment is such a chain) and for the interpreter of a script.

    `path` is a PATH value in which `#!/usr/bin/env NAME` is looked up. System trees are left out; a `share` is given
    only to programs outside of a home's `.local`, where other programs keep keys in it. Missing things are left out.
    """
    found: dict[str, None] = {}
    waiting = [file]
    seen: set[str] = set()
    while waiting and len(seen) < _MOST_LINKS:
        one = os.path.normpath(waiting.pop())
        if one in seen:
            continue
        seen.add(one)
        for tree in _beside(one):
            found[tree] = None
        if os.path.islink(one):
            waiting.append(os.path.join(os.path.dirname(one), os.readlink(one)))
            continue
        waiting.extend(_interpreters(one, path))
        waiting.extend(_base_of_environment(one))
    return tuple(found)


def is_system(path: str) -> bool:
    """Whether `path` lies in a system tree."""
    return any(path == tree or path.startswith(tree + "/") for tree in SYSTEM_TREES)


def _beside(file: str) -> list[str]:
    folder = os.path.dirname(file)
    found = [file] if os.path.exists(file) else []
    prefix, last = os.path.split(folder)
    if last in ("bin", "sbin") and len(prefix) > 1:
        is_home = os.path.basename(prefix) == ".local" or prefix == os.path.expanduser("~")
        found += [f"{prefix}/{entry}" for entry in _BESIDE if not (is_home and entry in _SHARED_HOMES)]
    return [one for one in existing(found) if not is_system(one)]


def _base_of_environment(file: str) -> list[str]:
    """The interpreter behind a virtual environment that copies instead of linking (PEP 405)."""
    configuration = os.path.join(os.path.dirname(os.path.dirname(file)), "pyvenv.cfg")
    try:
        lines = read_regular(configuration, LARGEST_TEXT, follow=True).decode("utf-8", "replace").split("\n")
    except OSError:
        return []
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip().lower() == "home" and value.strip().startswith("/"):
            return [os.path.join(value.strip(), os.path.basename(file))]
    return []


def _interpreters(file: str, path: str) -> list[str]:
    try:
        script = open_regular(file, follow=True)
    except OSError:
        return []
    try:
        line = os.read(script, _LONGEST_LINE)
    finally:
        os.close(script)
    if line[:2] != b"#!":
        return []
    words = [os.fsdecode(word) for word in line[2:].partition(b"\n")[0].split()]
    if not words or not words[0].startswith("/"):
        return []
    found = [words[0]]
    if os.path.basename(words[0]) == "env":
        name = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        candidates = [os.path.join(folder, name) for folder in path.split(":") if name and folder.startswith("/")]
        found += [candidate for candidate in candidates if os.access(candidate, os.X_OK)][:1]
    return found
