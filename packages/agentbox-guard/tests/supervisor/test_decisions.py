"""What the supervisor decides of what agents ask: programs, addresses, names, signals; and SDK calls."""

import ast
import os
import pathlib
import shutil
import signal
import socket
import sys

import pytest

import agentbox.guard.python
from agentbox.guard import names, procfs
from agentbox.guard.decisions import Desk, decider
from agentbox.guard.family import Family
from agentbox.guard.hashes import Hashes
from agentbox.guard.names import Names, literal
from agentbox.guard.paths import resolve
from agentbox.guard.services import RunServices
from agentbox.policy import parse


@pytest.fixture
def desk(tmp_path):
    """Builds a desk for a policy in a fresh folder."""

    def build(policy, *, path="/usr/bin:/bin"):
        return Desk(
            parse(policy, name="agentbox.policy", cwd=str(tmp_path), search=path, home=str(tmp_path)),
            cwd=str(tmp_path),
            environ={"PATH": path},
            private={"TMPDIR": str(tmp_path / "private")},
            channel=str(tmp_path / "channel"),
            hidden=[str(tmp_path / "trace.jsonl")],
            sealed=[str(tmp_path / "agentbox.policy")],
            readable=["/etc/hosts"],
            family=Family(0),
            names=Names(parse(policy, cwd=str(tmp_path))),
            hashes=Hashes(),
        )

    return build


def decide(desk, op, **args):
    verdict = decider(op).decide(op, args, os.getpid(), desk)
    if verdict.slow and verdict.denial is None and not verdict.missing:
        decider(op).complete(verdict, os.getpid(), desk)
    return verdict


def run(desk, file, *words, env_ok=True):
    return decide(desk, "proc.exec", file=file, argv=[file, *words], cwd=desk.cwd, env_ok=env_ok)


def test_a_program_is_decided_by_its_resolved_file(desk, tmp_path):
    """A look-alike of an allowed name is denied; the denial names the rule that would allow it."""
    it = desk("exec: echo\n")
    assert run(it, "/bin/echo", "x").denial is None
    assert len(run(it, "echo", "x").args["sha256"]) == 64
    (tmp_path / "echo").symlink_to("/bin/cat")
    denial = run(it, str(tmp_path / "echo")).denial
    assert denial.target.startswith(os.path.realpath("/bin/cat")) and denial.fix == "exec: cat"


def test_nothing_is_suggested_for_what_is_gone_with_the_run(desk, tmp_path):
    """A program, or a protected file, in a run's private folder: the reason says that no rule can name it."""
    private = tmp_path / "agentbox-0-6c197ddef678" / "home"
    private.mkdir(parents=True)
    for place in (private, tmp_path):
        shutil.copy("/bin/echo", place / "tool")
    it = desk("exec: git status\nwrite: .\n")
    assert run(it, str(tmp_path / "tool")).denial.fix == "exec: ./tool"
    denial = run(it, str(private / "tool")).denial
    assert denial.fix is None and "put the program into a folder that an exec: rule can name" in denial.reason
    services = RunServices(it, os.getpid())
    assert services.check_path("write", str(tmp_path / ".bashrc")).fix == "write: ./.bashrc"
    denial = services.check_path("write", str(private / ".bashrc"))
    assert denial.fix is None
    assert denial.reason.endswith("; its folder has another name in each run, so no rule can name it")
    assert "write:" not in denial.reason


def test_a_missing_program_fails_as_without_a_sandbox(desk):
    """ENOENT, and nothing is recorded."""
    assert run(desk("exec: *\n"), "/no/such/program").missing == 2
    assert run(desk("exec: *\n"), "nosuchprogram").missing == 2


@pytest.mark.parametrize(
    "flags", [["-I"], ["-E"], ["-S"], ["-sBuIS"], ["-X", "dev", "-I"], ["-W", "error::a.B"], ["-Xpresite=x"]]
)
def test_a_python_child_must_not_disarm_its_guard(desk, flags):
    """Flags that keep the guard out are refused even where every program is allowed."""
    it = desk("exec: *\n")
    assert run(it, sys.executable, "-c", "pass").denial is None
    assert "must run guarded" in run(it, sys.executable, *flags, "-c", "pass").denial.reason


def test_a_python_child_must_carry_the_guards_variables(desk):
    """`env_ok` false is refused for Python, and does not matter to others."""
    it = desk("exec: *\n")
    assert "environment" in run(it, sys.executable, env_ok=False).denial.reason
    assert run(it, "/bin/echo", env_ok=False).denial is None


