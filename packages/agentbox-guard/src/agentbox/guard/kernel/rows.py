"""The filter's rows: which system calls the kernel refuses by itself, which it hands to the supervisor, which it
leaves alone.

Nothing here reads memory: rows see registers only, so what depends on a path or an address is always handed over.
"""

from __future__ import annotations

import errno

from agentbox.guard.kernel import ioctls, others, socketrows
from agentbox.guard.kernel.bpf import ALLOW, ENOSYS, ERRNO, NOTIFY, Row, Test

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16  # <linux/socket.h>, Linux 1.0 to 2.2
SOCK_STREAM, SOCK_DGRAM = 1, 2  # <linux/net.h>
SOCK_KIND = 0xF
"""SOCK_TYPE_MASK, <linux/net.h>: the rest of the argument are flags."""
IP_PROTOCOLS = (0, 6, 17)
"""Default, TCP and UDP (<linux/in.h>): MPTCP, SCTP, SMC, ICMP and UDP-Lite have ways out that nothing else here
sees.
"""
MSG_FASTOPEN = 0x20000000  # <linux/socket.h>, Linux 3.5: a send that connects
SOL_SOCKET, SO_PEERCRED = 1, 17  # <asm-generic/socket.h>

O_PATH = 0o10000000  # <asm-generic/fcntl.h>, Linux 2.6.39
NAMESPACES = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000
"""CLONE_NEWCGROUP, UTS, IPC, USER, PID, NET and NS, <linux/sched.h>."""
NEW_TIME = 0x80
"""CLONE_NEWTIME, <linux/sched.h>, Linux 5.6: the same bit means a signal number for clone(2), so only unshare(2) has
it.
"""

F_SETLEASE, F_SETDELEG = 1024, 1040  # <linux/fcntl.h>, Linux 2.4 and 6.19
PR_SET_MM = 35  # <linux/prctl.h>, Linux 3.3: forges what /proc says of a process

REFUSED: dict[str, int] = {
    **dict.fromkeys(
        (
            "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp", "bpf",
            "userfaultfd", "perf_event_open", "add_key", "request_key", "keyctl", "mount", "umount2", "move_mount",
            "open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "pivot_root",
            "chroot", "setns", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module",
            "open_by_handle_at", "quotactl", "quotactl_fd", "swapon", "swapoff", "reboot", "acct", "settimeofday",
            "clock_settime", "sethostname", "setdomainname", "syslog", "vhangup", "iopl", "ioperm", "fanotify_init",
            "fanotify_mark", "file_setattr", "migrate_pages", "move_pages", "unshare", "clone", "ioctl", "prctl",
            "setpriority", "ioprio_set", "fcntl", "clock_adjtime", "process_mrelease", "lsm_set_self_attr",
        ),
        errno.EPERM,
    ),
    **dict.fromkeys(
        (
            "io_uring_setup", "io_uring_enter", "io_uring_register", "uselib", "nfsservctl", "lookup_dcookie",
            "setxattrat", "getxattrat", "listxattrat", "removexattrat", *others.SHARED_OBJECTS,
        ),
        errno.ENOSYS,
    ),
    "socket": errno.EAFNOSUPPORT,
    "socketpair": errno.EAFNOSUPPORT,
    "sendto": errno.EOPNOTSUPP,
    "sendmsg": errno.EOPNOTSUPP,
    "sendmmsg": errno.EOPNOTSUPP,
}  # fmt: skip
"""Calls that are refused whatever the policy says, and what the program is told; ENOSYS where programs have another
way.
"""

_ALWAYS = (
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp", "bpf", "userfaultfd",
    "perf_event_open", "add_key", "request_key", "keyctl", "mount", "umount2", "move_mount", "open_tree",
    "open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "pivot_root", "chroot", "setns",
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "open_by_handle_at", "quotactl",
    "quotactl_fd", "swapon", "swapoff", "reboot", "acct", "settimeofday", "clock_settime", "sethostname",
    "setdomainname", "syslog", "vhangup", "iopl", "ioperm", "fanotify_init", "fanotify_mark", "file_setattr",
    "migrate_pages", "move_pages", "io_uring_setup", "io_uring_enter", "io_uring_register", "uselib", "nfsservctl",
    "lookup_dcookie", "setxattrat", "getxattrat", "listxattrat", "removexattrat", "process_mrelease",
    "lsm_set_self_attr",
)  # fmt: skip
FILES = (
    "open", "openat", "openat2", "creat", "truncate", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename",
    "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "mknod", "mknodat", "chmod", "fchmod",
    "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat", "utime", "utimes", "utimensat", "futimesat",
    "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr",
)  # fmt: skip
"""Calls that open or change files."""
METADATA = ("inotify_add_watch", "getxattr", "lgetxattr", "listxattr", "llistxattr")
"""Calls that tell of files by name; by a descriptor, it was judged when it was opened."""


