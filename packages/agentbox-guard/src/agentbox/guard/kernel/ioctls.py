"""ioctl(2) by the number of its request: what changes files past the calls that do, and what acts on a terminal.
What is asked of sockets is in `socketrows`.

A request names its family in bits 8 to 15. The kernel takes it as an unsigned int, so that high bits mean nothing.
"""

from __future__ import annotations

from agentbox.guard.kernel.bpf import ALLOW, NOTIFY, Row, Test

TTY_INPUT = (0x5412, 0x541C, 0x541D, 0x5423)
"""TIOCSTI, TIOCLINUX and TIOCCONS, <asm-generic/ioctls.h>: they put words into a terminal that others read; and
TIOCSETD, by which a driver reads it in their place, that of a network for one.
"""
TIOCSPGRP = 0x5410  # <asm-generic/ioctls.h>, Linux 1.0
FIOASYNC = 0x5452  # <asm-generic/ioctls.h>, Linux 1.0
FIOSETOWN, SIOCSPGRP = 0x8901, 0x8902  # <asm-generic/sockios.h>, Linux 1.0

_FAMILY = 0xFF00
"""_IOC_TYPE of <asm-generic/ioctl.h>, where it lies in a request."""
_TERMINALS = 0x5400  # <asm-generic/ioctls.h>
_TUNNELS, _TUNNEL = 0x54C0, 0xFFC0
"""Numbers 192 to 255 of that family are those of <linux/if_tun.h>: networks are not for the run to make."""
_CONSOLE, _CONSOLE_READS = (0x4B00, 0x5600), (0x4B33, 0x4B3B, 0x4B44, 0x5601, 0x5603)
"""Requests of <linux/kd.h> and <linux/vt.h>, which have no size (others of these families have one): a key can be made
to type a command. The reading ones are KDGKBTYPE, KDGETMODE, KDGKBMODE, VT_GETMODE and VT_GETSTATE.
"""
_FILES = (
    0x1200, 0x1500, 0x5800, 0x6600, 0x6800, 0x6E00, 0x6F00, 0x7200, 0x7600, 0x8300, 0x9300, 0x9400, 0x9700, 0xBC00,
    0xCD00, 0xCF00, 0xF500,
)  # fmt: skip
"""The families of block devices and file systems: 0x12 (BLK... of <linux/fs.h>), 0x15 (FS_IOC_GETFSUUID), `X`
(freezing, XFS, attributes), `f` (flags, ext4, encryption, verity), `h` (HFS+), `n` (NILFS), `o` (OCFS2), `r` (FAT),
`v` (versions), 0x83 (ZFS), 0x93 (autofs), 0x94 (Btrfs), 0x97 (Ceph), 0xBC (bcachefs), 0xCD (ReiserFS), 0xCF (SMB),
0xF5 (F2FS): Documentation/userspace-api/ioctl/ioctl-number.rst. Many of them change the file system
through a descriptor that may only read.
"""
FILE_READS = (
    0x80086601, 0x80046601, 0x80087601, 0x80047601, 0xC020660B, 0xC0686611, 0x400C6615, 0xC0096616, 0xC0046686,
    0x801C581F, 0x81009431, 0x80111500, 0x40049409, 0x4020940D, 0x80081272, 0x1260, 0x1268,
)  # fmt: skip
"""Those that programs need, and that tell what read(2) and stat(2) would: GETFLAGS and GETVERSION with their 32-bit
forms, FIEMAP, PROCMAP_QUERY, GET_ENCRYPTION_POLICY and its _EX, MEASURE_VERITY, FSGETXATTR, GETFSLABEL and GETFSUUID;
FICLONE and FICLONERANGE, for which the kernel asks for a descriptor open for writing (ioctl_ficlone(2)); BLKGETSIZE64,
BLKGETSIZE and BLKSSZGET.
"""


def rows() -> tuple[Row, ...]:
    """The rows for ioctl(2), what is most frequent first."""
    return (
        Row("ioctl", NOTIFY, Test(1, (*TTY_INPUT, FIOASYNC, FIOSETOWN, SIOCSPGRP))),
        Row("ioctl", NOTIFY, Test(1, (_TUNNELS,), mask=_TUNNEL)),
        Row("ioctl", ALLOW, Test(1, (_TERMINALS,), mask=_FAMILY)),
        Row("ioctl", ALLOW, Test(1, (*FILE_READS, *_CONSOLE_READS))),
        Row("ioctl", NOTIFY, Test(1, _FILES, mask=_FAMILY)),
        Row("ioctl", NOTIFY, Test(1, _CONSOLE, mask=~0xFF)),
    )
