"""posix_spawn(3) with a working directory, which `os.posix_spawn` does not have: no code of ours runs in the new
process.

A thread could leave the shared working directory behind instead (unshare(2), CLONE_FS), but containers forbid that
call. Sources: posix_spawn(3), posix_spawn_file_actions_addchdir_np(3) (glibc 2.29, musl 1.1.24).
"""

from __future__ import annotations

import _ctypes
import errno
import os
import struct
import sys

from agentbox.guard.kernel.syscalls import Char, function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_ROOM = 1024
"""Bytes for a posix_spawn_file_actions_t or a posix_spawnattr_t: more than any C library's (glibc: 80 and 336)."""
_SET_DEFAULT, _SET_MASK = 0x04, 0x08  # POSIX_SPAWN_SETSIGDEF, POSIX_SPAWN_SETSIGMASK, <spawn.h>
_SIGNAL_SET = 128  # bytes of a sigset_t


def spawn(
    file: str, argv: Sequence[str], environ: Mapping[str, str], cwd: str, streams: Sequence[int], default: Sequence[int]
) -> int:
    """The pid of a program that has `streams` for its first descriptors, an empty signal mask and the default action
    for the signals `default`. Raises `OSError`: ENOSYS where the C library cannot do it.
    """
    actions, attributes = _room(_ROOM), _room(_ROOM)
    _do("posix_spawn_file_actions_init", actions)
    _do("posix_spawnattr_init", attributes)
    try:
        for number, descriptor in enumerate(streams):
            _do("posix_spawn_file_actions_adddup2", actions, descriptor, number)
        _do("posix_spawn_file_actions_addchdir_np", actions, os.fsencode(cwd))
        signals = sum(1 << (number - 1) for number in default).to_bytes(_SIGNAL_SET, sys.byteorder)
        _do("posix_spawnattr_setsigdefault", attributes, signals)
        _do("posix_spawnattr_setsigmask", attributes, bytes(_SIGNAL_SET))
        _do("posix_spawnattr_setflags", attributes, _SET_DEFAULT | _SET_MASK)
        words, variables = _texts(argv), _texts([f"{name}={value}" for name, value in environ.items()])
        pid = _room(4)
        _do("posix_spawn", pid, os.fsencode(file), actions, attributes, words[0], variables[0])
    finally:
        _do("posix_spawn_file_actions_destroy", actions)
        _do("posix_spawnattr_destroy", attributes)
    return int.from_bytes(bytes(pid), sys.byteorder)


def _do(name: str, *arguments: Any) -> None:
    """Call a function that gives the error's number."""
    try:
        call = function(name)
    except AttributeError:
        raise OSError(errno.ENOSYS, f"{name}: not in this C library") from None
    number = call(*arguments)
    if number:
        raise OSError(number, os.strerror(number))


def _room(size: int) -> Any:
    return (Char * size)()


def _texts(texts: Sequence[str]) -> tuple[bytes, list[Any]]:
    """A null-terminated array of pointers to texts, and what they point to, which must be kept."""
    kept = []
    for text in texts:
        data = os.fsencode(text) + b"\0"
        kept.append((Char * len(data)).from_buffer_copy(data))
    return struct.pack(f"={len(kept) + 1}Q", *map(_ctypes.addressof, kept), 0), kept
