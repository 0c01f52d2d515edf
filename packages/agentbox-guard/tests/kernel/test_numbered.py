"""Processes and objects that are named by a number: without namespaces of the run's own, numbers mean others as well.

Each attempt is made without agentbox too, where it works.
"""

import ctypes
import json
import os
import pty
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from bench import MACHINES, NO_LANDLOCK, NO_NAMESPACES, WAITING, Bench
from kit.waiting import comes

from agentbox.guard.family import Family
from agentbox.guard.kernel.traps import _targets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
ALONE = MACHINES[1:]

PRELUDE = """
    import ctypes, errno, fcntl, json, os, resource, socket, struct, sys, threading, time
    libc = ctypes.CDLL(None, use_errno=True)
    X86 = os.uname().machine == "x86_64"
    told = {}
    nicer = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 1)  # of any process the tests may be started by
    def attempt(name, act):
        try:
            act()
            told[name] = 0
        except OSError as error:
            told[name] = errno.errorcode[error.errno]
    def call(x86, aarch64, *arguments):
        words = [one if isinstance(one, (bytes, ctypes.Array)) else ctypes.c_long(one) for one in arguments]
        done = libc.syscall(ctypes.c_long(x86 if X86 else aarch64), *words)
        if done < 0:
            raise OSError(ctypes.get_errno(), "")
        return done
"""
REACH = (
    PRELUDE
    + """
    def reach(pid, told_as=""):
        one, other = socket.socketpair()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        room, size = ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)
        attempts = {
            "limit": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, limits),
            "affinity": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(0)),
            "scheduler": lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
            "parameter": lambda: os.sched_setparam(pid, os.sched_param(0)),
            "attributes": lambda: call(314, 274, pid, struct.pack("=IIQiIQQQ", 48, 3, 0, nicer, 0, 0, 0, 0), 0),
            "priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, nicer),
            "io priority": lambda: call(251, 30, 1, pid, (2 << 13) | 7),
            "owner": lambda: fcntl.fcntl(one, fcntl.F_SETOWN, pid),
            "owner, wholly": lambda: fcntl.fcntl(one, 15, struct.pack("=ii", 1, pid)),
            "socket owner": lambda: fcntl.ioctl(one, 0x8901, struct.pack("=i", pid)),
            "socket group": lambda: fcntl.ioctl(one, 0x8902, struct.pack("=i", pid)),
            "list": lambda: call(274, 100, pid, room, size),
        }
        for name, act in attempts.items():
            attempt(told_as + name, act)
"""
)


@pytest.fixture
def victim():
    """A process of the same user that is none of the run."""
    made = subprocess.Popen(["sleep", "60"])
    yield made.pid
    made.kill()
    made.wait()


def state(pid):
    return os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid)


@pytest.mark.attempt("P1")
@pytest.mark.parametrize("lacking", ALONE)
def test_other_processes_are_not_changed_by_their_number(tmp_path, victim, lacking):
    """Limits, processors, priorities and the signals of a descriptor reach no process of the user's but the run's."""
    bench = Bench(tmp_path, REACH + "    reach(int(sys.argv[1]))\n    print(json.dumps(told))\n")
    before = state(victim)
    inside = bench.told(bench.boxed(victim, without=lacking), lacking)
    assert set(inside.values()) == {"EPERM"}, inside
    assert state(victim) == before and f"prlimit64 of process {victim}" in bench.denied()
    bare = bench.told(bench.bare(victim))
    assert set(bare.values()) == {0}, bare
    assert state(victim) != before


GROUPS = (
    PRELUDE
    + WAITING
    + """
    first, second = waiting(), waiting()
    began = os.getpgrp()
    attempt("new group", lambda: os.setpgid(first, first))
    attempt("own group", lambda: os.setpgid(second, first))
    attempt("join own group", lambda: os.setpgid(0, first))
    attempt("back", lambda: os.setpgid(0, began))
    attempt("of others", lambda: os.setpgid(0, int(sys.argv[1])))
    print(json.dumps(told))
"""
)


@pytest.mark.attempt("P1")
@pytest.mark.parametrize("lacking", ALONE)
def test_no_process_group_of_others_is_joined(tmp_path, lacking):
    """A terminal stops the whole group of one who reads from it in the background, whoever the others are. Groups of
    the run's own are made and joined as anywhere.
    """
    job = subprocess.Popen(["sleep", "60"], process_group=0)
    try:
        bench = Bench(tmp_path, GROUPS)
        bare = bench.told(bench.bare(job.pid))
        inside = bench.told(bench.boxed(job.pid, without=lacking), lacking)
    finally:
        job.kill()
        job.wait()
    assert set(bare.values()) == {0}, bare
    assert inside == {**bare, "of others": "EPERM"}
    assert bench.denied() == [f"setpgid of process group {job.pid}"]


