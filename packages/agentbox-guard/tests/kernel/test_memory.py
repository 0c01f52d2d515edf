"""Copies of other processes' memory, taken of a process that has laid it out for the purpose: this one."""

import ctypes
import errno
import mmap
import os
import struct

import pytest

from agentbox.guard.kernel.memory import Memory, message

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def pages():
    """Two readable pages before one that is not: (address of the first, a view of the two)."""
    area = mmap.mmap(-1, 3 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    assert LIBC.mprotect(ctypes.c_void_p(address + 2 * PAGE), PAGE, 0) == 0
    yield address, area
    assert LIBC.mprotect(ctypes.c_void_p(address + 2 * PAGE), PAGE, 3) == 0


def put(area, at, data):
    area[at : at + len(data)] = data


def test_a_text_may_cross_pages_and_end_at_the_last_byte(pages):
    """What ends right before unreadable memory is read whole; what does not end there is a fault."""
    address, area = pages
    put(area, PAGE - 5, b"over the edge\0")
    put(area, 2 * PAGE - 4, b"end\0")
    memory = Memory()
    assert memory.text(os.getpid(), address + PAGE - 5) == b"over the edge"
    assert memory.text(os.getpid(), address + 2 * PAGE - 4) == b"end"
    put(area, 2 * PAGE - 4, b"more")
    with pytest.raises(OSError) as fault:
        memory.text(os.getpid(), address + 2 * PAGE - 4)
    assert fault.value.errno == errno.EFAULT


def test_a_text_without_an_end_is_too_long(pages):
    """PATH_MAX is the limit, and a null pointer is no text."""
    address, area = pages
    put(area, 0, b"x" * PAGE + b"y" * 10 + b"\0")
    memory = Memory()
    with pytest.raises(OSError) as long:
        memory.text(os.getpid(), address)
    assert long.value.errno == errno.ENAMETOOLONG
    assert len(memory.text(os.getpid(), address, 2 * PAGE)) == PAGE + 10
    with pytest.raises(OSError):
        memory.text(os.getpid(), 0)


def test_argument_lists_end_at_a_null(pages):
    """Pointers are read a block at a time, and a list that runs into unreadable memory is a fault."""
    address, area = pages
    words = [b"git", b"status", b""]
    for at, word in enumerate(words):
        put(area, 512 + 16 * at, word + b"\0")
    pointers = [address + 512 + 16 * at for at in range(len(words))]
    put(area, 0, struct.pack("=4Q", *pointers, 0))
    memory = Memory()
    assert memory.words(os.getpid(), address) == words
    assert memory.words(os.getpid(), 0) == []
    put(area, 2 * PAGE - 8, struct.pack("=Q", pointers[0]))
    with pytest.raises(OSError):
        memory.words(os.getpid(), address + 2 * PAGE - 8)


def test_message_heads_are_taken_apart(pages):
    """struct msghdr: name, parts and control data; absurd counts are refused before anything is read."""
    address, area = pages
    put(area, 256, b"NAME" * 4)
    put(area, 320, struct.pack("=4Q", address, 3, address + 3, 4))
    put(area, 400, b"CONTROL!" * 2)
    put(area, 64, struct.pack("=QI4xQQQQ", address + 256, 16, address + 320, 2, address + 400, 16))
    found = message(Memory(), os.getpid(), address + 64)
    assert (found.name, found.control) == (b"NAME" * 4, b"CONTROL!" * 2)
    assert found.parts == [(address, 3), (address + 3, 4)]
    put(area, 64, struct.pack("=QI4xQQQQ", 0, 0, address + 320, 1 << 40, 0, 0))
    with pytest.raises(OSError) as many:
        message(Memory(), os.getpid(), address + 64)
    assert many.value.errno == errno.EMSGSIZE


def test_answers_are_written_where_they_are_wanted(pages):
    """And not where nobody could write."""
    address, area = pages
    Memory().write(os.getpid(), address + 8, b"answer")
    assert area[8:14] == b"answer"
    with pytest.raises(OSError):
        Memory().write(os.getpid(), address + 2 * PAGE, b"x")


def test_words_that_lie_side_by_side_or_apart_are_the_same_words(pages):
    """Texts in one page, over the end of a page, the same text twice, an empty one, and all in any order."""
    address, area = pages
    texts = {0: b"one\0", 4: b"\0", 5: b"three\0", PAGE - 3: b"over the end\0", PAGE + 100: b"last\0"}
    for place, text in texts.items():
        put(area, place, text)
    order = [PAGE - 3, 0, 5, 4, PAGE + 100, 0]
    pointers = b"".join(struct.pack("=Q", address + place) for place in order) + bytes(8)
    put(area, PAGE + 512, pointers)
    words = Memory().words(os.getpid(), address + PAGE + 512)
    assert words == [b"over the end", b"one", b"three", b"", b"last", b"one"]
