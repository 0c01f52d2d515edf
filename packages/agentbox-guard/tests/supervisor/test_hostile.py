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
