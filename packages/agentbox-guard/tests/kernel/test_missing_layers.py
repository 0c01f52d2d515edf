"""A machine that does not give a layer: nothing is run unless the user does without it by name, and what was live is
said.
"""

import sys

import pytest
from bench import lack
from test_confined import Box

from agentbox.guard import kernel

MISSING = [name for name in kernel.LAYERS if sys.platform != "linux" or kernel.load(name).probe()]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {', '.join(MISSING)} cannot be had here anyway")

NEED = {"seccomp": "netns"}


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


@pytest.mark.attempt("C3")
@pytest.mark.parametrize("layer", kernel.LAYERS)
def test_a_missing_layer_ends_the_run_before_it_begins(box, layer):
    """One message with the layer and the way out, and the command was not started, as it is without the filter."""
    command = box.command("write: .\nexec: touch\n", ["touch", "ran"])
    assert box.bare(*command).returncode == 0
    (box.ws / "ran").unlink()
    done = box.bare(*command, preexec_fn=lambda: lack([layer]))
    assert done.returncode not in (0, 1) and not (box.ws / "ran").exists()
    assert layer in done.stderr and f"--allow-degraded {layer}" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.attempt("C3")
@pytest.mark.parametrize("layer", kernel.LAYERS)
def test_a_layer_that_the_user_does_without_is_named_in_the_record(box, layer):
    """The header and the summary tell which were live; those still hold what they hold."""
    options = ["--allow-degraded", layer]
    argv = ["bash", "-c", f"touch ran; cat {box.folder}/secret; exec 3<>/dev/tcp/127.0.0.1/9"]
    done = box.run("write: .\nexec: touch\nexec: cat\n", *argv, options=options, preexec_fn=lambda: lack([layer]))
    live = [name for name in kernel.LAYERS if name not in (layer, NEED.get(layer))]
    assert done.trace[0]["args"]["layers"] == live and (box.ws / "ran").exists(), done.err
    assert f"layers: {', '.join(live)}" in done.err and "the secret" not in done.out
    assert all(layer not in parts for parts in done.trace[0]["args"]["enforced_by"].values())


@pytest.mark.parametrize("layer", kernel.LAYERS)
def test_a_replay_that_is_to_have_them_has_a_way_out_of_its_own(box, layer):
    """`--allow-degraded` is an option of `run` alone."""
    program = [sys.executable, "-c", "print('ran')"]
    assert box.run("read: .\n", *program).out == "ran\n"
    state = box.folder / "state"
    options = ["-p", str(state / "agentbox.policy"), "-t", str(state / "trace.jsonl"), "--layers", "kernel"]
    command = [sys.executable, "-m", "agentbox.cli", "replay", *options, "--", *program]
    done = box.bare(*command, preexec_fn=lambda: lack([layer]))
    assert (done.returncode, done.stdout) == (69, ""), done.stderr
    assert layer in done.stderr and ", replay --layers guard" in done.stderr
    command[command.index("kernel")] = "guard"
    assert box.bare(*command, preexec_fn=lambda: lack([layer])).stdout == "ran\n"


@pytest.mark.parametrize("layer", kernel.LAYERS)
def test_doctor_tells_what_is_missing_and_what_to_do(box, layer):
    """With a status of its own, from really trying."""
    done = box.bare(sys.executable, "-m", "agentbox.cli", "doctor", preexec_fn=lambda: lack([layer]))
    assert done.returncode != 0 and f"--allow-degraded {layer}" in done.stdout


@pytest.mark.attempt("C3")
@pytest.mark.parametrize("call", ["pidfd_open", "pidfd_getfd", "process_vm_readv", "process_vm_writev"])
def test_what_a_container_forbids_is_found_before_anything_runs(box, call):
    """What the supervisor needs and a filter around it refuses: a missing layer, for `doctor` and for a run."""
    command = box.command("write: .\nexec: touch\n", ["touch", "ran"])
    done = box.bare(*command, preexec_fn=lambda: lack((), [call]))
    assert done.returncode not in (0, 1) and not (box.ws / "ran").exists()
    assert f"cannot be confined: seccomp: {call}: Operation not permitted" in done.stderr
    assert "--allow-degraded seccomp" in done.stderr and "internal error" not in done.stderr
    done = box.bare(sys.executable, "-m", "agentbox.cli", "doctor", preexec_fn=lambda: lack((), [call]))
    assert done.returncode != 0 and f"missing: {call}: Operation not permitted" in done.stdout
    command = box.command("write: .\nexec: touch\n", ["touch", "ran"], ["--allow-degraded", "seccomp"])
    assert box.bare(*command, preexec_fn=lambda: lack((), [call])).returncode == 0 and (box.ws / "ran").exists()


SDK = """
import os, sys
from agentbox import client as box
code = "import os, signal, sys; print(os.getcwd(), signal.pthread_sigmask(signal.SIG_BLOCK, ()), sys.stdin.read())"
done = box.run([sys.executable, "-c", code], cwd="sub", input="said")
print(done.status, done.stdout.strip())
"""


def test_programs_of_the_sdk_are_started_in_a_container_too(box):
    """With the guard alone, where unshare(2) is refused whatever it is asked for: in their folder, with no signal held
    back.
    """
    (box.ws / "sub").mkdir()
    rules = f"read: .\nexec: {sys.executable}\n"
    command = box.command(rules, [sys.executable, "-c", SDK], ["--layers", "guard"])
    done = box.bare(*command, preexec_fn=lambda: lack((), ["unshare"]))
    assert done.stdout == f"0 {box.ws}/sub set() said\n", done.stderr


@pytest.mark.parametrize("layer", kernel.LAYERS)
def test_what_is_built_in_is_held_without_any_one_layer(box, layer):
    """By the guard itself where no layer does: one denial, and nothing is made."""
    python, *_, program = box.python("""
        try:
            open(".bashrc", "w").close()
        except PermissionError:
            print("refused")
    """)
    assert box.bare(python, program).stdout == "" and (box.ws / ".bashrc").exists()
    (box.ws / ".bashrc").unlink()
    options = ["--allow-degraded", layer]
    done = box.run("write: .\n", python, program, options=options, preexec_fn=lambda: lack([layer]))
    assert done.out == "refused\n" and not (box.ws / ".bashrc").exists(), done.err
    assert len(done.of("fs.write", "deny")) == 1 and not done.of("fs.write")
