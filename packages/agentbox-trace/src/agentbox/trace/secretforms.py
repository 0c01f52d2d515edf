"""The forms in which one secret value can appear in a text: as it is, percent-encoded, escaped for JSON, in base64 and
in hex.

It knows nothing of names, and what it calls a needle must be in every text that its pattern matches.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Pattern


def needles(value: str) -> list[str]:
    """Return lower-cased texts, one of which is in every lower-cased text that holds the value in a form known here."""
    return list(dict.fromkeys(_longest_run(form)[:12].lower() for form in (value, *_coded(value))))


def beginnings(start: str) -> list[str]:
    """Return the lower-cased forms in which a text, or a line of JSON, may hold the beginning of a value."""
    from _json import encode_basestring_ascii  # the same as json.dumps, which would load all of json

    return list(dict.fromkeys((start.lower(), encode_basestring_ascii(start)[1:-1].lower())))


def _longest_run(text: str) -> str:
    """Return the longest run of letters and digits: the part that no escaping and neither alphabet of base64
    changes."""
    return max(
        "".join(char if char.isascii() and char.isalnum() else " " for char in text).split(), key=len, default=""
    )


def password_in_url(value: str) -> str:
    """Return the password inside of a URL such as `postgres://user:password@host/`, or an empty string."""
    _, found, rest = value.partition("://")
    user, at, _ = rest.rpartition("@")
    return user.partition(":")[2] if found and at and "/" not in user else ""


def compiled(value: str) -> Pattern[str]:
    """Return a pattern for a value in which any character may be percent-encoded (more than once), or escaped for JSON
    or HTML, or all of it be base64 or hex."""
    import re

    plain = "".join(_any_char(char) for char in value)
    # One more character at each end of base64: it holds some bits of the secret too.
    coded = "|".join(re.escape(form) for form in sorted(_coded(value), key=len, reverse=True))
    return re.compile(rf"{plain}|[A-Za-z0-9+/_-]?(?:{coded})[A-Za-z0-9+/_-]?")


def _coded(value: str) -> list[str]:
    """Return what hex and base64 (at each of three offsets inside of a longer text, both alphabets) make of a value."""
    from binascii import b2a_base64

    raw = value.encode("utf-8", "surrogatepass")
    forms = [raw.hex(), raw.hex().upper()]
    for offset in range(3):
        text = b2a_base64(bytes(offset) + raw, newline=False).decode("ascii")
        core = text[(0, 2, 3)[offset] : (offset + len(raw)) * 8 // 6]
        forms += [core, core.replace("+", "-").replace("/", "_")]
    return list(dict.fromkeys(forms))


_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "(?:quot|#34)", "'": "(?:apos|#39|#[xX]27)"}
_SHORT = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


def _any_char(char: str) -> str:
    import re

    forms = [re.escape(char), "".join(f"(?i:%(?:25)*{byte:02x})" for byte in char.encode("utf-8", "surrogatepass"))]
    if char == " ":
        forms.append(r"\+")
    if not (char.isascii() and char.isalnum()):
        units = char.encode("utf-16-be", "surrogatepass")
        forms.append("".join(rf"\\+u(?i:{units[at : at + 2].hex()})" for at in range(0, len(units), 2)))
        if char in '"\\/':
            forms.insert(0, r"\\+" + re.escape(char))
        if char in _ENTITIES:
            forms.insert(0, f"&{_ENTITIES[char]};")
        if char in _SHORT:
            forms.append(rf"\\+{_SHORT[char]}")
    return f"(?:{'|'.join(forms)})"
