"""A recording that is replayed in another working directory: its paths below the recorded one stand for paths below
the present one.

It rewrites names only, never contents, results or anything outside of the recorded directory.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PATHS = ("path", "to", "file", "cwd")
_WORDS = "argv"


class Relocation:
    """From the recorded working directory `old` to the present one, `new`; both absolute and resolved."""

    __slots__ = ("_prefix", "new", "old")

    def __init__(self, old: str, new: str) -> None:
        self.old = old
        self.new = new
        self._prefix = old + "/"

    @classmethod
    def between(cls, old: object, new: str | None) -> Relocation | None:
        """The relocation that is needed, if any. The root directory is none: everything lies below it."""
        if not isinstance(old, str) or new is None or old in ("", "/") or old == new:
            return None
        return cls(old, new)

    def path(self, text: str) -> str:
        """`text` below the new directory, if it is an absolute path below the old one."""
        if text == self.old:
            return self.new
        return self.new.rstrip("/") + text[len(self.old) :] if text.startswith(self._prefix) else text

    def args(self, args: dict[str, Any]) -> dict[str, Any]:
        """A step's args with its paths in the new directory: named members, and words of a command line."""
        made = dict(args)
        for name in _PATHS:
            if isinstance(made.get(name), str):
                made[name] = self.path(made[name])
        if isinstance(made.get(_WORDS), list):
            made[_WORDS] = [self._word(word) for word in made[_WORDS]]
        return made

    def _word(self, word: Any) -> Any:
        if not isinstance(word, str):
            return word
        name, equals, value = word.partition("=")  # `--output=/work/x`
        return name + equals + self.path(value) if equals and "/" not in name else self.path(word)
