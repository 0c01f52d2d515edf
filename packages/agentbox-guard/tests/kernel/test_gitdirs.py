"""Git directories in write roots, with git itself: nothing that a run leaves makes git run a program afterwards, and
what git does for its users works.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentbox.guard.kernel import landlock, netns, seccomp

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git: not installed"),
]

PARTS = """
config='[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n'
evil='\\tfsmonitor = "echo MONITOR RAN >&2; false"\\n'
head() { echo 'ref: refs/heads/main' > $1/HEAD; }
fill() { printf '#!/bin/sh\\necho HOOK RAN >&2\\n' > $1/pre-commit; chmod +x $1/pre-commit; }
"""
ATTACKS = {
    "hooks in place": "mkdir -p r/.git/hooks; fill r/.git/hooks",
    "linked hooks": "rm -rf r/.git; mkdir y r/x; ln -s ../../y r/x/hooks; mkdir r/x/objects r/x/refs; head r/x; "
    "printf \"$config\" > r/x/config; mv r/x r/.git; fill y",
    "linked hooks, name last": "rm -rf r/.git; mkdir y r/x r/x/objects; ln -s ../../y r/x/hooks; mkdir r/x/r; "
    "head r/x; mv r/x r/.git; mv r/.git/r r/.git/refs; fill y",
    "second name": "rm -rf r/.git; mkdir r/x; printf \"$config\" > c; ln c r/x/config; mkdir r/x/objects r/x/refs; "
    "head r/x; mv r/x r/.git; printf \"$config$evil\" > c",
    "open descriptor": "rm -rf r/.git; mkdir r/x; exec 7> r/x/config; printf \"$config\" >&7; "
    "mkdir r/x/objects r/x/refs; head r/x; mv r/x r/.git; printf \"$evil\" >&7",
    "linked config": "rm -rf r/.git; mkdir r/x; printf \"$config\" > c; ln -s ../../c r/x/config; "
    "mkdir r/x/objects r/x/refs; head r/x; mv r/x r/.git; printf \"$config$evil\" > c",
    "taken apart": "mv r/.git r/x; mv r/x/refs r/x/r; rm -rf r/x/hooks; mkdir y; ln -s ../../y r/x/hooks; "
    "mv r/x/r r/x/refs; mv r/x r/.git; fill y",
    "removed and copied": "mv r/.git r/x; cp -r r/x/refs r/x/r; rm -rf r/x/refs; fill r/x/hooks; "
    "mv r/x/r r/x/refs; mv r/x r/.git",
    "commondir": "mkdir e y; ln -s ../y e/hooks; ln -s ../r/.git/objects e/objects; ln -s ../r/.git/refs e/refs; "
    "cp r/.git/HEAD e/HEAD; echo ../../e > r/.git/commondir; fill y",
    "git file": "mkdir -p y gd; cp r/.git/HEAD gd/HEAD; cp -r r/.git/objects r/.git/refs y; mkdir y/hooks; "
    "fill y/hooks; rm -rf r/.git; echo 'gitdir: ../gd' > r/.git; echo ../y > gd/commondir",
    "closed folder": "rm -rf r/.git; mkdir -p r/x/hooks; fill r/x/hooks; chmod 0 r/x/hooks; "
    "mkdir r/x/objects r/x/refs; head r/x; chmod 755 r/x/hooks; mv r/x r/.git",
}  # fmt: skip
WORK = """set -e
export GIT_CONFIG_NOSYSTEM=1
git config --global user.name A; git config --global user.email a@b; git config --global protocol.file.allow always
git init -q -b main r; cd r; git config user.name B; echo a > a; git add a; git commit -qm 1
git worktree add -q ../wt; git -C ../wt commit -q --allow-empty -m 2; git worktree move ../wt ../wt2
git worktree remove ../wt2; cd ..; git clone -q r c; git clone -q --bare r plain; git clone -q --mirror r m.git
git init -q --bare empty; git init -q --separate-git-dir=sepdir sep
git -C c submodule --quiet add ../r sub; git -C c commit -qm sub; git -C c gc -q; git -C c status -s
git clone -q --recurse-submodules c d; mv d d2; git -C d2 log --oneline >/dev/null; rm -rf d2 m.git
mv r/.git r/moved; mv r/moved r/.git; git -C r commit -q --allow-empty -m 3; git -C r branch x; git -C r pack-refs --all
mv plain plain2; git -C plain2 log --oneline >/dev/null; git -C sep commit -q --allow-empty -m 4; echo worked
"""


class Place:
    """A workspace with a repository `r` in it, and scripts run in it with and without the layers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
            "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_COUNT": "3",
            "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "a", "GIT_CONFIG_KEY_1": "user.email",
            "GIT_CONFIG_VALUE_1": "a@b", "GIT_CONFIG_KEY_2": "safe.directory", "GIT_CONFIG_VALUE_2": "*",
        }  # fmt: skip
        (folder / "agentbox.policy").write_text("write: ./bare, ./boxed\nexec: *\n")
        for name in ("bare", "boxed"):
            (folder / name).mkdir()

    def run(self, name: str, script: str, *, boxed: bool) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", f"cd {name}; {script}"]
        if boxed:
            command = [sys.executable, "-m", "agentbox.cli", "run", "-q", "--", *command]
        return subprocess.run(
            command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=60, check=False
        )

    def ran(self, name: str) -> bool:
        """Whether git, used outside afterwards, runs something."""
        script = "cd r; git status; git commit --allow-empty -m x; git -C r status"
        return " RAN" in self.run(name, script, boxed=False).stderr


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_is_left_makes_git_run_it(tmp_path: Path, attack: str) -> None:
    """Each way works without the layers, and none within them."""
    place = Place(tmp_path)
    for name, boxed in (("bare", False), ("boxed", True)):
        place.run(name, "git init -q -b main r; git -C r commit -q --allow-empty -m x", boxed=False)
        assert not place.ran(name)
        done = place.run(name, f"{PARTS}{ATTACKS[attack]}; echo tried", boxed=boxed)
        assert done.stdout.endswith("tried\n"), done.stderr
        assert place.ran(name) is not boxed, (name, attack)


def test_what_git_does_works(tmp_path: Path) -> None:
    """Repositories, clones, worktrees, submodules, packing, moving and removing: as without the layers."""
    place = Place(tmp_path)
    for name, boxed in (("bare", False), ("boxed", True)):
        done = place.run(name, WORK, boxed=boxed)
        assert done.stdout.endswith("worked\n") and done.returncode == 0, done.stderr
