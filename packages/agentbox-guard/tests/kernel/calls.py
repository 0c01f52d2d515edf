"""What a hostile program without a guard tries beyond the battery, one function an attempt: run as
`calls.py SCENE.json`, prints what worked.

The name begins with the line of docs/reference/attempts.md. Each raises when it is refused, and returns when it has
worked; no argument could do harm where a call is let through.
"""

import ctypes
import errno
import mmap
import os
import platform
import resource
import signal
import socket
import stat
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # which -I leaves out
from tries import LIBC, SCENE, report, secret, system_call

OUT, HOST = SCENE["outside"], SCENE["host"]
INTEL = platform.machine() == "x86_64"
AT_FDCWD, MSG_FASTOPEN = -100, 0x20000000
RESOLVE_IN_ROOT = 0x10
X32 = 0x40000000
TIOCSTI, TIOCLINUX = 0x5412, 0x541C


def address(text):
    """Where a text lies in memory, and what keeps it there."""
    kept = ctypes.create_string_buffer(os.fsencode(text))
    KEPT.append(kept)
    return ctypes.addressof(kept)


KEPT = [ctypes.create_string_buffer(16)]


def f6_chown():
    os.chown(f"{OUT}/victim", os.getuid(), os.getgid())


def f6_lchown():
    os.lchown(f"{OUT}/victim", os.getuid(), os.getgid())


def f6_mknod():
    os.mknod(f"{OUT}/node", stat.S_IFREG | 0o600)


def f6_mkfifo():
    os.mkfifo(f"{OUT}/fifo")


def f6_symlink():
    os.symlink("victim", f"{OUT}/symlink")


def f6_link():
    os.link(f"{OUT}/victim", f"{OUT}/second")


def f6_fallocate():
    os.posix_fallocate(os.open(f"{OUT}/victim", os.O_WRONLY), 0, 1000)


def f6_unnamed_file():
    os.open(OUT, os.O_TMPFILE | os.O_WRONLY, 0o600)


def f6_rmdir():
    os.rmdir(f"{OUT}/empty")


def f6_bind_a_socket():
    socket.socket(socket.AF_UNIX).bind(f"{OUT}/bound")


def f6_times_by_reference():
    held = os.open(f"{OUT}/victim", os.O_PATH)
    system_call(280 if INTEL else 88, AT_FDCWD, address(f"/proc/self/fd/{held}"), 0, 0)


def f6_mode_by_reference():
    held = os.open(f"{OUT}/victim", os.O_PATH)
    os.chmod(f"/proc/self/fd/{held}", 0o700)


def f9_from_a_folder():
    held = os.open(OUT, os.O_PATH | os.O_DIRECTORY)
    os.open("victim", os.O_WRONLY | os.O_APPEND, dir_fd=held)


def f9_after_fchdir():
    here = os.open(".", os.O_RDONLY)
    os.fchdir(os.open("..", os.O_PATH | os.O_DIRECTORY))
    try:
        secret(open("secret").read())
    finally:
        os.fchdir(here)


def f9_sent_reference():
    one, other = socket.socketpair()
    socket.send_fds(one, [b"x"], [os.open(SCENE["secret"], os.O_PATH)])
    held = socket.recv_fds(other, 1, 1)[1][0]
    secret(open(f"/proc/self/fd/{held}").read())


def f10_handle():
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    name_to, by = (303, 304) if INTEL else (264, 265)
    system_call(name_to, AT_FDCWD, address(SCENE["secret"]), ctypes.addressof(handle), ctypes.addressof(mount), 0)
    held = system_call(by, os.open(".", os.O_RDONLY), ctypes.addressof(handle), os.O_RDONLY)
    secret(os.read(held, 100).decode())


def f10_openat2():
    how = ctypes.create_string_buffer(struct.pack("=3Q", os.O_RDONLY, 0, 0))
    held = system_call(437, AT_FDCWD, address(SCENE["secret"]), ctypes.addressof(how), 24)
    secret(os.read(held, 100).decode())


