"""A second machine for tests, as far as the network goes: a namespace behind a pair of virtual Ethernet devices.

Its address is no address of this machine, and nothing of it leaves it. For root, in a child of the tests' own.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from agentbox.guard.kernel import syscalls

_SIOCSIFADDR, _SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8916, 0x8913, 0x8914  # <linux/sockios.h>, Linux 1.0
_UP = 1  # IFF_UP


def attribute(kind: int, body: bytes) -> bytes:
    """A struct rtattr of <linux/rtnetlink.h>."""
    return struct.pack("=HH", 4 + len(body), kind) + body + bytes(-len(body) % 4)


def pair(here: str, there: str, namespace: int) -> None:
    """A pair of devices, one of them in the namespace behind a descriptor. Raises `OSError` (no veth in the kernel)."""
    end = bytes(16) + attribute(3, there.encode() + b"\0") + attribute(28, struct.pack("=I", namespace))
    link = attribute(1, b"veth") + attribute(2, attribute(1, end))  # IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER
    body = bytes(16) + attribute(3, here.encode() + b"\0") + attribute(18, link)  # IFLA_IFNAME, IFLA_LINKINFO
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as route:
        route.send(struct.pack("=IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)  # RTM_NEWLINK, to be acknowledged
        answer = route.recv(4096)
    number = -int(struct.unpack_from("=i", answer, 16)[0])
    if number:
        raise OSError(number, f"veth: {os.strerror(number)}")


def up(device: str, *addresses: str) -> None:
    """Give a device its addresses (netdevice(7): with their class's network, which makes the ways there), and start
    it.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for number, address in enumerate(addresses):
            name = f"{device}:{number}" if number else device
            request = struct.pack("=16sHH4s16x", name.encode(), socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(control, _SIOCSIFADDR, request)
        request = struct.pack("=16sH22x", device.encode(), 0)
        flags = struct.unpack_from("=H", fcntl.ioctl(control, _SIOCGIFFLAGS, request), 16)[0]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("=16sH22x", device.encode(), flags | _UP))


def listening(address: str, port: int) -> socket.socket:
    """Leave this network for an empty one that reaches a second machine of that `address`, and listen there."""
    near = address.rpartition(".")[0] + ".1"  # ours, in the same network
    syscalls.unshare(syscalls.CLONE_NEWNET)
    there = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    syscalls.unshare(syscalls.CLONE_NEWNET)
    here = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        pair("near", "far", there)
        up("lo")
        up("near", near)
        syscalls.setns(there, syscalls.CLONE_NEWNET)
        up("far", address)
        server = socket.create_server((address, port))
        syscalls.setns(here, syscalls.CLONE_NEWNET)
        return server
    finally:
        os.close(there)
        os.close(here)
