"""How a script names its interpreter: the `#!` line, `env` in front of it, and the shell trampoline of long interpreter
paths.

It reads the first bytes of a file and splits words; it never runs anything and never follows a second script by itself.
"""

from __future__ import annotations

import os

_LIMIT = (
    4096  # execve(2): the kernel reads 256 bytes (127 before Linux 5.1); the trampoline's second line may be longer
)
ENV_NAMES = ("env",)


def first_line(path: str) -> list[str]:
    """Interpreter and argument of a script's `#!` line as execve(2) sees them (at most two words); empty when there is
    none.

    The `#!/bin/sh` trampoline that installers write for long paths (`'''exec' "/long/path/python" "$0" "$@"`) gives
    that interpreter.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            head = os.read(descriptor, _LIMIT)
        finally:
            os.close(descriptor)
    except OSError:
        return []
    if not head.startswith(b"#!"):
        return []
    lines = [os.fsdecode(line) for line in head.split(b"\n")[:2]]
    words = lines[0][2:].strip(" \t").split(None, 1)
    if len(lines) == 2 and words and os.path.basename(words[0]) in ("sh", "dash", "bash"):
        return _trampoline(lines[1]) or words
    return [words[0], words[1].rstrip(" \t")] if len(words) == 2 else words


def _trampoline(line: str) -> list[str]:
    start, end = "'''exec' ", ' "$0" "$@"'
    if not (line.startswith(start) and line.endswith(end)):
        return []
    path = line[len(start) : -len(end)].strip()
    if path.startswith('"') and path.endswith('"'):
        path = path[1:-1]
    return [path] if path.startswith("/") and not set(path) & set("\"'$`\\") else []


class EnvCommand:
    """What `env` was asked for: the command `words`, variables `set` and `unset`, `clear` for `-i`; `problem` when not
    understood.
    """

    __slots__ = ("clear", "problem", "set", "unset", "words")

    def __init__(self) -> None:
        self.words: list[str] = []
        self.set: dict[str, str] = {}
        self.unset: list[str] = []
        self.clear = False
        self.problem = ""


def read_env(words: list[str]) -> EnvCommand:
    """Understand the words after `env` (GNU coreutils env(1): -i, -u NAME, -S STRING, NAME=VALUE); anything else is a
    problem.
    """
    found = EnvCommand()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-i", "-", "--ignore-environment"):
            found.clear = True
        elif word in ("-u", "--unset") and rest:
            found.unset.append(rest.pop(0))
        elif word.startswith("--unset="):
            found.unset.append(word[len("--unset=") :])
        elif word in ("-S", "--split-string") and rest:
            rest[:1] = _split(rest[0], found)
        elif word.startswith(("-S", "--split-string=")):
            text = word[2:] if word.startswith("-S") else word[len("--split-string=") :]
            rest[:0] = _split(text, found)
        elif word == "--":
            continue
        elif word.startswith("-"):
            found.problem = f"env option {word}"
            return found
        elif "=" in word:
            name, _, value = word.partition("=")
            found.set[name] = value
        else:
            found.words = [word, *rest]
            return found
    return found


def _split(text: str, found: EnvCommand) -> list[str]:
    import shlex

    if "\\" in text or "$" in text:
        found.problem = "escapes in the string of env -S"
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        found.problem = "the string of env -S"
        return []
