"""The namespace layer and its init: what is inside, what is not, and that nothing outlives it."""

from __future__ import annotations

import ast
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

import pytest
from confined_child import USERS, attempt, in_child
from hypothesis import given
from hypothesis import strategies as st
from kit.waiting import PATIENCE

from agentbox.guard.kernel import init, netns, syscalls
from agentbox.guard.kernel.netns import NETNS

needs_namespaces = pytest.mark.skipif(bool(NETNS.probe()), reason=f"netns: {NETNS.probe()}")


def inside(work: Callable[[], Any], user: int, addresses: tuple[str, ...] = ("10.255.255.53",)) -> Any:
    """What `work` returns as the agent in new namespaces (by a pipe), and the wait status of L."""

    def launcher() -> Any:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                plan = netns.plan_for(os.geteuid(), os.getegid(), addresses)
                sockets = netns.enter(plan)

                def start() -> Never:
                    netns.drop_capabilities()
                    os.write(writer, repr(work()).encode())
                    os._exit(7)

                for one in sockets:
                    one.detach()
                init.run(start, in_init=netns.fresh_proc)
            except BaseException as error:
                os.write(writer, repr(f"failed: {error!r}").encode())
            finally:
                os._exit(99)
        os.close(writer)
        data = b""
        while chunk := os.read(reader, 65536):
            data += chunk
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return ast.literal_eval(data.decode()), status

    return in_child(launcher, user)


def test_resolver_addresses_are_those_that_the_c_library_asks() -> None:
    """Three at most, each once; none means 127.0.0.1; zones cannot be served."""
    text = "# c\nnameserver 10.0.0.1\nnameserver  10.0.0.1\nnameserver fe80::1%eth0\nnameserver 10.0.0.4\nsearch a.b\n"
    assert netns.resolvers(text) == ("10.0.0.1",)
    assert netns.resolvers("nameserver ::1\nnameserver 127.0.0.53\n") == ("::1", "127.0.0.53")
    assert netns.resolvers("") == netns.resolvers("options edns0\n") == ("127.0.0.1",)


@given(st.text(alphabet="nameserver search domain 0123456789.:%\n", max_size=200))
def test_no_resolver_file_is_too_odd_to_read(text: str) -> None:
    """Whatever is in it, only addresses come out."""
    for address in netns.resolvers(text):
        socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    assert all(domain == domain.lower().strip(".") for domain in netns.search_domains(text))


def test_the_last_search_line_counts() -> None:
    """resolv.conf(5): `domain` and `search` override each other."""
    assert netns.search_domains("domain x.org\nsearch A.example. b.example\n") == ("a.example", "b.example")


@needs_namespaces
@pytest.mark.parametrize("user", USERS)
def test_the_network_is_a_loopback_and_the_resolvers_addresses(user: int) -> None:
    """A server of the run's own is reached; any other address is unreachable at once."""

    def work() -> list[Any]:
        server = socket.create_server(("127.0.0.1", 0))
        own = attempt(lambda: socket.create_connection(server.getsockname(), 5).close())
        six = attempt(lambda: socket.create_server(("::1", 0), family=socket.AF_INET6).close())
        query = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        asked = attempt(lambda: query.sendto(b"x", ("10.255.255.53", 53)))
        away = attempt(lambda: socket.create_connection(("192.0.2.1", 80), 5))
        return [own, six, asked, away, [name for _, name in socket.if_nameindex()]]

    got, status = inside(work, user)
    assert status == 7
    assert got == ["ok", "ok", "ok", "ENETUNREACH", ["lo"]]


