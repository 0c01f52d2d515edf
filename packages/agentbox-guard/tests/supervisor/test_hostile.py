"""Hostile agents against the supervisor: its socket, its /proc, its memory, its patience, its trace."""

import os
import subprocess
import sys

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