def test_a_python_child_must_find_itself_where_the_system_does(desk, tmp_path):
    """An empty argv[0], and `..` in it, in the program's path or in PATH, are refused: Python would read `..` by its
    letters and run the .pth files of an environment that the agent has made there."""
    it = desk("exec: *\nwrite: ./out\n")
    (tmp_path / "out" / "bin").mkdir(parents=True)
    (tmp_path / "out" / "sub").symlink_to("/usr/bin")
    name = os.path.basename(sys.executable)
    (tmp_path / "out" / "bin" / name).touch(0o755)

    def start(first, file=sys.executable, **more):
        return decide(it, "proc.exec", file=file, argv=[first], cwd=it.cwd, env_ok=True, **more).denial

    assert start(sys.executable) is None and start(name, path=os.path.dirname(sys.executable)) is None
    assert "argv[0], is empty" in start("").reason
    for first in ("out/sub/../bin/python", f"{tmp_path}/out/sub/../bin/python"):
        assert "has a part .." in start(first).reason
    assert "has a part .." in start(name, path=f"out/sub/../bin:{os.path.dirname(sys.executable)}").reason
    folder, name = os.path.split(sys.executable)
    assert "has a part .." in start(sys.executable, file=f"{folder}/../{os.path.basename(folder)}/{name}").reason


def test_python_behind_a_script_or_env_is_recognised(desk, tmp_path):
    """`#!` lines, `env -S` and `env -i` are followed to the interpreter."""
    it = desk("exec: *\n", path=os.path.dirname(sys.executable) + ":/usr/bin:/bin")
    script = tmp_path / "tool"
    script.write_text(f"#!{sys.executable} -I\n")
    script.chmod(0o755)
    assert "-I" in run(it, str(script)).denial.reason
    script.write_text("#!/usr/bin/env -S python -E\n")
    assert "-E" in run(it, str(script)).denial.reason
    assert "env -i" in run(it, "/usr/bin/env", "-i", "python").denial.reason
    assert "PYTHONPATH" in run(it, "/usr/bin/env", "PYTHONPATH=/x", "python").denial.reason
    assert run(it, "/usr/bin/env", "FOO=1", "python", "-c", "0").denial is None


def connect(desk, address, port, op="net.connect"):
    return decide(desk, op, family="inet6" if ":" in address else "inet", address=address, port=port)


def test_an_address_needs_a_rule_of_its_own(desk):
    """Port pins hold, other spellings of an address are the same address, a bind needs the address too."""
    it = desk("net: 127.0.0.1:80\n")
    assert connect(it, "127.0.0.1", 80).denial is None
    assert connect(it, "127.1", 80).denial is None
    assert connect(it, "::ffff:127.0.0.1", 80).denial is None
    assert connect(it, "127.0.0.1", 81).denial.fix == "net: 127.0.0.1:81"
    assert connect(it, "", 80).denial is not None
    assert connect(it, "127.0.0.1", 80, "net.bind").denial is None
    assert connect(it, "0.0.0.0", 80, "net.bind").denial is not None
    assert connect(it, "localhost", 80).denial is not None


def test_other_socket_families_are_refused(desk):
    """Only what rules can name is decided at all."""
    verdict = decide(desk("net: *\n"), "net.connect", family="packet", address="x", port=0)
    assert "only TCP, UDP and unix" in verdict.denial.reason


def test_a_name_that_is_not_allowed_is_not_looked_up(desk, monkeypatch):
    """No query leaves for it; an allowed one is pinned by its first answer, with the rule's port."""
    answers = [[(2, 1, 6, "", ("203.0.113.7", 0))], [(2, 1, 6, "", ("203.0.113.8", 0))]]
    monkeypatch.setattr("_socket.getaddrinfo", lambda *args: answers.pop(0))
    it = desk("net: ok.example:443\nnet: 203.0.113.7:1\n")
    denied = decide(it, "net.resolve", host="evil.example", port=0, family="any")
    assert denied.denial.fix == "net: evil.example" and len(answers) == 2
    it = desk("net: *\n")
    for _ in range(2):
        value = decide(it, "net.resolve", host="OK.example.", port=443, family="any").value
        assert value == {"addresses": ["203.0.113.7"]}
    assert len(answers) == 1


