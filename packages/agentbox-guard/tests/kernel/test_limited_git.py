"""A rule for one command of git is one for nothing else: each way to have `git status` run another program works
without the sandbox, and within it none does, for an agent without a guard.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from test_confined import Box

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git: not installed"),
]

AGENT = r"""
import json, os, shutil, subprocess, sys
ws, home = os.getcwd(), os.environ["HOME"]
run = f"touch {ws}/RAN; false"
evil = f'[core]\n\tfsmonitor = "{run}"\n'
problems = []
def git(*words, at="r", **env):
    try:
        subprocess.run(["git", *words], cwd=at, env={**os.environ, **env}, capture_output=True)
    except OSError as error:
        problems.append(type(error).__name__)
def put(path, text, mode=0o644):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
    except OSError as error:
        problems.append(type(error).__name__)
def link(to, path):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(to, path)
    except OSError as error:
        problems.append(type(error).__name__)
def fill(at):
    for name in ("objects/x", "refs/x"):
        put(f"{at}/{name}", "")
    put(f"{at}/HEAD", "ref: refs/heads/main\n")
    put(f"{at}/config", "[core]\n\trepositoryformatversion = 0\n" + evil)
def option():
    git("-c", "core.fsmonitor=" + run, "status")
def alias():
    git("-c", "alias.x=!" + run, "x")
def counted():
    git("status", GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="core.fsmonitor", GIT_CONFIG_VALUE_0=run)
def parameters():
    git("status", GIT_CONFIG_PARAMETERS=f"'core.fsmonitor={run}'")
def configuration():
    put(f"{ws}/r/.git/config", evil)
    git("status")
def hooks():
    put(f"{ws}/r/.git/hooks/post-index-change", "#!/bin/sh\n" + run, 0o755)
    os.utime("r/a")
    git("status")
def of_the_user():
    put(f"{home}/.gitconfig", evil)
    git("status")
def of_the_user_elsewhere():
    put(f"{home}/.config/git/config", evil)
    git("status")
def linked():
    put(f"{ws}/x/git/config", evil)
    link(f"{ws}/x", f"{home}/.config")
    git("status")
def another_home():
    put(f"{ws}/x/.gitconfig", evil)
    git("status", HOME=f"{ws}/x")
def another_folder():
    put(f"{ws}/x/git/config", evil)
    git("status", XDG_CONFIG_HOME=f"{ws}/x")
def private_repository():
    fill(f"{home}/p/.git")
    git("status", at=f"{home}/p" if os.path.isdir(f"{home}/p") else "r")
def another_repository():
    fill(f"{ws}/g")
    git("status", GIT_DIR=f"{ws}/g", GIT_WORK_TREE=ws)
def in_shared_memory(*names):
    at = f"/dev/shm/{os.path.basename(os.path.dirname(ws))}"
    config = f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {at}\n" + evil
    texts = {"objects/x": "", "refs/x": "", "HEAD": "ref: refs/heads/main\n", "config": config}
    for name in names:
        put(f"{at}/{name}", texts[name])
    git("status", at=at)
    shutil.rmtree(at)
def shared_memory():
    in_shared_memory("objects/x", "refs/x", "HEAD", "config")
def shared_memory_before():
    in_shared_memory("config", "objects/x", "refs/x", "HEAD")
def first_in_path():
    put(f"{ws}/x/git", "#!/bin/sh\n" + run, 0o755)
    git("status", PATH=f"{ws}/x:" + os.environ["PATH"])
def library():
    git("status", LD_PRELOAD=f"{ws}/evil.so")
def library_for_any():
    try:
        subprocess.run(["cat"], env={**os.environ, "LD_PRELOAD": f"{ws}/evil.so"}, stdin=subprocess.DEVNULL)
    except OSError as error:
        problems.append(type(error).__name__)
helpers = ("git", "put", "link", "fill", "in_shared_memory")
ways = {name: act for name, act in globals().items() if callable(act) and name not in helpers}
if sys.argv[1:]:
    ways[sys.argv[1]]()
    git("status")
    print(json.dumps([os.path.exists("RAN"), problems]))
