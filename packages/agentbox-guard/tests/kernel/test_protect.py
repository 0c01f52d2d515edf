"""Built-in protection: what is protected, what lifts it, and that git's own ways still work."""

# ruff: noqa: E501 (tables of short samples, several on a line)
from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbox.guard.kernel import gitconfig, gitentries, protected
from agentbox.guard.kernel.protect import Protection
from agentbox.policy import parse

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git: not installed")

PROTECTED = (
    ".git/hooks/pre-commit", ".GIT/Hooks/x", "a/b/.git/hooks/post-merge", ".git/modules/sub/hooks/x",
    ".git/hooks/deep/x", "bare.git/hooks/update", ".git/config", ".git/config.worktree", ".git/modules/sub/config",
    ".gitconfig", ".config/git/config", ".bashrc", "sub/.Bash_Profile", ".zshenv", ".profile", ".envrc",
    ".vscode/tasks.json", ".VSCode/settings.json", "p/.idea/workspace.xml", ".claude/settings.json",
    "x/.claude/commands/y.md", ".mcp.json", "deep/er/.MCP.json", ".cursor/mcp.json", ".husky/pre-push",
    ".devcontainer/devcontainer.json", ".ssh/authorized_keys", ".config/autostart/x.desktop", ".config/fish/config.fish",
    ".v\u017fcode/tasks.json", ".g\u200cit/hooks/x", ".vimrc", ".tmux.conf",
    "agentbox.policy", "sub/Agentbox.Policy", ".devcontainer.json", "x.code-workspace", "p/X.Code-Workspace", ".hg/hgrc", ".hgrc",
    "h/.p10k.zsh", ".elvish/rc.elv", ".config/xonsh/rc.xsh", ".config/hg/hgrc", ".direnvrc", ".julia/config/startup.jl",
    ".hg/sharedpath", "_darcs/prefs/defaults", ".pijul/config", ".octaverc", ".iex.exs", ".byebugrc",
    ".jj/repo/config.toml", ".nvim.lua", ".exrc", ".helix/languages.toml", ".vim/plugin/x.vim", ".config/nvim/init.lua",
    ".config/kitty/kitty.conf", ".emacs.d/init.el", ".emacs", ".dir-locals.el", ".bash_completion", ".zshrc.zwc", ".gnupg/x",
    ".aws/config", ".aws/credentials", ".kube/config", ".docker/config.json", ".docker/cli-plugins/docker-x", ".forward",
    ".ghci", ".sqliterc", ".gdbinit", ".lldbinit", ".pythonrc", ".irbrc", ".envrc", ".tool-versions", "mise.toml",
    ".mise/config.toml", ".config/mise.toml", ".netrc", "opencode.json", ".config/starship.toml", ".config/systemd/user/x",
    ".b\u2064ash\U000e0061rc", ".g\u00adit/hooks/x", ".\U000e0fffaws/config",
)  # fmt: skip
FREE = (
    "main.py", ".gitignore", ".gitattributes", ".gitmodules", ".git/HEAD", ".git/index", ".git/objects/ab/cd",
    ".git/refs/heads/hooks/x", ".git/refs/heads/config", ".git/logs/refs/heads/hooks/x", ".git/hooks/pre-commit.sample",
    ".git/config.lock", ".git", ".vscode", ".claude", "src/hooks/useX.ts", "config", "app/config", "bashrc",
    "node_modules/p/.vscode/settings.json", "site-packages/p/.idea/x", ".config/app/settings", ".github/workflows/ci.yml",
    ".git/worktrees/w/commondir", ".git/worktrees/w/HEAD", ".npmrc", ".yarnrc.yml", ".cargo/config.toml", ".local/bin/x",
    ".docker/php/Dockerfile", ".aws/task-definition.json", ".kube/deployment.yaml", ".gradle/8.5/x.lock", ".config/dotnet-tools.json",
    ".hg/store/data/x", ".jj/repo/store/x", ".config/git/ignore", "AGENTS.md", ".gitlab-ci.yml", ".rubocop.yml", ".bundle/config",
    "node_modules/p/.tool-versions", "site-packages/p/.docker/config.json", ".direnv/python-3.12/bin/x", ".config", ".docker",
)  # fmt: skip


