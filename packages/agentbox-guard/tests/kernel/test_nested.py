"""Whole runs inside a run: what the inner one says of itself is true, whatever the outer one lets it do."""

import json
import os
import subprocess
import sys

import pytest
from kit.waiting import PATIENCE

import agentbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
INNER = [sys.executable, "-m", "agentbox.cli", "run", "-p", "sub/inner.policy", "-t", "out/inner.jsonl"]


class Nest:
    """An outer workspace `ws` with a folder `sub`, which alone is for the inner policy; `outside` is for nobody."""

    def __init__(self, folder):
        self.ws = folder / "ws"
        for name in ("ws", "ws/sub", "ws/out", "outside"):
            (folder / name).mkdir()
        (self.ws / "secret").write_text("for the outer run\n")
        (folder / "outside" / "secret").write_text("for nobody\n")
        (self.ws / "sub" / "inner.policy").write_text("read: .\nwrite: .\n")
        code = [os.path.dirname(path) for path in agentbox.__path__]
        reads = "".join(f"read: {path}\n" for path in {*code, sys.prefix, os.path.realpath(sys.base_prefix)} if path)
        names = ("sh", "cat", sys.executable, "touch")
        (folder / "outer.policy").write_text(f"write: .\n{reads}" + "".join(f"exec: {name}\n" for name in names))

    def outer(self, *argv, options=()):
        head = [sys.executable, "-m", "agentbox.cli", "run", "-q", "-p", "../outer.policy", "-t", "../outer.jsonl"]
        return self.bare(*head, *options, "--", *argv)

    def bare(self, *argv):
        return subprocess.run(argv, cwd=self.ws, capture_output=True, text=True, timeout=PATIENCE)

    def trace(self, path="out/inner.jsonl"):
        return [json.loads(line) for line in (self.ws / path).read_text().splitlines()]


@pytest.fixture
def nest(tmp_path):
    return Nest(tmp_path)


def check_header(nest, status):
    first, *_, last = nest.trace()
    assert first["op"] == "run.start" and first["args"]["layers"] == ["outer run"]
    assert set(map(tuple, first["args"]["enforced_by"].values())) == {("outer run",)}
    assert last["op"] == "run.end" and last["args"]["status"] == status and not last["args"].get("failure")


@pytest.mark.parametrize("options", [(), ("-I",)], ids=["guarded", "isolated"])
def test_a_python_program_ends_with_its_own_status(nest, options):
    """Its guard is the outer run's, so nobody misses the inner one's; it is refused what the outer policy refuses."""
    code = """
import sys
print(open("secret").read(), end="")
open("made", "w").close()
try: open("../outside/secret").read()
except PermissionError: print("refused")
sys.exit(5)
"""
    done = nest.outer(*INNER, "--", sys.executable, *options, "-c", code)
    assert (done.returncode, done.stdout) == (5, "for the outer run\nrefused\n"), done.stderr
    said = [line for line in done.stderr.splitlines() if "inside another run of agentbox" in line]
    assert len(said) == 1 and said[0].endswith("the rules of sub/inner.policy are not enforced")
    assert done.stderr.startswith(said[0]) and "never live" not in done.stderr and "PYTHONPATH" not in done.stderr
    assert (nest.ws / "made").exists()
    check_header(nest, 5)
    denied = {entry["target"] for entry in nest.trace("../outer.jsonl") if entry["kind"] == "deny"}
    assert os.path.realpath(nest.ws / "../outside/secret") in denied


def test_a_shell_claims_no_rule_of_its_own(nest):
    """What the inner policy does not allow happens, in the outer trace, and no layer is said to have held it."""
    code = f"cat secret; touch made; cat ../outside/secret; {sys.executable} -c 'print(2)'; exit 6"
    assert nest.bare("sh", "-c", code).stdout == "for the outer run\nfor nobody\n2\n"
    done = nest.outer(*INNER, "--", "sh", "-c", code)
    assert (done.returncode, done.stdout) == (6, "for the outer run\n2\n"), done.stderr
    assert "are not enforced" in done.stderr
    check_header(nest, 6)
    written = {entry["args"].get("path") for entry in nest.trace("../outer.jsonl") if entry["kind"] == "observe"}
    assert os.path.realpath(nest.ws / "made") in written


@pytest.mark.parametrize("asked", ["--observe", "--layers=kernel", "--layers=guard", "--checkpoint"])
def test_what_could_only_be_pretended_is_refused(nest, asked):
    """Status 69, and nothing was run."""
    done = nest.outer(*INNER, *asked.split("="), "--", "touch", "made")
    assert done.returncode == 69 and "not possible inside another run" in done.stderr, done.stderr
    assert not (nest.ws / "made").exists() and not (nest.ws / "out/inner.jsonl").exists()


def test_a_replay_inside_a_run_is_refused(nest):
    """Its guards would answer to the outer supervisor."""
    assert nest.bare(*INNER, "--", sys.executable, "-c", "1").returncode == 0
    done = nest.outer(
        sys.executable, "-m", "agentbox.cli", "replay", "-t", "out/inner.jsonl", "--", sys.executable, "-c", "1"
    )
    assert done.returncode == 69 and "replay: not possible inside another run" in done.stderr, done.stderr


def test_inside_a_run_with_a_guard_only_nothing_is_run(nest):
    """That guard lets no supervisor be made: one clear line, and no defect."""
    done = nest.outer(*INNER, "--", "touch", "made", options=["--layers", "guard"])
    assert done.returncode == 69 and not (nest.ws / "made").exists()
    assert done.stderr.startswith("agentbox: inside another run of agentbox that has no kernel layers"), done.stderr


def test_the_variable_alone_is_no_outer_run(nest):
    """A channel that anybody may name takes no layer away."""
    argv = ["sh", "-c", "cat ../outside/secret"]
    done = nest.bare("env", "AGENTBOX_CHANNEL=/nowhere", *INNER, "--", *argv)
    assert done.stdout == "" and "Permission denied" in done.stderr
    assert "seccomp" in nest.trace()[0]["args"]["layers"]
