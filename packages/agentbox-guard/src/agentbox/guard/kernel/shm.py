"""The run's own /dev/shm: an empty tmpfs over the machine's, in the run's mount namespace and gone with it.

POSIX semaphores and shared memory (sem_overview(7), shm_overview(7)) are files there, with names that programs make up,
as `multiprocessing` does. It never opens the machine's own: what cannot be covered stays for the rules to say.
"""

from __future__ import annotations

import errno
import os
import stat

from agentbox.guard.paths import within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentbox.policy import Policy

PLACE = "/dev/shm"
NAME = "SHM"
"""What the trace calls it, as `$SHM/...`: the machine's own folder is another."""
OUTSIDE = "an SDK call is made outside of the run, whose own /dev/shm it does not reach"

_OPTIONS = "mode=1777,size=50%"  # of memory, as systems mount theirs: tmpfs(5)


def is_free(policy: Policy, used: Iterable[str]) -> bool:
    """Whether /dev/shm can be covered: no rule names it or what is in it, and nothing that the run uses lies there.

    A rule for a folder around it (`write: /`) does not name it.
    """
    try:
        if not stat.S_ISDIR(os.lstat(PLACE).st_mode):
            return False  # a link: what it leads to has another name, by which it would be decided
    except OSError:
        return False
    named = [rule.form["root"] for rule in policy.rules_of(("read", "list", "write"))]
    programs = [rule.form["file"] for rule in policy.rules_of(("exec",)) if rule.form["file"]]
    return not any(is_in(os.path.realpath(path)) for path in dict.fromkeys([*named, *programs, *used]))


def is_in(path: str) -> bool:
    """Whether a resolved path is /dev/shm or lies in it."""
    return within(path, [PLACE])


def cover() -> bool:
    """In the run's own mount namespace: put the empty one there. False where the machine forbids that."""
    from agentbox.guard.kernel import syscalls

    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    try:
        syscalls.mount("shm", PLACE, "tmpfs", flags, _OPTIONS)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.ENODEV):
            raise
        return False
    return True