KEEPERS = """
    def state():
        others = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
        return {pid: (os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid)) for pid in others}
    before = state()
    while len(before) < 2:  # process 1 is there at once, the starter a little later
        before = state()
    for pid in before:
        reach(pid, f"{pid} ")
    told["kept"] = state() == before
    reach(1 << 22)
    told["by number"] = sorted(before)
    print(json.dumps(told))
"""


@pytest.mark.attempt("P1")
@pytest.mark.parametrize("lacking", [pytest.param((), id="all-layers"), pytest.param((NO_LANDLOCK,), id="no-landlock")])
def test_those_that_keep_the_run_are_not_changed_by_their_number(tmp_path, lacking):
    """In an own process namespace process 1 and the starter of programs have numbers too; what has none is not there.
    That another process of the user's is changed by the same calls, the test above shows.
    """
    bench = Bench(tmp_path, REACH + KEEPERS, "read: /proc\n")
    told = bench.told(bench.boxed(without=lacking), lacking)
    assert told.pop("kept") and 1 in (keepers := told.pop("by number")) and len(keepers) == 2
    nobody = {name: told.pop(name) for name in list(told) if not name[0].isdigit()}
    assert set(told.values()) == {"EPERM"}, told
    assert set(nobody.values()) == {"ESRCH"}, nobody
    assert {f"setpriority of process {pid}" for pid in keepers} <= set(bench.denied())


OWN = """
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        os._exit(0)
    reach(0, "self ")
    reach(os.getpid(), "own number ")
    reach(child, "child ")
    os.setpgid(child, child)
    one, other = socket.socketpair()
    def group():
        fcntl.ioctl(one, 0x8902, struct.pack("=i", -child))
        told["group"] = struct.unpack("=ii", fcntl.fcntl(one, 16, bytes(8))) == (2, child)  # F_GETOWN_EX: F_OWNER_PGRP
    attempt("group, by ioctl", group)
    def owner():
        fcntl.fcntl(one, 15, struct.pack("=ii", 1, child))
        told["owner"] = fcntl.fcntl(one, fcntl.F_GETOWN) == child
    attempt("owner, told", owner)
    seen = threading.Event()
    done = threading.Event()
    def run():
        tids.append(threading.get_native_id())
        seen.set()
        done.wait()
    tids = []
    thread = threading.Thread(target=run)
    thread.start()
    seen.wait()
    attempt("thread", lambda: os.sched_setaffinity(tids[0], os.sched_getaffinity(0)))
    one, other = socket.socketpair()
    import signal
    got = []
    signal.signal(signal.SIGIO, lambda *_: got.append(1))
    fcntl.ioctl(one, 0x8901, struct.pack("=i", os.getpid()))
    fcntl.ioctl(one, 0x5452, struct.pack("=i", 1))
    other.send(b"x")
    time.sleep(0)
    fcntl.fcntl(one, fcntl.F_SETFL, fcntl.fcntl(one, fcntl.F_GETFL) | os.O_ASYNC)
    other.send(b"x")
    told["signals"] = len(got) > 0
    told["flags"] = bool(fcntl.fcntl(one, fcntl.F_GETFL) & os.O_ASYNC)
    done.set()
    os.write(go, b"x")
    print(json.dumps(told))
"""


@pytest.mark.parametrize("lacking", MACHINES)
def test_the_runs_own_processes_are_changed_as_without_the_layers(tmp_path, lacking):
    """Itself, a child, a thread, and signals that follow a socket's input: all as without agentbox."""
    bench = Bench(tmp_path, REACH + OWN)
    inside = bench.told(bench.boxed(without=lacking), lacking)
    bare = bench.told(bench.bare())
    assert inside == bare and bare["signals"] and bare["flags"]
    assert not bench.denied()


