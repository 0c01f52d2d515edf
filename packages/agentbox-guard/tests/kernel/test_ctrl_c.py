"""Ctrl-C twice ends a run, whoever has the terminal and whatever the agent does about signals."""

import os
import pty
import shutil
import signal
import sys

import pytest
from kit.waiting import holds, read_until, wait_until

from agentbox.guard.kernel import LAYERS, choose

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

AGENT = """
import os, signal, sys, time
for name in ("TTOU", "INT", "TERM", "QUIT", "TSTP", "HUP"):
    signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
if sys.argv[1] == "job":
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
print("here", flush=True)
while True:
    signal.pause()
"""
WISHES = ["guard", *(["auto"] if choose("auto", [*LAYERS]) == tuple(LAYERS) else [])]


class Terminal:
    """A command that leads a session with a terminal of its own."""

    def __init__(self, folder, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execv(command[0], command)
        self.status = None

    def ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def close(self):
        """End all of its session: the agents here ignore what a terminal sends when it goes away."""
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.getsid(int(entry)) == self.pid:
                    os.kill(int(entry), signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not self.ended():
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminal(tmp_path):
    made = []

    def start(*command):
        made.append(Terminal(tmp_path, *command))
        return made[-1]

    yield start
    for one in made:
        one.close()


def boxed(folder, wish, rules, *command):
    (folder / "agentbox.policy").write_text(rules)
    return (sys.executable, "-P", "-m", "agentbox.cli", "run", "--layers", wish, "--", *command)


@pytest.mark.parametrize(
    ("who", "wish"), [("group", wish) for wish in WISHES] + [("job", wish) for wish in WISHES if wish != "guard"]
)
def test_a_second_ctrl_c_ends_an_agent_that_ignores_it(tmp_path, terminal, who, wish):
    """Also one that has taken the terminal's foreground group, where the supervisor gets no signal of its own."""
    agent = (sys.executable, "-c", AGENT, who)
    free = terminal("/bin/sh", "-c", '"$@"; exit $?', "sh", *agent)  # a leader of a session makes no group of its own
    read_until(free.fd, b"here")
    os.write(free.fd, b"\3")
    read_until(free.fd, b"^C")
    os.write(free.fd, b"\3")
    assert holds(lambda: not free.ended())
    held = terminal(*boxed(tmp_path, wish, "read: ./data\n", *agent))
    said = read_until(held.fd, b"here")
    os.write(held.fd, b"\3")
    said += read_until(held.fd, b"^C")
    os.write(held.fd, b"\3")
    said += read_until(held.fd, b"interrupted twice: the run was ended")
    read_until(held.fd, b"trace.jsonl\r\n")
    wait_until(held.ended, "the end of the run")
    assert held.status == 130


@pytest.mark.skipif("auto" not in WISHES, reason="not all kernel layers are live here")
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_shell_gives_the_terminal_to_its_jobs(tmp_path, terminal):
    """Job control works as ever: one Ctrl-C ends the job, and the shell goes on."""
    (tmp_path / "rc").write_text("PS1='ready> '\n")
    rules = "read: ./rc\nexec: sleep\nexec: cat\n"
    shell = (shutil.which("bash"), "--norc", "--rcfile", "./rc", "-i")
    one = terminal(*boxed(tmp_path, "auto", rules, *shell))
    os.write(one.fd, b"PS1='rea''dy> '\n")
    read_until(one.fd, b"ready> ")
    os.write(one.fd, b"echo be''gun; sleep 600; echo af''ter $?\n")
    read_until(one.fd, b"begun")
    pause = "sleep"
    wait_until(lambda: pause in foreground(one.fd), "the job")
    os.write(one.fd, b"\3")
    read_until(one.fd, b"ready> ")
    os.write(one.fd, b"exit 7\n")
    read_until(one.fd, b"trace.jsonl\r\n")
    wait_until(one.ended, "the end of the run")
    assert one.status == 7


def foreground(fd):
    """The names of the programs in a terminal's foreground group."""
    group, names = os.tcgetpgrp(fd), []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.getpgid(int(entry)) == group:
                with open(f"/proc/{entry}/comm") as file:
                    names.append(file.read().strip())
        except OSError:
            pass
    return names
