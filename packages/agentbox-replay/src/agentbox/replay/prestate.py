"""What the tree looked like before the recorded run, as far as its trace tells: what was absent, what was shorter.

A recording leaves its outputs in the tree, and a replay starts from that tree. This module never guesses: it names only
what the trace shows, so that the scratch copy can begin as the recorded run did.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WRITES = frozenset(
    (
        *("fs.write", "fs.mkdir", "fs.rmdir", "fs.remove", "fs.truncate", "fs.chmod", "fs.chown", "fs.utime"),
        *("fs.xattr", "fs.mknod", "fs.rename", "fs.link", "fs.symlink"),
    )
)
"""Operations that change the tree."""

_O_EXCL, _O_APPEND = 0o200, 0o2000  # <asm-generic/fcntl.h>
_ABSENT, _MADE, _OTHER = "absent", "made", "other"


class PreState:
    """Collects the first mention of each path that the agent touched. Feed it every recorded step, in order."""

    __slots__ = ("_first", "_gone", "appended", "changed", "direct", "pairs", "sdk")

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._gone: set[str] = set()
        self.appended: dict[str, int] = {}
        """Files that the agent first touched by appending to them: their size in bytes before that."""
        self.changed: set[str] = set()
        """Every path that it changed, either way."""
        self.direct: set[str] = set()
        """Paths that the agent changed itself."""
        self.sdk: set[str] = set()
        """Paths that it changed through the SDK."""
        self.pairs: set[tuple[str, str]] = set()
        """Source and target of direct renames and links, which work only inside one file system."""

    def add(self, kind: str, op: str, args: dict[str, Any]) -> None:
        """Note one step."""
        if not op.startswith("fs."):
            return
        for name in ("path", "to"):
            path = args.get(name)
            if not isinstance(path, str) or not path.startswith("/") or (op == "fs.symlink" and name == "path"):
                continue
            if path not in self._first:
                self._first[path] = _mention(op, name, args)
                if op == "fs.write" and isinstance(args.get("size"), int) and _has(args, "a", _O_APPEND):
                    self.appended[path] = args["size"]
            if op in WRITES:
                self.changed.add(path)
                gone = op in ("fs.remove", "fs.rmdir") or (op == "fs.rename" and name == "path")
                self._gone.add(path) if gone else self._gone.discard(path)
                (self.direct if kind == "observe" else self.sdk).add(path)
        if kind == "observe" and op in ("fs.rename", "fs.link"):
            self.pairs.add((str(args.get("path")), str(args.get("to"))))

    def absent(self) -> list[str]:
        """The existing paths that the trace shows to have been absent at first, outermost first."""
        found = []
        for path in sorted(self._first):
            first = self._first[path]
            if first == _OTHER or not os.path.lexists(path):
                continue
            # mkdir may have failed on a folder that was there: one that holds only this run's work was made by it.
            if first == _ABSENT or (os.path.isdir(path) and not os.path.islink(path) and self._is_all_ours(path)):
                found.append(path)
        return found

    def removed(self) -> list[str]:
        """The missing paths that the recorded run removed and had not made: the agent may look for them now."""
        return [path for path in sorted(self._gone) if self._first[path] == _OTHER and not os.path.lexists(path)]

    def _is_all_ours(self, folder: str) -> bool:
        return all(
            os.path.join(parent, name) in self.changed
            for parent, folders, files in os.walk(folder)
            for name in (*folders, *files)
        )


def _mention(op: str, name: str, args: dict[str, Any]) -> str:
    if name == "path" and args.get("absent"):
        return _ABSENT
    if op == "fs.write" and _has(args, "x", _O_EXCL):
        return _ABSENT
    if op in ("fs.symlink", "fs.link") and name == "to":
        return _ABSENT  # both fail when the name is taken (symlink(2), link(2))
    return _MADE if op == "fs.mkdir" and not args.get("exists") else _OTHER


def _has(args: dict[str, Any], letter: str, flag: int) -> bool:
    """True if a file was opened so: `flags` is a mode such as `xb`, or open flags in octal."""
    flags = str(args.get("flags", ""))
    if flags.startswith("0o"):
        try:
            return bool(int(flags, 8) & flag)
        except ValueError:
            return False
    return letter in flags
