"""Sealed: which paths inside write roots are protected by themselves, from names alone. Plain data in, text out.

It runs inside the agent as well as in the supervisor (docs/reference/architecture.md, "Sealed code"): no function
reads a global, a builtin or a cell, and the only call to the system is `lstat`.
"""
# mypy: disable-error-code="no-untyped-def, no-any-return"
# A keyword default that binds a builtin is not annotated: it has the type of that builtin.

from __future__ import annotations

from posix import lstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDERS = frozenset((
    # tasks and settings that editors run
    ".vscode", ".idea", ".zed", ".fleet", ".devcontainer", ".vs", ".theia", ".helix", ".vim", ".nvim", ".emacs.d",
    # agents' settings
    ".claude", ".cursor", ".codex", ".gemini", ".windsurf", ".continue", ".aider", ".kiro", ".roo", ".clinerules",
    ".cline", ".amazonq", ".qwen", ".trae", ".opencode", ".augment", ".junie", ".openhands", ".goose",
    # where repositories keep their hooks
    ".husky", ".githooks",
    # shells, terminals and desktops
    ".bashrc.d", ".zshrc.d", ".zsh", ".oh-my-zsh", ".oh-my-bash", ".bash_it", ".zprezto", ".elvish", ".tmux", ".byobu",
    ".i3", ".fluxbox", ".xmonad", ".vnc",
    # interpreters' start-up files
    ".ipython", ".jupyter",
    # keys
    ".ssh", ".gnupg", ".password-store",
))  # fmt: skip
"""Folders whose files make other programs run code or hold keys, at any depth; in lower case."""

FILES = frozenset((
    # agents and editors
    ".mcp.json", "mcp.json", ".claude.json", "opencode.json", "opencode.jsonc", ".aider.conf.yml", ".cursorrules",
    ".windsurfrules", ".clinerules", ".roomodes", ".goosehints", ".devcontainer.json",
    ".vimrc", ".gvimrc", ".exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".ideavimrc", ".emacs", ".emacs.el",
    ".dir-locals.el", ".dir-locals-2.el", ".kateproject", ".ycm_extra_conf.py",
    # on entering a folder
    ".envrc", ".autoenv", ".autoenv.zsh", ".tool-versions", "mise.toml", ".mise.toml", "mise.local.toml",
    ".mise.local.toml", ".rtx.toml",
    # shells; zsh takes the compiled file before the other
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bash_completion", ".profile",
    ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".zcompdump", ".zshrc.zwc", ".zshenv.zwc",
    ".zprofile.zwc", ".zlogin.zwc", ".zlogout.zwc", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".logout",
    ".xonshrc", ".yashrc", ".yash_profile", ".shrc", ".inputrc", ".pam_environment", ".login_conf",
    ".p10k.zsh", ".zpreztorc", ".zimrc", ".fzf.bash", ".fzf.zsh", ".direnvrc",
    # sessions and terminals
    ".xinitrc", ".xprofile", ".xsession", ".xsessionrc", ".xserverrc", ".xbindkeysrc", ".tmux.conf", ".screenrc",
    ".wezterm.lua", ".lesskey", ".lessfilter", ".mailcap",
    # debuggers and interpreters
    ".gdbinit", ".gdbearlyinit", ".lldbinit", ".pdbrc", ".pdbrc.py", ".pythonrc", ".pythonrc.py", ".irbrc", ".pryrc",
    ".rprofile", ".renviron", ".ghci", ".tclshrc", ".wishrc", ".guile", ".ocamlinit", ".perldb", ".sbclrc",
    ".octaverc", ".gnuplot", ".erlang", ".iex.exs", ".psysh.php", ".byebugrc", ".gitk", ".tigrc", ".lftprc",
    # version control and editors
    ".hgrc", ".nanorc",
    # databases' shells
    ".sqliterc", ".duckdbrc", ".psqlrc", ".my.cnf", ".mongorc.js", ".mongoshrc.js",
    # mail
    ".forward", ".procmailrc", ".mailrc", ".muttrc", ".msmtprc", ".mbsyncrc", ".fetchmailrc",
    # who may log in, and passwords
    ".rhosts", ".shosts", ".k5login", ".netrc", ".pgpass", ".git-credentials", ".pypirc", ".terraformrc", ".curlrc",
    ".wgetrc",
    # the policy that the next run would be under
    "agentbox.policy",
))  # fmt: skip
"""Files that other programs run, obey or take passwords from when they start, at any depth; in lower case."""