"""
WAYS = [
    *("option", "alias", "counted", "parameters", "configuration", "hooks", "of_the_user", "of_the_user_elsewhere"),
    *("linked", "another_home", "another_folder", "private_repository", "another_repository"),
    *("shared_memory", "shared_memory_before", "first_in_path", "library", "library_for_any"),
]
LIBRARY = """
#include <stdlib.h>
#include <sys/stat.h>
#include <fcntl.h>
__attribute__((constructor)) static void act(void) { open(RAN, O_CREAT | O_WRONLY, 0644); }
"""


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=b"]
    for words in (["init", "-q", "-b", "main", "r"], ["-C", "r", "commit", "-q", "--allow-empty", "-m", "x"]):
        assert made.bare(*git, *words).returncode == 0
    (made.ws / "r" / "a").write_text("a")
    assert made.bare("git", "-C", "r", "add", "a").returncode == 0
    return made


@pytest.mark.attempt("P9")
@pytest.mark.parametrize("way", WAYS)
def test_git_status_is_git_status(box, way):
    """What could not be prepared or started is refused with an entry."""
    if way.startswith("library"):
        if shutil.which("gcc") is None:
            pytest.skip("there is no C compiler")
        source = box.folder / "evil.c"
        source.write_text(LIBRARY.replace("RAN", f'"{box.ws}/RAN"'))
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(box.ws / "evil.so"), str(source)], check=True)
    argv = [*box.python(AGENT), way]
    shutil.copytree(box.ws, box.folder / "kept", symlinks=True)
    home = box.folder / "home"
    home.mkdir()
    bare = box.bare(*argv, env={**os.environ, "HOME": str(home)})
    assert bare.returncode == 0 and json.loads(bare.stdout) == [True, []], bare
    shutil.rmtree(box.ws)
    shutil.copytree(box.folder / "kept", box.ws, symlinks=True)
    done = box.run("write: .\nread: ../program.py\nexec: git status, exec: cat\n", *argv)
    ran, problems = json.loads(done.out)
    assert not ran and done.denied(), done.err
    assert problems or way == "first_in_path", "the next git in PATH is the real one"
    assert done.of("proc.exec")[-1]["args"]["argv"] == ["git", "status"], "and that works"


def test_a_rule_for_all_of_git_says_nothing_of_its_configuration(box):
    """Who may start it with any arguments may configure it; the loader's variables are another matter."""
    argv = [*box.python(AGENT), "counted"]
    done = box.run("write: .\nread: ../program.py\nexec: git\n", *argv)
    assert json.loads(done.out) == [True, []], done.err


REWRITES = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile char variable[] = "LD_PRELOAD=" SO;
static void *swap(void *nothing) { for (;;) { variable[0] = 'X'; variable[0] = 'L'; } }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, swap, 0);
    for (int at = 0; at < ROUNDS; at++)
        if (!vfork()) { char *words[] = {"cat", 0}, *env[] = {variable, 0}; execve(CAT, words, env); _exit(9); }
        else wait(0);
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
def test_a_variable_that_appears_after_the_decision_is_found(box):
    """Another thread rewrites it until the kernel reads it: the image that has it is ended before it loads anything."""
    cat = os.path.realpath(shutil.which("cat"))
    source, library = box.folder / "agent.c", box.ws / "evil.so"
    source.write_text(LIBRARY.replace("RAN", f'"{box.ws}/RAN"'))
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    source.write_text(REWRITES)
    agent = box.folder / "agent"
    texts = {"SO": library, "CAT": cat}
    defines = [f'-D{name}="{text}"' for name, text in texts.items()]
    subprocess.run(["gcc", "-w", "-O1", "-pthread", "-DROUNDS=100", *defines, "-o", agent, source], check=True)
    box.bare(str(agent), stdin=subprocess.DEVNULL)
    assert (box.ws / "RAN").exists()
    (box.ws / "RAN").unlink()
    done = box.run("write: .\nexec: cat\n", str(agent), stdin=subprocess.DEVNULL)
    assert done.status == 0 and not (box.ws / "RAN").exists(), done.err
    reasons = {entry["reason"] for entry in done.of("proc.exec", "deny")}
    assert any("LD_PRELOAD" in reason for reason in reasons), reasons
