"""The namespace layer: own user, network, process, mount and IPC namespaces, with a loopback, the resolver's addresses
and nothing else in them.

It never leaves a capability behind, and it never talks to the network itself: the DNS stub and the broker do, outside.
Sources: user_namespaces(7), network_namespaces(7), pid_namespaces(7), netdevice(7), capabilities(7).
"""

from __future__ import annotations

import errno
import os

from agentbox.guard.kernel import ENFORCES, syscalls
from agentbox.guard.kernel._attempt import in_container, tried

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket
    from collections.abc import Mapping
    from typing import Any

    from agentbox.policy import Policy

RESOLVER_FILE = "/etc/resolv.conf"
DNS_PORT = 53
_MOST_RESOLVERS = 3  # <resolv.h>, MAXNS: the C library reads no more

_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914  # <linux/sockios.h>, Linux 1.0
_SIOCSIFADDR, _SIOCSIFNETMASK = 0x8916, 0x891C  # <linux/sockios.h>, Linux 1.0
_IFF_UP = 0x1  # <linux/if.h>, Linux 1.0
_LOOPBACK_INDEX = 1  # the first device of every network namespace
_LAST_CAPABILITY = 63  # a capability set has 64 bits; prctl(2) refuses those that the kernel does not know

_SPACES = syscalls.CLONE_NEWNET | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWIPC


class Plan:
    """What `enter` will do: the ids to keep and the resolver's addresses to serve. `sockets` is filled by `apply`."""

    __slots__ = ("gid", "privileged", "resolvers", "sockets", "uid")

    def __init__(self, uid: int, gid: int, resolvers: tuple[str, ...], *, privileged: bool) -> None:
        self.uid = uid
        self.gid = gid
        self.resolvers = resolvers
        self.privileged = privileged
        """Try without a user namespace first: root may make the others directly, and keeps its view of file owners."""
        self.sockets: list[Socket] = []


class Namespaces:
    """The row of the table of layers."""

    name = "netns"
    enforces = ENFORCES["netns"]

    def probe(self) -> str:
        """Enter new namespaces in a forked child; "" when that works, else what failed, in one clause."""
        return tried(_rehearse)

    def plan(self, policy: Policy, context: Mapping[str, Any]) -> Plan:
        """Pure but for the reading of the resolver's addresses; the policy makes no difference: everything is shut."""
        return plan_for(os.geteuid(), os.getegid(), resolvers(_read(RESOLVER_FILE)))

    def apply(self, plan: Plan) -> None:
        """`enter`, with the DNS sockets left in `plan.sockets`. Raises `OSError`."""
        plan.sockets = enter(plan)

    def advice(self) -> str:
        """How a user gets the layer on a machine without it; "" when nothing is known to be in its way."""
        return _advice()


NETNS = Namespaces()


def plan_for(uid: int, gid: int, addresses: tuple[str, ...]) -> Plan:
    """The plan for effective ids and resolver addresses."""
    return Plan(uid, gid, addresses, privileged=uid == 0)


def resolvers(text: str) -> tuple[str, ...]:
    """The addresses of the resolvers that programs will ask, from the text of resolv.conf(5): at most three, each once.

    Without any the C library asks 127.0.0.1. Addresses with a zone (`fe80::1%eth0`) cannot be served and are left out.
    """
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver":
            found.append(words[1])
    if not found:
        found = ["127.0.0.1"]
    return tuple(dict.fromkeys(address for address in found[:_MOST_RESOLVERS] if _packed(address)))


def search_domains(text: str) -> tuple[str, ...]:
    """The suffixes that programs try behind a name, from the text of resolv.conf(5): lower case, without dots at the
    ends. The last `search` or `domain` line counts.
    """
    domains: tuple[str, ...] = ()
    for line in text.splitlines():
        words = line.split()
        if words[:1] in (["search"], ["domain"]):
            domains = tuple(word.strip(".").lower() for word in words[1:])
    return tuple(domain for domain in domains if domain)


def is_local(address: str, served: tuple[str, ...]) -> bool:
    """Whether a canonical address is inside the run's namespace: loopback, unspecified, or a served resolver."""
    return address.startswith("127.") or address in ("::1", "::", "0.0.0.0") or address in served


def enter(plan: Plan) -> list[Socket]:
    """Move the calling process, of one thread, into new namespaces; returns the DNS sockets (UDP and TCP, non-blocking)
    and, last, one that tells who listens in there; `insiders.sorted_out` tells them apart.

    The process namespace begins with the next fork. Raises `OSError`; the process must then end.
    """
    if plan.privileged:
        try:
            _unshare(_SPACES)
        except OSError as error:
            if error.errno != errno.EPERM:
                raise
            _unshare_user(plan)
        else:
            syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_SLAVE)
    else:
        _unshare_user(plan)
    loopback_up()
    for number, address in enumerate(plan.resolvers):
        _add_address(address, number + 1)
    from agentbox.guard.kernel.insiders import open_diag

    return [*(socket for address in plan.resolvers for socket in _dns_sockets(address)), open_diag()]


def fresh_proc() -> bool:
    """In process 1 of the new process namespace: show it, and only it, in /proc. False where the machine forbids that
    (a container whose /proc is covered in places, mount_namespaces(7)): /proc then shows the numbers of outside.
    """
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    try:
        syscalls.mount("proc", "/proc", "proc", flags)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
        return False
    return True


