"""Entries of git configuration that git itself writes in ordinary work: what a program of the run may add or change.

It is a list of what is allowed, since git and what is built on it know more ways to run programs than anybody lists.
It decides only. Source: git-config(1), "CONFIGURATION FILE" and "VARIABLES"; the commands in WORK of the tests.
"""

from __future__ import annotations

import re

from agentbox.guard.kernel import gitconfig, gitmodules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Allowed = Callable[[str, str], bool]
    """Takes a value and the resolved path of the configuration file."""

_BOOLEANS = frozenset(("true", "false", "yes", "no", "on", "off", "1", "0", ""))
_URL_SCHEMES = ("https", "http", "ssh", "git", "file", "git+ssh", "ssh+git", "ftp", "ftps")
"""What git fetches by itself; for any other `NAME://` it starts a program git-remote-NAME (gitremote-helpers(7))."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def problem(data: bytes, before: bytes, path: str) -> str:
    """What is against `data` as the git configuration `path`, "" for nothing; entries it had `before` may stay."""
    try:
        known = set(gitconfig.entries(before))
    except gitconfig.Unreadable:
        known = set()
    try:
        now = gitconfig.entries(data)
    except gitconfig.Unreadable as fault:
        return f"git configuration that cannot be read: {fault}"
    return next((why for entry in now if entry not in known and (why := entry_problem(entry, path))), "")


def entry_problem(entry: gitconfig.Entry, path: str) -> str:
    """What is against one new entry of the git configuration `path`."""
    section, subsection, name, value = entry
    shown = ".".join(part for part in (section, subsection, name) if part)
    allowed = _ENTRIES.get(f"{section}.*.{name}" if subsection else f"{section}.{name}") or _SECTIONS.get(section)
    if allowed is None:
        return f"git configuration: {shown} is no entry that git itself writes in ordinary work, and may run programs"
    if not allowed("true" if value is None else value, path):
        return f"git configuration: {shown} may not be {value!r}"
    return ""


# --- values ---


def _flag(value: str, path: str) -> bool:
    return value.lower() in _BOOLEANS


def _number(value: str, path: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,12}[kKmMgG]?", value) is not None


def _text(value: str, path: str) -> bool:
    """What is shown, stored or compared, and never run or passed to a program as a word of its own."""
    return True


def _word(value: str, path: str) -> bool:
    """A name, ref or refspec, which cannot be taken for an option."""
    return value[:1] != "-" and _CONTROL.search(value) is None and len(value.split()) == 1


def _one_of(*words: str, flag: bool = False, number: bool = False) -> Allowed:
    def allowed(value: str, path: str) -> bool:
        return value in words or (flag and _flag(value, path)) or (number and _number(value, path))

    return allowed


def _url(value: str, path: str) -> bool:
    """Where git connects to or which folder it opens, and no helper program (`ext::sh -c ...`) or option."""
    if value[:1] in ("", "-") or _CONTROL.search(value) or re.match(r"[A-Za-z0-9+.-]+::", value):
        return False
    scheme, found, rest = value.partition("://")
    if not found or not re.fullmatch(r"[A-Za-z0-9+.-]+", scheme):
        scheme, rest = "ssh", value
    host = re.split("[/:]", rest, maxsplit=1)[0].rpartition("@")[2]
    return scheme.lower() in _URL_SCHEMES and not host.startswith("-")


def _remote(value: str, path: str) -> bool:
    """The name of a remote, "." for the repository itself, or a URL."""
    return _word(value, path) and _url(value, path)


def _linked_tree(value: str, path: str) -> bool:
    return gitmodules.is_linked(path, value)


_SECTIONS: dict[str, Allowed] = {"advice": _flag, "color": _text, "column": _text}
"""Sections in which nothing is run, whatever the variable."""

_ENTRIES: dict[str, Allowed] = {
    **dict.fromkeys(
        (
            "core.filemode", "core.bare", "core.ignorecase", "core.precomposeunicode", "core.symlinks",
            "core.sparsecheckout", "core.sparsecheckoutcone", "core.preloadindex",
            "core.quotepath", "core.commitgraph", "core.multipackindex", "core.splitindex", "core.longpaths",
            "core.fscache",
            "extensions.worktreeconfig", "extensions.preciousobjects", "extensions.relativeworktrees",
            "remote.*.mirror", "remote.*.prune", "remote.*.prunetags", "remote.*.promisor",
            "remote.*.skipdefaultupdate", "remote.*.skipfetchall",
            "submodule.*.active", "submodule.*.fetchrecursesubmodules", "submodule.*.shallow", "submodule.recurse",
            "commit.gpgsign", "commit.status", "tag.gpgsign", "tag.forcesignannotated", "pull.octopus",
            "push.autosetupremote", "push.followtags", "fetch.prune", "fetch.prunetags", "fetch.writecommitgraph",
            "rebase.autosquash", "rebase.autostash", "rebase.updaterefs", "rebase.forkpoint", "merge.stat",
            "merge.autostash", "merge.branchdesc", "merge.renormalize", "rerere.enabled", "rerere.autoupdate",
            "diff.noprefix", "diff.mnemonicprefix", "diff.indentheuristic", "log.decorate",
            "log.follow", "status.short", "status.branch", "status.showstash", "status.relativepaths",
            "status.aheadbehind", "index.sparse", "index.threads", "index.skiphash", "feature.manyfiles",
            "feature.experimental", "gc.autodetach", "gc.writecommitgraph", "gc.cruftpacks", "maintenance.auto",
            "pack.usebitmaps", "pack.usesparse", "repack.writebitmaps", "worktree.guessremote",
            "worktree.userelativepaths", "stash.showpatch", "stash.showstat",
            "receive.autogc", "receive.denydeletes",
            "receive.denynonfastforwards",
        ),
        _flag,
    ),
    **dict.fromkeys(
        (
            "core.repositoryformatversion", "core.abbrev", "core.compression", "core.loosecompression",
            "core.bigfilethreshold", "gc.auto", "gc.autopacklimit", "pack.threads", "pack.window", "pack.depth",
            "pack.compression", "pack.windowmemory", "fetch.parallel", "fetch.unpacklimit", "submodule.fetchjobs",
            "checkout.workers", "diff.context", "diff.renamelimit", "merge.renamelimit", "http.postbuffer",
            "lfs.repositoryformatversion", "index.version",
        ),
        _number,
    ),
    **dict.fromkeys(
        (
            "user.name", "user.email", "author.name", "author.email", "committer.name", "committer.email",
            "branch.*.description", "user.useconfigonly", "log.date", "merge.*.name", "init.defaultbranch",
            "gc.pruneexpire", "gc.reflogexpire", "gc.reflogexpireunreachable", "gc.worktreepruneexpire",
            "blame.ignorerevsfile", "core.whitespace", "core.commentchar", "core.commentstring",
        ),
        _text,
    ),
    **dict.fromkeys(
        (
            "remote.*.fetch", "remote.*.push", "remote.*.partialclonefilter", "remote.*.gh-resolved",
            "remote.*.followremotehead", "branch.*.merge", "branch.*.gh-merge-base", "branch.*.vscode-merge-base",
            "submodule.*.branch", "submodule.active", "extensions.partialclone", "clone.defaultremotename",
            "notes.rewriteref", "notes.displayref",
        ),
        _word,
    ),
    "branch.*.remote": _remote,
    "branch.*.pushremote": _remote,
    "remote.pushdefault": _remote,
    "checkout.defaultremote": _remote,
    "remote.*.url": _url,
    "submodule.*.url": _url,
    "core.worktree": _linked_tree,
    "core.fsmonitor": _one_of("true", "false"),
    "core.logallrefupdates": _one_of("always", flag=True),
    "core.autocrlf": _one_of("input", flag=True),
    "core.eol": _one_of("lf", "crlf", "native"),
    "core.safecrlf": _one_of("warn", flag=True),
    "core.untrackedcache": _one_of("keep", flag=True),
    "core.sharedrepository": _one_of("group", "umask", flag=True),
    "extensions.objectformat": _one_of("sha1", "sha256"),
    "extensions.compatobjectformat": _one_of("sha1", "sha256"),
    "extensions.refstorage": _one_of("files", "reftable"),
    "remote.*.tagopt": _one_of("--tags", "--no-tags"),
    "branch.*.rebase": _one_of("merges", "m", "interactive", "i", flag=True),
    "branch.autosetuprebase": _one_of("never", "local", "remote", "always"),
    "branch.autosetupmerge": _one_of("always", "inherit", "simple", flag=True),
    "submodule.*.update": _one_of("checkout", "rebase", "merge", "none"),
    "submodule.*.ignore": _one_of("all", "dirty", "untracked", "none"),
    "submodule.alternateerrorstrategy": _one_of("die", "info", "ignore"),
    "submodule.alternatelocation": _one_of("superproject", "no"),
    "commit.cleanup": _one_of("strip", "whitespace", "verbatim", "scissors", "default"),
    "commit.verbose": _one_of(flag=True, number=True),
    "pull.rebase": _one_of("merges", "m", "interactive", "i", flag=True),
    "pull.ff": _one_of("only", flag=True),
    "push.default": _one_of("nothing", "current", "upstream", "tracking", "simple", "matching"),
    "push.recursesubmodules": _one_of("check", "on-demand", "only", flag=True),
    "fetch.recursesubmodules": _one_of("on-demand", flag=True),
    "merge.ff": _one_of("only", flag=True),
    "merge.conflictstyle": _one_of("merge", "diff3", "zdiff3"),
    "merge.renames": _one_of("copies", flag=True),
    "diff.renames": _one_of("copies", "copy", flag=True),
    "diff.algorithm": _one_of("default", "myers", "minimal", "patience", "histogram"),
    "diff.colormoved": _one_of("default", "plain", "blocks", "zebra", "dimmed-zebra", flag=True),
    "diff.submodule": _one_of("short", "log", "diff"),
    "diff.ignoresubmodules": _one_of("all", "dirty", "untracked", "none"),
    "status.showuntrackedfiles": _one_of("no", "normal", "all", flag=True),
    "status.submodulesummary": _one_of(flag=True, number=True),
    "maintenance.strategy": _one_of("none", "incremental", "geometric"),
    "receive.denycurrentbranch": _one_of("ignore", "warn", "refuse", "updateInstead", flag=True),
    "http.version": _one_of("HTTP/1.1", "HTTP/2"),
    "lfs.*.access": _one_of("basic", "none", "negotiate"),
    "lfs.*.locksverify": _flag,
}  # fmt: skip
"""By `section.variable` or `section.*.variable` (with a subsection), in lower case: the values that may be new.

Left out on purpose, as what is ordinary elsewhere is enough here: aliases, helpers, filters, drivers, hooks and further
configuration (programs); `url.*.insteadOf`, `remote.*.pushurl`, `http.*` and `protocol.*` (where data goes);
`safe.*` (what git refuses).
"""
