"""Which layers hold a replay that names none, and that an agent meets the same under any of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.waiting import PATIENCE

from agentbox.replay import layers
from agentbox.replay.recording import Recording

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor needs Linux")

ALL = ["guard", "netns", "landlock", "seccomp"]
CTYPES = """
import os
try:
    import ctypes
except ImportError:
    print("refused")
else:
    print(ctypes.CDLL(None).getpid() == os.getpid())
print(open("in").read())
"""
WITHOUT_LANDLOCK = """
import sys
from agentbox.cli.main import main
from agentbox.guard.kernel.landlock import LANDLOCK

LANDLOCK.probe = lambda: "the kernel has no Landlock"
sys.exit(main(sys.argv[1:]))
"""


_MISSING = layers.missing()
needs_layers = pytest.mark.skipif(bool(_MISSING), reason=f"kernel layers: {_MISSING}")
Agentbox = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def agentbox(tmp_path: Path) -> Agentbox:
    """`agentbox WORDS... -- python agent.py` in a folder with a policy; `code` is written into agent.py first."""
    (tmp_path / "in").write_text("alpha")
    (tmp_path / "agentbox.policy").write_text("read: ./in\nnet: 127.0.0.1:9\n")

    def run(
        *words: str, code: str = "", command: tuple[str, ...] = ("-m", "agentbox.cli")
    ) -> subprocess.CompletedProcess[str]:
        if code:
            (tmp_path / "agent.py").write_text(code)
        return subprocess.run(
            [sys.executable, *command, *words, "--", sys.executable, "agent.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    return run


@needs_layers
def test_native_code_is_replayed_as_it_was_recorded(agentbox: Agentbox) -> None:
    """Without an option on either side; `--layers guard` refuses it, and says what would not."""
    assert agentbox("run", code=CTYPES).stdout == "True\nalpha\n"
    done = agentbox("replay")
    assert (done.returncode, done.stdout) == (0, "True\nalpha\n"), done.stderr
    assert done.stderr == "agentbox: replay ok — 1/1 recorded steps matched\n"
    done = agentbox("replay", "--layers", "guard")
    assert done.stdout == "refused\nalpha\n" and "replay with --layers kernel" in done.stderr


@needs_layers
def test_a_machine_without_a_layer_replays_under_the_guard(agentbox: Agentbox) -> None:
    """What the layers alone let pass is then refused, and that is said."""
    assert agentbox("run", code=CTYPES).returncode == 0
    done = agentbox("replay", command=("-c", WITHOUT_LANDLOCK))
    assert (done.returncode, done.stdout) == (0, "refused\nalpha\n"), done.stderr
    assert "warning: module ctypes is refused here, and was not when the trace was recorded" in done.stderr


@needs_layers
def test_a_recording_under_the_guard_is_replayed_under_it(agentbox: Agentbox) -> None:
    """What was refused then is refused again."""
    assert agentbox("run", "--layers", "guard", code=CTYPES).stdout == "refused\nalpha\n"
    done = agentbox("replay")
    assert (done.returncode, done.stdout) == (0, "refused\nalpha\n"), done.stderr
    assert done.stderr == "agentbox: replay ok — 1/1 recorded steps matched\n"


@needs_layers
def test_what_native_code_did_in_vain_is_no_difference(agentbox: Agentbox) -> None:
    """A library that reaches for a host by itself: it did when recorded, is kept from it now, and the agent goes on."""
    code = """
import ctypes, socket
native = ctypes.CDLL(None)
def fails():
    address = (2).to_bytes(2, "little") + (9).to_bytes(2, "big") + socket.inet_aton("127.0.0.1") + bytes(8)
    return native.connect(native.socket(2, 1, 0), address, 16) == -1
print(fails(), fails(), open("in").read())
"""
    alone = code.replace('open("in").read()', "0")
    bare = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, timeout=PATIENCE)
    assert bare.stdout == "True True 0\n"  # nobody listens there
    assert agentbox("run", code=code).stdout == "True True alpha\n"
    done = agentbox("replay")
    assert (done.returncode, done.stdout) == (0, "True True alpha\n"), done.stderr
    assert done.stderr.splitlines() == [
        "agentbox: warning: native code is refused net.connect 127.0.0.1:9 (direct): replay never goes live",
        "agentbox: replay ok — 1/1 recorded steps matched",
    ]


@needs_layers
def test_random_names_of_native_code_are_no_difference(agentbox: Agentbox, tmp_path: Path) -> None:
    """Libraries name the parts of a data set by chance; who wants them compared asks for the layers by name."""
    (tmp_path / "out").mkdir()
    (tmp_path / "agentbox.policy").write_text("read: ./in\nwrite: ./out/\n")
    code = """
import ctypes, os
print(ctypes.CDLL(None).open(b"out/%d" % int.from_bytes(os.urandom(6), "big"), 0o101, 0o600) > 0, open("in").read())
"""
    assert agentbox("run", code=code).stdout == "True alpha\n"
    (made,) = os.listdir(tmp_path / "out")
    done = agentbox("replay")
    assert (done.returncode, done.stdout) == (0, "True alpha\n"), done.stderr
    assert os.listdir(tmp_path / "out") == [made]
    done = agentbox("replay", "--layers", "kernel")
    assert done.returncode == 3 and "nothing like it was recorded" in done.stderr


@needs_layers
@pytest.mark.parametrize(
    ("header", "held"),
    [
        ({"layers": ALL}, "kernel"),
        ({"layers": ["netns", "landlock", "seccomp"]}, "kernel"),
        ({"layers": ALL, "mode": "observe"}, "auto"),
        ({"layers": ["guard", "landlock", "seccomp"]}, "auto"),
        ({"layers": ["guard", "landlock"]}, "auto"),
        ({"layers": ["guard"]}, "auto"),
        ({}, "auto"),
    ],
)
def test_the_layers_are_those_of_a_like_recording(tape: Callable[..., Any], header: dict[str, Any], held: str) -> None:
    """A recording that lacked one which changes what an agent meets is replayed without it."""
    recording = Recording.open(str(tape(**header).seal()))
    try:
        assert layers.chosen(recording) == held
    finally:
        recording.close()
