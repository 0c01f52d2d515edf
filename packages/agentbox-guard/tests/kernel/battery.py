"""What a hostile program without a guard tries, one function an attempt: run as `battery.py SCENE.json`, prints what
worked.

Each attempt raises when it is refused, and returns when it has worked.
"""

import ctypes
import os
import signal
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # which -I leaves out
from tries import LIBC, SCENE, report, secret, system_call

OUT = SCENE["outside"]
PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17
MSG_FASTOPEN, IPPROTO_MPTCP = 0x20000000, 262


def read_secret():
    secret(open(SCENE["secret"]).read())


def write_outside():
    open(f"{OUT}/written", "w").write("x")


def append_outside():
    open(f"{OUT}/victim", "a").write("x")


def unlink_outside():
    os.unlink(f"{OUT}/unlinked")


def mkdir_outside():
    os.mkdir(f"{OUT}/made")


def truncate_outside():
    os.truncate(f"{OUT}/truncated", 0)


def rename_outside():
    os.rename(f"{OUT}/renamed", f"{OUT}/renamed.to")


def write_through_a_dangling_link():
    os.symlink(f"{OUT}/dangling", "link")
    open("link", "w").write("x")


def write_through_a_hard_link():
    os.link(f"{OUT}/linked", "hard")
    open("hard", "a").write("x")


def read_by_the_root_of_proc():
    secret(open("/proc/self/root" + SCENE["secret"]).read())


def write_by_the_root_of_proc():
    open(f"/proc/self/root{OUT}/by-root", "w").write("x")


def write_by_the_folder_of_proc():
    open("/proc/self/cwd/../outside/by-cwd", "w").write("x")


def chmod_outside():
    os.chmod(f"{OUT}/victim", 0o777)


def utime_outside():
    os.utime(f"{OUT}/victim", (1, 1))


def setxattr_outside():
    os.setxattr(f"{OUT}/victim", "user.x", b"x")


def make_a_git_hook():
    open(".git/hooks/post-commit", "w").write("x")


def edit_git_configuration():
    open(".git/config", "a").write("[core]\n\tfsmonitor = ./x\n")


def edit_shell_start():
    open(".bashrc", "w").write("x")


def edit_assistant_settings():
    os.makedirs(".claude", exist_ok=True)
    open(".claude/settings.json", "w").write("x")


def edit_editor_tasks():
    os.makedirs(".vscode", exist_ok=True)
    open(".vscode/tasks.json", "w").write("x")


def answered(one):
    one.settimeout(100)
    assert one.recv(10) == b"hello"


def connect_tcp():
    answered(socket.create_connection(("127.0.0.1", SCENE["tcp"]), 20))


def connect_mapped():
    one = socket.socket(socket.AF_INET6)
    one.connect(("::ffff:127.0.0.1", SCENE["tcp"]))
    answered(one)


def connect_fast_open():
    one = socket.socket()
    one.sendto(b"x", MSG_FASTOPEN, ("127.0.0.1", SCENE["tcp"]))
    answered(one)


def connect_multipath():
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    one.connect(("127.0.0.1", SCENE["tcp"]))
    answered(one)


def send_udp():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.sendto(b"x", ("127.0.0.1", SCENE["udp"]))
    answered(one)


def connect_local_stream():
    one = socket.socket(socket.AF_UNIX)
    one.connect(SCENE["stream"])
    answered(one)


def send_local_datagram():
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.bind("d.sock")
    one.sendto(os.path.abspath("d.sock").encode(), SCENE["datagram"])
    answered(one)


def connect_abstract():
    one = socket.socket(socket.AF_UNIX)
    one.connect("\0" + SCENE["stream"])
    answered(one)


def set_up_io_uring():
    parameters = ctypes.create_string_buffer(120)
    system_call(425, 4, ctypes.addressof(parameters))


def signal_host():
    os.kill(SCENE["host"], signal.SIGUSR1)


def read_host_environment():
    secret(open(f"/proc/{SCENE['host']}/environ").read())


def trace_host():
    LIBC.ptrace.restype = ctypes.c_long
    if LIBC.ptrace(ctypes.c_long(PTRACE_SEIZE), ctypes.c_long(SCENE["host"]), None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    # leave it as it was: interrupt, wait for the stop, let go
    LIBC.ptrace(ctypes.c_long(0x4207), ctypes.c_long(SCENE["host"]), None, None)
    os.waitpid(SCENE["host"], 0x40000000)
    LIBC.ptrace(ctypes.c_long(PTRACE_DETACH), ctypes.c_long(SCENE["host"]), None, None)


def take_a_descriptor_of_host():
    pidfd = os.pidfd_open(SCENE["host"])
    system_call(438, pidfd, 0, 0)


def first_variable():
    secret(os.environ["BATTERY_ONE"])


def second_variable():
    secret(os.environ["BATTERY_TWO"])


def open_descriptor():
    secret(os.pread(SCENE["descriptor"], 100, 0).decode())


ATTEMPTS = [
    thing
    for name, thing in list(globals().items())
    if callable(thing) and getattr(thing, "__module__", "") == "__main__" and name != "answered"
]

if __name__ == "__main__":
    report(ATTEMPTS)
