"""The Landlock layer: what trees the run's programs can open, change and execute at all, whoever asks the kernel.

It is the outer wall, and wider than the policy where Landlock cannot say more: it takes nothing away from inside a
tree, so what is protected in a write root is held by the seccomp layer. It never allows what no rule, system tree or
private folder covers. Sources: landlock(7), the kernel's userspace-api/landlock.
"""

from __future__ import annotations

import errno
import os
import stat
from sys import byteorder

from agentbox.guard.kernel import ENFORCES, syscalls, system
from agentbox.guard.kernel._attempt import tried
from agentbox.guard.kernel.grown import grown_folders
from agentbox.policy.forms.path import glob_matches, glob_patterns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from agentbox.policy import Policy, Rule

# <linux/landlock.h>; Linux 5.13 (ABI 1) unless another version is given
EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REMOVE_DIR = 1 << 4
REMOVE_FILE = 1 << 5
MAKE_CHAR = 1 << 6
MAKE_DIR = 1 << 7
MAKE_REG = 1 << 8
MAKE_SOCK = 1 << 9
MAKE_FIFO = 1 << 10
MAKE_BLOCK = 1 << 11
MAKE_SYM = 1 << 12
REFER = 1 << 13  # ABI 2, Linux 5.19
TRUNCATE = 1 << 14  # ABI 3, Linux 6.2
IOCTL_DEV = 1 << 15  # ABI 5, Linux 6.10
CONNECT_TCP = 1 << 1  # ABI 4, Linux 6.7
SCOPE_ABSTRACT_UNIX = 1 << 0  # ABI 6, Linux 6.12
SCOPE_SIGNAL = 1 << 1  # ABI 6, Linux 6.12

