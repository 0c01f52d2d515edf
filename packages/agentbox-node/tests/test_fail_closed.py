"""Where the guard cannot arm, or loses its supervisor, no code of the agent runs on."""
# ruff: noqa: E501
# Programs in JavaScript keep their lines.

from __future__ import annotations

import os
import subprocess

import pytest
from kit.waiting import PATIENCE

from agentbox.node.runtime import SHIM


@pytest.mark.parametrize(
    "flag",
    [
        "--expose-internals", "--permission", "--experimental-permission", "--frozen-intrinsics", "--inspect", "--inspect-brk=0",
        "--env-file=x", "--snapshot-blob=x", "--build-snapshot", "--experimental-sea-config=x", "--cpu-prof", "--check",
        "--no-such-option", "--trace-event-categories=v8", "--openssl-config=x", "--loader=./x.mjs",
    ],
)  # fmt: skip
def test_an_option_that_could_keep_the_guard_out_is_refused(scene, flag):
    """Nothing is run, and one line says which option it is."""
    scene.write("require('fs').writeFileSync('out/ran', '')")
    done = scene.run(flag, "agent.cjs")
    assert done.returncode == 69
    assert flag.partition("=")[0] in done.stderr
    assert "Traceback" not in done.stderr
    assert not (scene.ws / "out" / "ran").exists()


@pytest.mark.parametrize("flag", ["--no-warnings", "--max-old-space-size=200", "--enable-source-maps"])
def test_harmless_options_pass(scene, flag):
    """Options that leave the guard in place are Node's own business."""
    scene.write("console.log('ran')")
    assert scene.run(flag, "agent.cjs").stdout == "ran\n"


def test_a_shim_without_its_supervisor_ends_the_process(node, tmp_path):
    """Status 70 before any code of the agent, when the channel is not set or not there."""
    program = tmp_path / "agent.cjs"
    program.write_text("console.log('ran')")
    for channel in ("", str(tmp_path / "none.sock")):
        environ = {"PATH": os.environ["PATH"], "NODE_OPTIONS": f"--require {SHIM}", "AGENTBOX_CHANNEL": channel}
        done = subprocess.run([node, str(program)], env=environ, capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, done.stdout) == (70, "")
        assert done.stderr.startswith("agentbox: ")


def test_a_shim_that_can_say_nothing_ends_the_process_as_well(node, tmp_path):
    """Standard error is a full pipe that does not block."""
    program = tmp_path / "agent.cjs"
    program.write_text("console.log('ran')")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        pass
    environ = {"PATH": os.environ["PATH"], "NODE_OPTIONS": f"--require {SHIM}"}
    done = subprocess.run([node, str(program)], env=environ, stdout=subprocess.PIPE, stderr=writer, timeout=PATIENCE)
    os.close(reader)
    os.close(writer)
    assert (done.returncode, done.stdout) == (70, b"")


def test_closing_the_channel_ends_the_process(scene):
    """An agent that closes the guard's descriptor and opens a file in its place does nothing more; the file stays empty."""
    done = scene.box(
        "const fs = require('fs');\n"
        "for (let fd = 3; fd < 64; fd++) try { if (fs.fstatSync(fd).isSocket()) { fs.closeSync(fd); fs.openSync('out/decoy', 'w') } } catch {}\n"
        "console.log('went on')"
    )
    assert (done.returncode, done.stdout) == (70, ""), done.stderr
    assert "closed its connection" in done.stderr
    decoy = scene.ws / "out" / "decoy"
    assert not decoy.exists() or decoy.read_text() == ""


def test_the_shim_cannot_be_armed_twice_or_read_back(scene):
    """Requiring the shim again gives nothing, and it is in no cache."""
    done = scene.box(
        "const shim = process.env.NODE_OPTIONS.split(' ')[1];\n"
        "console.log(Object.keys(require.cache).some((name) => name.includes('agentbox')), Object.keys(require(shim)).length)"
    )
    assert done.stdout.split() == ["false", "0"], done.stderr
