"""Redaction: secrets are replaced by `«redacted:NAME:hmac8»` before a line is hashed (docs/spec/trace.md, section 8).

It must never let a value through because its form is unusual where a wider pattern would do, and never touch what is
a placeholder already.
"""

from __future__ import annotations

import os

from . import settings
from .secretforms import beginnings, compiled, needles, password_in_url
from .secretnames import HEADERS, QUERY_ONLY, STEMS, is_secret_member, is_secret_variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from re import Match, Pattern
    from typing import Any

SHORTEST = 6
"""Values of secret variables that are shorter than this are not searched for: they would be found in everything."""

_OPEN = "«redacted:"
_PLACEHOLDER = "«redacted:[A-Za-z0-9_.-]{0,64}:[0-9a-f]{8}»"


class Body(dict[str, object]):
    """The JSON form of a body (`describe_body`): redacted before it was hashed, so that it must stay as it is."""

    __slots__ = ()


class Redactor:
    """Replaces secrets in JSON values, texts and bytes.

    `env_values` maps the names of environment variables to values; those whose name looks like a secret (and the
    passwords inside of URLs) are replaced wherever their value appears: as it is, escaped for JSON or HTML, encoded
    with percent signs, in base64 and in hex; its beginning as well, where a text ends with it, since long texts are
    cut. `key` (bytes) makes the eight hex digits of a placeholder; it is random by default and should not outlive the
    run, because whoever has it can try out weak secrets.
    """

    __slots__ = ("_key", "_needles", "_patterns", "_values")

    def __init__(self, env_values: Mapping[str, str] | None = None, key: bytes | None = None) -> None:
        self._key = os.urandom(32) if key is None else key
        values: dict[str, str] = {}
        for name, value in (env_values or {}).items():
            a_path = name.upper().endswith("CREDENTIALS") and value.startswith("/")
            secret = value if is_secret_variable(name) and not a_path else password_in_url(value)
            if len(secret) >= SHORTEST and not settings.is_weak(secret):
                values.setdefault(secret, name)
        # The longest first, so that a secret which holds another is not torn apart. Each with its needles.
        self._values = [(value, values[value], needles(value)) for value in sorted(values, key=len, reverse=True)]
        forms = [form for value, _, forms in self._values for form in (*forms, *beginnings(value[:SHORTEST]))]
        self._needles = tuple(dict.fromkeys([*STEMS, "\\u00", *forms]))
        self._patterns: dict[str, Pattern[str]] = {}
        """By rule or value, compiled when first needed: `re` and they take longer than all else that a run's start
        does here.
        """

    def suspects(self, text: str) -> bool:
        """Say quickly whether `text` (a line of JSON, or anything) may hold a secret; False is certain."""
        low = text.lower()
        for (
            needle
        ) in self._needles:  # measured: faster than one alternation, whose cost grows with the first letters in it
            if needle in low:
                return True
        return ("://" in low and "@" in low) or ("%" in low and self._values != [] and self._in_percent(low))

    def _in_percent(self, low: str) -> bool:
        """Whether a value may be there with letters percent-encoded, which hides it from the needles."""
        from urllib.parse import unquote

        return _holds(unquote(low).lower(), self._needles)

    def doc(self, value: Any) -> Any:
        """Return a JSON value with its secrets replaced: by the names of members, by pairs of a name and a value, in
        `--flag value` lists, and in all strings."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Body):
            return value
        if isinstance(value, dict):
            return {self._name(name): self._member(name, item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return self._list(value)
        return value

    def text(self, text: str) -> str:
        """Return a text with its secrets replaced: values of secret variables, members of JSON, headers,
        `name=value`, `--flag value`, passwords in URLs."""
        if not self.suspects(text):
            return text
        text = self._replace_values(text)
        if '"' in text and ":" in text:
            text = self._replace_members(text)
        for may_match, rule, name_of in _RULES:
            if may_match(text):
                text = self._replace_rule(rule, name_of, text)
        return text

    def data(self, data: bytes) -> bytes:
        """Return a body with its secrets replaced. In bytes that are not UTF-8 only the values of secret variables
        are looked for."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = data.decode("utf-8", "surrogateescape")
            return (
                self._replace_values(text).encode("utf-8", "surrogateescape")
                if self._values and self.suspects(text)
                else data
            )
        clean = self.text(text)
        return data if clean == text else clean.encode("utf-8")

    def placeholder(self, name: str, value: str) -> str:
        """Return `«redacted:NAME:hmac8»`: equal secrets of one run look equal, and nothing else is said about them."""
        from hmac import digest

        shown = "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "_" for char in name)[:64]
        return f"{_OPEN}{shown}:{digest(self._key, value.encode('utf-8', 'surrogatepass'), 'sha256').hex()[:8]}»"

    def _pattern(self, source: str) -> Pattern[str]:
        found = self._patterns.get(source)
        if found is None:
            from re import compile

            found = self._patterns[source] = compile(source)
        return found

    def _replace_values(self, text: str) -> str:
        """Replace every form of every secret value, but not inside of placeholders."""
        text = self._replace_whole(text)
        for value, name, _ in self._values:
            at = text.find(value[:SHORTEST], max(0, len(text) - len(value) + 1))
            while at >= 0 and not value.startswith(text[at:]):
                at = text.find(value[:SHORTEST], at + 1)
            if at >= 0:
                text = text[:at] + self.placeholder(name, value)
        return text

    def _replace_whole(self, text: str) -> str:
        for value, name, forms in self._values:
            if "%" not in text and not _holds(text.lower(), forms):
                continue
            form = self._patterns.get(value) or self._patterns.setdefault(value, compiled(value))
            shown = self.placeholder(name, value)
            pieces = self._pattern(f"({_PLACEHOLDER})").split(text)
            pieces[::2] = [form.sub(shown, piece) for piece in pieces[::2]]  # a placeholder holds no backslash
            text = "".join(pieces)
        return text

    def _replace_rule(self, rule: str, name_of: Callable[[Match[str]], str], text: str) -> str:
        return self._pattern(rule).sub(lambda match: self._swap(name_of, match), text)

    def _is_placeholder(self, value: str) -> bool:
        return value.startswith(_OPEN) and self._pattern(_PLACEHOLDER).fullmatch(value) is not None

    def _replace_members(self, text: str) -> str:
        """Replace the values of secret members in JSON inside of a text, also where that is escaped inside of other
        JSON."""
        out = []
        done = 0
        for match in self._pattern(_MEMBER).finditer(text):
            if match.start() >= done and is_secret_member(_unescaped(match[2])):
                found = self._member_value(text, match)
                if found is not None:
                    out += [text[done : match.end()], found[1]]
                    done = found[0]
        return "".join([*out, text[done:]]) if out else text

    def _end_of_string(self, text: str, start: int, quote: str) -> int:
        """Return where a JSON string ends whose opening `quote` (with as many backslashes as its nesting needs) is
        before `start`."""
        inner = r'(?:[^"\\]|\\.)*' if quote == '"' else rf"(?s:.*?)(?=(?<!\\){quote.replace(chr(92), chr(92) * 2)}|$)"
        from re import compile  # whose own table of patterns has an end, as the number of backslashes has none

        match = compile(inner).match(text, start)
        return match.end() if match is not None else len(text)

    def _member_value(self, text: str, match: Match[str]) -> tuple[int, str] | None:
        """Return (where the value after a secret member's name ends, what to put there), or None to leave it."""
        quote, name, at = match[1], _unescaped(match[2]), match.end()
        if text.startswith(quote, at):
            start = at + len(quote)
            end = self._end_of_string(text, start, quote)
            value = text[start:end]
            if not value or self._is_placeholder(value):
                return None
            return end, quote + self.placeholder(name, value)
        number = self._pattern(_NUMBER).match(text, at)
        if number is not None:
            if settings.is_small(number[0]):
                return None
            return number.end(), quote + self.placeholder(name, number[0]) + quote
        if text[at : at + 1] in ("[", "{") and quote == '"':
            return self._container(text, name, at)
        return None

    def _container(self, text: str, name: str, at: int) -> tuple[int, str] | None:
        from json import JSONDecoder, dumps

        try:
            value, end = JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        clean = self._whole(name, value)
        return None if clean == value else (end, dumps(clean, ensure_ascii=False, separators=(",", ":")))

    def _swap(self, name_of: Callable[[Match[str]], str], match: Match[str]) -> str:
        """Replace the last group of a match, if `name_of` finds a name for it and it is not a placeholder already."""
        name = name_of(match)
        group = match.lastindex or 0
        value = match[group]
        if not name or not value or self._is_placeholder(value):
            return match[0]
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        return match[0][:start] + self.placeholder(name.lstrip("-"), value) + match[0][end:]

    def _name(self, name: Any) -> Any:
        return self.text(name) if isinstance(name, str) else name

    def _member(self, name: Any, value: Any) -> Any:
        if not isinstance(name, str) or not is_secret_member(name):
            return self.doc(value)
        return value if isinstance(value, int) and settings.is_small(str(value)) else self._whole(name, value)

    def _whole(self, name: str, value: Any) -> Any:
        """Replace every string and number inside of a secret member."""
        if isinstance(value, str):
            return value if not value or self._is_placeholder(value) else self.placeholder(name, value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self.placeholder(name, str(value))
        if isinstance(value, Body):
            return value
        if isinstance(value, dict):
            return {key: self._whole(name, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._whole(name, item) for item in value]
        return value

    def _list(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        """Treat `["authorization", "..."]` as a header and `["--token", "..."]` as a flag with its value."""
        out: list[Any] = []
        before: Any = None
        for item in value:
            if out and isinstance(item, str) and before in _USER_FLAGS and _is_client(value[0]):
                user, colon, password = item.partition(":")
                out.append(user + colon + self._whole("user-password", password))
            elif isinstance(before, str) and _names_next(before, len(value)):
                out.append(self._whole(before.lstrip("-"), item))
            else:
                out.append(self.doc(item))
            before = item
        return out


_USER_FLAGS = ("-u", "-U", "--user", "--proxy-user")


def _is_client(program: Any) -> bool:
    return isinstance(program, str) and program.rpartition("/")[2] in settings.CLIENTS


def _names_next(item: str, length: int) -> bool:
    return (length == 2 or item.startswith("-")) and len(item) < 100 and is_secret_member(item)


def _unescaped(name: str) -> str:
    r"""Return the name that is meant by `api\u005fkey`."""
    if "\\" not in name:
        return name
    from json import loads

    try:
        return str(loads(f'"{name}"'))
    except ValueError:
        return name


def _flag_name(match: Match[str]) -> str:
    found = is_secret_member(match[1]) and not settings.is_harmless(match[1], match[match.lastindex or 0])
    return match[1] if found else ""


def _setting_name(match: Match[str]) -> str:
    return settings.quoted(match) if _names_secret(match[1]) else ""


def _bare_name(match: Match[str]) -> str:
    return settings.bare(match) if _names_secret(match[1]) else ""


def _user_name(match: Match[str]) -> str:
    sure = _holds(match.string.lower(), (client + " " for client in settings.CLIENTS))
    return "user-password" if sure or settings.is_plausible(match[2]) else ""


def _names_secret(name: str) -> bool:
    return is_secret_member(name) or (name.isupper() and is_secret_variable(name))


def _member_name(match: Match[str]) -> str:
    return match[1] if is_secret_member(match[1]) else ""


def _pair_name(match: Match[str]) -> str:
    name = match[2]
    if "%" in name:
        from urllib.parse import unquote

        name = unquote(name)
    last = name.rstrip("]").rpartition("[")[2]  # user[password]=... names `password`
    secret = _names_secret(name) or is_secret_member(last) or (match[1] and name.lower() in QUERY_ONLY)
    return name if secret and not settings.is_harmless(last, match[3]) else ""


def _holds(low: str, texts: Iterable[str]) -> bool:
    return any(text in low for text in texts)


def _may_hold_header(text: str) -> bool:
    # Without regard to case a few other letters stand for those of ASCII too.
    return ":" in text and (not text.isascii() or _holds(text.lower(), HEADERS))


def _may_hold_flag(text: str) -> bool:
    """Whether a hyphen begins a word, and there is a blank."""
    at = text.find("-") if " " in text or "\t" in text else -1
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] in "_-"):
        at = text.find("-", at + 1)
    return at >= 0


def _may_hold_setting(text: str) -> bool:
    """Whether a secret name stands before a sign of assignment; without patterns, since nearly every text has one."""
    return any(_names_secret(word) for sign in ("=", ":") if sign in text for word in settings.words_before(text, sign))


# Each is anchored at the begin of a word or bounded in length, so that no text takes quadratic time.
_MEMBER = r'(?<!\\)(\\*")((?:(?!\\*").){1,200})\1[ \t\r\n]*:[ \t\r\n]*'
_NUMBER = r"-?[0-9][0-9.eE+-]*"
_HEADER = (
    rf"(?i)(?<![\w-])(?<!«redacted:)({'|'.join(name.replace('-', '[-]') for name in HEADERS)})"
    r"[ \t]*:[ \t]*([^\r\n\"'\\]+)"
)
_PAIR = r"([?&]?)(?<![A-Za-z0-9_.%\[\]-])([A-Za-z0-9_.%\[\]-]{2,100})=([^\s&;,\"'\\<>]+)"
_FLAG = r"(?<![\w-])(--?[A-Za-z0-9_-]{2,100})[ \t]+([^\s\"'-][^\s\"']*)"
_FORM = r"\bname=\"([^\"\r\n]{1,100})\"(?:\r?\n[^\r\n]{1,1000}){0,9}\r?\n\r?\n([^\r\n]+)"
_URL = r"://[^\s/@:\"'?#]{0,200}:([^\s/@\"'?#]{1,500})@"
_RULES: tuple[tuple[Callable[[str], bool], str, Callable[[Match[str]], str]], ...] = (
    (_may_hold_header, _HEADER, lambda match: match[1].lower()),
    (_may_hold_setting, settings.QUOTED, _setting_name),
    (lambda text: "=" in text, _PAIR, _pair_name),
    (_may_hold_flag, _FLAG, _flag_name),
    (lambda text: "-" in text and ("'" in text or '"' in text), settings.FLAG, _flag_name),
    (_may_hold_setting, settings.BARE, _bare_name),
    (lambda text: "</" in text, settings.ELEMENT, _setting_name),
    (lambda text: "value" in text, settings.ATTRIBUTE, _setting_name),
    (lambda text: "machine " in text and "password" in text, settings.NETRC, _flag_name),
    (lambda text: "-u" in text or "-U" in text or "-user" in text, settings.USER, _user_name),
    (lambda text: _holds(text, ("ENV ", "setenv ", "set -")), settings.SETENV, _setting_name),
    (lambda text: 'name="' in text, _FORM, _member_name),
    (lambda text: "://" in text and "@" in text, _URL, lambda match: "url-password"),
)
"""What is quickly seen of every text that the pattern matches; the pattern, whose last group is the value; and the name
of the secret, or "" to leave it."""


def _stable(text: str) -> str:
    """Return a text without the part of each placeholder that differs from run to run."""
    if _OPEN not in text:
        return text
    from re import sub

    return sub("(«redacted:[A-Za-z0-9_.-]{0,64}):[0-9a-f]{8}»", r"\1»", text)


def stable_bytes(data: bytes) -> bytes:
    """Do for the bytes of a body what `same_redacted` does for texts."""
    return _stable(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def same_redacted(a: Any, b: Any) -> bool:
    """Say whether two redacted JSON values, of two runs with different keys, are equal but for the eight digits of
    their placeholders.

    Bodies that were redacted are compared by their member `redacted` (see `describe_body`), since their hashes
    cannot agree.
    """
    if isinstance(a, str) and isinstance(b, str):
        return a == b or _stable(a) == _stable(b)
    if isinstance(a, dict) and isinstance(b, dict):
        if "redacted" in a and "redacted" in b:
            return bool(a["redacted"] == b["redacted"])
        left, right = ({_stable(name): value for name, value in doc.items()} for doc in (a, b))
        return left.keys() == right.keys() and all(same_redacted(value, right[name]) for name, value in left.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same_redacted(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)
