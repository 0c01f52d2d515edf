"""The filter, run by an interpreter of classic BPF: what each call of each machine is answered with."""

import errno
import importlib
import struct

import pytest

from agentbox.guard.kernel import bpf, callnumbers, rows
from agentbox.guard.kernel.traps import FAMILIES, handler, refusals

MACHINES = callnumbers.MACHINES
KILL = 0


def answer(program, number, arguments=(), arch=None):
    """What the kernel would do: <linux/filter.h>, the instructions that the assembler uses."""
    words = [argument & (1 << 64) - 1 for argument in arguments] + [0] * (6 - len(arguments))
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *words)
    at, register, kept = 0, 0, 0
    code = list(struct.iter_unpack("<HBBI", program))
    while True:
        kind, true, false, value = code[at]
        at += 1
        if kind == 0x20:
            (register,) = struct.unpack_from("<I", data, value)
        elif kind == 0x54:
            register &= value
        elif kind in (0x15, 0x25, 0x35):
            holds = {0x15: register == value, 0x25: register > value, 0x35: register >= value}[kind]
            at += true if holds else false
        elif kind == 0x07:
            kept = register
        elif kind == 0x1D:
            at += true if register == kept else false
        elif kind == 0x06:
            return value
        else:
            raise AssertionError(f"unknown instruction {kind:#x}")


class Filter:
    def __init__(self, machine, **spaces):
        self.numbers = callnumbers.table(machine)
        self.arch = callnumbers.AUDIT_ARCH[machine]
        made = rows.rows(**{"pidns": True, "ipcns": True, **spaces})
        self.program, self.count = bpf.assemble(made, self.arch, self.numbers, callnumbers.LAST)

    def __call__(self, name, *arguments):
        return answer(self.program, self.numbers[name], arguments, self.arch)


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_refused_and_what_is_decided_is_handed_over(machine):
    """Each call that has a fixed answer or a decision reaches the supervisor, and everything ordinary does not."""
    found = Filter(machine)
    handed = ("openat", "execve", "connect", "bind", "listen", "renameat", "unlinkat", "sendmsg", "ptrace")
    for name in (*handed, "io_uring_setup"):
        assert found(name) == bpf.NOTIFY, name
    for name in ("shmget", "mq_open"):
        assert found(name) == bpf.ALLOW, name
    assert found("clone3") == bpf.ERRNO | errno.ENOSYS
    assert answer(found.program, callnumbers.LAST + 1, (), found.arch) == bpf.ERRNO | errno.ENOSYS


@pytest.mark.attempt("P5")
@pytest.mark.parametrize("machine", MACHINES)
def test_a_foreign_architecture_never_reaches_a_row(machine):
    """Numbers of i386 and of x32 mean other calls: the supervisor refuses them whatever they are."""
    found = Filter(machine)
    for number in (0, 1, found.numbers["clone"], 400):
        assert answer(found.program, number, (), 0x40000003) == bpf.NOTIFY
    assert answer(found.program, 0x40000000 | 1, (), found.arch) == bpf.NOTIFY


@pytest.mark.attempt("P5")
@pytest.mark.parametrize("machine", MACHINES)
def test_terminal_input_is_refused_also_with_high_bits(machine):
    """The kernel looks at the low half of an ioctl's request only, and so does the filter."""
    found = Filter(machine)
    for request in (0x5412, 0x541C, 0x40086602):
        assert found("ioctl", 0, request) == found("ioctl", 0, request | 1 << 32) == bpf.NOTIFY
    assert found("ioctl", 0, 0x5413) == bpf.ALLOW


