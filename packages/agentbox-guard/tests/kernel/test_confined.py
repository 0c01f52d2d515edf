"""Whole runs under the default layers: what programs without a guard can do, what they cannot, and what is recorded."""

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap

import pytest
from kit.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
EXEC = "exec: bash, exec: sh, exec: cat, exec: sleep, exec: mkfifo, exec: env\n"


class Run:
    def __init__(self, folder, done):
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        with open(folder / "state" / "trace.jsonl") as file:
            self.trace = [json.loads(line) for line in file]

    def of(self, op, kind="observe"):
        return [entry for entry in self.trace if entry["op"] == op and entry["kind"] == kind]

    def denied(self):
        return {(entry["op"], entry["target"]) for entry in self.trace if entry["kind"] == "deny"}


class Box:
    """A workspace with a way to run commands in it, confined (`run`) and not (`bare`)."""

    def __init__(self, folder):
        self.folder = folder
        self.ws = folder / "ws"
        for name in ("ws", "state", "outside"):
            (folder / name).mkdir()
        (folder / "secret").write_text("the secret\n")

    def command(self, policy, argv, options=()):
        (self.folder / "state" / "agentbox.policy").write_text(policy)
        state = f"{self.folder}/state"
        head = [
            sys.executable,
            "-m",
            "agentbox.cli",
            "run",
            "-p",
            f"{state}/agentbox.policy",
            "-t",
            f"{state}/trace.jsonl",
        ]
        return [*head, *options, "--", *argv]

    def run(self, policy, *argv, options=(), **more):
        return Run(self.folder, self.bare(*self.command(policy, argv, options), **more))

    def bare(self, *argv, **more):
        return subprocess.run(argv, cwd=self.ws, capture_output=True, text=True, timeout=PATIENCE, **more)

    def python(self, code, name="program.py"):
        """The command that runs `code` in an interpreter without a guard."""
        path = self.folder / name
        path.write_text(textwrap.dedent(code))
        return [sys.executable, "-I", "-S", str(path)]


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def same(box, policy, code):
    """Run `code` without and with the layers: it must say the same."""
    argv = box.python(code)
    bare = box.bare(*argv)
    for name in os.listdir(box.ws):
        subprocess.run(["rm", "-rf", str(box.ws / name)], check=True)
    done = box.run(f"{policy}read: ../program.py\n", *argv)
    assert (done.out, done.status) == (bare.stdout, bare.returncode), done.err + bare.stderr
    return done


def test_any_program_is_contained_and_recorded(box):
    """A shell and what it starts: the allowed file is read and hashed, the other is refused, both are told."""
    (box.ws / "allowed").write_text("hi\n")
    done = box.run(f"read: ./allowed\n{EXEC}", "bash", "-c", f"cat allowed; cat {box.folder}/secret")
    assert done.out == "hi\n" and done.status == 1
    (read,) = done.of("fs.read")
    assert read["args"]["size"] == 3 and len(read["args"]["sha256"]) == 64 and read["src"] == "kernel"
    assert ("fs.read", f"{box.folder}/secret") in done.denied()
    assert [entry["args"]["argv"][0] for entry in done.of("proc.exec")] == ["cat", "cat"]
    assert done.trace[0]["args"]["layers"] == ["netns", "landlock", "seccomp"]


def test_files_are_made_as_without_the_layers(box):
    """Modes and umask, exclusive and appending opens, folders and links, times: what is emulated is the same."""
    done = same(
        box,
        "write: .\n",
        """
        import errno, os, stat
        def name(call, *arguments, **more):
            try:
                return call(*arguments, **more)
            except OSError as error:
                return errno.errorcode[error.errno]
        os.umask(0o027)
        fd = os.open("a", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o666)
        os.write(fd, b"one")
        print(oct(os.fstat(fd).st_mode), os.get_inheritable(fd), name(os.open, "a", os.O_CREAT | os.O_EXCL))
        print(name(os.open, "a/", os.O_RDONLY), name(os.open, "none", os.O_RDONLY), name(os.open, ".", os.O_RDWR))
        print(name(os.open, "a", os.O_RDONLY | os.O_DIRECTORY), name(os.open, "new/", os.O_CREAT | os.O_WRONLY))
        with open("a", "a") as file: file.write("two")
        print(open("a").read(), name(os.mkdir, "d", 0o777), oct(os.stat("d").st_mode))
        print(name(os.mkdir, "d"), name(os.mkdir, "."))
        folder = os.open("d", os.O_RDONLY)
        print(os.open("in", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=folder) > 0, os.listdir("d"))
        os.symlink("a", "link"); os.link("a", "hard"); os.rename("hard", "d/moved")
        print(name(os.open, "link", os.O_RDONLY | os.O_NOFOLLOW), os.stat("a").st_nlink, os.readlink("link"))
        os.chmod("a", 0o640); os.truncate("a", 2); os.setxattr("a", "user.k", b"v"); os.utime("a", (5, 6))
        print(oct(os.stat("a").st_mode), os.stat("a").st_mtime, os.stat("a").st_size, os.getxattr("a", "user.k"))
        print(name(os.rmdir, "d"), name(os.unlink, "d"), name(os.unlink, "none"), name(os.rename, "none", "x"))
        unnamed = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o644)
        os.write(unnamed, b"late")
        os.link(f"/proc/self/fd/{unnamed}", "named", src_dir_fd=folder, follow_symlinks=True)
        print(open("named").read(), oct(os.stat("named").st_mode), sorted(os.listdir(".")))
        os.mkfifo("fifo", 0o600)
        print(stat.S_ISFIFO(os.stat("fifo").st_mode), name(os.open, "fifo", os.O_WRONLY | os.O_NONBLOCK))
    """,
    )
    assert done.status == 0 and not done.denied()