def test_a_name_opens_its_pinned_address_on_its_port_only(desk, monkeypatch):
    """After the look-up, the address counts as the name; before it, and on other ports, it does not."""
    monkeypatch.setattr("_socket.getaddrinfo", lambda *args: [(2, 1, 6, "", ("8.8.4.4", 0))])
    it = desk("net: dns.example:443\n")
    assert connect(it, "8.8.4.4", 443).denial is not None
    decide(it, "net.resolve", host="dns.example", port=443, family="any")
    found = connect(it, "8.8.4.4", 443)
    assert found.denial is None and found.args["host"] == "dns.example"
    assert connect(it, "8.8.4.4", 80).denial is not None
    assert connect(it, "8.8.4.4", 443, "net.bind").denial is not None


def test_an_allowed_name_must_not_lead_inside(desk, monkeypatch):
    """Rebinding to loopback is refused unless a rule names the address; localhost may lead there."""
    monkeypatch.setattr("_socket.getaddrinfo", lambda *args: [(2, 1, 6, "", ("127.0.0.1", 0))])
    denial = decide(desk("net: evil.example\n"), "net.resolve", host="evil.example", port=0, family="any").denial
    assert "loopback" in denial.reason and denial.fix == "net: 127.0.0.1"
    for policy, host in (("net: evil.example, net: 127.0.0.1\n", "evil.example"), ("net: localhost\n", "localhost")):
        assert decide(desk(policy), "net.resolve", host=host, port=0, family="any").denial is None


def test_no_such_name_is_an_empty_answer(desk, monkeypatch):
    """The agent gets its usual error; nothing is refused."""

    def fail(*args):
        raise socket.gaierror(socket.EAI_NONAME, "no")

    monkeypatch.setattr("_socket.getaddrinfo", fail)
    verdict = decide(desk("net: gone.example\n"), "net.resolve", host="gone.example", port=0, family="any")
    assert verdict.denial is None and verdict.value == {"addresses": []}


def test_unix_sockets_are_decided_resolved(desk, tmp_path):
    """Links are followed before the rule is asked; the channel is free, abstract names need their own rule."""
    it = desk("net: unix:./app.sock\n")
    (tmp_path / "alias").symlink_to(tmp_path / "app.sock")
    (tmp_path / "app2").symlink_to("/run/other.sock")
    ask = lambda path: decide(it, "net.connect", path=path)  # noqa: E731
    assert ask(str(tmp_path / "app.sock")).denial is None and ask(str(tmp_path / "alias")).denial is None
    assert ask(str(tmp_path / "app2")).denial.target == "unix:/run/other.sock"
    assert ask(str(tmp_path / "channel")).quiet
    assert ask("\0abstract").denial is not None
    assert ask(str(tmp_path / "private" / "s")).denial is None
    it = desk("write: .\n")
    assert decide(it, "net.bind", path=str(tmp_path / "app.sock")).denial is None
    assert "record of this run" in decide(it, "net.bind", path=str(tmp_path / "trace.jsonl")).denial.reason


def test_signals_stay_in_the_family(desk):
    """A process may signal itself and the run's; never the supervisor, its parent or whole foreign groups."""
    it = desk("read: ./data\n")
    mine = os.fork()
    if mine == 0:
        signal.pause()
        os._exit(0)
    try:
        it.family = Family(mine)
        assert decider("proc.signal").decide("proc.signal", {"target": mine, "signal": 15}, mine, it).denial is None
        for target in (os.getpid(), os.getppid(), 1, 0, -1, -os.getpgrp()):
            denied = decider("proc.signal").decide("proc.signal", {"target": target, "signal": 0}, mine, it)
            assert denied.denial is not None and denied.code == 1, target
    finally:
        os.kill(mine, 9)
        os.waitpid(mine, 0)


def test_proc_self_is_that_of_the_asking_process(tmp_path):
    """The supervisor's own /proc/self is never meant."""
    assert resolve("/proc/self/status", "/", 4242) == "/proc/4242/status"
    (tmp_path / "l").symlink_to("/proc/self")
    assert resolve("l/status", str(tmp_path), 4242) == "/proc/4242/status"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic"):
        resolve("loop", str(tmp_path), 0)