def test_a_number_is_found_with_and_without_the_kernels_help():
    """Translated by an ioctl since Linux 6.11, before it by a search: the same process, thread, or nobody."""
    with subprocess.Popen([sys.executable, "-c", THREADED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        thread = int(child.stdout.readline())
        box = SimpleNamespace(desk=SimpleNamespace(family=Family(child.pid)))
        call = SimpleNamespace(pid=child.pid)
        for number, found in ((child.pid, child.pid), (thread, thread), (os.getppid(), 0), (1 << 22, 0)):
            assert _targets._searched(box, call, number) == found
            if found or number > 1 << 21:
                assert _targets._inside(box, call, number) == found
        child.stdin.close()


THREADED = """
import sys, threading
threading.Thread(target=lambda: (print(threading.get_native_id(), flush=True), sys.stdin.read())).start()
"""

SHARED = """
    def text(where):
        return ctypes.string_at(where, 6).decode()
    libc.shmat.restype = ctypes.c_void_p
    def attach():
        where = libc.shmat(int(sys.argv[1]), None, 0)
        if where == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "")
        told["read"] = text(where)
        ctypes.memmove(where, b"forged", 6)
    attempt("attach", attach)
    attempt("remove", lambda: call(31, 195, int(sys.argv[1]), 0, 0))
    print(json.dumps(told))
"""


@pytest.mark.parametrize("lacking", MACHINES)
def test_shared_memory_of_others_is_out_of_reach(tmp_path, lacking):
    """A segment's number is enough to write into it and to remove it (shmop(2)): no key is needed."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    number = libc.shmget(0, 4096, 0o1600)
    assert number >= 0
    try:
        place = libc.shmat(number, None, 0)
        ctypes.memmove(place, b"secret", 6)
        bench = Bench(tmp_path, PRELUDE + SHARED)
        inside = bench.told(bench.boxed(number, without=lacking), lacking)
        assert set(inside.values()) <= {"ENOSYS", "EINVAL"} and len(inside) == 2, inside
        assert ctypes.string_at(place, 6) == b"secret"
        assert bench.told(bench.bare(number)) == {"read": "secret", "attach": 0, "remove": 0}
        assert ctypes.string_at(place, 6) == b"forged"
    finally:
        libc.shmctl(number, 0, None)


ORPHAN = (
    PRELUDE
    + """
    import signal
    def listener():
        program = struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000)  # allows everything
        kept = ctypes.create_string_buffer(program)
        call(157, 167, 38, 1, 0, 0, 0)
        call(317, 277, 1, 8, struct.pack("=H6xQ", 1, ctypes.addressof(kept)))
    def forks():
        for number in (56, 57):  # clone(2), fork(2)
            if not call(number, 220, signal.SIGCHLD, 0, 0, 0, 0):
                os._exit(0)
    if len(sys.argv) > 1:
        attempt("listener", listener)
        attempt("fork", forks)
        print(json.dumps(told))
        sys.exit()
    if os.fork():
        signal.pause()
    os.setsid()
    if os.fork():
        os._exit(0)
    libc.prctl(1, 0)
    print("ready", flush=True)
    while True:
        try:
            os.close(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            if error.errno == errno.ENOSYS:
                break
    attempt("open", lambda: open("/etc/hostname"))
    attempt("connect", lambda: socket.socket().connect(("127.0.0.1", 9)))
    attempt("listener", listener)
    attempt("fork", forks)
    print(json.dumps(told), flush=True)
"""
)


@pytest.mark.attempt("P13")
@pytest.mark.parametrize("lacking", ALONE)
def test_who_outlives_the_supervisor_answers_no_calls_of_its_own(tmp_path, lacking):
    """The kernel would take a listener once the first is gone, and with it the answer that lets every call go on. Nor
    does it multiply.
    """
    bench = Bench(tmp_path, ORPHAN)
    assert bench.told(bench.bare("at once")) == {"listener": 0, "fork": 0}
    run = bench.start(bench.boxed(without=lacking), lacking, stdout=subprocess.PIPE)
    assert run.stdout.readline() == "ready\n"
    run.kill()
    run.wait()
    with run.stdout:
        told = json.loads(run.stdout.read())
    assert told == {"open": "ENOSYS", "connect": "ENOSYS", "listener": "EBUSY", "fork": "ENOSYS"}


def test_a_second_listener_is_refused_as_the_kernel_refuses_it(tmp_path):
    """What a nested run asks, to know that it is one."""
    bench = Bench(tmp_path, ORPHAN)
    assert bench.told(bench.boxed("at once")) == {"listener": "EBUSY", "fork": 0}


TERMINAL = """
    import fcntl, os, sys, time
    try:
        if sys.argv[1] == "F_SETFL":
            fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
        else:
            fcntl.ioctl(0, 0x5452, b"\\1\\0\\0\\0")
        print("asked", flush=True)
    except OSError as error:
        print("refused", error.errno, flush=True)
    os.read(0, 1)
"""


def in_terminal(bench, command, lacking=()):
    """What `command` and a neighbour in its process group say while a line is typed."""
    quoted = " ".join(f"'{word}'" for word in command)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(bench.ws)
        from bench import lack

        lack(lacking)
        os.execv("/bin/sh", ["sh", "-c", f"sleep 600 & {quoted}; kill $!; echo over"])
    said, typed = b"", False
    while b"over" not in said and comes(terminal):
        try:
            said += os.read(terminal, 4096)
        except OSError:  # EIO: nobody has it open any more
            break
        if not typed and (b"asked" in said or b"refused" in said):
            typed = os.write(terminal, b"x\n") > 0
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)
    return said.decode("utf-8", "replace")


@pytest.mark.parametrize("how", ["F_SETFL", "FIOASYNC"])
@pytest.mark.parametrize("lacking", [(), (NO_NAMESPACES, NO_LANDLOCK)], ids=["all-layers", "seccomp-alone"])
def test_a_terminal_sends_no_signals_to_its_group(tmp_path, how, lacking):
    """The kernel makes the foreground group the owner of a terminal that nobody owns: a key pressed would end it."""
    bench = Bench(tmp_path, TERMINAL)
    inside = in_terminal(bench, bench.boxed(how, without=lacking), lacking)
    assert "refused 1" in inside and "over" in inside, inside
    bare = in_terminal(bench, bench.bare(how))
    assert "asked" in bare and "over" not in bare, bare
