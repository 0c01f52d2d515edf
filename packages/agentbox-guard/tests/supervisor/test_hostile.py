"""Hostile agents against the supervisor: its socket, its /proc, its memory, its patience, its trace."""

import os
import signal
import subprocess
import sys
import time

import pytest

ACTS = """
import os
channel = os.environ["AGENTBOX_CHANNEL"]
folder = os.path.dirname(channel)

def swap(old, new):
    os.rename(old, new)
    os.rename(new, old)

for act in (
    lambda: swap(channel, channel + ".real"),
    lambda: swap(folder, folder + ".real"),
    lambda: os.chmod(channel, 0o600),
    lambda: os.remove(channel),
):
    try:
        act()
        print("done")
    except PermissionError:
        print("refused")
"""


def test_the_channel_cannot_be_replaced(sandbox, tmp_path):
    """Not under a write rule for the folder that run folders are made in either; without a sandbox each act works."""
    done = sandbox.python(ACTS, policy=f"write: {tmp_path}\n")
    assert done.status == 0 and done.out.split() == ["refused"] * 4, done.err
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "channel").touch()
    environ = {**os.environ, "AGENTBOX_CHANNEL": str(tmp_path / "plain" / "channel")}
    plain = subprocess.run([sys.executable, "-c", ACTS], env=environ, capture_output=True, text=True)
    assert plain.stdout.split() == ["done"] * 4, plain.stderr


PTH = """
import os, subprocess, sys
import agentbox.client as box
place = next(path for path in sys.path if path.endswith("site-packages"))
for name in (place + "/zz.pth", sys.prefix + "/pyvenv.cfg", os.path.dirname(sys.executable) + "/pyvenv.cfg"):
    for write in (lambda: open(name, "a").write("x"), lambda: box.write_text(name, "x")):
        try:
            write()
            print("written")
        except PermissionError as error:
            print("never writable" in str(error))
box.write_text("beside.txt", "x")
print(subprocess.run([sys.executable, "-c", "print('child')"], capture_output=True, text=True).stdout.strip())
"""


def test_the_interpreters_own_environment_is_sealed_for_sdk_calls(sandbox):
    """A virtual environment in the workspace is as closed to the SDK as to the agent's own writes, so that a Python
    child of it may still be started."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=sandbox.folder, check=True)
    (packages,) = (sandbox.folder / ".venv").glob("lib/python*/site-packages")
    (packages / "agentbox.pth").write_text("".join(f"{path}\n" for path in sorted({p for p in sys.path if p})))
    done = sandbox.end(
        sandbox.start(
            "",
            "read: .\nwrite: .\nexec: *\n",
            argv=[str(sandbox.folder / ".venv" / "bin" / "python"), "-c", PTH],
            fake=False,
            layers="guard",
        )
    )
    assert done.status == 0, done.err
    assert done.out.split() == ["True"] * 6 + ["child"]
    assert not (packages / "zz.pth").exists() and (sandbox.folder / "beside.txt").exists()


def test_an_sdk_call_reads_nothing_of_the_supervisor(sandbox):
    """Its environment, which the agent does not get, is in no answer, under `read: /` either; the agent's own is."""
    sandbox.environ["MY_SECRET"] = "s3cr3t-value"
    code = """
    import os
    import agentbox.client as box
    for name in (f"/proc/{os.getppid()}/environ", "/proc/self/environ"):
        try:
            content = box.read_bytes(name)
            print(b"s3cr3t" in content, b"AGENTBOX_CHANNEL" in content)
        except PermissionError as error:
            print("refused", "another process" in str(error))
    """
    done = sandbox.python(code, policy="read: /\n", layers="guard")
    assert done.out.splitlines() == ["refused True", "False True"], done.err
    environ = {**sandbox.environ, "TMPDIR": "/tmp"}
    plain = "import os; print(b's3cr3t' in open(f'/proc/{os.getppid()}/environ', 'rb').read())"
    middle = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {plain!r}])"
    done = subprocess.run([sys.executable, "-c", middle], env=environ, capture_output=True, text=True)
    assert done.stdout == "True\n"


def states(done):
    return {e["args"]["path"].rpartition("/")[2]: e["args"]["sha256"] for e in done.of(op="fs.state")}


def test_the_closing_record_opens_nothing_without_an_end(sandbox):
    """A sparse file is told by its size, a FIFO and a link are never opened, what was only claimed is not looked at."""
    done = sandbox.fake(
        """
        link = Link().armed()
        here = os.getcwd()
        open("sparse", "w").truncate(1 << 42)
        os.mkfifo("fifo")
        os.mkdir("folder")
        os.symlink("/etc", "etc")
        open("plain", "w").write("beta")
        for name in ("sparse", "fifo", "folder", "etc", "plain", "etc/passwd", "folder/../../agent.py", "trace.jsonl"):
            link.event("fs.write", path=f"{here}/{name}", flags="w")
        for path in ("/proc/kmsg", "/etc/passwd", "/dev/zero", "relative"):
            link.event("fs.write", path=path, flags="w")
        """,
        policy="write: .\n",
    )
    assert done.status == 0 and done.trace[-1]["op"] == "run.end", done.err
    assert states(done) == {
        "sparse": "too large (4398046511104 bytes)",
        "fifo": "special",
        "folder": "directory",
        "etc": "link",
        "plain": "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753",
        "passwd": "not hashed (a link leads to it)",
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_closing_work(sandbox, number):
    """What is left to hash then is left out, and the trace is sealed."""
    process = sandbox.start(
        """
        link = Link().armed()
        for name in range(12):
            open(f"f{name}", "w").truncate(1 << 30)
            link.event("fs.write", path=f"{os.getcwd()}/f{name}", flags="w")
        print("written", flush=True)
        """,
        policy="write: .\n",
    )
    assert process.stdout.readline() == "written\n"
    time.sleep(1)  # the supervisor is hashing now, and needs far longer than this for 12 GiB
    asked = time.monotonic()
    process.send_signal(number)
    done = sandbox.end(process)
    assert time.monotonic() - asked < 2
    assert done.status == 0 and done.trace[-1]["op"] == "run.end", done.err
    assert states(done)["f11"] == "not hashed (no time was left)"