@pytest.fixture
def guard(tmp_path: Path) -> Protection:
    """Protection under a policy that opens the whole folder."""
    return Protection(parse("write: .\n", cwd=str(tmp_path)))


@pytest.mark.attempt("F7")
@pytest.mark.parametrize("name", PROTECTED)
def test_what_makes_others_run_code_is_protected(guard: Protection, tmp_path: Path, name: str) -> None:
    """Existing or not, at any depth, in any letter case; nothing is made by asking."""
    assert "it is protected unless a write: rule names it" in guard.reason(f"{tmp_path}/{name}")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", FREE)
def test_what_only_looks_like_it_is_not(guard: Protection, tmp_path: Path, name: str) -> None:
    """Project files, git's own data and its hook samples are written as ever."""
    assert guard.reason(f"{tmp_path}/{name}") == ""


@pytest.mark.parametrize("name", PROTECTED[:28] + PROTECTED[36:-3])
def test_a_rule_that_names_it_lifts_it(tmp_path: Path, name: str) -> None:
    """A rule for the file, and for nothing beside it."""
    guard = Protection(parse(f"write: .\nwrite: ./{name}\n", cwd=str(tmp_path)))
    assert guard.reason(f"{tmp_path}/{name}") == ""
    assert guard.reason(f"{tmp_path}/elsewhere/.git/hooks/pre-commit") != ""


def test_a_rule_for_the_folder_lifts_what_is_in_it(tmp_path: Path) -> None:
    """`write: ./.vscode` and `write: ./**/.claude/*` name it; `write: ./.git` names no hooks."""
    guard = Protection(parse("write: .\nwrite: ./.vscode\nwrite: ./**/.claude/*\nwrite: ./.git\n", cwd=str(tmp_path)))
    assert guard.reason(f"{tmp_path}/.vscode/tasks.json") == ""
    assert guard.reason(f"{tmp_path}/a/.claude/settings.json") == ""
    assert guard.reason(f"{tmp_path}/a/.claude/deep/x") != ""
    assert guard.reason(f"{tmp_path}/a/.vscode/tasks.json") != ""
    assert guard.reason(f"{tmp_path}/.git/hooks/x") != ""


def test_a_run_inside_such_a_folder_is_not_shut_out(tmp_path: Path) -> None:
    """Only what lies below the rule's root counts: agents keep their worktrees in `.claude/worktrees`."""
    folder = tmp_path / ".claude/worktrees/one"
    folder.mkdir(parents=True)
    guard = Protection(parse("write: .\n", cwd=str(folder)))
    assert guard.reason(f"{folder}/main.py") == ""
    assert guard.reason(f"{folder}/.claude/settings.json") != ""


def test_a_home_folder_has_more_that_concerns_others(tmp_path: Path) -> None:
    """What a project's own build would do anyway concerns all of the user's work there."""
    home = tmp_path / "Home"
    guard = Protection(parse("write: .\nwrite: ./Home/.npmrc\n", cwd=str(tmp_path)), (), (str(home),))
    for name in (
        ".local/bin/git",
        ".yarnrc.yml",
        ".cargo/config.toml",
        ".docker/x",
        ".m2/settings.xml",
        ".Cargo/bin/x",
    ):
        assert guard.reason(f"{home}/{name}") != "" == guard.reason(f"{tmp_path}/project/{name}"), name
        assert guard.reason(f"{home}/project/{name}") == ""
        assert protected.reason_for(f"{home}/{name}", **guard.tuples()) == guard.reason(f"{home}/{name}")
    assert guard.reason(f"{home}/.npmrc") == "" == guard.reason(f"{home}/.local/share/x")
    for name in (".local", ".cargo", ".docker"):
        assert guard.symlink_reason(f"{home}/{name}") != "" and guard.reason(f"{home}/{name}") == ""


def test_the_runs_private_folders_are_its_own(tmp_path: Path) -> None:
    """Nobody else starts a shell in the run's HOME."""
    guard = Protection(parse("write: .\n", cwd=str(tmp_path)), (f"{tmp_path}/home",))
    assert guard.reason(f"{tmp_path}/home/.bashrc") == ""
    assert guard.reason(f"{tmp_path}/home2/.bashrc") != ""


