"""Reads policy text into rules (docs/spec/policy.md, sections 1 to 4).

Never guesses: what is not understood is an error with its place, and a hint that is text only.
"""

from __future__ import annotations

import os

from agentbox.policy.errors import PolicyError
from agentbox.policy.forms.path import path_decide
from agentbox.policy.lexer import BLANKS, PATH_STARTS, Value, check_characters, split_items
from agentbox.policy.model import Policy, Rule, compiled_paths
from agentbox.policy.rules import ALIAS, KINDS
from agentbox.policy.rules._base import Scope

LARGEST = 1 << 20
"""Bytes in a policy file; more is not a policy."""

EMPTY_HINT = "write one rule a line, such as `read: ./data`, or start from `agentbox init`"


def load(
    path: str,
    *,
    cwd: str | None = None,
    search: str | None = None,
    home: str | None = None,
    may_be_empty: bool = False,
) -> Policy:
    """Read the policy file `path`. The other arguments are those of `parse`; `path` itself is relative to the process.
    With `may_be_empty` a file that is not there is one without a rule.

    Raises `PolicyError` when the file is missing, unreadable, not a regular file, larger than 1 MiB, no UTF-8 text,
    holds no rule, or holds a wrong one.
    """
    path = os.fspath(path)
    data = b"" if may_be_empty and not os.path.lexists(path) else _read(path)
    shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError(
            f"got the byte \\x{data[error.start]:02x}, expected UTF-8 text",
            code="not-text",
            hint="save the file as UTF-8; a name of other bytes is written as \\xHH in double quotes",
            file=shown,
            line=line,
        ) from None
    scope = _scope(cwd, home, search)
    return _parse(text, name=shown, path=os.path.realpath(path), scope=scope, may_be_empty=may_be_empty)


