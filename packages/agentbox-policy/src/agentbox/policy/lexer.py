"""Splits the text of a policy line: comments, commas, double quotes and escapes (docs/spec/policy.md, sections 2 and
3).

Never knows a rule kind, and never gives a quote, a backslash or a control character a silent meaning.
"""

from __future__ import annotations

from agentbox.policy.errors import PolicyError

BLANKS = " \t"
PATH_STARTS = ("./", "../", "/", "~/")
HIDDEN = "\u200b\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
"""Characters that make a line read otherwise than it is (Unicode UAX 9 controls, zero width space, misplaced BOM)."""

ESCAPES = {'"': b'"', "\\": b"\\", "n": b"\n", "t": b"\t", "*": b"\0*", "?": b"\0?", "[": b"\0["}
"""What a backslash and a character stand for. The zero, which no value can hold, marks a character that is no
wildcard until the value is whole.
"""


class Value:
    """One value of a line: `text` as written, `plain` without quotes, `words` as (text, was it quoted), `quoted` if any
    of it was. In `plain` an escaped wildcard character stands in a set (`[*]`), in `words` for itself.
    """

    __slots__ = ("plain", "quoted", "text", "words")

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[tuple[str, bool]] = []
        if '"' in text:
            self.plain = self._split(text)
            self.quoted = True
            return
        if "\\" in text:
            raise PolicyError(
                f"got a backslash outside of double quotes in {text!r}",
                code="bad-quote",
                hint="put the value in double quotes and write each backslash twice",
            )
        self.plain = text
        self.quoted = False
        self.words = [(word, False) for word in text.replace("\t", " ").split(" ") if word]

    def with_plain(self, plain: str, quoted: bool | None = None) -> Value:
        """A part of this value as a value: the path after `unix:`, the program of a command. Errors still show all of
        it.
        """
        part = Value.__new__(Value)
        part.text, part.plain, part.words = self.text, plain, []
        part.quoted = self.quoted if quoted is None else quoted
        return part

    def _split(self, text: str) -> str:
        whole: list[str] = []
        word: list[str] = []
        quoted = False
        at = 0
        while at < len(text):
            char = text[at]
            if char == '"':
                chunk, at = _quoted(text, at + 1)
                quoted = True
            elif char == "\\":
                raise PolicyError(
                    f"got a backslash outside of double quotes in {text!r}",
                    code="bad-quote",
                    hint="put all of the value in double quotes and write each backslash twice",
                )
            else:
                chunk = char
                at += 1
                if char in BLANKS:
                    if word or quoted:
                        self.words.append((_joined(word).replace("\0", ""), quoted))
                    word, quoted = [], False
                    whole.append(char)
                    continue
            whole.append(chunk)
            word.append(chunk)
        if word or quoted:
            self.words.append((_joined(word).replace("\0", ""), quoted))
        plain = _joined(whole)
        for char in "*?[" if "\0" in plain else "":
            plain = plain.replace("\0" + char, f"[{char}]")
        return plain


def _joined(chunks: list[str]) -> str:
    """The chunks as one text; bytes that were written as escapes in several chunks may make one character (PEP 383)."""
    text = "".join(chunks)
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _quoted(text: str, at: int) -> tuple[str, int]:
    """The text between the quote before `at` and the next one, escapes decoded, and the index after it."""
    made = bytearray()
    while at < len(text):
        char = text[at]
        if char == '"':
            return made.decode("utf-8", "surrogateescape"), at + 1
        if char != "\\":
            made += char.encode("utf-8")
            at += 1
            continue
        escape = text[at + 1 : at + 2]
        if escape in ESCAPES:
            made += ESCAPES[escape]
            at += 2
        elif escape == "x":
            made.append(_byte(text[at + 2 : at + 4]))
            at += 4
        else:
            raise PolicyError(
                f"got the escape \\{escape} in {text!r}",
                code="bad-quote",
                hint='the escapes are \\" \\\\ \\* \\? \\[ \\n \\t and \\xHH; a backslash itself is written twice',
            )
    raise PolicyError(f"got a double quote that is not closed in {text!r}", code="bad-quote", hint='end it with "')


def _byte(digits: str) -> int:
    if len(digits) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in digits) and digits != "00":
        return int(digits, 16)
    raise PolicyError(
        f"got the escape \\x{digits}", code="bad-quote", hint="write two hexadecimal digits, from \\x01 to \\xff"
    )


def split_items(text: str) -> list[str]:
    """The comma-separated items of `text`, stripped of blanks; a comment is cut off, commas and `#` in double quotes
    stay.
    """
    if '"' not in text and "#" not in text:
        return [item.strip(BLANKS) for item in text.split(",")]
    items = []
    start = at = 0
    inside = False
    while at < len(text):
        char = text[at]
        if inside:
            if char == "\\":
                at += 1
            elif char == '"':
                inside = False
        elif char == '"':
            inside = True
        elif char == ",":
            items.append(text[start:at].strip(BLANKS))
            start = at + 1
        elif char == "#" and (at == 0 or text[at - 1] in " \t,"):
            break
        at += 1
    items.append(text[start:at].strip(BLANKS))
    return items


def check_characters(line: str) -> None:
    """Raise when `line` holds a character that is invisible or is no text; blanks are space and tab only."""
    if line.isascii() and line.isprintable():
        return
    for char in line:
        code = ord(char)
        if char != "\t" and (code < 0x20 or 0x7F <= code < 0xA0):
            raise PolicyError(
                f"got the control character \\x{code:02x}",
                code="bad-character",
                hint=f'remove it, or write "\\x{code:02x}" in double quotes' if code else "a policy is a text file",
            )
        if char in HIDDEN:
            raise PolicyError(
                f"got the invisible character U+{code:04X}",
                code="bad-character",
                hint="remove it, or write its UTF-8 bytes as \\xHH in double quotes",
            )
