"""Before the agent runs: which commands are started and how, what they are given, what is refused."""

import os
import pty
import signal
import sys
import textwrap

import pytest
from kit.waiting import PATIENCE, read_until, wait_until

from agentbox.guard import environ, kernel
from agentbox.guard.errors import CommandNotExecutable, CommandNotFound, Unconfinable
from agentbox.guard.kernel.process import stat_fields
from agentbox.guard.launch import find_command
from agentbox.guard.rundir import RunDir
from agentbox.guard.runtimes import Command, _flags, _shebang, recognise
from agentbox.guard.runtimes import python as python_runtime
from agentbox.policy import parse

PATH = os.path.dirname(sys.executable) + ":/usr/bin:/bin"


def how(*argv, cwd="/", roots=()):
    return recognise(
        Command(find_command(argv[0], cwd, PATH), argv, cwd=cwd, environ={"PATH": PATH}, write_roots=roots)
    )


def program(path, text, mode=0o755):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_commands_are_found_as_a_shell_finds_them(tmp_path):
    """127 for what is not there, 126 for what cannot be executed, links kept as written."""
    assert find_command("sh", "/", "/usr/bin:/bin") in ("/usr/bin/sh", "/bin/sh")
    for missing in ("nosuch", "./nosuch"):
        with pytest.raises(CommandNotFound, match="nosuch: command not found") as caught:
            find_command(missing, "/", PATH)
        assert caught.value.hint
    with pytest.raises(CommandNotExecutable, match="not executable"):
        find_command("./x", str(tmp_path), "") if program(tmp_path / "x", "x", 0o644) else None
    with pytest.raises(CommandNotExecutable, match="is a directory, expected a program") as caught:
        find_command(str(tmp_path), "/", "")
    assert caught.value.hint