def parse(
    text: str,
    *,
    name: str = "policy",
    cwd: str | None = None,
    search: str | None = None,
    home: str | None = None,
    may_be_empty: bool = False,
) -> Policy:
    """The policy that `text` says.

    `name` stands for the file in messages; `cwd` is what relative paths are resolved against (the process's own if
    None); `search` the PATH in which bare program names are looked up, `home` what `~` stands for (both from the
    environment if None); `may_be_empty` is for runs that only observe. Raises `PolicyError` with file, line, what was
    got and what was expected.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise PolicyError("got a lone surrogate, expected text", code="not-text", file=name, line=line) from None
    return _parse(text, name=name, path=None, scope=_scope(cwd, home, search), may_be_empty=may_be_empty)


def _read(path: str) -> bytes:
    import stat

    fault, hint = "", ""
    try:
        # O_NONBLOCK: opening a FIFO must not hang (open(2)); for a regular file it has no effect.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                fault, hint = "got a directory or device, expected a policy file", "name the file with -p FILE"
            elif status.st_size > LARGEST:
                fault, hint = f"got {status.st_size} bytes, expected at most {LARGEST}", "is this the right file?"
            else:
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    return file.read(LARGEST + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        fault, hint = "no such policy file", "write a starter policy with `agentbox init`, or name yours with -p FILE"
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        refused = isinstance(error, PermissionError)
        hint = "make it readable, or name another with -p FILE" if refused else "name another with -p FILE"
        fault = f"cannot read the policy: {reason.lower()}"
    raise PolicyError(fault, code="unreadable", hint=hint, file=path.encode("utf-8", "replace").decode("utf-8"))


def _scope(cwd: str | None, home: str | None, search: str | None) -> Scope:
    if home is None:
        home = os.environ.get("HOME", "")
    if search is None:
        search = os.environ.get("PATH", os.defpath)
    try:
        return Scope(os.path.realpath(cwd or os.getcwd()), home if home[:1] == "/" else "/nonexistent", search)
    except OSError as error:
        raise PolicyError(
            f"the working directory cannot be told: {(error.strerror or str(error)).lower()}",
            code="unreadable",
            hint="change to a directory that exists",
        ) from error


def _parse(text: str, *, name: str, path: str | None, scope: Scope, may_be_empty: bool) -> Policy:
    rules: list[Rule] = []
    lines = text.removeprefix("\ufeff").split("\n")
    for number, line in enumerate(lines, 1):
        if line.strip(" \t\r") == "":
            continue
        try:
            for key, value in _line(line.removesuffix("\r").strip(BLANKS)):
                rules.append(Rule(key, value.text, name, number, KINDS[key].compile(value, scope)))
        except PolicyError as error:
            raise error.at(name, number) from error.__cause__
    if not rules and not may_be_empty:
        raise PolicyError("got no rule, expected at least one", code="no-rules", hint=EMPTY_HINT, file=name)
    paths = compiled_paths(tuple(rules))
    for rule in rules:
        rule.form = KINDS[rule.key].settle(rule.form, scope, lambda file: path_decide("write", file, paths) >= 0)
    return Policy(tuple(rules), name=name, path=path, text=text, scope=scope)


def _line(line: str) -> list[tuple[str, Value]]:
    """The (key, value) pairs of one line that is not blank."""
    check_characters(line)
    if line[0] == "#":
        return []
    key, colon, rest = line.partition(":")
    if not colon or (key not in KINDS and key != ALIAS):
        from agentbox.policy.suggest import unknown_line

        raise unknown_line(line)
    alias = key == ALIAS
    pairs: list[tuple[str, Value]] = []
    current = "" if alias else key
    for count, item in enumerate(split_items(rest)):
        if count or alias:
            named, item = _leading_key(item, alias)
            current = named or current
            if not named:
                _check_bare(item, current, alias)
        pairs.append((current, _value(item, current)))
    return pairs


def _value(item: str, key: str) -> Value:
    value = Value(item)
    if not value.plain:
        raise PolicyError(
            f"got an empty value for {key}:",
            code="empty-value",
            hint="write a value after the colon and after each comma, or remove it",
        )
    for edge in (item[0], item[-1]):
        if edge.isspace():
            raise PolicyError(
                f"got the character U+{ord(edge):04X} at the edge of a value, where it looks like a blank",
                code="bad-character",
                hint="use an ordinary space",
            )
    if _reads_as_two(value, key):
        from agentbox.policy.suggest import two_rules

        raise two_rules(value, key)
    return value


def _reads_as_two(value: Value, key: str) -> bool:
    """Whether a second rule was probably meant within a value; in double quotes all of it is one name."""
    is_path = key in ("read", "list", "write") or value.plain.startswith("unix:/")
    for count, (word, quoted) in enumerate(value.words):
        if quoted:
            continue
        head, colon, rest = word.partition(":")
        if colon and (head in KINDS or head == ALIAS) and (rest == "" or (count and is_path)):
            return True
        if is_path and (";" in word or (count and word.startswith(PATH_STARTS))):
            return True
        if word.endswith(";") and word != ";":
            return True
    return False


def _leading_key(item: str, alias: bool) -> tuple[str, str]:
    """The key that an item begins with ("" if none) and what follows it. `read: x` names a key, after `allow:` also
    `read x`.
    """
    head, colon, rest = item.partition(":")
    if colon and head in KINDS:
        return head, rest.strip(BLANKS)
    if alias:
        word = item.replace("\t", " ").partition(" ")[0]
        if word in KINDS:
            return word, item[len(word) :].strip(BLANKS)
    if head == ALIAS and colon:
        raise PolicyError("got allow: inside a line", code="syntax", hint="start a new line, or leave allow: away")
    if colon and (rest == "" or rest[0] in BLANKS) and head.replace("-", "").isalpha():
        from agentbox.policy.suggest import unknown_key

        raise unknown_key(head)
    return "", item


def _check_bare(item: str, current: str, alias: bool) -> None:
    """Refuse a bare item that was rather meant to name a key: `write ./out` is not silently a file of that name."""
    word, blank, _ = item.partition(" ")
    if current not in ("", "read", "list", "write") or (current and (not blank or '"' in word)):
        return
    from agentbox.policy.suggest import missed_key

    error = missed_key(item, current, alias)
    if error:
        raise error
