"""The assembler of the seccomp filter: rows (which call, which arguments, what answer) become a classic BPF program.

It knows nothing of policies: the rows are in `rows.py`. A call of a foreign architecture never reaches a row.
"""

from __future__ import annotations

import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ALLOW = 0x7FFF0000  # SECCOMP_RET_ALLOW, <linux/seccomp.h>, Linux 3.5
NOTIFY = 0x7FC00000  # SECCOMP_RET_USER_NOTIF, <linux/seccomp.h>, Linux 5.0
ERRNO = 0x00050000  # SECCOMP_RET_ERRNO, <linux/seccomp.h>, Linux 3.5; the low half is the errno
ENOSYS = 38

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS, <linux/bpf_common.h>
_AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_KEEP = 0x07  # BPF_MISC | BPF_TAX
_EQUAL_TO_KEPT = 0x1D  # BPF_JMP | BPF_JEQ | BPF_X
_GREATER = 0x25  # BPF_JMP | BPF_JGT | BPF_K
_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
MOST = 4096
"""BPF_MAXINSNS, <linux/bpf_common.h>: the kernel takes no longer program."""

_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data, <linux/seccomp.h>
X32 = 0x40000000
"""__X32_SYSCALL_BIT, <asm/unistd.h>: the same machine's other calling convention, with numbers of its own."""


class Test:
    """A condition on one half of one argument: `(half & mask)` is one of `values` (or, with `wanted` false, is none
    of them).
    """

    __slots__ = ("argument", "high", "mask", "values", "wanted")

    def __init__(
        self, argument: int, values: Iterable[int], *, mask: int = 0xFFFFFFFF, high: bool = False, wanted: bool = True
    ) -> None:
        self.argument = argument
        self.values = tuple(value & 0xFFFFFFFF for value in values)
        self.mask = mask & 0xFFFFFFFF
        self.high = high
        self.wanted = wanted


class Same:
    """A condition on the low halves of two arguments: they are the same (or, with `wanted` false, they are not)."""

    __slots__ = ("argument", "other", "wanted")

    def __init__(self, argument: int, other: int, *, wanted: bool = True) -> None:
        self.argument = argument
        self.other = other
        self.wanted = wanted


class Row:
    """One line of the filter: calls named `call` for which all `tests` hold get `action` (`NOTIFY`, `ERRNO | n`,
    `ALLOW`).
    """

    __slots__ = ("action", "call", "tests")

    def __init__(self, call: str, action: int, *tests: Test | Same) -> None:
        self.call = call
        self.action = action
        self.tests = tests


def assemble(rows: Sequence[Row], arch: int, numbers: dict[str, int], last: int) -> tuple[bytes, int]:
    """The program for one machine and its number of instructions; calls that the machine lacks are left out.

    Rows of one call are tried in their order; a call whose rows all fail, and a call without a row, is allowed. A
    foreign architecture and x32 are answered by the supervisor, a number above `last` with ENOSYS. Raises `ValueError`
    for a program that the kernel would not take.
    """
    code = [
        _code(_LOAD, _ARCH),
        _code(_EQUAL, arch, 1, 0),
        _code(_RETURN, NOTIFY),
        _code(_LOAD, _NUMBER),
        _code(_AT_LEAST, X32, 0, 1),
        _code(_RETURN, NOTIFY),
        _code(_GREATER, last, 0, 1),
        _code(_RETURN, ERRNO | ENOSYS),
    ]
    calls: dict[str, list[Row]] = {}
    for row in rows:
        calls.setdefault(row.call, []).append(row)
    for call, own in calls.items():
        if call in numbers:
            size = sum(_size(row) for row in own) + 1
            if size > 255:
                raise ValueError(f"filter: {call}: got {size} instructions, expected at most 255")
            block = _block(own)
            code.append(_code(_EQUAL, numbers[call], 0, len(block)))
            code += block
    code.append(_code(_RETURN, ALLOW))
    if len(code) > MOST:
        raise ValueError(f"filter: got {len(code)} instructions, expected at most {MOST}")
    return b"".join(code), len(code)


def _size(row: Row) -> int:
    return sum(len(_test(test)) for test in row.tests) + 1


def _block(rows: Sequence[Row]) -> list[bytes]:
    """What follows when the number is that of the rows' call: ends with a return in every case."""
    block: list[bytes] = []
    for row in rows:
        tests = [_test(test) for test in row.tests]
        for place, test in enumerate(tests):
            # a test falls through to the next when it holds; its last instruction jumps over the rest when not
            rest = sum(len(later) for later in tests[place + 1 :]) + 1
            block += _aim(test, rest)
        block.append(_code(_RETURN, row.action))
        if not row.tests:
            return block
    block.append(_code(_RETURN, ALLOW))
    return block


def _half(argument: int, high: bool) -> int:
    return _ARGUMENTS + 8 * argument + (4 if high == (sys.byteorder == "little") else 0)


def _test(test: Test | Same) -> list[tuple[int, int, int, int]]:
    """(code, k, jump if true, jump if false), where -1 stands for "fails" and -2 for "holds"."""
    if isinstance(test, Same):
        jumps = (0, -1) if test.wanted else (-1, 0)
        one, other = _half(test.argument, False), _half(test.other, False)
        return [(_LOAD, one, 0, 0), (_KEEP, 0, 0, 0), (_LOAD, other, 0, 0), (_EQUAL_TO_KEPT, 0, *jumps)]
    made = [(_LOAD, _half(test.argument, test.high), 0, 0)]
    if test.mask != 0xFFFFFFFF:
        made.append((_AND, test.mask, 0, 0))
    for value in test.values:
        made.append((_EQUAL, value, -2 if test.wanted else -1, 0))
    code, value, true, _ = made[-1]
    made[-1] = (code, value, true, -1 if test.wanted else 0)
    return made


def _aim(test: list[tuple[int, int, int, int]], rest: int) -> list[bytes]:
    made = []
    for place, (code, value, true, false) in enumerate(test):
        after = len(test) - place - 1
        jumps = [after + rest if jump == -1 else after if jump == -2 else 0 for jump in (true, false)]
        made.append(_code(code, value, *jumps))
    return made


def _code(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    """One struct sock_filter."""
    return struct.pack("=HBBI", code, true, false, value)
