"""How settings files, programs and shells write down a secret beside its name, and which values are plainly none.

It decides about texts only: a member of a JSON value is judged by its name alone (`redact`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from re import Match

# Possessive quantifiers (Python 3.11) keep every pattern linear; each name and value is bounded in length.
_NAME = r"(?<![A-Za-z0-9_.%\[\]-])([A-Za-z_][A-Za-z0-9_.-]{1,99}+)"
_QUOTED = r"[bBrRuUfF]{0,2}(?:\"([^\"\r\n]{1,500})\"|'([^'\r\n]{1,500})'|`([^`\r\n]{1,500})`)"
_BARE = r"([^\s\"'`,;&<>(){}\[\]]{1,500}+)(?!\()"

QUOTED = rf"{_NAME}[\"')\]]{{0,2}}[ \t]{{0,20}}(?::=|=>|==?|:)[ \t]{{0,20}}{_QUOTED}"
"""`NAME="value"`, `'name': 'value'`, `:name => "value"`, `name = "value"`."""
BARE = rf"{_NAME}(?:[\"']?[ \t]{{0,20}}:[ \t]{{1,20}}|[ \t]{{1,20}}:?=[ \t]{{0,20}}|:?=[ \t]{{1,20}}){_BARE}"
"""`name: value` and `name = value`: a colon and a blank, or an equals sign with blanks around it."""
ELEMENT = r"<([A-Za-z_][A-Za-z0-9_.:-]{1,99}+)>[ \t]{0,20}([^<>\s][^<>\r\n]{0,500}+)</"
_IS = r"[ \t]{0,20}=[ \t]{0,20}"
ATTRIBUTE = rf"\b(?:key|name){_IS}[\"']([^\"'\r\n]{{1,100}}+)[\"']\s{{1,20}}value{_IS}[\"']([^\"'\r\n]{{1,500}})"
NETRC = r"(?<!\S)(password)[ \t\r\n]{1,20}([^\s]{1,500}+)"
USER = r"(?<!\S)(?:-u|-U|--user|--proxy-user)(?:[ \t]{1,20}|=)[\"']?([^\s:\"'/]{1,100}+):([^\s\"']{1,500}+)"
SETENV = (
    r"(?<!\S)(?:ENV|setenv|set -[a-zA-Z]{1,4})[ \t]{1,20}([A-Za-z_][A-Za-z0-9_]{1,99}+)[ \t]{1,20}"
    r"[\"']?([^\s\"'=]{1,500}+)"
)
FLAG = r"(?<![\w-])(--?[A-Za-z0-9_-]{2,100}+)(?:[ \t]{1,20}|=)(?:\"([^\"\r\n]{1,500})\"|'([^'\r\n]{1,500})')"

CLIENTS = ("curl", "http", "https", "wget", "xh")
"""Programs whose `-u` is a user and a password; for others it is often a user and a group."""

_WORDS = frozenset(
    (
        "any", "auto", "basic", "bearer", "boolean", "bytes", "default", "disabled", "empty", "enabled", "example",
        "false", "hidden", "int", "integer", "invalid", "missing", "never", "nil", "no", "none", "null", "number",
        "off", "on", "optional", "prompt", "redacted", "required", "str", "string", "text", "true", "undefined",
        "unset", "yes",
        "api key", "api_key", "apikey", "auth", "passphrase", "passwd", "password", "pwd", "secret", "token",
    )
)  # fmt: skip
_MASKS = frozenset("*.•xX-_ ")
_WEAK = 12


def is_harmless(name: str, value: str) -> bool:
    """Say whether a value beside a secret name is plainly no secret: a word of a schema, a reference to where the
    secret is, a mask, a status or a path."""
    low = value.strip().strip("\\").lower()
    if low in _WORDS or _MASKS.issuperset(value):
        return True
    if value.isdigit() and len(value) < 4:
        return True
    if value.startswith(("$", "%", "{", "<", "@", "!", "&{", "#{")):
        return not value.startswith(("$2", "$1$", "$5$", "$6$", "$argon", "$y$")) and not _is_random(value[1:])
    return name.lower().lstrip("-") in ("pwd", "oldpwd") and value.startswith(("/", "~", "./", ".."))


def is_small(number: str) -> bool:
    """Say whether a number is a count or a position (`"token":5`), not a code."""
    return number.isdigit() and len(number) < 3


def words_before(text: str, sign: str) -> Iterator[str]:
    """Yield the word before each `sign`, without quotation marks, brackets and blanks between."""
    for piece in text.split(sign)[:-1]:
        end = piece[-130:].rstrip(" \t:\"')]")
        start = len(end)
        while start and (end[start - 1].isalnum() or end[start - 1] in "_.-"):
            start -= 1
        yield end[start:]


def _is_random(text: str) -> bool:
    """Digits and other letters side by side, and nothing that a reference has: `$ecr3tPa55`, not `${NAME}`."""
    return any(char.isdigit() for char in text) and any(char.islower() for char in text) and "{" not in text


def is_plausible(value: str) -> bool:
    """Say whether a bare word looks like a secret and not like a word, an identifier or a path: there is a digit, or
    a sign that no word has, or it is long and of both cases."""
    if len(value) < 6 or value.startswith(("/", "./", "../", "~/")) or "://" in value:
        return False
    if not any(char.isalpha() for char in value):
        return len(value) >= 8 and not any(char in ":/" for char in value)
    if any(char.isdigit() for char in value):
        return not _is_reference(value)
    plain = all(char.isalpha() or char in "._-:/\\|?" for char in value)
    return not plain or (len(value) >= 20 and not value.islower() and not value.isupper() and "." not in value)


def _is_reference(value: str) -> bool:
    """`os.environ2.x`, `self.token1`: names with dots, which tokens of three long parts are not."""
    parts = value.split(".")
    return len(parts) > 1 and all(part.isidentifier() and len(part) < 20 for part in parts)


def is_weak(value: str) -> bool:
    """Say whether a value is a word or a number that stands in many texts for something else (`postgres`): it is a
    secret beside its name only."""
    if value.isdigit():
        return len(value) < 8
    return len(value) < _WEAK and value.isascii() and value.isalpha() and value[1:].islower()


def quoted(match: Match[str]) -> str:
    """The name, where a quoted value beside it is to be replaced."""
    value = match[match.lastindex or 0]
    return "" if len(value) < 4 or is_sentence(value) or is_harmless(match[1], value) else match[1]


def bare(match: Match[str]) -> str:
    """The name, where a bare value beside it is to be replaced."""
    return match[1] if is_plausible(match[2]) and not is_harmless(match[1], match[2]) else ""


def is_sentence(value: str) -> bool:
    """Words with blanks between them: a label or a message."""
    return " " in value and all(char.isalpha() or char in " .,:;!?'-()" for char in value)
