"""Finds what was probably meant and words it, for lines without a known key. Loaded only when something is wrong.

Never changes what a policy means: a suggestion is text.
"""

from __future__ import annotations

from agentbox.policy.errors import PolicyError
from agentbox.policy.lexer import BLANKS, PATH_STARTS
from agentbox.policy.rules import ALIAS, KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentbox.policy.lexer import Value

SYNONYMS = {
    "connect": "net",
    "command": "exec",
    "environment": "env",
    "execute": "exec",
    "file": "read",
    "dir": "list",
    "folder": "list",
    "host": "net",
    "ls": "list",
    "network": "net",
    "program": "exec",
    "run": "exec",
    "spawn": "exec",
    "variable": "env",
}


def distance(one: str, other: str) -> int:
    """Edits (insert, delete, replace, swap of neighbours) between two words: optimal string alignment."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]


def nearest(word: str, choices: Iterable[str]) -> str:
    """The one of `choices` that `word` was probably meant to be, or ""."""
    word = word.lower()[:40]
    best, best_distance = "", 3
    for choice in choices:
        if choice == word or SYNONYMS.get(word) == choice:
            return choice
        edits = distance(word, choice)
        if edits < best_distance and edits < len(choice) - 1:
            best, best_distance = choice, edits
    return best


def _keys() -> str:
    return f"{', '.join(KINDS)} or {ALIAS}"


def unknown_key(key: str) -> PolicyError:
    """What to say of `key:` where no such kind of rule exists."""
    if key == "deny":
        return PolicyError(
            f"got the unknown key deny:, expected {_keys()}",
            code="unknown-key",
            hint="what no rule allows is denied; leave the rule that allows it away",
        )
    near = nearest(key, (*KINDS, ALIAS))
    hint = f"did you mean `{near}:`?" if near else "what the agent may do is said with these words only"
    if near == key.lower():
        hint += " Keys are lower case"
    return PolicyError(f"got the unknown key {key[:40]}:, expected {_keys()}", code="unknown-key", hint=hint)


def unknown_line(line: str) -> PolicyError:
    """What is wrong with a line that does not begin with a known key and a colon."""
    key, colon, rest = line.partition(":")
    if colon and key and not any(char in key for char in ' \t="'):
        return unknown_key(key)
    for sign in (":", "=", " ", "\t"):
        word, found, rest = line.partition(sign)
        near = nearest(word.strip(BLANKS), (*KINDS, ALIAS)) if found else ""
        if near:
            meant = rest.strip(" \t=:")
            return PolicyError(
                f"got {line[:80]!r}, expected `key: value`", code="syntax", hint=f"did you mean `{near}: {meant}`?"
            )
    return PolicyError(
        f"got {line[:80]!r}, expected `key: value` with {_keys()}", code="syntax", hint="a comment begins with #"
    )


def missed_key(item: str, current: str, alias: bool) -> PolicyError | None:
    """What to say of an item without a key of its own that can hardly be a path of `current:`, or None."""
    if not current and not item:
        hint = f"for example `{ALIAS}: read ./src, net: api.example.com`"
        return PolicyError(f"got {ALIAS}: without a rule", code="empty-value", hint=hint)
    word, _, rest = item.partition(" ")
    if not current:
        return keyless_path(item) if word.startswith(PATH_STARTS) else unknown_key(word.removesuffix(":"))
    meant = word if word in KINDS else ""
    if not meant and alias and word.isalpha():
        meant = next((key for key in KINDS if distance(word.lower()[:40], key) <= 1), "")
    if not meant:
        return None
    hint = f"did you mean `{meant}: {rest.strip()}`? Put a path of that name in double quotes"
    return PolicyError(f"got {item} as a path of {current}:", code="syntax", hint=hint)


def keyless_path(item: str) -> PolicyError:
    """What to say of a path after `allow:` that does not say what may be done with it."""
    return PolicyError(
        f"got {item[:80]} after {ALIAS}:, expected {', '.join([*KINDS][:-1])} or {[*KINDS][-1]} in front of it",
        code="unknown-key",
        hint=f"did you mean `{ALIAS}: read {item}`?",
    )


def two_rules(value: Value, key: str) -> PolicyError:
    """What to say of a value of `key:` that reads as several rules without a comma between them."""
    items: list[list[str]] = [[]]
    for word in (value.text if key == "exec" else value.text.replace(";", "; ")).split():
        if word in KINDS and key != "exec" and items[-1]:
            word += ":"
        named = word.partition(":")[0] in KINDS and ":" in word
        is_path = key != "exec" and word.startswith(PATH_STARTS)
        if items[-1] and (named or (is_path and not items[-1][-1].endswith(":"))):
            items.append([])
        if word != ";":
            items[-1].append(word.rstrip(";"))
        if word.endswith(";"):
            items.append([])
    meant = ", ".join(" ".join(words) for words in items if words).removeprefix(f"{key}: ")
    hint = "rules are separated by commas" + ("" if value.quoted else f": `{key}: {meant}`")
    hint += "; a name with such characters goes in double quotes"
    return PolicyError(f"got {value.text[:80]} as one value of {key}:", code="syntax", hint=hint)