ENDINGS = (".code-workspace", ".sublime-project")
"""Ends of names of files of the same kind."""

INNER_FOLDERS = frozenset((
    ".config/autostart", ".config/environment.d", ".config/systemd", ".config/plasma-workspace", ".config/fish",
    ".config/zsh", ".config/nushell", ".config/powershell", ".config/nvim", ".config/vim", ".config/helix",
    ".config/emacs", ".config/kak", ".config/micro", ".config/zed", ".config/code", ".config/code - oss",
    ".config/vscodium", ".config/cursor", ".config/jetbrains", ".config/sublime-text", ".config/direnv",
    ".config/mise", ".config/tmux", ".config/kitty", ".config/alacritty", ".config/wezterm", ".config/ghostty",
    ".config/foot", ".config/i3", ".config/sway", ".config/hypr", ".config/awesome", ".config/bspwm",
    ".config/sxhkd", ".config/polybar", ".config/waybar", ".config/mpv", ".config/gdb", ".config/pip",
    ".config/opencode", ".config/goose", ".config/gh", ".config/gcloud", ".config/containers", ".config/rclone",
    ".config/jj", ".config/ranger", ".config/lf", ".config/hg", ".config/elvish", ".config/xonsh", ".config/nano",
    ".config/yazi", ".config/lazygit", ".config/zellij", ".config/vifm", ".julia/config",
    ".docker/cli-plugins", ".aws/cli", ".gradle/init.d", ".kde/autostart", ".kde4/autostart",
))  # fmt: skip
"""Folders of the same kind that are known by two names, most of them of ~/.config (XDG base directories)."""

INNER_FILES = frozenset((
    ".config/mise.toml", ".mise/config.toml", ".mise/config.local.toml", "mise/config.toml", ".config/starship.toml",
    ".hg/hgrc", ".hg/hgrc-not-shared", ".hg/sharedpath", ".jj/repo/config.toml", "_darcs/prefs/defaults",
    ".pijul/config",
    ".docker/config.json", ".aws/config", ".aws/credentials", ".kube/config", ".kube/kuberc",
    ".gradle/init.gradle", ".gradle/init.gradle.kts",
))  # fmt: skip
"""Files that are known by two or three names: projects have other files in folders of these names."""

OWN_MODULES = frozenset(("agentbox", "agentbox/__init__", "agentbox/cli", "agentbox/cli/__init__"))
MODULE_ENDINGS = (".py", ".pyc", ".so")
"""What `python -m agentbox.cli` would import from the folder where somebody calls it in place of the command; a project
may have all else in a folder of that name. importlib.machinery.all_suffixes().
"""

HOME_FOLDERS = frozenset((
    ".local/bin", ".local/lib", ".local/share/applications", ".local/share/bash-completion", ".local/share/dbus-1",
    ".local/share/systemd", ".local/share/fish", ".local/share/nvim", ".local/share/gnome-shell",
    ".local/share/keyrings", ".cargo/bin", ".bun/bin", ".deno/bin", ".asdf", ".nvm", ".pyenv",
    ".rbenv", ".sdkman", ".rustup", ".m2", ".gradle", ".docker", ".aws", ".kube", ".azure", ".mozilla",
    ".thunderbird", ".config/google-chrome", ".config/chromium", "library/launchagents",
))  # fmt: skip
"""Folders that are of this kind directly below a home folder, and ordinary in a project; in lower case."""