def f10_openat2_in_root():
    how = ctypes.create_string_buffer(struct.pack("=3Q", os.O_RDONLY, 0, RESOLVE_IN_ROOT))
    root = os.open("/", os.O_PATH)
    held = system_call(437, root, address(SCENE["secret"]), ctypes.addressof(how), 24)
    secret(os.read(held, 100).decode())


def f12_tmp_of_others():
    secret(open(SCENE["temporary"]).read())


def f12_list_tmp():
    assert os.path.basename(SCENE["temporary"]) in os.listdir(os.path.dirname(SCENE["temporary"]))


def f12_list_run():
    os.listdir("/run")


def f12_read_sys():
    open("/sys/kernel/uevent_seqnum").read()


def f12_process_entries():
    for name in ("status", "cmdline", "environ", "maps", "stat"):
        open(f"/proc/{HOST}/{name}").read()


def n8_fast_open_sendmsg():
    one = socket.socket()
    one.sendmsg([b"x"], [], MSG_FASTOPEN, ("127.0.0.1", SCENE["tcp"]))
    assert one.recv(10) == b"hello"


def n8_fast_open_sendmmsg():
    one = socket.socket()
    place = ctypes.create_string_buffer(struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", SCENE["tcp"],
                                        socket.inet_aton("127.0.0.1")), 16)  # fmt: skip
    data = ctypes.create_string_buffer(b"x")
    vector = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(data), 1))
    head = struct.pack("=QI4xQQQQi4xI4x", ctypes.addressof(place), 16, ctypes.addressof(vector), 1, 0, 0, 0, 0)
    message = ctypes.create_string_buffer(head)
    system_call(307 if INTEL else 269, one.fileno(), ctypes.addressof(message), 1, MSG_FASTOPEN)
    assert one.recv(10) == b"hello"


def n8_packet_socket():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)


def n8_raw_socket():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def n8_ping_socket():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)


def n8_lite_socket():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136)


def n8_sctp_socket():
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)


def n8_smc_socket():
    socket.socket(43, socket.SOCK_STREAM, 0)


def n8_vsock_socket():
    socket.socket(40, socket.SOCK_STREAM)


def n8_algorithm_socket():
    socket.socket(38, socket.SOCK_SEQPACKET, 0)


def n8_netlink_of_audit():
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)


def n8_key_socket():
    socket.socket(15, socket.SOCK_RAW, 2)


def memory_of_host(number):
    """A transfer of nothing, which is refused or not like any other."""
    vector = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(KEPT[0]), 0))
    system_call(number, HOST, ctypes.addressof(vector), 1, ctypes.addressof(vector), 1, 0)


def p1_read_memory():
    memory_of_host(310 if INTEL else 270)


def p1_write_memory():
    memory_of_host(311 if INTEL else 271)


def p1_open_memory():
    open(f"/proc/{HOST}/mem", "rb")


def p1_signal_by_pidfd():
    signal.pidfd_send_signal(os.pidfd_open(HOST), 0)


def p1_signal_by_thread():
    system_call(234 if INTEL else 131, HOST, HOST, 0)


def p1_limits():
    resource.prlimit(HOST, resource.RLIMIT_NOFILE)


def p1_processors():
    os.sched_setaffinity(HOST, os.sched_getaffinity(0))


def p1_priority():
    os.setpriority(os.PRIO_PROCESS, HOST, os.getpriority(os.PRIO_PROCESS, 0))


def p1_compare():
    system_call(312 if INTEL else 272, os.getpid(), HOST, 0, 0, 0)