def drop_capabilities() -> None:
    """Give up every capability of the calling thread, for itself and what it will execute. Raises `OSError`."""
    try:
        syscalls.prctl2(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # before Linux 4.3 there are none
            raise
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)
        except OSError as error:
            # EINVAL: past the kernel's last. EPERM: no CAP_SETPCAP, so an ordinary process, which has none to drop;
            # what the bounding set would let a file give it is withheld by no_new_privs.
            if error.errno not in (errno.EINVAL, errno.EPERM):
                raise
            break
    syscalls.capset(0, 0, 0)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def _rehearse() -> None:
    enter(plan_for(os.geteuid(), os.getegid(), resolvers(_read(RESOLVER_FILE))))


def _unshare(kinds: int) -> None:
    try:
        syscalls.unshare(kinds)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EUSERS):  # "No space left on device" sends everybody to the wrong place
            raise OSError(error.errno, "the limit on namespaces is reached (sysctl user.max_*_namespaces)") from None
        raise


def _unshare_user(plan: Plan) -> None:
    _unshare(syscalls.CLONE_NEWUSER | _SPACES)
    # A process may map its own ids, one of each, once it has given up setgroups(2): user_namespaces(7).
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{plan.uid} {plan.uid} 1"),
        ("gid_map", f"{plan.gid} {plan.gid} 1"),
    ):
        _write(f"/proc/self/{name}", text)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"{path}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def loopback_up() -> None:
    """Bring up the loopback of this process's network namespace: netdevice(7). Raises `OSError`."""
    from _socket import AF_INET, SOCK_DGRAM, socket
    from fcntl import ioctl

    control = socket(AF_INET, SOCK_DGRAM)
    try:
        request = _interface("lo") + bytes(24)
        flags = int.from_bytes(ioctl(control.fileno(), _SIOCGIFFLAGS, request)[16:18], _order())
        ioctl(control.fileno(), _SIOCSIFFLAGS, _interface("lo") + (flags | _IFF_UP).to_bytes(2, _order()) + bytes(22))
    except OSError as error:
        raise OSError(error.errno, f"loopback: {error.strerror}") from None
    finally:
        control.close()


def _add_address(address: str, number: int) -> None:
    """Make the namespace's loopback answer to `address`: netdevice(7), an alias of `lo` for IPv4."""
    if is_local(address, ()):
        return
    from _socket import AF_INET, AF_INET6, SOCK_DGRAM, socket
    from fcntl import ioctl

    packed = _packed(address)
    control = socket(AF_INET if len(packed) == 4 else AF_INET6, SOCK_DGRAM)
    try:
        if len(packed) == 4:
            name = _interface(f"lo:{number}")
            family = int(AF_INET).to_bytes(2, _order()) + bytes(2)
            ioctl(control.fileno(), _SIOCSIFADDR, name + family + packed + bytes(16))
            ioctl(control.fileno(), _SIOCSIFNETMASK, name + family + b"\xff\xff\xff\xff" + bytes(16))
        else:  # struct in6_ifreq of <linux/ipv6.h>: address, prefix length, index of the device
            request = packed + (128).to_bytes(4, _order()) + _LOOPBACK_INDEX.to_bytes(4, _order())
            ioctl(control.fileno(), _SIOCSIFADDR, request)
    except OSError as error:
        raise OSError(error.errno, f"resolver address {address}: {error.strerror}") from None
    finally:
        control.close()


def _dns_sockets(address: str) -> list[Socket]:
    from _socket import AF_INET, AF_INET6, SOCK_DGRAM, SOCK_STREAM, socket

    made = []
    for kind in (SOCK_DGRAM, SOCK_STREAM):
        one = socket(AF_INET6 if ":" in address else AF_INET, kind)
        try:
            one.bind((address, DNS_PORT))
            if kind == SOCK_STREAM:
                one.listen(64)
        except OSError as error:
            raise OSError(error.errno, f"port 53 of {address}: {error.strerror}") from None
        one.setblocking(False)
        made.append(one)
    return made


def _packed(address: str) -> bytes:
    """The bytes of an IP address in its usual spelling, b"" for anything else."""
    from _socket import AF_INET, AF_INET6, inet_pton

    try:
        return inet_pton(AF_INET6 if ":" in address else AF_INET, address)
    except OSError:
        return b""


def _interface(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def _order() -> Any:
    from sys import byteorder

    return byteorder


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


_OBSTACLES = (
    *(
        (
            f"/proc/sys/user/max_{kind}_namespaces",
            "0",
            f"{called} namespaces are off: sysctl user.max_{kind}_namespaces=10000",
        )
        for kind, called in (
            ("user", "user"),
            ("net", "network"),
            ("mnt", "mount"),
            ("pid", "process"),
            ("ipc", "IPC"),
        )
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor keeps ordinary programs from user namespaces (Ubuntu 23.10 and later): "
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with `userns,` for Python",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "user namespaces are switched off for ordinary users: sysctl kernel.unprivileged_userns_clone=1",
    ),
)


def _advice() -> str:
    for path, value, text in _OBSTACLES:
        if _read(path).strip() == value:
            return text
    if in_container():
        return (
            "a container's seccomp profile forbids namespaces: "
            "run it with --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
        )
    if not os.path.exists("/proc/self/ns/user"):
        return "the kernel has no user namespaces: it needs CONFIG_USER_NS and CONFIG_NET_NS, Linux 3.8 or later"
    return ""