@needs_namespaces
@pytest.mark.parametrize("user", USERS)
def test_a_host_server_on_loopback_is_not_there(user: int) -> None:
    """The control, outside, reaches it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()

        def connect() -> str:
            return attempt(lambda: socket.create_connection(place, 5).close())

        assert in_child(connect, user) == "ok"
        assert inside(connect, user)[0] == "ECONNREFUSED"


@needs_namespaces
@pytest.mark.parametrize("user", USERS)
def test_no_capability_is_left_and_ids_stay(user: int) -> None:
    """Every set of capabilities is empty, and the user is who it was outside."""

    def work() -> list[Any]:
        lines = Path("/proc/self/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        caps = {int(value, 16) for name, value in status.items() if name.startswith("Cap")}
        device = attempt(lambda: os.mknod("/tmp/kernel-test-device", 0o600 | 0o020000, os.makedev(1, 3)))
        return [sorted(caps), status["NoNewPrivs"], os.getuid(), device]

    got, _ = inside(work, user)
    assert got == [[0], "1", user, "EPERM"]


@needs_namespaces
@pytest.mark.parametrize("user", USERS)
def test_processes_outside_are_not_seen_and_pid_1_cannot_be_looked_into(user: int) -> None:
    """/proc shows the namespace alone; process 1 holds copies of the caller's environment, and gives nothing away."""

    def work() -> list[Any]:
        seen = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
        looks = [attempt(lambda name=name: os.open(f"/proc/1/{name}", os.O_RDONLY)) for name in ("environ", "mem")]
        return [seen, int(os.readlink("/proc/self")), os.getpid(), *looks]

    got, _ = inside(work, user)
    assert got == [[1, 2], 2, 2, "EACCES", "EACCES"]


@needs_namespaces
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("end", ["exit", "signal"])
def test_l_ends_as_the_agent_did(user: int, end: str) -> None:
    """Status or signal, as the supervisor would see it of the agent itself."""

    def work() -> None:
        if end == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        os._exit(42)

    def launcher() -> int:
        pid = launch(work)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert in_child(launcher, user) == (42 if end == "exit" else -signal.SIGTERM)


