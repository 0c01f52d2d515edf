"""Git configuration as text: its entries, read as git's own parser does. It decides nothing.

What git would not read is no configuration. Source: git-config(1), "SYNTAX", and git's config.c (get_value,
parse_value, get_extended_base_var).
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 256 * 1024
"""Bytes; longer configuration is not looked through."""
_MOST_INVOLVED = 32 * 1024
"""Characters of entries with quotes, escapes and the like, which are read one by one: while one process waits for that,
all others do.
"""
_HEADER = re.compile(r'\[([A-Za-z0-9-]+)(?:[ \t]+"([^"\\\n]*)")?\]')
_PLAIN = re.compile(r'([A-Za-z][A-Za-z0-9-]*)[ \t]*=[ \t]*([^"\\#;\t\r\n]*)(?:\n|\Z)')
"""A section and an entry as git itself writes most of them; what is not of these forms is read character by character.
"""
_SPACE = re.compile(r"[ \t\n\r]+")


class Unreadable(Exception):
    """Not what git would read."""


_BLANKS = " \t\n\r"
"""What git takes for a blank (ctype.c, sane_ctype)."""

Entry = tuple[str, str, str, str | None]
"""Section and variable in lower case, with the subsection between them as it is written; and the value, None for a
variable without one, which is true.
"""


def entries(data: bytes) -> list[Entry]:
    """All entries, in order. Raises `Unreadable`."""
    if len(data) > LARGEST or b"\0" in data:
        raise Unreadable("it is too long or no text")
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
    return list(_Reader(text).read())


class _Reader:
    """Reads as git's own parser (config.c) does; what is involved character by character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._left = _MOST_INVOLVED
        self._section = ""
        self._subsection = ""

    def read(self) -> Iterator[Entry]:
        while self._at < len(self._text):
            char, start = self._text[self._at], self._at
            if char in "#;":
                self._skip_line()
            elif blanks := _SPACE.match(self._text, self._at):
                self._at = blanks.end()
            elif header := _HEADER.match(self._text, self._at):
                self._at = header.end()
                self._section, self._subsection = header[1].lower(), header[2] or ""
            elif plain := _PLAIN.match(self._text, self._at):
                self._at = plain.end()
                yield self._section, self._subsection, plain[1].lower(), plain[2].rstrip(" ")
            elif char == "[":
                self._at += 1
                self._header()
                self._involved(start)
            elif char.isascii() and char.isalpha():
                name = self._name()
                yield self._section, self._subsection, name, self._value()
                self._involved(start)
            else:
                raise Unreadable(f"an entry that begins with {char!r}")

    def _involved(self, start: int) -> None:
        self._left -= self._at - start
        if self._left < 0:
            raise Unreadable("too much of it is quoted, escaped or commented to be looked through")

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end + 1

    def _header(self) -> None:
        """`[section]`, `[section.subsection]` or `[section "subsection"]`."""
        start = self._at
        while self._at < len(self._text) and self._is_name(self._text[self._at], "."):
            self._at += 1
        section, _, subsection = self._text[start : self._at].lower().partition(".")
        blanks = self._at
        while self._text[self._at : self._at + 1] in (" ", "\t", "\r"):
            self._at += 1
        if self._at > blanks:
            if self._text[self._at : self._at + 1] != '"':
                raise Unreadable("a section without an end")
            self._at += 1
            subsection = f"{subsection}.{self._quoted()}" if subsection else self._quoted()
        if self._text[self._at : self._at + 1] != "]" or not section:
            raise Unreadable("a section without an end")
        self._at += 1
        self._section, self._subsection = section, subsection

    def _quoted(self) -> str:
        made: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == '"':
                return "".join(made)
            if char == "\\":
                char = self._text[self._at : self._at + 1]
                self._at += 1
            if char == "\n":
                break
            made.append(char)
        raise Unreadable("a subsection without its closing quote")

    def _name(self) -> str:
        start = self._at
        while self._at < len(self._text) and self._is_name(self._text[self._at], ""):
            self._at += 1
        return self._text[start : self._at].lower()

    def _value(self) -> str | None:
        """What follows the name: nothing (true), or `=` and text with quotes, escapes and continued lines.

        Blanks outside of quotes count between other characters only; one that is no space is a space to git before
        2.45 and itself since: here it is a zero, which is equal to neither.
        """
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        following = self._text[self._at : self._at + 1]
        if following in ("\n", ""):
            return None
        if following != "=":
            raise Unreadable("a name that no value follows")
        self._at += 1
        made = blanks = ""
        quoted = False
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == "\n":
                break
            if char in "#;" and not quoted:
                self._at -= 1
                self._skip_line()
                break
            if char in _BLANKS and not quoted:
                blanks += (" " if char == " " else "\0") if made else ""
                continue
            made += blanks
            blanks = ""
            if char == '"':
                quoted = not quoted
            else:
                made += self._escape() if char == "\\" else char
        if quoted:
            raise Unreadable("a quote that is not closed")
        return made

    def _escape(self) -> str:
        char = self._text[self._at : self._at + 1]
        self._at += 1
        if char == "\n":
            return ""
        if char not in ("t", "b", "n", "\\", '"'):
            raise Unreadable(f"the escape \\{char}")
        return {"t": "\t", "b": "\b", "n": "\n"}.get(char, char)

    @staticmethod
    def _is_name(char: str, more: str) -> bool:
        return char.isascii() and (char.isalnum() or char == "-" or char in more) and char != ""