def test_both_ends_of_a_pipe_by_name_find_each_other(box):
    """Opening waits for the other end, in whichever order they come, and nobody else waits meanwhile."""
    done = box.run(
        f"write: .\n{EXEC}", "bash", "-c", "mkfifo p; (sleep 0.2; echo through > p) & cat allowed 2>/dev/null; cat p"
    )
    assert done.out == "through\n"


def test_a_pipe_that_nobody_opens_does_not_keep_the_run(box):
    """The thread that waits for it is released when its asker is gone."""
    done = box.run(f"write: .\n{EXEC}", "bash", "-c", "mkfifo p; cat p & sleep 0.2; kill -9 $!; wait $!; echo $?")
    assert done.out == "137\n"


@pytest.mark.attempt("P7")
@pytest.mark.parametrize(
    "way",
    [
        "cp /bin/echo ./echo; ./echo ran",
        "cp /bin/echo ./cat; ./cat ran",
        "/lib64/ld-linux-x86-64.so.2 /bin/echo ran",
        "printf '#!/bin/echo ran\\n' > s; chmod +x s; ./s",
        "/usr/bin/python3 -I -c \"import os; f=os.memfd_create('x'); os.write(f, open('/bin/echo','rb').read());"
        " os.execve(f, ['e', 'ran'], {})\"",
    ],
)
def test_no_way_around_an_exec_rule(box, way):
    """Copies, renamed copies, the loader, scripts of one's own and memory files do not start what no rule names."""
    rules = "exec: bash, exec: cp, exec: chmod\nwrite: .\n"
    if "ld-linux" in way and not os.path.exists("/lib64/ld-linux-x86-64.so.2"):
        pytest.skip("another machine's loader")
    if "python3" in way:
        rules += "exec: /usr/bin/python3\n"
    assert "ran" in box.bare("bash", "-c", way).stdout
    for name in os.listdir(box.ws):
        os.unlink(box.ws / name)
    done = box.run(rules, "bash", "-c", way)
    assert "ran" not in done.out
    assert any(op == "proc.exec" for op, _ in done.denied()), done.err


def test_the_agent_starts_only_what_rules_name(box):
    """Arguments are a prefix; what an allowed program starts in turn is recorded."""
    done = box.run("exec: echo one\nread: ../program.py\n", *box.python("import subprocess\nfor w in ('one', 'two'):\n"
        "    try: print(subprocess.run(['/bin/echo', w], capture_output=True, text=True).stdout, end='')\n"
        "    except OSError as e: print(type(e).__name__)\n"))  # fmt: skip
    assert done.out == "one\nPermissionError\n"
    assert [entry["args"]["argv"] for entry in done.of("proc.exec")] == [["/bin/echo", "one"]]


@pytest.mark.attempt("P1")
def test_a_signal_to_the_own_group_spares_the_supervisor(box):
    """kill(0): the shell has the supervisor in its group, and ends alone."""
    done = box.run(EXEC, "bash", "-c", "trap : TERM; sleep 30 & kill -TERM 0; wait; echo on")
    assert done.out == "on\n" and done.status == 0 and done.trace[-1]["op"] == "run.end"