def test_python_commands_are_recognised(tmp_path):
    """Interpreters by any link, scripts by their first line, `env` in front, long-path trampolines."""
    assert how("python", "-c", "1").file.startswith(os.path.dirname(sys.executable))
    link = tmp_path / "python3.99"
    link.symlink_to(sys.executable)
    assert how(str(link), "x.py").argv == [str(link), "x.py"]
    tool = program(tmp_path / "tool", "#!/usr/bin/env python\n")
    launch = how(tool, "arg")
    assert launch.runtime == "python" and launch.argv[1:] == [tool, "arg"] and launch.script == tool
    tool = program(tmp_path / "tool", f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n")
    assert how(tool).argv == [sys.executable, tool]
    launch = how("env", "FOO=1", "python", "-m", "x", cwd=str(tmp_path))
    assert launch.runtime == "python" and launch.extra == {"FOO": "1"} and launch.listable == str(tmp_path)
    assert how("sh", "-c", "python").runtime == "native"
    assert not how("python", "--version").arms and how("python", "-i").arms


@pytest.mark.parametrize(
    "words",
    [["-I"], ["-E"], ["-S"], ["-sBuIS", "x.py"], ["-W", "ignore", "-I", "x"], ["-X", "dev", "-E"]],
)
def test_flags_that_disarm_the_guard_are_refused(words):
    """Wherever they stand before the program."""
    with pytest.raises(Unconfinable, match="cannot be guarded"):
        how("python", *words)


@pytest.mark.parametrize(
    "words",
    [
        ["x.py", "-I"],
        ["-c", "0", "-S"],
        ["-m", "mod", "-E"],
        ["-W", "I", "x"],
        ["-X", "S", "x"],
        ["-WI"],
        ["--", "-I"],
        ["-cI"],
        ["-"],
    ],
)
def test_flags_of_the_program_are_not_the_interpreters(words):
    """What follows the program, or is an option's argument, is left alone."""
    assert how("python", *words).argv[1:] == words


def test_a_flag_parser_that_agrees_with_the_interpreter():
    """For clusters of harmless options, where the program begins is where CPython says it begins."""
    import subprocess

    for words in (["-bBu", "-W", "ignore", "-X", "utf8", "-c"], ["-OOq", "-Xdev", "-c"], ["-dc"]):
        code = "import sys; print(sys.argv)"
        answer = subprocess.run([sys.executable, *words, code, "-I"], capture_output=True, text=True, check=True)
        assert answer.stdout.strip().endswith("['-c', '-I']")
        line = _flags.read([*words, code, "-I"])
        assert (line.kind, line.program, line.problem) == ("command", code, "")


def test_a_shim_is_replaced_by_the_interpreter_behind_it(tmp_path):
    """A script that is named python is asked once; in a write root it is not even asked."""
    shim = program(tmp_path / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    assert how(shim, "-c", "0").file == sys.executable
    with pytest.raises(Unconfinable, match="poses as an interpreter"):
        how(shim, "-c", "0", roots=(str(tmp_path),))
    broken = program(tmp_path / "python3", "#!/bin/sh\nexit 3\n")
    with pytest.raises(CommandNotFound, match="behind this shim"):
        how(broken)


def test_env_is_understood_or_refused():
    """Assignments, -S, -u and -i; anything else is a problem that is named."""
    asked = _shebang.read_env(["-S", "FOO=1 python -u", "x"])
    assert asked.words == ["python", "-u", "x"] and asked.set == {"FOO": "1"}
    assert _shebang.read_env(["-u", "A", "-i", "x"]).unset == ["A"]
    assert "--chdir" in _shebang.read_env(["--chdir=/", "x"]).problem


def test_the_environment_is_empty_but_for_what_is_allowed():
    """The safe set, private folders, what rules name, and the guard's own; injecting variables never."""
    policy = parse("env: MINE, env: W*\n", cwd="/")
    base = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "MINE": "1",
        "WIDE": "2",
        "OTHER": "3",
        "HOME": "/root",
        "LD_PRELOAD": "x",
        "PYTHONPATH": "y",
    }
    made = environ.build(policy, base, {"TMPDIR": "/t", "HOME": "/h"}, {"PYTHONPATH": "/shim"})
    assert made == {
        "PATH": "/bin",
        "SHELL": "/bin/sh",
        "LC_ALL": "C",
        "MINE": "1",
        "WIDE": "2",
        "TMPDIR": "/t",
        "HOME": "/h",
        "PYTHONPATH": "/shim",
    }
    assert environ.build(policy, {"SHELL": "/bin/zsh"}, {}, {})["SHELL"] == "/bin/zsh"
    assert environ.build(parse("env: HOME\n", cwd="/"), base, {"HOME": "/h"}, {})["HOME"] == "/root"
    assert environ.build(parse("env: *\n", cwd="/"), base, {}, {}).keys().isdisjoint({"LD_PRELOAD", "PYTHONPATH"})


def test_a_virtual_environment_is_named_when_it_is_active():
    """VIRTUAL_ENV says no more than PATH does then."""
    policy = parse("read: /x\n", cwd="/")
    assert "VIRTUAL_ENV" in environ.build(policy, {"PATH": "/v/bin:/bin", "VIRTUAL_ENV": "/v"}, {}, {})
    assert "VIRTUAL_ENV" not in environ.build(policy, {"PATH": "/bin", "VIRTUAL_ENV": "/v"}, {}, {})


def test_no_kernel_layer_is_pretended(monkeypatch):
    """A layer is left out only where it was named and does not work, and never where there is none for the system."""
    assert kernel.choose("guard") == ()
    assert kernel.choose("auto", platform="darwin") == ()
    with pytest.raises(Unconfinable, match="no kernel layer for darwin"):
        kernel.choose("kernel", platform="darwin")
    with pytest.raises(Unconfinable, match="got 'walls', expected one of netns, landlock, seccomp"):
        kernel.choose("auto", ["walls"], platform="linux")
    monkeypatch.setattr(kernel, "nested", lambda: False)

    class Layer:
        missing = ""

        def probe(self):
            return self.missing

    monkeypatch.setattr(kernel, "load", lambda name: Layer())
    assert kernel.choose("kernel", ["landlock"], platform="linux") == ("netns", "landlock", "seccomp")
    monkeypatch.setattr(Layer, "missing", "Linux 5.13 is needed")
    assert kernel.choose("auto", platform="linux") == ("netns", "landlock", "seccomp")
    assert kernel.choose("auto", ["landlock"], platform="linux") == ("netns", "seccomp")
    assert kernel.choose("auto", ["seccomp"], platform="linux") == ("landlock",)  # an empty network needs the broker


def test_a_private_folder_is_private_locked_and_removed(tmp_path):
    """Mode 0700; removed whatever the agent did to what is in it; links in it are not followed."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    folder = RunDir.make({"TMPDIR": str(tmp_path)})
    assert os.stat(folder.path).st_mode & 0o777 == 0o700
    os.makedirs(folder.tmp + "/a/b")
    os.symlink(outside, folder.tmp + "/a/link")
    os.chmod(folder.tmp + "/a", 0)
    RunDir.make({"TMPDIR": str(tmp_path)}).sweep()
    assert os.path.isdir(folder.path)
    folder.remove()
    assert not os.path.exists(folder.path) and outside.stat().st_mode & 0o777 == 0o755


def test_a_command_that_cannot_be_guarded_is_not_run(sandbox):
    """Not bash, not `python -I`: status 69 and the reason; nothing happened."""
    for argv in (["sh", "-c", "echo ran"], [sys.executable, "-I", "-c", "print('ran')"]):
        done = sandbox.end(sandbox.start("", argv=argv, fake=False))
        assert done.status == 69 and done.out == "" and len(done.err.splitlines()) == 1, done.err
        assert done.trace == []


@pytest.mark.parametrize("name", ["python3.10", "python2.7", "python2"])
@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_an_interpreter_that_is_too_old_is_not_run(sandbox, name, layers):
    """Status 69, one line and no trace where the version shows; a link is looked through."""
    program(sandbox.folder / name, "#!/bin/sh\necho ran\n")
    (sandbox.folder / "python").symlink_to(name)
    for argv in ([f"./{name}", "x.py"], ["./python", "x.py"]):
        done = sandbox.end(sandbox.start("", argv=argv, fake=False, layers=layers))
        assert done.status == 69 and not done.out and not done.trace and len(done.err.splitlines()) == 1, done.err
        assert done.said(f"{name} is too old, the guard needs Python 3.11 or later")
    for newer in ("python3.11", "python3.14t", "python3", "python", "pypy3.11", "python4.0"):
        assert not python_runtime._outdated(f"/usr/bin/of/{newer}")


def test_unknown_and_unexecutable_commands(sandbox):
    """127 and 126, one line, no trace; a script without interpreter is found out by exec itself."""
    assert sandbox.end(sandbox.start("", argv=["nosuchcmd"])).status == 127
    program(sandbox.folder / "x", "echo hi\n")
    done = sandbox.end(sandbox.start("", argv=["./x"]))
    assert done.status == 126 and done.said("not a program") and done.trace[-1]["args"]["status"] == 126


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_write_folders_are_made_and_said(sandbox, mask):
    """Parents included, for their owner alone; without a slash at its end a path is left to the agent."""
    before = os.umask(mask)
    try:
        done = sandbox.fake("Link().armed()", policy="write: ./state/deep/\nwrite: ./log.txt\nwrite: ./plain\n")
    finally:
        os.umask(before)
    assert done.said("created ./state/deep/ (named by a write: rule, did not exist)")
    for folder in ("state", "state/deep"):
        assert (sandbox.folder / folder).stat().st_mode & 0o777 == 0o700
    assert not (sandbox.folder / "log.txt").exists() and not (sandbox.folder / "plain").exists()


def test_descriptors_above_two_do_not_reach_the_agent(sandbox):
    """Neither inherited ones nor agentbox's own."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    import subprocess

    code = "Link().armed(); print(sorted(map(int, os.listdir('/proc/self/fd')))[:4])"
    command = sandbox.wish("read: ./data\n", sandbox.script(code))
    process = subprocess.Popen(
        command, cwd=sandbox.folder, env=sandbox.environ, stdout=-1, stderr=-1, text=True, pass_fds=(writer,)
    )
    done = sandbox.end(process)
    os.close(reader)
    os.close(writer)
    before = [int(n) for n in done.out.strip("[]\n").split(",")]
    assert before[:3] == [0, 1, 2] and writer not in before


def test_closed_standard_descriptors_stay_closed(sandbox):
    """The trace must not become the agent's standard output."""
    import subprocess

    command = sandbox.wish("read: ./data\n", sandbox.script("Link().armed(); sys.exit(sys.stdout is not None)"))
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in command)
    process = subprocess.Popen(
        ["sh", "-c", f"exec {quoted} >&- <&-"], cwd=sandbox.folder, env=sandbox.environ, stderr=-1, text=True
    )
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