@pytest.mark.attempt("N8")
@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_are_of_three_families_and_two_kinds(machine):
    """TCP, UDP and local sockets pass, flags and all; the rest is refused."""
    found = Filter(machine)
    nonblocking = 0o4000
    for arguments in ((2, 1, 0), (2, 1 | nonblocking, 6), (10, 2, 17), (1, 1, 0), (1, 5, 0), (1, 2, 0), (16, 3, 0)):
        assert found("socket", *arguments) == bpf.ALLOW, arguments
    for arguments in ((17, 3, 0), (38, 5, 0), (40, 1, 0), (2, 3, 1), (2, 1, 262), (2, 5, 132), (16, 3, 15)):
        assert found("socket", *arguments) == bpf.NOTIFY, arguments
    assert found("socketpair", 1, 1, 0) == bpf.ALLOW and found("socketpair", 2, 1, 0) == bpf.NOTIFY


@pytest.mark.parametrize("machine", MACHINES)
def test_sends_with_an_address_or_fast_open_are_handed_over(machine):
    """A pointer is one in either half; a send without one, on a connected socket, costs nothing."""
    found = Filter(machine)
    assert found("sendto", 3, 0x1000, 5, 0, 0, 0) == bpf.ALLOW
    for arguments in ((3, 0x1000, 5, 0, 0x10, 16), (3, 0x1000, 5, 0, 1 << 40, 16), (3, 0x1000, 5, 0x20000000, 0, 0)):
        assert found("sendto", *arguments) == bpf.NOTIFY


@pytest.mark.attempt("P6")
@pytest.mark.parametrize("machine", MACHINES)
def test_namespaces_are_refused_and_threads_are_not(machine):
    """clone and unshare with a namespace's flag; forks, threads and vforks pass."""
    found = Filter(machine)
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert found("clone", flag | 17) == found("unshare", flag) == bpf.NOTIFY
    assert found("unshare", 0x80) == bpf.NOTIFY  # CLONE_NEWTIME
    for flags in (17, 0x3D0F00, 0x4111):
        assert found("clone", flags) == bpf.ALLOW
    assert found("unshare", 0x200) == bpf.ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_a_layer_that_would_not_hold_is_said_to_be_off(machine):
    """Landlock of a program's own: the kernel's answer where it is in the kernel and not switched on."""
    assert Filter(machine)("landlock_create_ruleset", 0, 0, 1) == bpf.ERRNO | errno.EOPNOTSUPP