def test_git_directories_are_protected_in_private_folders_too(tmp_path: Path) -> None:
    """A file .git in the workspace leads git there from outside; what git reads in a home folder is the run's own."""
    home = f"{tmp_path}/home"
    guard = Protection(parse("write: .\n", cwd=str(tmp_path)), (home,))
    for name in ("evil.git/hooks/pre-commit", "r/.git/config", ".vscode/r.git/config"):
        assert guard.reason(f"{home}/{name}") != "" != protected.reason_for(f"{home}/{name}", **guard.tuples()), name
    for name in (".gitconfig", ".config/git/config", ".vscode/tasks.json", "hooks/x"):
        assert guard.reason(f"{home}/{name}") == "" == protected.reason_for(f"{home}/{name}", **guard.tuples()), name
    os.makedirs(f"{home}/evil/objects")
    os.mkdir(f"{home}/evil/hooks")
    Path(f"{home}/evil/hooks/post-index-change").write_text("")
    assert guard.reason(f"{home}/evil/refs") != ""
    assert guard.symlink_reason(f"{home}/r/.git") != ""


@given(st.text(alphabet="aA./gitGITHOKScnf\u017f\u212a\u200c-", max_size=40))
def test_the_judgement_in_the_guard_is_the_same(path: str) -> None:
    """The sealed function and the class agree, for every path."""
    guard = Protection(parse("write: /w\nwrite: /w/x/.vscode\n", cwd="/"), ("/w/tmp",))
    plain = "/w/" + "/".join(part for part in path.split("/") if part not in ("", ".", ".."))
    assert protected.reason_for(plain, **guard.tuples()) == guard.reason(plain)


def renamed(guard: Protection, source: str, target: str) -> str:
    return guard.rename_problem(source, target)[1]


def repository(base: Path, name: str) -> Path:
    made = base / name
    for part in ("hooks", "objects", "refs"):
        (made / part).mkdir(parents=True)
    (made / "HEAD").write_text("ref: refs/heads/main\n")
    return made


def test_a_git_folder_is_known_by_what_is_in_it(guard: Protection, tmp_path: Path) -> None:
    """Bare repositories and separate git folders have any name."""
    made = repository(tmp_path, "store")
    assert guard.reason(f"{made}/hooks/update") != ""
    assert guard.is_content(f"{made}/config")


def test_a_folder_with_hooks_does_not_become_a_git_folder(guard: Protection, tmp_path: Path) -> None:
    """Hooks and configuration first, HEAD or objects last; renaming the folder or a part of it."""
    evil = tmp_path / "evil"
    for part in ("hooks", "refs", "objects"):
        (evil / part).mkdir(parents=True)
    (evil / "hooks/post-checkout").touch()
    assert guard.reason(f"{evil}/HEAD") != ""
    (evil / "objects").rmdir()
    assert guard.reason(f"{evil}/objects") != ""
    assert renamed(guard, str(evil), f"{tmp_path}/.git") != ""
    (evil / "hooks/post-checkout").rename(evil / "hooks/post-checkout.sample")
    assert guard.reason(f"{evil}/HEAD") == "" == guard.reason(f"{evil}/objects")
    (evil / "config").write_text("[core]\n fsmonitor = ./run\n")
    assert "core.fsmonitor" in guard.reason(f"{evil}/objects")
    assert renamed(guard, str(evil), f"{tmp_path}/.git") != ""
    (evil / "config").write_text("[core]\n bare = false\n")
    assert renamed(guard, str(evil), f"{tmp_path}/.git") == ""


