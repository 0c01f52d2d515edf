"""What no rule opens to a program without a guard: the policy, the trace, agentbox's own code and the interpreter."""

import json
import os
import sys

import pytest
from test_confined import Box

from agentbox.guard import serve

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

OPENS = """
    import json, os, sys
    told = {}
    for path in sys.argv[1:]:
        try:
            os.close(os.open(path, os.O_WRONLY))
            told[path] = 0
        except OSError as error:
            told[path] = error.errno
    print(json.dumps(told))
    """
MOVES = """
    import os, sys
    for path in sys.argv[1:]:
        try:
            os.rename(path, path + ".moved")
            print(0)
        except OSError as error:
            print(error.errno)
    """


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


@pytest.mark.attempt("F11")
def test_a_write_rule_does_not_open_what_is_sealed(box):
    """Each could be written to without the sandbox; nothing is, by a descriptor that would not even cut it."""
    files = [os.path.realpath(module.__file__) for module in (serve, os, json)]
    files = [file for file in files if os.access(file, os.W_OK)]  # what the user may not write anyway needs no seal
    rules = "".join(f"write: {os.path.dirname(file)}\n" for file in files)
    own = [f"{box.folder}/state/agentbox.policy", f"{box.folder}/state/trace.jsonl", f"{box.folder}/state/other"]
    for path in own:
        with open(path, "w"):
            pass
    argv = [*box.python(OPENS), *own, *files]
    assert set(json.loads(box.bare(*argv).stdout).values()) == {0}
    done = box.run(f"write: ..\n{rules}", *argv)
    told = json.loads(done.out)
    assert told.pop(own[2]) == 0 and set(told.values()) == {13} and len(told) == 2 + len(files), done.err
    denied = {entry["target"]: entry["reason"] for entry in done.trace if entry["kind"] == "deny"}
    assert set(denied) == set(told) and not any(entry.get("fix") for entry in done.trace if entry["kind"] == "deny")


@pytest.mark.attempt("F3", "F11")
def test_what_holds_the_sealed_is_not_moved_away(box):
    """Neither the folder of policy and trace nor one above it; another folder of the same rule is."""
    for name in ("outer", "outer/state", "free"):
        (box.folder / name).mkdir()
    argv = [*box.python(MOVES), f"{box.folder}/state", f"{box.folder}/free"]
    assert box.bare(*argv).stdout == "0\n0\n"
    for name in ("state", "free"):
        (box.folder / f"{name}.moved").rename(box.folder / name)
    done = box.run("write: ..\n", *argv)
    assert done.out == "13\n0\n" and done.denied() == {("fs.rename", f"{box.folder}/state")}, done.err


@pytest.mark.attempt("C1")
def test_a_policy_within_reach_does_not_widen_itself(box):
    """Nor for the next run, under whatever name it lies in the workspace: a policy is protected where a run may write,
    and another file is none until somebody names it.
    """
    policy = box.ws / "agentbox.policy"
    policy.write_text("write: .\nread: ../program.py\n")
    code = f"""
        for path in ("agentbox.policy", "sub/agentbox.policy", "AGENTBOX.POLICY"):
            try:
                open(path, "a").write("read: {box.folder}\\n")
                print(path)
            except OSError:
                pass
        try:
            print(open("{box.folder}/secret").read())
        except OSError:
            pass
        """
    (box.ws / "sub").mkdir()
    argv = box.python(code)
    bare = box.bare(*argv).stdout
    assert bare.startswith("agentbox.policy\nsub/agentbox.policy\nAGENTBOX.POLICY\n") and "the secret" in bare
    for path in (box.ws / "AGENTBOX.POLICY", box.ws / "sub" / "agentbox.policy"):
        path.unlink()
    policy.write_text("write: .\nread: ../program.py\n")
    for _ in range(2):
        done = box.bare(sys.executable, "-m", "agentbox.cli", "run", "-t", "../state/trace.jsonl", "--", *argv)
        assert done.stdout == "", done.stderr
    assert policy.read_text() == "write: .\nread: ../program.py\n" and os.listdir(box.ws / "sub") == []
