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
from kit.waiting import PATIENCE

from agentbox.guard.kernel import landlock, netns, seccomp

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"kernel layers: {MISSING}"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git: not installed"),
]

PARTS = (
    f"interpreter={sys.executable}"
    + """
config='[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n'
evil='\\tfsmonitor = "echo MONITOR RAN >&2; false"\\n'
head() { echo 'ref: refs/heads/main' > $1/HEAD; }
fill() { printf '#!/bin/sh\\necho HOOK RAN >&2\\n' > "$1/pre-commit"; chmod +x "$1/pre-commit"; }
python() { $interpreter -I -S -c "import ctypes, os, sys; a, b = sys.argv[1:]; $1" "$2" "$3"; }
exchange() { python 'ctypes.CDLL(None).renameat2(-100, a.encode(), -100, b.encode(), 2)' $1 $2; }
rename() { python 'os.rename(a, b)' $1 $2; }
hard() { python 'os.link(a, b, follow_symlinks=False)' $1 $2; }
whole() { mkdir $1 $1/objects $1/refs $1/hooks; head $1; printf "$config$evil" > $1/config; }
"""
)
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
    "exchanged for a file": "printf \"$config$evil\" > e; exchange r/.git/config e",
    "exchanged for configuration": "printf \"$config$evil\" > e; exchange e r/.git/config",
    "exchanged folders": "mv r/.git/config c; whole r/x; exchange r/.git r/x",
    "hard link of a link": "mkdir y; fill y; ln -s $PWD/y l; mv r/.git/hooks r/.git/old; hard l r/.git/hooks",
    "moved from elsewhere": "rm -rf r/.git; T=$(mktemp -d); whole $T/x; rename $T/x r/.git",
    "moved from elsewhere, any name": "T=$(mktemp -d); whole $T/x; rm -rf r/.git; echo 'gitdir: x' > r/.git; "
    "rename $T/x r/x",
    "moved links from elsewhere": "mkdir y; fill y; T=$(mktemp -d); whole $T/x; printf \"$config\" > $T/x/config; "
    "rm -rf $T/x/hooks r/.git; ln -s $PWD/y $T/x/hooks; rename $T/x r/.git",
    "what was there, as .git": "rm -rf r/.git; mv r/kept.git r/.git",
    "a blank in quotes": "mkdir 'r/my '; fill 'r/my '; sed 's/= my/= \"my \"/' r/.git/config > n; mv n r/.git/config",
    "closed folder": "rm -rf r/.git; mkdir -p r/x/hooks; fill r/x/hooks; chmod 0 r/x/hooks; "
    "mkdir r/x/objects r/x/refs; head r/x; chmod 755 r/x/hooks; mv r/x r/.git",
}  # fmt: skip
BEFORE = {
    "what was there, as .git": "whole r/kept.git; rm r/kept.git/config; fill r/kept.git/hooks",
    "a blank in quotes": "git -C r config core.hooksPath my",
}
"""What the user had there before."""
WORK = """set -e
export GIT_CONFIG_NOSYSTEM=1 GIT_ALLOW_PROTOCOL=file
git config --global user.name A; git config --global user.email a@b
git init -q -b main r; cd r; git config user.name B; echo a > a; git add a; git commit -qm 1
git worktree add -q ../wt; git -C ../wt commit -q --allow-empty -m 2; git worktree move ../wt ../wt2
git worktree remove ../wt2; cd ..; git clone -q r c; git clone -q --bare r plain; git clone -q --mirror r m.git
git init -q --bare empty; git init -q --separate-git-dir=sepdir sep
git -C c submodule --quiet add ../r sub; git -C c commit -qm sub; git -C c gc -q; git -C c status -s
git clone -q --recurse-submodules c d; mv d d2; git -C d2 log --oneline >/dev/null; rm -rf d2 m.git
mv r/.git r/moved; mv r/moved r/.git; git -C r commit -q --allow-empty -m 3; git -C r branch x; git -C r pack-refs --all
mv plain plain2; git -C plain2 log --oneline >/dev/null; git -C sep commit -q --allow-empty -m 4
git -C r remote add up ../empty; git -C r push -q -u up main; git -C r remote set-url up ../plain2
git -C r remote rename up o; git -C r fetch -q o; git -C r remote set-url o ../empty; git -C r config pull.rebase true
git -C r pull -q o main; git -C r config commit.gpgsign false; git -C r checkout -q -b topic
git -C r commit -q --allow-empty -m 5
git -C r -c core.editor=true branch --edit-description topic; git -C r checkout -q main; git -C r merge -q topic
git -C r rebase -q topic; git -C r sparse-checkout set sub; git -C r sparse-checkout disable
git -C r branch -m topic done; git -C r branch -d done
git -C c worktree add -q ../cw; git -C cw submodule --quiet update --init; test -f cw/sub/a; git -C cw/sub status -s
git -C c mv sub sub2; git -C c commit -qm moved; git -C c submodule --quiet deinit -f sub2; git -C r remote remove o
git clone -q --separate-git-dir=sepc r sepclone; git -C sepclone status -s; git -C r gc -q
git -C r config --unset pull.rebase
mkdir -p p/q; mv r p/q/r; mv p p2; git -C p2/q/r status -s; git -C p2/q/r stash list; git -C p2/q/r tag t; echo worked
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
        reads = f"read: {sys.prefix}\nread: {sys.base_prefix}\n"
        (folder / "agentbox.policy").write_text(f"write: ./bare, ./boxed\nexec: *\n{reads}")
        for name in ("bare", "boxed"):
            (folder / name).mkdir()

    def run(self, name: str, script: str, *, boxed: bool) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", f"cd {name}; {script}"]
        if boxed:
            command = [sys.executable, "-m", "agentbox.cli", "run", "-q", "-t", "trace.jsonl", "--", *command]
        return subprocess.run(
            command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def ran(self, name: str) -> bool:
        """Whether git, used outside afterwards, runs something."""
        script = "cd r; git status; git commit --allow-empty -m x; git -C r status"
        return " RAN" in self.run(name, script, boxed=False).stderr


@pytest.mark.attempt("F7")
@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_is_left_makes_git_run_it(tmp_path: Path, attack: str) -> None:
    """Each way works without the layers, and none within them."""
    place = Place(tmp_path)
    for name, boxed in (("bare", False), ("boxed", True)):
        before = BEFORE.get(attack, "")
        place.run(name, f"{PARTS} git init -q -b main r; git -C r commit -q --allow-empty -m x; {before}", boxed=False)
        assert not place.ran(name)
        done = place.run(name, f"{PARTS}{ATTACKS[attack]}; echo tried", boxed=boxed)
        assert done.stdout.endswith("tried\n"), done.stderr
        assert place.ran(name) is not boxed, (name, attack)
    assert '"kind":"deny","op":"fs.' in (tmp_path / "trace.jsonl").read_text()


def test_a_submodule_is_not_led_elsewhere(tmp_path: Path) -> None:
    """Its folder becomes a link, and another leads git to it: what is checked out there lands behind the link."""
    place = Place(tmp_path)
    for name, boxed in (("bare", False), ("boxed", True)):
        home = tmp_path / f"home-{name}"
        home.mkdir()
        script = "git config --global user.name A; git config --global user.email a@b; git init -q o; cd o; "
        script += "echo evil > .x; git add .x; git commit -qm x; cd ..; git init -q r; cd r; "
        script += f"git submodule --quiet add ../o sub && git commit -qm sub; mv sub sub2; ln -s {home} sub"
        place.run(name, f"export GIT_ALLOW_PROTOCOL=file; {script}", boxed=boxed)
        place.run(name, "git -C r/sub2 checkout -q -f .", boxed=False)
        assert (home / ".x").exists() is not boxed
        assert (tmp_path / name / "r/sub2/.x").exists()


@pytest.mark.attempt("F7")
def test_a_work_tree_is_not_led_elsewhere(tmp_path: Path) -> None:
    """A repository whose files git checks out over somebody's start-up file (core.worktree)."""
    place = Place(tmp_path)
    for name, boxed in (("bare", False), ("boxed", True)):
        home = tmp_path / f"home-{name}"
        home.mkdir()
        script = f"git init -q r; cd r; echo evil > .x; git add .x; git commit -qm x; git config core.worktree {home}"
        place.run(name, script, boxed=boxed)
        place.run(name, "git -C r checkout -q -f .", boxed=False)
        assert (home / ".x").exists() is not boxed
    assert "core.worktree may not be" in (tmp_path / "trace.jsonl").read_text()


def test_what_git_does_works(tmp_path: Path) -> None:
    """Repositories, clones, worktrees, submodules, packing, moving and removing: as without the layers."""
    place = Place(tmp_path)
    for name, boxed in (("bare", False), ("boxed", True)):
        done = place.run(name, WORK, boxed=boxed)
        assert done.stdout.endswith("worked\n") and done.returncode == 0, done.stderr