def test_what_cannot_be_looked_at_makes_no_git_folder(guard: Protection, tmp_path: Path) -> None:
    """A linked part, configuration that is no single regular file or is still written, a commondir that git never made."""
    evil = tmp_path / "evil"
    for part in ("hooks", "refs"):
        (evil / part).mkdir(parents=True)
    (tmp_path / "other").mkdir()
    wanted = f"{evil}/objects"
    assert guard.reason(wanted) == ""
    (evil / "hooks").rename(evil / "away")
    (evil / "Hooks").symlink_to("../other")
    assert "a link in a git directory" in guard.reason(wanted)
    assert renamed(guard, str(evil), f"{tmp_path}/.git") != ""
    (evil / "Hooks").unlink()
    os.mkfifo(evil / "config")
    assert "regular file" in guard.reason(wanted)
    (evil / "config").unlink()
    (evil / "config").touch()
    with open(evil / "config", "a"):
        assert "still open for writing" in guard.reason(wanted)
        assert renamed(guard, str(evil), f"{tmp_path}/.git") != ""
    assert guard.reason(wanted) == ""
    os.link(evil / "config", tmp_path / "second")
    assert "another name" in guard.reason(wanted)
    assert renamed(guard, str(evil), f"{tmp_path}/.git") != ""
    (tmp_path / "second").unlink()
    (evil / "commondir").touch()
    assert "commondir" in guard.reason(wanted) and "commondir" in guard.reason(f"{evil}/HEAD")
    (evil / "commondir").unlink()
    assert guard.reason(wanted) == "" == renamed(guard, str(evil), f"{tmp_path}/.git")


def test_a_git_folder_stays_one_and_gets_no_links(guard: Protection, tmp_path: Path) -> None:
    """Not taken apart by renaming, no link for a part of it, no commondir but a worktree's; as a whole it may move."""
    made = repository(tmp_path, "store")
    base = str(tmp_path)
    assert renamed(guard, f"{made}/refs", f"{made}/refs2") != ""
    assert renamed(guard, f"{made}/HEAD", f"{made}/HEAD2") == ""
    assert renamed(guard, str(made), f"{base}/store2") == "" == renamed(guard, str(made), f"{base}/.git")
    for name in ("hooks", "config", "commondir"):
        assert guard.symlink_reason(f"{made}/{name}") != "", name
    assert guard.reason(f"{made}/commondir") != ""
    assert guard.reason(f"{made}/worktrees/w/commondir") == "" != guard.reason(f"{base}/worktrees/.git/commondir")
    assert guard.reason(f"{base}/commondir") == "" == guard.symlink_reason(f"{base}/hooks")
    for name in (".config", ".Config", ".config/git", ".config/fish"):
        assert guard.symlink_reason(f"{base}/{name}") != "", name
    tree = made / "worktrees/w"
    tree.mkdir(parents=True)
    for name in ("HEAD", "commondir"):
        (tree / name).touch()
    assert renamed(guard, str(tree), f"{base}/w") != ""
    assert renamed(guard, str(tree), f"{made}/worktrees/v") == ""


def test_folders_that_merely_have_such_names_are_free(guard: Protection, tmp_path: Path) -> None:
    """Source code has folders named hooks, objects or refs as well."""
    (tmp_path / "src/hooks").mkdir(parents=True)
    (tmp_path / "src/hooks/useThis.ts").touch()
    (tmp_path / "src/config").symlink_to("hooks")
    assert guard.reason(f"{tmp_path}/src/objects") == "" == guard.reason(f"{tmp_path}/src/HEAD")
    (tmp_path / "src/refs").mkdir()
    assert guard.reason(f"{tmp_path}/src/objects") != ""


@pytest.mark.attempt("F3", "F7")
def test_renaming_and_linking_do_not_get_around_it(guard: Protection, tmp_path: Path) -> None:
    """A file or a folder under a new name, a second name for a protected file, a link where git looks."""
    (tmp_path / "x").touch()
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/tasks.json").touch()
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / ".git/hooks/pre-push").touch()
    base = str(tmp_path)
    assert renamed(guard, f"{base}/x", f"{base}/.git/hooks/pre-commit") != ""
    assert renamed(guard, f"{base}/settings", f"{base}/.vscode") != ""
    assert renamed(guard, f"{base}/settings", f"{base}/other") == ""
    assert guard.reason(f"{base}/.git/hooks/pre-push") != ""
    assert guard.link_reason(f"{base}/.bashrc", link=False) != ""
    assert guard.link_reason(f"{base}/z", link=False) == ""
    assert guard.removal_reason(f"{base}/.git/hooks/pre-push") != ""
    assert guard.removal_reason(f"{base}/.git/config") == ""
    for name in (".git", ".vscode", ".git/hooks", ".bashrc", ".git/config", "sub/.claude"):
        assert guard.symlink_reason(f"{base}/{name}") != "", name
    assert guard.symlink_reason(f"{base}/link") == ""