HOME_FILES = frozenset((
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".bunfig.toml", ".condarc", ".gemrc", ".bundle/config",
    ".cargo/config", ".cargo/config.toml", ".cargo/credentials.toml", ".cargo/env", ".pip/pip.conf",
    ".pydistutils.cfg", ".cabal/config", ".stack/config.yaml",
))  # fmt: skip
"""Files of the same sort: in a project they say what its own build would do anyway, in a home folder what all do."""

VENDORED = frozenset(("node_modules", "site-packages", "dist-packages"))
"""Folders of installed packages: they ship their authors' editor settings, which nobody opens there."""

IGNORED = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u200b\u200c\u200d\u200e\u200f"
    "\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064\u2065\u2066\u2067\u2068\u2069\u206a\u206b"
    "\u206c\u206d\u206e\u206f\u3164\ufe00\ufe01\ufe02\ufe03\ufe04\ufe05\ufe06\ufe07\ufe08\ufe09\ufe0a\ufe0b"
    "\ufe0c\ufe0d\ufe0e\ufe0f\ufeff\uffa0\ufff0\ufff1\ufff2\ufff3\ufff4\ufff5\ufff6\ufff7\ufff8"
    "\U0001bca0\U0001bca1\U0001bca2\U0001bca3\U0001d173\U0001d174\U0001d175\U0001d176\U0001d177\U0001d178"
    "\U0001d179\U0001d17a"
)
"""Characters that file systems without letter case leave out of a comparison, but for the block at U+E0000 to U+E0FFF:
Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties.txt, as Linux has it (fs/unicode/mkutf8data.c, 5.2).
"""

HOOK_REASON = "git runs what is in hooks"
FOLDER_REASON = "other programs run or obey what is in this folder"
FILE_REASON = "other programs run or obey this file when they start"
CONFIG_REASON = "git configuration can name programs to run, so only a whole new file may take its place, as git does"
BUILTIN = "; it is protected unless a write: rule names it"


def folded(path: str, *, ignored=IGNORED) -> str:
    """The path as a file system without letter case compares it."""
    if path.isascii():
        return path.lower()
    kept = ""
    for char in path:
        if char not in ignored and not "\U000e0000" <= char <= "\U000e0fff":
            kept += char
    return kept.casefold()


def exists(path: str, *, lstat=lstat, OSError=OSError, ValueError=ValueError) -> bool:
    """Whether something has this name."""
    try:
        lstat(path)
    except (OSError, ValueError):
        return False
    return True


def is_repository(folder: str, name: str, *, exists=exists) -> bool:
    """Whether git could take a folder for a git directory, a worktree's or what several worktrees share: by its folded
    `name`, or by what is in it (gitrepository-layout(5)).
    """
    if name.endswith(".git") or (exists(folder + "/objects") and exists(folder + "/refs")):
        return True
    return exists(folder + "/HEAD") and exists(folder + "/commondir")


def home_place(
    parts: list[str],
    beyond: int,
    homes: Any,
    *,
    home_folders=HOME_FOLDERS,
    home_files=HOME_FILES,
    folder=FOLDER_REASON,
    file=FILE_REASON,
    len=len,
    range=range,
) -> tuple[int, str]:
    """The same as `place_of` for what is directly below a home folder; `parts` are those of the folded path."""
    last = len(parts) - 1
    for home in homes:
        top = home.count("/") + 1
        if "/".join(parts[:top]) != home:
            continue
        for at in range(top, top + 3):
            name = "/".join(parts[top : at + 1])
            if at < last and at > beyond and name in home_folders:
                return (at, folder)
            if at == last and at > beyond and name in home_files:
                return (at, file)
    return (0, "")


def is_own_module(parts: list[str], *, own=OWN_MODULES, endings=MODULE_ENDINGS) -> bool:
    """Whether the folded path is that of a module which would be taken for agentbox's own."""
    name = parts[-1]
    if not name.endswith(endings):
        return False
    stem = name.partition(".")[0]
    return stem in own or "/".join([*parts[-2:-1], stem]) in own or "/".join([*parts[-3:-1], stem]) in own


