"""What a second look at the layers found: imports over links, claims of a guard, pidfds."""

import os
import shutil
import subprocess
import sys

import pytest
from kit.waiting import PATIENCE

from agentbox.guard.kernel import gitmodules, landlock, netns, seccomp

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()
needs_layers = pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}")

PLANT = (
    "rm lib; mkdir evil; ln -s evil lib; for m in re shutil traceback json subprocess; do cp mark.py evil/$m.py; done"
)


@needs_layers
@pytest.mark.parametrize("linked", [False, True])
def test_nothing_is_imported_over_a_link_that_the_run_may_replace(tmp_path, linked):
    """PYTHONPATH names a link in the write root; the run puts a folder of its own modules behind it."""
    ws = tmp_path / "ws"
    ws.mkdir()
    (tmp_path / "real").mkdir()
    (ws / "mark.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__)\n")
    (ws / "lib").symlink_to(tmp_path / "real" if linked else "nowhere")
    (tmp_path / "policy").write_text("write: ./\nexec: *\n")
    command = [sys.executable, "-m", "agentbox.cli", "run", "-p", "../policy", "-t", "../t.jsonl", "--", "sh", "-c"]
    environ = {**os.environ, "PYTHONPATH": str(ws / "lib")}
    done = subprocess.run(
        [*command, PLANT + "; cat /etc/shadow"], cwd=ws, env=environ, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ws / "evil" / "re.py").exists() and not (tmp_path / "ran").exists(), done.stderr
    control = subprocess.run([sys.executable, "-c", "import re"], cwd=tmp_path, env=environ, capture_output=True)
    assert (tmp_path / "ran").exists(), control.stderr  # the attempt, without the pinning: the name leads there now


@needs_layers
@pytest.mark.parametrize(("rule", "runs"), [("git commit", False), ("git", True)])
def test_an_editor_of_the_agents_choice_goes_with_no_rule_that_names_arguments(tmp_path, rule, runs):
    """EDITOR is what `git commit` starts; a rule for git with any arguments lets it."""
    if shutil.which("git") is None:
        pytest.skip("git: not installed")
    subprocess.run(["git", "init", "-q", "ws"], cwd=tmp_path, check=True)
    (tmp_path / "policy").write_text(f"write: ./\nexec: {rule}\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\n"
        "environ = {'PATH': os.environ['PATH'], 'EDITOR': 'touch pwned; false', 'TERM': 'dumb'}\n"
        "git = ['git', 'commit', '--allow-empty']\n"
        "os.execve(sys.argv[1], git, environ)\n"
    )
    for name in ("user.name", "user.email"):
        subprocess.run(["git", "config", name, "x"], cwd=tmp_path / "ws", check=True)
    command = [sys.executable, "-I", "-S", str(program), os.path.realpath(str(shutil.which("git")))]
    subprocess.run(command, cwd=tmp_path / "ws", capture_output=True, timeout=PATIENCE)
    assert (tmp_path / "ws" / "pwned").exists()
    os.unlink(tmp_path / "ws" / "pwned")
    policy = tmp_path / "policy"
    policy.write_text(policy.read_text() + f"read: {program}\n")
    box = [sys.executable, "-m", "agentbox.cli", "run", "-q", "-p", str(policy), "-t", str(tmp_path / "t.jsonl"), "--"]
    subprocess.run([*box, *command], cwd=tmp_path / "ws", capture_output=True, timeout=PATIENCE)
    assert (tmp_path / "ws" / "pwned").exists() == runs


def test_a_work_tree_is_the_plain_way_that_git_writes(tmp_path):
    """The same folder over a link, with a detour, or absolute is not."""
    modules = tmp_path / "repo" / ".git" / "modules" / "sub"
    tree = tmp_path / "repo" / "sub"
    for folder in (modules, tree):
        folder.mkdir(parents=True)
    (tree / ".git").write_text("gitdir: ../.git/modules/sub\n")
    (tmp_path / "repo" / "link").symlink_to("sub")
    config = str(modules / "config")
    assert gitmodules.is_linked(config, "../../../sub")
    for other in ("../../../link", "../../../link/../sub", "../../../sub/.", str(tree), "../../../../repo/sub"):
        assert not gitmodules.is_linked(config, other), other


@needs_layers
def test_signals_by_pidfd_go_to_the_runs_own_processes(tmp_path):
    """A child is signalled by its pidfd, and whole groups are not, as on Linux before 6.9."""
    code = (
        "import os, signal\n"
        "child = os.fork()\n"
        "if not child: signal.pause()\n"
        "signal.pidfd_send_signal(os.pidfd_open(child), signal.SIGTERM)\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    (tmp_path / "agentbox.policy").write_text("read: .\n")
    box = [sys.executable, "-m", "agentbox.cli", "run", "--", sys.executable, "-I", "-c", code]
    done = subprocess.run(box, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "15\n", done.stderr