def rows(*, pidns: bool, ipcns: bool = False) -> tuple[Row, ...]:
    """The filter for a run with or without its own process namespace, and so network, and IPC namespace."""
    return (
        # An O_PATH descriptor tells nothing but what stat(2) tells, and what it is used for is decided then. It could
        # not
        # be handed over either: SECCOMP_IOCTL_NOTIF_ADDFD takes no such descriptor.
        Row("open", ALLOW, Test(1, (O_PATH,), mask=O_PATH)),
        Row("openat", ALLOW, Test(2, (O_PATH,), mask=O_PATH)),
        *(Row(name, NOTIFY) for name in (*FILES, *METADATA, "execve", "execveat", "connect", "bind", "listen")),
        *_processes(),
        *others.rows(pidns=pidns, ipcns=ipcns),
        *ioctls.rows(),
        *_sockets(netns=pidns),
        *socketrows.rows(),
        *(Row(name, NOTIFY) for name in _ALWAYS),
    )


def _processes() -> tuple[Row, ...]:
    return (
        Row("prctl", NOTIFY, Test(0, (PR_SET_MM,))),
        Row("clone", NOTIFY, Test(0, (0,), mask=NAMESPACES, wanted=False)),
        # Threads share their descriptors, as those of POSIX do: a number means one thing in all of a process.
        Row(
            "clone", ERRNO | errno.EPERM, Test(0, (others.CLONE_THREAD,), mask=others.CLONE_THREAD | others.CLONE_FILES)
        ),
        # Processes share no descriptors: with a single thread a number means one thing while its call waits.
        Row(
            "clone", ERRNO | errno.EPERM, Test(0, (others.CLONE_FILES,), mask=others.CLONE_THREAD | others.CLONE_FILES)
        ),
        # Processes have a working directory of their own, as those of POSIX do: a started script is found by it.
        Row("clone", ERRNO | errno.EPERM, Test(0, (others.CLONE_FS,), mask=others.CLONE_THREAD | others.CLONE_FS)),
        Row("unshare", ERRNO | errno.EPERM, Test(0, (others.CLONE_FILES,), mask=others.CLONE_FILES)),
        Row("clone3", ERRNO | ENOSYS),  # its flags lie in memory, where no filter sees them; libc falls back to clone
        Row("unshare", NOTIFY, Test(0, (0,), mask=NAMESPACES | NEW_TIME, wanted=False)),
        Row("setpriority", NOTIFY, Test(0, (others.PRIO_PROCESS,), wanted=False)),
        Row("ioprio_set", NOTIFY, Test(0, (others.IOPRIO_WHO_PROCESS,), wanted=False)),
        # A lease or delegation would make the supervisor's own acts on that file or folder wait.
        Row("fcntl", ERRNO | errno.EAGAIN, Test(1, (F_SETLEASE, F_SETDELEG))),
        Row("adjtimex", ERRNO | errno.EPERM),
        # It would not hold for what the supervisor opens in a program's name: said to be switched off, so that whoever
        # confines others by it does not believe it done (landlock(7)).
        Row("landlock_create_ruleset", ERRNO | errno.EOPNOTSUPP),
        Row("clock_adjtime", NOTIFY),
    )


def _sockets(*, netns: bool) -> tuple[Row, ...]:
    internet = Test(0, (AF_INET, AF_INET6))
    # Where there are others in the network, sockets are made so that they hear only whom they should.
    made = () if netns else (Row("socket", NOTIFY, internet, Test(1, (SOCK_DGRAM,), mask=SOCK_KIND)),)
    return (
        *made,
        Row("socket", NOTIFY, Test(0, (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK), wanted=False)),
        Row("socket", NOTIFY, internet, Test(1, (SOCK_STREAM, SOCK_DGRAM), mask=SOCK_KIND, wanted=False)),
        Row("socket", NOTIFY, internet, Test(2, IP_PROTOCOLS, wanted=False)),
        Row("socket", NOTIFY, Test(0, (AF_NETLINK,)), Test(2, (0,), wanted=False)),
        Row("socketpair", NOTIFY, Test(0, (AF_UNIX,), wanted=False)),
        Row("sendto", NOTIFY, Test(3, (MSG_FASTOPEN,), mask=MSG_FASTOPEN)),
        Row("sendto", NOTIFY, Test(4, (0,), wanted=False)),
        Row("sendto", NOTIFY, Test(4, (0,), high=True, wanted=False)),
        Row("sendmsg", NOTIFY),
        Row("sendmmsg", NOTIFY),
        Row("getsockopt", NOTIFY, Test(1, (SOL_SOCKET,)), Test(2, (SO_PEERCRED,))),
    )
