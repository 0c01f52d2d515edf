"""A datagram socket in the machine's network that hears nobody but those whom it has sent to.

Without a peer it would be bound to every address of the machine, and anybody's datagrams would come in. Connecting it
would do for one peer only; so the kernel gets a filter (classic BPF, socket(7)) with one block for each. What the
socket lets in is told by its filter alone, wherever the descriptor has gone. It decides nothing.
"""

from __future__ import annotations

import struct
from _socket import AF_INET, AF_INET6, inet_pton

from agentbox.guard.kernel import syscalls

MOST_PEERS = 32
"""The one that was added first is forgotten for one more. A page holds the blocks of as many."""

_HALF, _WORD = 0x28, 0x20  # BPF_LD | BPF_H (BPF_W) | BPF_ABS, <linux/bpf_common.h>
_EQUAL, _RETURN = 0x15, 0x06  # BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
_PROTOCOL = 0xFFFFF000  # SKF_AD_OFF + SKF_AD_PROTOCOL, <linux/filter.h>: the packet's Ethernet type
_NETWORK = 0xFFF00000  # SKF_NET_OFF: the IP header; offset 0 is the UDP header (udp_queue_rcv_one_skb)
_KINDS = {4: (0x0800, 12), 16: (0x86DD, 8)}
"""By an address's size: its Ethernet type, and where in the header the sender is."""
_NOTHING = struct.pack("=HBBI", _RETURN, 0, 0, 0)


_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Whom the kernel takes no address for (ip_route_output_key_hash_rcu of net/ipv4, ip6_datagram_connect)."""


def deafen(descriptor: int) -> None:
    """Let nothing in. Raises `OSError`."""
    syscalls.attach_filter(descriptor, _NOTHING)


def is_limited(descriptor: int) -> bool:
    """Whether the socket hears those only who were admitted. Raises `OSError`."""
    return syscalls.attached_filter(descriptor).endswith(_NOTHING)


def lift(descriptor: int) -> None:
    """Let in whatever comes, if the socket was limited. Raises `OSError`."""
    if is_limited(descriptor):
        syscalls.setsockopt(descriptor, 1, syscalls.SO_DETACH_FILTER, bytes(4))


def admit(descriptor: int, address: str, port: int) -> None:
    """Let in what comes from this canonical address and port, besides what is let in already. Raises `OSError`."""
    block = _block(_LOOPBACK.get(address, address), port)
    known = _blocks(syscalls.attached_filter(descriptor))
    if block not in known:
        syscalls.attach_filter(descriptor, b"".join([block, *known[: MOST_PEERS - 1], _NOTHING]))


def _block(address: str, port: int) -> bytes:
    """What accepts a packet from there, and else comes to the block behind."""
    packed = inet_pton(AF_INET6 if ":" in address else AF_INET, address)
    protocol, offset = _KINDS[len(packed)]
    wanted = [(_HALF, _PROTOCOL, protocol)]
    for at in range(0, len(packed), 4):
        wanted.append((_WORD, _NETWORK + offset + at, int.from_bytes(packed[at : at + 4], "big")))
    wanted.append((_HALF, 0, port))
    code = []
    for place, (load, where, value) in enumerate(wanted):
        over = 2 * (len(wanted) - place - 1) + 1
        code += [struct.pack("=HBBI", load, 0, 0, where), struct.pack("=HBBI", _EQUAL, 0, over, value)]
    code.append(struct.pack("=HBBI", _RETURN, 0, 0, 0xFFFFFFFF))
    return b"".join(code)


def _blocks(program: bytes) -> list[bytes]:
    """The blocks of an own program, the newest first."""
    found = []
    while len(program) > 8:
        # The first jump of a block leads behind it.
        end = 8 * (2 + program[8 + 3])
        found.append(program[:end])
        program = program[end:]
    return found