@pytest.mark.attempt("P13")
def test_the_death_of_the_supervisor_ends_everything(box):
    """kill -9 of it leaves no process of the run, and a trace whose lines are whole."""
    marker = f"marker-{os.getpid()}-{os.urandom(4).hex()}"
    command = box.command(
        f"write: .\n{EXEC}", ["bash", "-c", f"sleep 600 & setsid sleep 601 & echo up; exec -a {marker} sleep 602"]
    )
    process = subprocess.Popen(command, cwd=box.ws, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    wait_until(lambda: alive(marker), "the program")
    process.kill()
    process.wait()
    wait_until(lambda: not alive(marker), "its end")
    with process.stdout:
        assert process.stdout.read() == b""  # nobody holds the other end any more
    data = (box.folder / "state" / "trace.jsonl").read_bytes()
    assert data.endswith(b"\n") and all(json.loads(line) for line in data.splitlines())


def alive(marker):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().startswith(marker.encode()):
                    return True
        except OSError:
            pass
    return False


@pytest.mark.attempt("F12")
def test_other_processes_and_capabilities_are_out_of_sight(box):
    """The run sees its own processes only, and has no capability left."""
    done = box.run("read: /proc\nread: ../program.py\n", *box.python("""
        import os
        print(sorted(int(p) for p in os.listdir("/proc") if p.isdigit())[-1] < 20)
        status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
        print({status[name].strip() for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")})
    """))  # fmt: skip
    assert done.out.splitlines()[0] == "True"
    assert done.out.splitlines()[1] == "{'0000000000000000'}" or os.geteuid() != 0


def test_programs_of_sdk_calls_are_in_the_same_layers(box):
    """box.run starts inside: it cannot read the secret either, and its own acts are recorded."""
    (box.ws / "allowed").write_text("hi\n")
    code = f"""
        from agentbox import client as box
        print(box.run(["bash", "-c", "cat allowed; cat {box.folder}/secret; echo $?"]).stdout, end="")
    """
    path = box.ws / "agent.py"
    path.write_text(textwrap.dedent(code))
    done = box.run(f"read: .\n{EXEC}", sys.executable, "agent.py")
    assert done.out == "hi\n1\n", done.err
    assert ("fs.read", f"{box.folder}/secret") in done.denied()
    assert [entry["args"]["path"] for entry in done.of("fs.read") if entry["src"] == "kernel"] == [f"{box.ws}/allowed"]


def test_guard_and_kernel_make_one_entry(box):
    """What a guarded program announces is not recorded again when the kernel shows it."""
    (box.ws / "allowed").write_text("hi\n")
    (box.ws / "agent.py").write_text(
        "import subprocess\nopen('allowed').read(); open('out/new', 'w').write('x')\n"
        "subprocess.run(['cat', 'allowed'])\n"
    )
    done = box.run("read: .\nwrite: ./out/\nexec: cat\n", sys.executable, "agent.py")
    reads = [(entry["args"]["path"], entry["src"]) for entry in done.of("fs.read")]
    assert reads == [(f"{box.ws}/allowed", "guard"), (f"{box.ws}/allowed", "kernel")], done.err  # the second is cat's
    assert len(done.of("fs.write")) == len(done.of("proc.exec")) == 1
    assert all(len(entry["args"]["sha256"]) == 64 for entry in done.of("fs.read"))


def test_reads_without_a_guard_can_be_left_out(box):
    """`--no-read-trace` drops them; denials and everything else stay."""
    (box.ws / "allowed").write_text("hi\n")
    done = box.run(f"read: .\n{EXEC}", "bash", "-c", f"cat allowed {box.folder}/secret", options=["--no-read-trace"])
    assert done.out == "hi\n" and not done.of("fs.read") and done.of("proc.exec")
    assert ("fs.read", f"{box.folder}/secret") in done.denied()


def test_reads_that_are_left_out_are_not_hashed(box):
    """With `--no-read-trace` a file that nobody could hash in a lifetime is read at once; a guard's reads are told as
    ever.
    """
    (box.ws / "allowed").write_text("hi\n")
    with open(box.ws / "endless", "wb") as file:
        file.truncate(1 << 40)
    (box.ws / "agent.py").write_text(
        "import subprocess\nopen('allowed').read()\nsubprocess.run(['cat', 'allowed'])\n"
        "subprocess.run(['head', '-c', '3', 'endless'])\n"
    )
    policy = "read: .\nexec: cat\nexec: head\n"
    done = box.run(policy, sys.executable, "agent.py", options=["--no-read-trace"])
    assert done.out == "hi\n\0\0\0", done.err
    (entry,) = done.of("fs.read")
    assert entry["src"] == "guard" and entry["args"]["sha256"] == hashlib.sha256(b"hi\n").hexdigest()


def test_observing_refuses_nothing_and_tells_all(box):
    """`--observe`: the secret is read, and the denial says that it was not enforced."""
    done = box.run(EXEC, "bash", "-c", f"cat {box.folder}/secret", options=["--observe"])
    assert done.out == "the secret\n"
    (denial,) = [entry for entry in done.trace if entry["kind"] == "deny" and entry["target"] == f"{box.folder}/secret"]
    assert denial["enforced"] is False


@pytest.mark.attempt("C4")
@pytest.mark.parametrize("options", [(), ("--observe",), ("--allow-degraded", "netns")], ids=" ".join)
def test_nobody_is_ever_asked(box, options):
    """Without a terminal, and with all of the standard input left to the agent: refused is refused."""
    argv = ["bash", "-c", f"cat; cat {box.folder}/secret 2>/dev/null; echo $?"]
    done = box.run(EXEC, *argv, options=options, input="yes\n" * 3, start_new_session=True)
    assert done.out == "yes\n" * 3 + ("the secret\n0\n" if "--observe" in options else "1\n"), done.err
    assert ("fs.read", f"{box.folder}/secret") in done.denied()


def test_bits_that_give_rights_to_others_are_not_set(box):
    """A set-user-ID file in the workspace would be run by somebody else with the user's rights."""
    (box.ws / "f").write_text("x")
    done = box.run("write: .\nread: ../program.py\n", *box.python("""
        import os
        try: os.chmod("f", 0o4755)
        except OSError as e: print(type(e).__name__)
        print(oct(os.stat("f").st_mode & 0o7777))
    """))  # fmt: skip
    assert done.out.splitlines()[0] == "PermissionError" and not os.stat(box.ws / "f").st_mode & stat.S_ISUID


@pytest.mark.attempt("F7", "P13")
def test_nothing_is_left_in_the_workspace(box):
    """The protection of files that are not there makes none, also when the run is killed."""
    command = box.command(f"write: .\n{EXEC}", ["bash", "-c", "echo up; exec sleep 600"])
    with subprocess.Popen(command, cwd=box.ws, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGKILL)
    assert os.listdir(box.ws) == []


def test_no_entry_is_lost_or_doubled_under_load(box):
    """Many processes at once: every open, every start and every connection inside is in the trace, and once."""
    (box.ws / "f").write_text("x")
    code = """
        import os, socket, threading
        server = socket.create_server(("127.0.0.1", 0))
        def accept():
            while True:
                server.accept()[0].close()
        threading.Thread(target=accept, daemon=True).start()
        children = []
        for _ in range(20):
            child = os.fork()
            if child == 0:
                for _ in range(100):
                    os.close(os.open("f", os.O_RDONLY))
                for _ in range(5):
                    socket.create_connection(server.getsockname()).close()
                for _ in range(5):
                    if os.fork() == 0:
                        os.execv("/bin/true", ["true"])
                    os.wait()
                os._exit(0)
            children.append(child)
        print(sum(os.waitpid(child, 0)[1] for child in children))
    """
    done = box.run("read: .\nread: ../program.py\nexec: true\n", *box.python(code))
    assert done.out == "0\n", done.err
    reads = [entry for entry in done.of("fs.read") if entry["args"]["path"] == f"{box.ws}/f"]
    assert len(reads) == 2000 and all(len(entry["args"]["sha256"]) == 64 for entry in reads)
    assert len(done.of("proc.exec")) == 100
    assert not done.denied()


@pytest.mark.parametrize("layers", [(), ("--layers", "guard")])
def test_the_name_by_which_the_policy_was_given_is_sealed(box, layers):
    """Each link on the way to it, in a write root; nor is a policy left for a later run. Else all of it works."""
    (box.folder / "state" / "agentbox.policy").write_text("write: .\nexec: *\nread: ../program.py\n")
    (box.ws / "folder").symlink_to(box.folder / "state")
    (box.ws / "middle").symlink_to("folder/agentbox.policy")
    (box.ws / "policy.link").symlink_to("middle")
    trace = f"{box.folder}/state/trace.jsonl"
    code = """
    import os
    for name in ("policy.link", "middle", "folder"):
        for act in (lambda: os.rename(name, "moved"), lambda: os.rename("other", name), lambda: os.remove(name)):
            open("other", "w").close()
            try:
                act()
                print("done", name)
            except PermissionError:
                pass
    try:
        open("agentbox.policy", "w").close()
        print("left a policy")
    except PermissionError:
        pass
    """
    program = box.python(code) if not layers else [sys.executable, box.python(code)[-1]]
    argv = [sys.executable, "-m", "agentbox.cli", "run", "-p", "policy.link", "-t", trace, *layers, "--", *program]
    done = box.bare(*argv)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr
    bare = box.bare(*program)
    assert bare.stdout.count("done") == 9 and "left a policy" in bare.stdout, bare.stderr