def test_sdk_paths_obey_hidden_sealed_and_private(desk, tmp_path):
    """The record is out of reach even where everything is allowed; the policy file is never writable."""
    services = RunServices(desk("read: /\nwrite: .\n"), os.getpid())
    assert services.check_path("read", str(tmp_path / "trace.jsonl")) is not None
    assert services.check_path("write", str(tmp_path / "agentbox.policy")) is not None
    assert services.check_path("read", str(tmp_path / "agentbox.policy")) is None
    services = RunServices(desk("read: ./data\n"), os.getpid())
    assert services.check_path("write", str(tmp_path / "private" / "x")) is None
    assert services.check_path("read", "/etc/hosts") is None
    assert services.check_path("read", "/etc/passwd").fix == "read: /etc/passwd"


def test_sdk_paths_open_no_other_process(desk):
    """Not the supervisor's environment, under any rule: numbers and names only; of its own folder what the guard
    gives; nothing is written there."""
    own, other = os.getppid(), os.getpid()  # the supervisor is the process that serves the call
    services = RunServices(desk("read: /\nwrite: /\n"), own)
    for leaf in ("environ", "mem", "maps", "auxv", "fdinfo/1", f"task/{other}/environ", "net/tcp"):
        assert services.check_path("read", f"/proc/{other}/{leaf}").reason == procfs.REASON
    assert services.check_path("read", f"/proc/{other}/status") is None
    ruled = RunServices(desk("read: ./x\n"), own)
    assert ruled.check_path("read", f"/proc/{other}/status").fix == "read: /proc/*/status"
    assert services.check_path("read", services.resolve_path("/proc/self/environ", "/")) is None
    assert services.check_path("read", services.resolve_path("/proc/thread-self/mem", "/")) is not None
    assert services.check_path("write", f"/proc/{own}/uid_map") is not None
    assert services.check_path("read", "/proc/sys/kernel/hostname") is None


def test_the_guard_and_the_supervisor_close_the_same_of_proc():
    """The lists in the sealed judge, which nothing can import, are those of the supervisor."""
    judge = pathlib.Path(agentbox.guard.python.__file__).parent / "judge.py"
    found = {
        node.targets[0].id: eval(ast.unparse(node.value))
        for node in ast.parse(judge.read_text()).body
        if isinstance(node, ast.Assign)
    }
    assert found["FOREIGN_OPEN"] == procfs.FOREIGN_OPEN
    assert found["OWN_PROC_REFUSED"] == procfs.OWN_REFUSED
    assert found["FOREIGN_REASON"] == procfs.REASON


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("::1%lo", "::1"),
        ("a.example", ""),
    ],
)
def test_literal_addresses_have_one_spelling(text, address):
    """Whatever the C library takes for an address is compared in its plain form."""
    assert literal(text) == address


def test_an_own_public_address_needs_a_rule_like_loopback(desk, monkeypatch):
    """For look-ups, for connections to what they gave, and for requests of the SDK; one reason is told by all."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 0))]
    monkeypatch.setattr(names._socket, "getaddrinfo", lambda *_: found)
    ways = {}
    for own in (True, False):
        monkeypatch.setattr(names, "is_own", lambda address, own=own: own)
        it = desk("net: a.example\n")
        looked_up = decide(it, "net.resolve", host="a.example", port=80, family="any")
        connected = decide(it, "net.connect", family="inet", address="93.184.216.34", port=80)
        fetched = RunServices(it, os.getpid()).addresses("a.example", 80)
        ways[own] = [looked_up.denial, connected.denial, fetched[1]]
    assert ways[False] == [None] * 3 and None not in ways[True]
    reason = "it leads to 93.184.216.34 (this machine), which needs a rule of its own"
    assert [ways[True][place].reason for place in (0, 2)] == [reason] * 2
    assert ways[True][0].fix == "net: 93.184.216.34:80"
    it = desk("net: a.example, 93.184.216.34:80\n")
    assert decide(it, "net.resolve", host="a.example", port=80, family="any").denial is None


def test_localhost_is_the_runs_own_where_no_rule_speaks_of_it(desk, monkeypatch):
    """Beside an own loopback the name needs no rule, and nobody is asked; another name does."""
    monkeypatch.setattr("_socket.getaddrinfo", None)
    it = desk("net: ok.example\n")
    ask = lambda host, family: decide(it, "net.resolve", host=host, port=80, family=family)  # noqa: E731
    assert ask("localhost", "any").denial
    it.own_loopback = True
    assert ask("LOCALHOST.", "any").value == {"addresses": ["127.0.0.1", "::1"]}
    assert ask("localhost", "inet6").value == {"addresses": ["::1"]}
    assert ask("evil.example", "any").denial and ask("localhost.example", "any").denial