def launch(work: Callable[[], None]) -> int:
    """Fork an L, bound to its parent's life as the launcher does it, whose agent does `work`."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            assert os.getppid() == parent
            netns.enter(netns.plan_for(os.geteuid(), os.getegid(), ()))
            init.run(lambda: _never(work), in_init=netns.fresh_proc)
        finally:
            os._exit(99)
    return pid


def _never(work: Callable[[], None]) -> Never:
    netns.drop_capabilities()
    work()
    os._exit(0)


@pytest.mark.attempt("P11")
@needs_namespaces
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("how", ["agent ends", "L is killed", "supervisor is killed"])
def test_nothing_outlives_the_run(user: int, how: str) -> None:
    """A daemon, double-forked into a session of its own, is gone with the agent, with L, and with the supervisor."""

    def supervisor() -> bool:
        alive, held = os.pipe()  # readable as ended when nobody has the writing end
        ready, tell = os.pipe()

        def work() -> None:
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.write(tell, b"x")
                    while True:
                        signal.pause()
                os._exit(0)
            os.wait()
            if how != "agent ends":
                while True:
                    signal.pause()

        middle = os.fork()
        if middle == 0:
            pid = launch(work)
            os.close(held)
            os.close(tell)
            if how == "L is killed":
                os.read(ready, 1)
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os._exit(0)
        os.close(held)
        os.close(tell)
        if how == "supervisor is killed":
            assert os.read(ready, 1) == b"x"
            os.kill(middle, signal.SIGKILL)
        os.waitpid(middle, 0)
        poll = select.poll()
        poll.register(alive, select.POLLIN)
        return bool(poll.poll(PATIENCE * 1000)) and os.read(alive, 1) == b""

    assert in_child(supervisor, user)


@needs_namespaces
@pytest.mark.parametrize("user", USERS)
def test_l_stops_with_the_agent_and_goes_on_with_it(user: int) -> None:
    """SIGTSTP of the agent stops L, so that the supervisor and then the shell learn of it; SIGCONT continues both."""

    def supervisor() -> list[Any]:
        os.setsid()  # the group below is not orphaned: its parent is in this session and another group
        result, answer = os.pipe()
        foreman = os.fork()
        if foreman == 0:
            os.setpgid(0, 0)

            def work() -> None:
                os.kill(os.getpid(), signal.SIGTSTP)
                os._exit(5)

            pid = launch(work)
            _, status = os.waitpid(pid, os.WUNTRACED)
            found = [os.WIFSTOPPED(status), os.WSTOPSIG(status) == signal.SIGTSTP]
            os.killpg(os.getpgrp(), signal.SIGCONT)
            found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            os.write(answer, repr(found).encode())
            os._exit(0)
        os.waitpid(foreman, 0)
        return ast.literal_eval(os.read(result, 1000).decode())  # type: ignore[no-any-return]

    assert in_child(supervisor, user) == [True, True, 5]


@needs_namespaces
def test_the_agents_output_ends_when_the_agent_closes_it() -> None:
    """L and process 1 hold no end of its pipes."""

    def launcher() -> bool:
        reader, writer = os.pipe()
        release, keep = os.pipe()

        def work() -> None:
            os.close(writer)
            os.close(keep)
            os.read(release, 1)

        pid = launch(work)
        os.close(writer)
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        ended = bool(poll.poll(PATIENCE * 1000)) and os.read(reader, 1) == b""
        os.close(keep)
        os.waitpid(pid, 0)
        return ended

    assert in_child(launcher)


@needs_namespaces
def test_a_failed_entry_is_an_error_and_starts_nothing() -> None:
    """An address that the loopback cannot take is named."""
    error = in_child(lambda: netns.enter(netns.plan_for(os.geteuid(), os.getegid(), ("224.0.0.1",))), os.getuid())
    assert isinstance(error, OSError)
    assert "224.0.0.1" in str(error)


def test_what_this_machine_is_to_a_process_inside() -> None:
    """Loopback, unspecified and the resolvers' addresses are inside, and nothing else."""
    served = ("10.255.255.53",)
    assert all(
        netns.is_local(address, served) for address in ("127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", *served)
    )
    assert not any(netns.is_local(address, served) for address in ("10.255.255.54", "128.0.0.1", "::2", "198.18.0.1"))


@pytest.mark.parametrize(
    ("kind", "called", "drop"),
    [("net", "network", ""), ("user", "user", "setpriv --bounding-set=-sys_admin --inh-caps=-all")],
)
def test_a_machine_without_namespaces_is_told_apart(tmp_path, kind, called, drop):
    """The run is refused with the status for that, 69, and the hint names the setting; with the setting it runs."""
    for name in ("ws", "state"):
        (tmp_path / name).mkdir()
    (tmp_path / "state" / "agentbox.policy").write_text("write: .\n")
    for number, status in ((0, 69), (100, 0)):
        command = (
            f"echo {number} > /proc/sys/user/max_{kind}_namespaces || exit 99; exec {drop} {sys.executable} "
            "-m agentbox.cli run -p ../state/agentbox.policy -t ../state/trace.jsonl -- true"
        )
        done = subprocess.run(
            ["unshare", "-Ur", "sh", "-c", command],
            cwd=tmp_path / "ws",
            env={**os.environ, "TMPDIR": str(tmp_path / "state")},
            capture_output=True,
            text=True,
        )
        if done.returncode in (1, 99) and "unshare" in done.stderr:
            pytest.skip("this user cannot make a user namespace")
        assert done.returncode == status, done.stderr
        if number == 0:
            assert "the limit on namespaces is reached" in done.stderr
            assert f"hint: {called} namespaces are off: sysctl user.max_{kind}_namespaces" in done.stderr


def test_a_child_that_has_ended_is_not_stopped() -> None:
    """Its signal may be heard before its end: the kernel then says that there is no such child to wait for."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert init.stopped(child) == 0
    os.waitpid(child, 0)