def terminal(request):
    """Push an input character into a terminal of one's own."""
    _, slave = os.openpty()
    one = ctypes.c_char(b"x")
    if LIBC.ioctl(slave, ctypes.c_ulong(request), ctypes.byref(one)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def p5_push_input():
    terminal(TIOCSTI)


def p5_push_input_high_bits():
    terminal(TIOCSTI | 1 << 40)


def p5_console_request():
    terminal(TIOCLINUX)


def by_interrupt(number, *arguments):
    """A call of i386 from a 64-bit program: `mov` of four registers, `int 0x80`, `ret`; rbx is the caller's to keep."""
    code = b"\x53" + b"\xb8" + struct.pack("=I", number)
    for opcode, value in zip((b"\xbb", b"\xb9", b"\xba"), arguments, strict=False):
        code += opcode + struct.pack("=I", value)
    code += b"\xcd\x80\x5b\xc3"
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    KEPT.append(page)
    entry = ctypes.addressof(ctypes.c_char.from_buffer(page))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(entry)()
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def p5_call_of_i386():
    LIBC.mmap.restype = ctypes.c_void_p
    low = LIBC.mmap(None, ctypes.c_size_t(4096), 3, 0x62, -1, 0)  # MAP_PRIVATE, ANONYMOUS and 32BIT
    path = os.fsencode(SCENE["secret"]) + b"\0"
    ctypes.memmove(low, path, len(path))
    secret(os.read(by_interrupt(5, low, os.O_RDONLY, 0), 100).decode())


def p5_call_of_x32():
    system_call(X32 | 39)


def considered(name, number, *arguments):
    """Make an attempt of a call that the kernel would consider: it works, or finds fault with the arguments."""

    def attempt():
        try:
            system_call(number, *arguments)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOSYS, errno.EACCES):
                raise

    attempt.__name__ = f"p6_{name}"
    globals()[attempt.__name__] = attempt


BAD = 1  # an address of nothing
NAMESPACES = 0x10000000 | 0x40000000  # with a flag that goes with none of them: refused as a whole, or found faulty
for one in (
    ("userfaultfd", 323, 0), ("bpf", 321, 0, BAD, 1), ("perf_event_open", 298, BAD, 0, 0, 0, 0),
    ("keyctl", 250, 0, -3, 0), ("add_key", 248, BAD, BAD, BAD, 1, 0), ("request_key", 249, BAD, BAD, BAD, 0),
    ("mount", 165, BAD, BAD, BAD, 0, 0), ("umount2", 166, BAD, 0), ("setns", 308, -1, 0),
    ("pivot_root", 155, BAD, BAD), ("chroot", 161, BAD), ("kexec_load", 246, 0, 0, 0, 0xFFFF),
    ("init_module", 175, BAD, 0, BAD), ("finit_module", 313, -1, BAD, 0), ("delete_module", 176, BAD, 0),
    ("open_tree", 428, -1, BAD, 0), ("move_mount", 429, -1, BAD, -1, BAD, 0), ("fsopen", 430, BAD, 0),
    ("mount_setattr", 442, -1, BAD, 0, BAD, 1), ("swapon", 167, BAD, 0), ("reboot", 169, 1, 2, 3, 0),
    ("acct", 163, BAD), ("sethostname", 170, BAD, 1), ("quotactl", 179, 0, BAD, 0, BAD),
    ("fanotify_init", 300, 0xFFFFFFFF, 0), ("process_madvise", 440, -1, BAD, 1, 0, 0),
    ("lookup_dcookie", 212, 0, BAD, 1), ("io_uring_register", 427, -1, 0, 0, 0), ("syslog", 103, 10, 0, 0),
    ("unshare", 272, NAMESPACES | 0x100), ("clone", 56, NAMESPACES | 0x10000, 0, 0, 0, 0), ("clone3", 435, BAD, 0),
    ("setxattrat", 463, -1, BAD, 0, BAD, BAD, 0), ("open_tree_attr", 467, -1, BAD, 0, BAD, 1),
    ("file_setattr", 469, -1, BAD, BAD, 0, 0), ("lsm_set_self_attr", 460, 0, BAD, 0, 0),
) if INTEL else ():  # fmt: skip
    considered(*one)


ATTEMPTS = [thing for name, thing in sorted(globals().items()) if name[:1] in "fnp" and name[1:2].isdigit()]

if __name__ == "__main__":
    report(ATTEMPTS)
