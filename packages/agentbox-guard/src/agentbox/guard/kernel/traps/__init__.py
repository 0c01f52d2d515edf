"""The table of traps: which system calls the supervisor answers, and who answers each. A new family is one file and
one row.

A family is loaded at its first call: most programs never make one of most families, and every run's start would wait
for all of them.
"""

from __future__ import annotations

from agentbox.guard.kernel.traps._base import Box

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.kernel.traps._base import Handler

FAMILIES: dict[str, tuple[str, ...]] = {
    "opens": ("open", "creat", "openat", "openat2"),
    "changes": (
        "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "unlink", "rmdir", "unlinkat", "rename",
        "renameat", "renameat2", "link", "linkat", "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown",
        "fchown", "fchownat", "utime", "utimes", "futimesat", "utimensat", "truncate", "setxattr", "lsetxattr",
        "fsetxattr", "removexattr", "lremovexattr", "fremovexattr",
    ),
    "metadata": ("inotify_add_watch", "getxattr", "lgetxattr", "listxattr", "llistxattr"),
    "execs": ("execve", "execveat"),
    "forks": ("fork", "vfork", "clone"),
    "creations": ("socket", "socketpair"),
    "sockets": ("connect",),
    "binds": ("bind", "listen"),
    "options": ("setsockopt",),
    "sends": ("sendto", "sendmsg", "sendmmsg"),
    "signals": ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"),
    "numbered": (
        "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr", "get_robust_list", "setpriority",
        "ioprio_set", "setpgid",
    ),
    "limits": ("setrlimit", "prlimit64"),
    "owners": ("ioctl", "fcntl"),
    "peers": ("getsockopt",),
}  # fmt: skip
"""Family (a module of this folder, whose `CALLS` has the handlers) to the names of its calls. All others that a row of
the filter hands over are refused.
"""
_FAMILY = {call: family for family, calls in FAMILIES.items() for call in calls}


def handler(call: str) -> Handler | None:
    """Who answers the system call of this name; None for one that is not trapped."""
    family = _FAMILY.get(call, "refusals")
    calls: dict[str, Handler] = __import__(f"{__name__}.{family}", fromlist=["CALLS"]).CALLS
    return calls.get(call)


__all__ = ["FAMILIES", "Box", "handler"]
