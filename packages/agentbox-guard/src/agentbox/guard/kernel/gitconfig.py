"""Git configuration as far as safety goes: what its entries are, and which of them make git run a program.

What cannot be read as git reads it counts as dangerous. Source: git-config(1), "SYNTAX" and "VARIABLES".
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 1 << 20
"""Bytes; longer configuration is not looked through."""

_WHOLE_SECTIONS = frozenset((
    "include", "includeif", "filter", "difftool", "mergetool", "pager", "browser", "man", "guitool", "trailer", "hook",
    "web", "instaweb", "tar", "imap", "safe", "gitcvs", "sendemail", "sequence", "interactive",
))  # fmt: skip
"""Sections in which entries are commands, lead to other configuration, or open what git keeps shut."""

_KEYS = frozenset((
    ("core", "fsmonitor"), ("core", "hookspath"), ("core", "sshcommand"), ("core", "gitproxy"), ("core", "editor"),
    ("core", "pager"), ("core", "askpass"), ("core", "alternaterefscommand"), ("diff", "external"),
    ("diff", "textconv"), ("diff", "command"), ("merge", "driver"), ("gpg", "program"),
    ("gpg", "defaultkeycommand"), ("credential", "helper"), ("init", "templatedir"),
    ("uploadpack", "packobjectshook"), ("remote", "uploadpack"), ("remote", "receivepack"), ("remote", "vcs"),
    ("lfs", "path"), ("lfs", "args"), ("lfs", "standalonetransferagent"), ("help", "browser"),
))  # fmt: skip
_TELLING = (
    "command", "cmd", "program", "helper", "editor", "pager", "hook", "hookspath", "askpass", "driver", "textconv",
    "tunnel", "browser", "exec", "shell",
)  # fmt: skip
"""Ends of variable names that speak of programs, in sections that are not known here."""

_WORDS = ("true", "false", "yes", "no", "on", "off", "1", "0", "")


class Unreadable(Exception):
    """Not what git would read."""


Entry = tuple[str, str, str, str]
"""Section and variable in lower case, with the subsection between them as it is written; and the value."""


def entries(data: bytes) -> list[Entry]:
    """All entries, in order. Raises `Unreadable`."""
    if len(data) > LARGEST or b"\0" in data:
        raise Unreadable("it is too long or no text")
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
    return list(_Reader(text).read())


def problem(data: bytes, before: bytes = b"") -> str:
    """Which entry of the new configuration makes git run a program, "" for none; those it had `before` do not count."""
    try:
        known = entries(before)
    except Unreadable:
        known = []
    try:
        now = entries(data)
    except Unreadable as fault:
        return f"git configuration that cannot be read: {fault}"
    for entry in now:
        if entry not in known and is_dangerous(entry):
            section, subsection, name, _ = entry
            return f"git would run a program for {'.'.join(part for part in (section, subsection, name) if part)}"
    return ""


def is_dangerous(entry: Entry) -> bool:
    """Whether git may run a program, or read other configuration, because of the entry."""
    section, subsection, name, value = entry
    if section == "alias":
        return value.lstrip().startswith("!") or any(word.startswith("-") for word in value.split())
    if section == "core" and name == "fsmonitor":
        return value.strip().lower() not in _WORDS
    if section in ("remote", "submodule", "url") and _leads_to_helper(value, subsection if section == "url" else ""):
        return True
    if section == "submodule" and name == "update":
        return value.lstrip().startswith("!")
    if section == "protocol":
        return name == "allow" and subsection in ("", "ext") and value.strip().lower() != "never"
    if section in _WHOLE_SECTIONS:
        return True
    return (section, name) in _KEYS or name.endswith(_TELLING)


def _leads_to_helper(*urls: str) -> bool:
    """Whether a URL names a remote helper (`ext::sh -c ...`, gitremote-helpers(7)) or could be taken for an option."""
    return any("::" in url or url.startswith("-") for url in urls)


class _Reader:
    """Reads as git's own parser (config.c) does, character by character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._section = ""
        self._subsection = ""

    def read(self) -> Iterator[Entry]:
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in "#;":
                self._skip_line()
            elif char.isspace():
                self._at += 1
            elif char == "[":
                self._at += 1
                self._header()
            elif char.isascii() and char.isalpha():
                name = self._name()
                yield self._section, self._subsection, name, self._value()
            else:
                raise Unreadable(f"an entry that begins with {char!r}")

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end + 1

    def _header(self) -> None:
        """`[section]`, `[section.subsection]` or `[section "subsection"]`."""
        start = self._at
        while self._at < len(self._text) and self._is_name(self._text[self._at], "."):
            self._at += 1
        section, _, subsection = self._text[start : self._at].lower().partition(".")
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        if self._text[self._at : self._at + 1] == '"':
            self._at += 1
            subsection = self._quoted()
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
            if char == "\n":
                break
            if char == "\\":
                char = self._text[self._at : self._at + 1]
                self._at += 1
            made.append(char)
        raise Unreadable("a subsection without its closing quote")

    def _name(self) -> str:
        start = self._at
        while self._at < len(self._text) and self._is_name(self._text[self._at], ""):
            self._at += 1
        return self._text[start : self._at].lower()

    def _value(self) -> str:
        """What follows the name: nothing (true), or `=` and text with quotes, escapes and continued lines."""
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        following = self._text[self._at : self._at + 1]
        if following in ("\n", ""):
            return ""
        if following != "=":
            raise Unreadable("a name that no value follows")
        self._at += 1
        made: list[str] = []
        quoted = False
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == "\n":
                if quoted:
                    raise Unreadable("a quote that is not closed")
                break
            if char in "#;" and not quoted:
                self._at -= 1
                self._skip_line()
                break
            if char == '"':
                quoted = not quoted
            elif char == "\\":
                made.append(self._escape())
            else:
                made.append(char)
        if quoted:
            raise Unreadable("a quote that is not closed")
        return "".join(made).strip()

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