READ = READ_FILE | READ_DIR
WRITE = (
    WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM | REFER | TRUNCATE
)
"""Devices are never made: neither MAKE_CHAR nor MAKE_BLOCK is ever granted."""
FILE_ONLY = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""What the kernel takes in a rule for something that is no directory."""

NEWEST_ABI = 7
"""The newest that is understood; on a later kernel its additions are not used, which takes nothing away."""

_RULED = {"read": READ, "list": READ_DIR, "write": READ | WRITE | IOCTL_DEV}
"""What a rule grants below its root. That a `list:` rule is for one level only is held by the seccomp layer and the
guard.
"""

_MOST_LOOKED_AT = 20000
_ABI1_FS = (1 << 13) - 1
_NEEDED = {"read": READ_FILE, "write": WRITE_FILE, "exec": EXECUTE | READ_FILE}
"""The kernel opens a program for reading as well (do_open_execat of fs/exec.c, hook_file_open of Landlock)."""


class Plan:
    """What `apply` will ask for: the ABI, what is handled (refused unless granted) and the granted paths with their
    access bits.
    """

    __slots__ = ("abi", "handled_fs", "handled_net", "paths", "scoped")

    def __init__(self, abi: int, paths: tuple[tuple[str, int], ...], *, handled_net: int) -> None:
        self.abi = abi
        self.handled_fs = handled_fs(abi)
        self.handled_net = handled_net if abi >= 4 else 0
        self.scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL if abi >= 6 else 0
        self.paths = tuple((path, access & self.handled_fs) for path, access in paths if access & self.handled_fs)

    def attributes(self) -> bytes:
        """The struct landlock_ruleset_attr, as long as the ABI knows it."""
        words = [self.handled_fs]
        if self.abi >= 4:
            words.append(self.handled_net)
        if self.abi >= 6:
            words.append(self.scoped)
        return b"".join(word.to_bytes(8, byteorder) for word in words)

    def covers(self, access: str, path: str, stands: Callable[[str], bool] = lambda root: True) -> bool:
        """Whether Landlock lets the run `read`, `write` or `exec` the resolved `path`. `stands` says whether what a
        granted path names is still what it was when the plan was applied.
        """
        needed = _NEEDED[access]
        for root, bits in self.paths:  # what is granted on the way to a file adds up
            if needed & bits and _below(path, root) and stands(root):
                needed &= ~bits
        return not needed


class Landlock:
    """The row of the table of layers."""

    name = "landlock"
    enforces = ENFORCES["landlock"]

    def probe(self) -> str:
        """Restrict a forked child and see that it is; "" when that works, else what is missing, in one clause."""
        try:
            syscalls.landlock_abi()
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return "Landlock is in the kernel but not switched on"
            return "the kernel has no Landlock (Linux 5.13 or later)"
        return tried(_rehearse)

    def plan(self, policy: Policy, context: Mapping[str, Any]) -> Plan:
        """The plan for the running kernel; see `plan_for`."""
        return plan_for(policy, context, abi=min(syscalls.landlock_abi(), NEWEST_ABI))

    def apply(self, plan: Plan) -> None:
        """Confine the calling process for good, no_new_privs included. Raises `OSError`."""
        apply(plan)

    def advice(self) -> str:
        """How a user gets the layer on a machine without it; "" when it is there."""
        try:
            syscalls.landlock_abi()
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return "add landlock to the kernel's list of security modules: boot with lsm=landlock,..."
            return "use Linux 5.13 or later built with CONFIG_SECURITY_LANDLOCK"
        return ""


LANDLOCK = Landlock()


def handled_fs(abi: int) -> int:
    """Every file access that an ABI can refuse."""
    bits = _ABI1_FS
    for since, bit in ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)):
        if abi >= since:
            bits |= bit
    return bits


def plan_for(policy: Policy, context: Mapping[str, Any], *, abi: int) -> Plan:
    """The plan for an ABI. It looks at what exists (a glob, a program's libraries) but changes nothing.

    `context` is the guard's welcome message (`readable`, `writable`, `sealed`) with these members where they are known:
    `layers`, the names of the live layers; `programs`, absolute files that are started by agentbox itself; `search`,
    the run's PATH; `trees`, what `system.program_trees` has said of programs already; `grown`, what
    `grown.grown_folders` has said.
    """
    layers = context.get("layers", ())
    search = context.get("search", policy.search)
    programs = [*context.get("programs", ()), *_ruled_programs(policy)]
    granted: dict[str, int] = {}
    _grant(granted, system.SYSTEM_TREES, READ | EXECUTE)
    _grant(granted, system.DEVICES, READ | WRITE_FILE | IOCTL_DEV)
    _grant(granted, context.get("readable", ()), READ)
    # A sealed link must not be replaced; what it leads to is for the rules to say.
    _grant(granted, [path for path in context.get("sealed", ()) if not os.path.islink(path)], READ)
    _grant(granted, ("/proc",) if "netns" in layers else ("/proc/self",), READ)
    known = context.get("trees", {})
    for program in programs:
        trees = known[program] if program in known else system.program_trees(program, search)
        outside = [tree for tree in trees if not policy.is_writable(tree)]
        _grant(granted, outside, READ | EXECUTE)
        _grant(granted, (os.path.realpath(program),), READ | EXECUTE)
    if any(rule.form["match"] == "any" for rule in policy.rules_of(("exec",))):
        _grant(granted, ("/",), EXECUTE)  # of what the run may read besides
    folders = context["grown"] if "grown" in context else grown_folders(policy, layers)
    _grant(granted, folders, EXECUTE | READ_FILE)
    _grant(granted, context.get("writable", {}).values(), READ | WRITE | IOCTL_DEV)
    for rule in policy.rules_of(("read", "list", "write")):
        _grant(granted, _roots(rule, layers), _RULED[rule.key])
    # Where the network is not a namespace of its own, TCP goes only over connections that are handed in.
    alone = "netns" not in layers and "seccomp" in layers
    return Plan(abi, tuple(granted.items()), handled_net=CONNECT_TCP if alone else 0)


def apply(plan: Plan) -> None:
    """Confine the calling process to `plan`; a granted path that is not there (any more) is passed over. Raises
    `OSError`.
    """
    ruleset = syscalls.landlock_create_ruleset(plan.attributes())
    try:
        for path, access in plan.paths:
            _allow(ruleset, path, access)
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        syscalls.landlock_restrict_self(ruleset)
    finally:
        os.close(ruleset)


def only_below(folder: int, access: int) -> None:
    """Confine the calling process in one thing for good: `access` only below an open folder. Raises `OSError`."""
    ruleset = syscalls.landlock_create_ruleset(access.to_bytes(8, byteorder))
    try:
        syscalls.landlock_add_path(ruleset, access, folder)
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        syscalls.landlock_restrict_self(ruleset)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
            return  # not there, or not for this user: then there is nothing to grant
        raise
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= FILE_ONLY
        if access:
            syscalls.landlock_add_path(ruleset, access, descriptor)
    except OSError as error:
        # EBADFD: an object of the kernel's own (a pipe behind /proc/self/fd), which Landlock does not restrict.
        if error.errno != errno.EBADFD:
            raise OSError(error.errno, f"landlock: {path}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _grant(granted: dict[str, int], paths: Iterable[str], access: int) -> None:
    for path in paths:
        granted[path] = granted.get(path, 0) | access


def _roots(rule: Rule, layers: Iterable[str]) -> list[str]:
    """What a path rule grants: its root. Of a glob, what matches now; nothing where the seccomp layer opens files."""
    root, glob = rule.form["root"], rule.form["glob"]
    if glob is None:
        return [root]
    return [] if "seccomp" in layers else _matches(root, glob)


def _matches(root: str, glob: str) -> list[str]:
    """The files and folders below `root` that a glob matches, among the first `_MOST_LOOKED_AT`."""
    patterns = glob_patterns(glob)
    found = []
    left = _MOST_LOOKED_AT
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if glob_matches(patterns, path[len(root.rstrip("/")) + 1 :]) and not os.path.islink(path):
                found.append(path)
            left -= 1
            if left <= 0:
                return found
    return found


def _ruled_programs(policy: Policy) -> list[str]:
    return [rule.form["file"] for rule in policy.rules_of(("exec",)) if rule.form["file"]]


def _below(path: str, root: str) -> bool:
    return path == root or root == "/" or path.startswith(root + "/")


def _rehearse() -> None:
    apply(Plan(min(syscalls.landlock_abi(), NEWEST_ABI), (("/usr", READ),), handled_net=0))
    try:
        os.close(os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except PermissionError:
        return
    raise OSError(errno.ENOSYS, "the kernel accepted a ruleset and does not hold it")
