"""What the supervisor itself reads in /proc, and what an SDK call may open there, where the supervisor would otherwise
show its own and other processes' secrets.

It says what the interpreter's guard says of the agent's own opens (python/judge.py, whose lists are the same), and
never less: here it is the supervisor that opens the file, with its own rights.
"""

from __future__ import annotations

import os

CLOSED, RULED, OWN = "closed", "ruled", "own"

REASON = "the memory, environment and files of another process are open to no rule"
FOREIGN_OPEN = frozenset(
    ("", "cmdline", "comm", "stat", "statm", "status", "io", "limits", "cgroup", "sched", "schedstat")
)
"""What a rule may open of another process's folder: numbers and names (proc(5))."""


def is_public(rest: str) -> bool:
    """Whether what follows /proc/N/ is one of those, of the process or of one of its threads, or the list of these."""
    if rest.startswith("task/"):
        number, _, rest = rest[5:].partition("/")
        return number.isdigit() and rest in FOREIGN_OPEN
    return rest in FOREIGN_OPEN or rest == "task"


OWN_REFUSED = ("/mem", "/pagemap", "/clear_refs")
_CHUNK = 65536


def read_entry(path: str) -> bytes:
    """A small entry in one read, which for entries of one record gives all of it. Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _CHUNK)
    finally:
        os.close(fd)


def member(entry: bytes, name: bytes) -> bytes:
    """A member of an entry of lines `name: value` (proc_pid_status(5), proc_pid_fdinfo(5)); b"" if there is none.

    A process's name, the first of its status, has no newline.
    """
    return (b"\n" + entry).partition(b"\n" + name + b":")[2].partition(b"\n")[0].strip()


def read_stat(pid: int) -> list[str]:
    """The fields of proc_pid_stat(5) after the name: 0 is the state, 1 the parent, 2 the group, 4 the terminal, 19 the
    start in clock ticks since boot. Raises `OSError`.
    """
    return read_entry(f"/proc/{pid}/stat").rpartition(b")")[2].decode("ascii", "replace").split()


def started(pid: int) -> int:
    """When a process was started, in clock ticks since boot, which tells it from another one by its number; 0 when it
    is gone.
    """
    try:
        return int(read_stat(pid)[19])
    except (OSError, ValueError, IndexError):
        return 0


def life(number: int) -> tuple[int, int]:
    """What nobody who has the number of a process or thread later has. Raises `OSError` when there is none.

    The kernel makes a new inode for a new one's folder, at a time of its own, and one stat(2) is a tenth of reading
    what the folder holds. It may make one anew for the same process: another answer says that it is to be asked again.
    """
    info = os.stat(b"/proc/%d" % number)
    return info.st_ino, info.st_ctime_ns


def read_long(path: str) -> bytes:
    """An entry of any size, such as a command line. Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while data := os.read(fd, _CHUNK):
            found += data
        return found
    finally:
        os.close(fd)


def standing(key: str, path: str, pid: int) -> str:
    """How the resolved `path` stands to the process `pid`, which asks to `read` or `write` it.

    `CLOSED`: whatever the rules say. `OWN`: about the process itself, open without a rule. `RULED`: the rules decide,
    as of all that is not in a process's folder. Source: proc(5).
    """
    number, _, rest = path[6:].partition("/") if path.startswith("/proc/") else ("", "", "")
    if not number.isdigit():
        return RULED
    if key == "write":
        return CLOSED  # settings of a process (uid_map, attr/, oom_score_adj), which it can write by itself
    if number != str(pid):
        return RULED if is_public(rest) else CLOSED
    return CLOSED if path.endswith(OWN_REFUSED) else OWN