def content(guard: Protection, path: Path, target: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return guard.content_reason(descriptor, str(target))
    finally:
        os.close(descriptor)


def test_configuration_may_be_replaced_by_what_runs_nothing(guard: Protection, tmp_path: Path) -> None:
    """As git writes it: a lock file, closed, renamed. What the old one had already is not the agent's doing."""
    target, lock = tmp_path / ".git/config", tmp_path / ".git/config.lock"
    target.parent.mkdir()
    lock.write_text("[user]\n\tname = Ada\n")
    assert content(guard, lock, target) == ""
    lock.write_text("[user]\n\tname = Ada\n[core]\n\thooksPath = .husky\n")
    assert "core.hookspath" in content(guard, lock, target)
    target.write_text("[core]\n\thooksPath = .husky\n")
    assert content(guard, lock, target) == ""
    lock.write_text("[core]\n\thooksPath = .other\n")
    assert "core.hookspath" in content(guard, lock, target)


def test_configuration_that_somebody_still_writes_is_refused(guard: Protection, tmp_path: Path) -> None:
    """Else it could be changed after it was looked at, by a thread that kept it open."""
    target, lock = tmp_path / ".git/config", tmp_path / ".git/config.lock"
    target.parent.mkdir()
    lock.write_text("[user]\n\tname = Ada\n")
    with open(lock, "r+"):
        assert "still open for writing" in content(guard, lock, target)
    assert content(guard, lock, target) == ""


DANGEROUS = (
    "[core]\nfsmonitor=./x", "[core]\nhooksPath=x", "[core] sshCommand = x", "[CORE]\n\tEditor\t=\tx", "[core]\npager=x",
    '[alias]\nst = !x', '[alias]\nx = -c core.pager=y log', '[alias]\nx = submodule foreach x', '[diff "d"]\ncommand=x',
    '[diff "d"]\ntextconv=x', "[diff]\nexternal=x", '[filter "f"]\nclean=x', '[merge "m"]\ndriver=x', "[gpg]\nprogram=x",
    '[gpg "ssh"]\nprogram=x', "[credential]\nhelper=!x", '[credential "https://x"]\nhelper=x', "[include]\npath=x",
    '[includeIf "gitdir:/"]\npath=x', '[remote "o"]\nurl=ext::sh -c x', '[remote "o"]\nurl=odd://x', '[remote "o"]\nurl=-x',
    '[remote "o"]\nurl=ssh://-oProxyCommand=x/y', '[remote "o"]\nurl=u@-oProxyCommand=x:y', '[remote "o"]\nuploadpack=x',
    '[remote "o"]\npushurl=https://x/y', '[remote "o"]\nproxy=x', '[remote "o"]\nfetch=--upload-pack=x',
    '[submodule "s"]\nupdate=!x', '[submodule "s"]\nurl=ext::x', "[init]\ntemplateDir=x", '[url "ext::x"]\ninsteadOf=y',
    '[url "https://x"]\npushInsteadOf=y', '[mergetool "m"]\ncmd=x', "[sequence]\neditor=x", "[pager]\nlog=x",
    "[safe]\ndirectory=*", '[protocol "ext"]\nallow=always', '[protocol "file"]\nallow=always', "[uploadpack]\npackObjectsHook=x",
    '[trailer "t"]\ncommand=x', "[a.b]\ncommand=x", "[core]\nfs\\\nmonitor=x", "[core\nx=y", '[core]\nx="open',
    "[core]\nx=\\q", '[foo]\nrunCommand = x', "[core]\n; c\nhooks\x00Path=x", "\ufeff[core]\nhooksPath=x",
    "[core]\r\nhooksPath=x\r\n", "[core]hooksPath=x", '[lfs "extension.x"]\nclean=x', "[lfs.extension.x]\nsmudge=x",
    "[http]\ncookieFile=x\nsaveCookies=true", "[http]\nproxy=x", "[http]\nsslVerify=false", "[tig]\nbind = generic g !x",
    "[core]\nworktree=/home/somebody", "[core]\nworktree=../../../sub", "[core]\nattributesFile=x", "[core]\nexcludesFile=x",
    '[branch "m"]\nremote=ext::x', '[branch "m"]\nremote=-x', '[branch "m"]\nmergeOptions=-s x', "[remote]\npushDefault=ext::x",
    "[gitflow \"path\"]\nhooks=x", '[user]\nsigningKey=x', "[commit]\ntemplate=x", "[core]\nfsmonitor=yes", "[new]\nthing=x",
)  # fmt: skip
HARMLESS = (
    "", "# c\n", "[user]\nname=A B # c\nemail = a@b\n", "[core]\nrepositoryformatversion=0\nfilemode=true\nbare=false",
    '[remote "origin"]\nurl=git@github.com:a/b.git\nfetch=+refs/heads/*:refs/remotes/origin/*', "[core]\nfsmonitor=true",
    '[remote "o"]\nurl=https://u@x:8/y\nmirror=true\ntagOpt=--no-tags', '[remote "o"]\nurl=/a b/c', '[remote "o"]\nurl=../c',
    '[remote "o"]\nurl=ssh://git@x/y\npromisor\npartialCloneFilter=blob:none', '[remote "o"]\nurl=[::1]:y',
    '[branch "main"]\nremote=origin\nmerge=refs/heads/main', '[submodule "s"]\nurl=../s\nactive=true\nupdate=rebase',
    '[branch "a \\"b\\" !x"]\nremote=o', "[branch \"x\"]\nremote=.\ndescription=\"a\\nb !c\"", "[init]\ndefaultBranch=main",
    "[pull]\nrebase=true", "[extensions]\nworktreeConfig=true\nobjectFormat=sha256", "[commit]\ngpgSign=false",
    "[submodule]\nactive = .\nrecurse", "[core]\nsparseCheckout=true\nsparseCheckoutCone", '[user]\nname="a # b" \\\n c',
    '[lfs "https://x/y.git/info/lfs"]\naccess=basic', "[color]\nui=auto", '[color "diff"]\nmeta=yellow bold', "[gc]\nauto=0",
)  # fmt: skip


@pytest.mark.parametrize("text", DANGEROUS)
def test_entries_that_git_would_not_write_are_refused(text: str) -> None:
    """However they are written: what runs programs, leads elsewhere, or is unknown; and what git would not read."""
    assert gitentries.problem(text.encode(), b"", "/w/.git/config") != ""


@pytest.mark.parametrize("text", HARMLESS)
def test_entries_that_git_writes_pass(text: str) -> None:
    """What `git init`, `clone`, `config user.name`, `submodule add` and the like write."""
    assert gitentries.problem(text.encode(), b"", "/w/.git/config") == ""


@pytest.mark.parametrize("end", [" ", "\\t", "\u00a0", "\u3000"])
def test_a_value_with_blanks_is_another_one(end: str) -> None:
    """git leaves out blanks outside of quotes only, and only those of ASCII: `"hooks "` is another folder."""
    before, after = b"[core]\nhooksPath = hooks\n", f'[core]\nhooksPath = "hooks{end}"\n'
    assert gitentries.problem(before, before, "/w/.git/config") == ""
    assert "core.hookspath" in gitentries.problem(after.encode(), before, "/w/.git/config")
    assert "core.hookspath" in gitentries.problem(before, after.encode(), "/w/.git/config")


def test_a_work_tree_elsewhere_must_lead_back(tmp_path: Path) -> None:
    """As git links a submodule: its `.git` names the git directory. Nobody makes such a file where he may not write."""
    module = repository(tmp_path / ".git/modules", "sub")
    (tmp_path / "sub").mkdir()
    text = b"[core]\nworktree = ../../../sub\n"
    assert "core.worktree" in gitentries.problem(text, b"", f"{module}/config")
    (tmp_path / "sub/.git").write_text("gitdir: ../.git/modules/sub\n")
    assert gitentries.problem(text, b"", f"{module}/config") == ""
    assert gitentries.problem(text, b"", f"{tmp_path}/.git/config") != ""
    (module / "config").write_bytes(text)
    other = Protection(parse("write: .\n", cwd=str(tmp_path)))
    assert "submodule" in other.symlink_reason(f"{tmp_path}/sub") and other.symlink_reason(f"{tmp_path}/sub2") == ""
    lifted = Protection(parse("write: .\nwrite: ./su[b]\n", cwd=str(tmp_path)))
    assert lifted.symlink_reason(f"{tmp_path}/sub") == ""
    (tmp_path / "links").mkdir()
    (tmp_path / "links/sub").symlink_to("/")
    assert renamed(other, f"{tmp_path}/links", f"{tmp_path}/more") == ""
    (module / "config").write_bytes(text.replace(b"/sub", b"/more/sub"))
    assert "submodule" in renamed(other, f"{tmp_path}/links", f"{tmp_path}/more")
    (tmp_path / "sub/.git").rename(tmp_path / ".git/.git")
    (tmp_path / ".git/.git").write_text("gitdir: modules/sub\n")
    assert gitentries.problem(b"[core]\nworktree = ../..\n", b"", f"{module}/config") != ""


LINES = st.lists(
    st.sampled_from(
        ["[core]", '[remote "a b"]', "[x.Y]", "name = v", "key", "k=a\\", "k = \"q # ; q\" # c", "# c", "; d", "", "\t k = 1 ",
         'k = "a " ', 'k = ""  x', 'k = a ""', "k = a\u00a0", "\u3000", "k = \x0ba\x0c", "[a ]", '[a.B "C"]', "k = a\\t ", "k=a\r",
         'k = a\\"b', "k=\\t", "[A]k=v", 'k = "a', "k = x \\\\ y", "-k=v", "k~=v", "[]", '[a "b\\\\c"]', "k =", "\tk\t=\t\tv\tw\t"]
    ),
    max_size=6,
)  # fmt: skip


@needs_git
@given(LINES)
def test_entries_are_read_as_git_reads_them(lines: list[str]) -> None:
    """Against git itself; where git fails, so does this reader, or it sees more and never less."""
    text = "\n".join(lines) + "\n"
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "config", "--no-includes", "--null", "--file", "-", "--list"]
    theirs = subprocess.run(command, input=text.encode(), capture_output=True, env=environ, check=False)
    if theirs.returncode:
        return
    wanted = []
    for item in theirs.stdout.decode().split("\0")[:-1]:
        name, found, value = item.partition("\n")
        wanted.append((name, _blanks(value) if found else None))
    got = [(".".join(part for part in entry[:3] if part), entry[3]) for entry in gitconfig.entries(text.encode())]
    assert [(name, None if value is None else _blanks(value)) for name, value in got] == wanted


def _blanks(value: str) -> str:
    """As git before 2.45 and since tell a blank between unquoted words."""
    return re.sub("[\0\t\r]", " ", value)


@needs_git
def test_what_git_does_with_a_repository_touches_nothing_protected(guard: Protection, tmp_path: Path) -> None:
    """init, clone, bare clone, commit, worktree and submodule: every file they leave, but configuration and samples."""
    script = """set -e
    git config --global user.name A; git config --global user.email a@b; export GIT_ALLOW_PROTOCOL=file
    git init -q -b main r; cd r; git config user.name B; echo a > a; git add a; git commit -qm 1
    git worktree add -q ../wt; cd ..; git clone -q r c; git clone -q --bare r plain; git clone -q --mirror r m.git
    git -C c submodule --quiet add ../r sub; git init -q --separate-git-dir=sepdir sep; git -C c gc -q
    """
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environ, check=True, capture_output=True)
    found = [os.path.join(folder, name) for folder, _, names in os.walk(tmp_path) for name in names]
    refused = [path for path in found if guard.reason(path)]
    assert refused and all(guard.is_content(path) for path in refused)
    assert [path for path in refused if gitentries.problem(Path(path).read_bytes(), b"", path)] == []