def place_of(
    path: str,
    beyond: int = 0,
    *,
    homes=(),
    folded=folded,
    start_folders=FOLDERS,
    start_files=FILES,
    endings=ENDINGS,
    inner_folders=INNER_FOLDERS,
    inner_files=INNER_FILES,
    vendored=VENDORED,
    home_place=home_place,
    is_own_module=is_own_module,
    is_repository=is_repository,
    hook=HOOK_REASON,
    folder=FOLDER_REASON,
    file=FILE_REASON,
    config=CONFIG_REASON,
    len=len,
    range=range,
) -> tuple[int, str]:
    """What protects the resolved `path`: (index of the first part after `beyond` that does, why), or (0, "").

    A rule lifts it if its root goes as far as that part; then the parts beyond it count. The folders themselves are
    not protected: an empty one does nothing. `homes` are home folders, as `folded`.
    """
    parts = folded(path).split("/")
    real = path.split("/")
    last = len(parts) - 1
    foreign = False
    module = False
    for at in range(1, last):
        part = parts[at]
        if part in vendored:
            foreign = True
        elif part == "modules" and parts[at - 1] == ".git":
            module = True
        elif at <= beyond:
            pass
        elif not foreign and (part in start_folders or parts[at - 1] + "/" + part in inner_folders):
            return (at, folder)
        elif part != "hooks" or (at + 1 == last and parts[last].endswith(".sample")):
            pass
        elif module or is_repository("/".join(real[:at]), parts[at - 1]):
            return (at, hook)
    name = parts[last]
    if last <= beyond:
        return (0, "")
    pair = parts[last - 1] + "/" + name
    if not foreign and (name in start_files or name.endswith(endings) or pair in inner_files or is_own_module(parts)):
        return (last, file)
    if not foreign and last > 2 and parts[last - 2] + "/" + pair in inner_files:
        return (last, file)
    if name == ".gitconfig" or (name == "config" and parts[last - 2 : last] == [".config", "git"]):
        return (last, config)
    named = name == "config" or name == "config.worktree"
    if named and (module or is_repository("/".join(real[:last]), parts[last - 1])):
        return (last, config)
    return home_place(parts, beyond, homes) if homes else (0, "")


def is_lifted(path: str, index: int, roots: Any, globs: Any, *, folded=folded, len=len) -> bool:
    """Whether a write rule names what protects `path`: `roots` are (root, parts) of those without wildcards, `globs`
    the literal names in each of the others that covers the path.
    """
    for root, parts in roots:
        if parts > index and (path == root or path.startswith(root + "/")):
            return True
    name = folded(path).split("/")[index]
    for names in globs:  # noqa: SIM110 (any() would need a nested function)
        if name in names:
            return True
    return False


def is_users_config(path: str, *, folded=folded) -> bool:
    """Whether `path` is named like git configuration of a user, which git looks for in a home folder only."""
    return folded(path).endswith(("/.gitconfig", "/.config/git/config"))


def is_own_matter(
    path: str, why: str, *, is_users_config=is_users_config, hook=HOOK_REASON, config=CONFIG_REASON
) -> bool:
    """Whether what protects `path` elsewhere protects nothing in a private folder of the run, where only its own
    programs look: but git from outside does, if a file `.git` of the run's leads it to a git directory there.
    """
    return why != hook and (why != config or is_users_config(path))


def reason_for(
    path: str,
    *,
    lifting=(),
    exempt=(),
    homes=(),
    place_of=place_of,
    is_lifted=is_lifted,
    is_own_matter=is_own_matter,
    builtin=BUILTIN,
) -> str:
    """Why the resolved `path` may not be written, made, replaced, linked or removed although a rule covers it; or "".

    `lifting` as `roots` of `is_lifted`; `exempt` are trees (with a slash at the end) that are the run's own, see
    `is_own_matter`; `homes` as in `place_of`.
    """
    own = False
    for tree in exempt:
        own = own or path.startswith(tree)
    index, why = place_of(path, homes=homes)
    while index and (is_lifted(path, index, lifting, ()) or (own and is_own_matter(path, why))):
        index, why = place_of(path, index, homes=homes)
    return why + builtin if index else ""