class Terminal:
    """A session with a terminal of its own, in which a command runs."""

    def __init__(self, command, folder, environ):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(command[0], command, environ)
        self.seen = b""

    def until(self, text):
        self.seen = read_until(self.master, text, self.seen)
        return self.seen

    def status(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_ctrl_c_reaches_the_agent_once(sandbox):
    """The terminal signals the whole group; the supervisor adds nothing to it and seals when the agent ends."""
    code = """
    import signal
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    Link().armed()
    print("up", os.isatty(0), os.tcgetpgrp(0) == os.getpgrp(), flush=True)
    signal.sigwait([signal.SIGINT])
    sys.exit(1 if signal.sigtimedwait([signal.SIGINT], 0.3) is None else 2)
    """
    command = sandbox.wish("read: ./data\n", sandbox.script(textwrap.dedent(code)))
    terminal = Terminal(command, sandbox.folder, sandbox.environ)
    assert b"up True True" in terminal.until(b"up True True")
    os.write(terminal.master, b"\x03")
    terminal.until(b"recorded")
    assert terminal.status() == 1
    os.close(terminal.master)


def test_a_stopped_run_goes_on(sandbox):
    """SIGSTOP of the whole group (Ctrl-Z) and SIGCONT leave the run as it was."""
    os.mkfifo(sandbox.folder / "go")
    process = sandbox.start("Link().armed(); print('up', flush=True); open('go').read(); sys.exit(5)")
    process.stdout.readline()
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: stat_fields(process.pid)[0] == "T")
    (sandbox.folder / "go").write_text("")
    process.send_signal(signal.SIGCONT)
    assert sandbox.end(process).status == 5