@pytest.mark.parametrize("machine", MACHINES)
def test_what_names_a_process_is_handed_over(machine):
    """The caller's group holds the supervisor, and numbers mean those that keep the run as well; who names itself by 0,
    or one of its threads, waits for nobody. Without a process namespace a thread may be anybody's.
    """
    found, alone = Filter(machine), Filter(machine, pidns=False, ipcns=False)
    for each in (found, alone):
        assert each("kill", 0, 9) == each("kill", -1, 9) == each("kill", -77, 9) == bpf.NOTIFY
        for name in ("kill", "tkill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "prlimit64"):
            assert each(name, 77, 9) == bpf.NOTIFY, name
        assert each("fcntl", 3, 8, 77) == each("fcntl", 3, 15, 77) == each("ioctl", 3, 0x8901) == bpf.NOTIFY
        assert each("setpriority", 0, 77) == each("ioprio_set", 1, 77) == bpf.NOTIFY
        assert each("setpriority", 0, 0) == each("sched_setaffinity", 0) == each("prlimit64", 0, 7) == bpf.ALLOW
        assert each("tgkill", 77, 77, 9) == each("tgkill", 77 | 1 << 32, 77, 9) == bpf.NOTIFY
    assert found("tgkill", 77, 78, 9) == bpf.ALLOW
    assert alone("tgkill", 77, 78, 9) == alone("shmget", 77) == bpf.NOTIFY


@pytest.mark.parametrize("wanted", [True, False])
def test_two_arguments_are_compared(wanted):
    """By their low halves, which is all that the kernel takes of an int."""
    program, _ = bpf.assemble([bpf.Row("kill", bpf.NOTIFY, bpf.Same(0, 1, wanted=wanted))], 1, {"kill": 1}, 9)
    for other, same in ((7, True), (7 | 1 << 40, True), (8, False)):
        assert (answer(program, 1, (7, other), 1) == bpf.NOTIFY) == (same == wanted)


@pytest.mark.attempt("P1")
@pytest.mark.parametrize("machine", MACHINES)
def test_what_reaches_a_whole_group_or_makes_the_supervisor_wait_is_refused(machine):
    """Sharing a core with the caller's group, which is the supervisor's; leases and delegations; security attributes,
    as those of /proc/PID/attr.
    """
    for found in (Filter(machine), Filter(machine, pidns=False, ipcns=False)):
        for scope, action in ((0, bpf.ALLOW), (1, bpf.ALLOW), (2, bpf.ERRNO | errno.EPERM)):
            assert found("prctl", 62, 1, 0, scope, 0) == action
        assert found("fcntl", 3, 1024, 1) == found("fcntl", 3, 1040, 1) == bpf.ERRNO | errno.EAGAIN
        assert found("lsm_set_self_attr", 101) == bpf.NOTIFY


@pytest.mark.parametrize("machine", MACHINES)
def test_references_to_files_are_left_to_the_kernel(machine):
    """O_PATH gives no access; the flag is a register's, so that it cannot change after it was looked at."""
    found = Filter(machine)
    assert found("openat", 0, 0, 0o10000000) == bpf.ALLOW
    assert found("openat", 0, 0, 0o2000000) == bpf.NOTIFY
    assert found("openat2", 0, 0, 0, 24) == bpf.NOTIFY


@pytest.mark.parametrize("machine", MACHINES)
def test_options_of_sockets_are_told_apart_by_level_and_name(machine):
    """What is common and harmless costs nothing; what no list names is handed over, at levels of no list as well."""
    found = Filter(machine)
    for level, option in ((1, 2), (1, 9), (1, 20), (0, 1), (41, 26), (41, 67), (6, 1), (17, 103)):
        assert found("setsockopt", 5, level, option) == found("setsockopt", 5, level | 1 << 32, option) == bpf.ALLOW
    for level, option in ((1, 5), (1, 25), (1, 26), (1, 36), (1, 62), (0, 4), (0, 35), (41, 57), (6, 31), (17, 100)):
        assert found("setsockopt", 5, level, option) == bpf.NOTIFY
    assert found("setsockopt", 5, 270, 1) == found("setsockopt", 5, 132, 1) == bpf.NOTIFY
    assert found("setsockopt", 5, 1, 76) == found("getsockopt", 5, 1, 77) == bpf.ERRNO | errno.ENOPROTOOPT
    assert found("getsockopt", 5, 1, 17) == bpf.NOTIFY and found("getsockopt", 5, 1, 4) == bpf.ALLOW
    for request, action in ((0x8912, bpf.NOTIFY), (0x8B01, bpf.NOTIFY), (0x8903, bpf.ALLOW), (0x541B, bpf.ALLOW)):
        assert found("ioctl", 5, request) == found("ioctl", 5, request | 1 << 40) == action


def test_every_call_that_is_handed_over_has_a_trap():
    """A call without a handler would be answered as a foreign one; a row without a number would be dead."""
    for spaces in (True, False):
        for row in rows.rows(pidns=spaces, ipcns=spaces):
            assert row.call in callnumbers.NUMBERS
            assert row.action != bpf.NOTIFY or handler(row.call), row.call


def test_the_table_of_traps_names_each_call_of_each_family_once():
    """A family is loaded by what the table says of it, so that a call missing there would be refused for good."""
    named = [call for calls in FAMILIES.values() for call in calls]
    assert sorted(named) == sorted(set(named))
    for family, calls in FAMILIES.items():
        module = importlib.import_module(f"agentbox.guard.kernel.traps.{family}")
        assert set(module.CALLS) == set(calls), family
    assert not set(refusals.CALLS) & set(named)
    assert handler("read") is None


def test_a_program_that_the_kernel_would_not_take_is_an_error():
    """Jumps reach 255 instructions at most."""
    wide = bpf.Row("openat", bpf.NOTIFY, bpf.Test(0, range(300)))
    with pytest.raises(ValueError, match="filter: openat: got 303 instructions, expected at most 255"):
        bpf.assemble([wide], 1, {"openat": 1}, 9)
