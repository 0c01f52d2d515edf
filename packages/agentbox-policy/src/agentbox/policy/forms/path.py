"""Sealed: the path form. Matches resolved paths against rules held as plain tuples, and words the line that would allow
one.

Never reads a global, a builtin or a cell, never imports and never touches the file system: it runs inside the agent as
well (docs/reference/architecture.md, "Sealed code"; docs/spec/policy.md, section 5). Paths are `str` with
surrogateescape (PEP 383).
"""
# mypy: disable-error-code="no-untyped-def, no-any-return"
# A keyword default that binds a builtin is not annotated: it has the type of that builtin.

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# One segment of a glob is compiled to None (`**`), a str (no wildcard in it) or a tuple (head, middle, tail): literal
# text at
# both ends and tokens between. A token is a one-letter str, "" (`*`), None (`?`) or (negated, (low, high), ...) for a
# set.


def glob_set(text: str, at: int, *, len=len) -> "tuple[Any, ...]":
    """The set that opens at `text[at]`: (token, index after it), or ("[", at + 1) when it is not closed."""
    end = at + 1
    if text[end : end + 1] in ("!", "^"):
        end += 1
    start = end
    end = text.find("]", start + 1)
    if end < 0:
        return ("[", at + 1)
    ranges = []
    i = start
    while i < end:
        if text[i + 1 : i + 2] == "-" and i + 2 < end:
            ranges.append((text[i], text[i + 2]))
            i += 3
        else:
            ranges.append((text[i], text[i]))
            i += 1
    negated = start > at + 1
    if not negated and len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return (ranges[0][0], end + 1)  # `[*]` is how a literal star is written
    return ((negated, *ranges), end + 1)


def glob_segment(text: str, *, glob_set=glob_set, len=len, type=type, str=str) -> "Any":
    """Compile one segment (no `/` in it); the meaning of the result is told at the top of this file."""
    if text == "**":
        return None
    tokens: list[Any] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "*":
            if not tokens or tokens[-1] != "":
                tokens.append("")
        elif char == "?":
            tokens.append(None)
        elif char == "[":
            token, at = glob_set(text, at - 1)
            tokens.append(token)
        else:
            tokens.append(char)
    head = 0
    while head < len(tokens) and type(tokens[head]) is str and tokens[head] != "":
        head += 1
    if head == len(tokens):
        return "".join(tokens)
    tail = len(tokens)
    while type(tokens[tail - 1]) is str and tokens[tail - 1] != "":
        tail -= 1
    return ("".join(tokens[:head]), (*tokens[head:tail],), "".join(tokens[tail:]))


def glob_patterns(text: str, *, glob_segment=glob_segment) -> "tuple[Any, ...]":
    """Compile a whole glob, segments separated by `/`."""
    made = []
    for segment in text.split("/"):
        made.append(glob_segment(segment))
    return (*made,)


def token_matches(token: "Any", char: str, *, type=type, tuple=tuple) -> bool:
    """Whether one token other than `*` matches one character."""
    if token is None:
        return True
    if type(token) is not tuple:
        return token == char
    for low, high in token[1:]:
        if low <= char <= high:
            return not token[0]
    return token[0] is True


def segment_matches(pattern: "Any", text: str, *, token_matches=token_matches, len=len, type=type, str=str) -> bool:
    """Whether one compiled segment (not `**`) matches one name. A wildcard never matches a leading dot.

    Backtracks to the last `*` only, so the work is at most pattern length times name length.
    """
    if type(pattern) is str:
        return pattern == text
    head, middle, tail = pattern
    if len(text) < len(head) + len(tail) or not text.startswith(head) or not text.endswith(tail):
        return False
    if not head and text[:1] == ".":
        return False
    at, end = len(head), len(text) - len(tail)
    token, star, mark = 0, -1, 0
    while at < end:
        if token < len(middle) and middle[token] == "":
            star, mark = token, at
            token += 1
        elif token < len(middle) and token_matches(middle[token], text[at]):
            token += 1
            at += 1
        elif star >= 0:
            mark += 1
            at, token = mark, star + 1
        else:
            return False
    while token < len(middle) and middle[token] == "":
        token += 1
    return token == len(middle)


def glob_matches(patterns: "tuple[Any, ...]", rest: str, *, segment_matches=segment_matches, len=len) -> bool:
    """Whether a compiled glob matches all of `rest`, the path below the rule's root ("" is the root itself).

    `**` stands for any number of names, none of them with a leading dot. Backtracks to the last `**` only.
    """
    names = rest.split("/") if rest else []
    at, name, star, mark = 0, 0, -1, 0
    while name < len(names):
        if at < len(patterns) and patterns[at] is None:
            star, mark = at, name
            at += 1
        elif at < len(patterns) and segment_matches(patterns[at], names[name]):
            at += 1
            name += 1
        elif star >= 0 and names[mark][:1] != ".":
            mark += 1
            name, at = mark, star + 1
        else:
            return False
    while at < len(patterns) and patterns[at] is None:
        at += 1
    return at == len(patterns)


def path_rules(rules: "Any", *, glob_patterns=glob_patterns, enumerate=enumerate) -> "tuple[Any, ...]":
    """Turn `rules` of a normal form into what `path_decide` takes: (index, key, root, prefix, patterns or None), ...

    Index is the place in `rules`, of which only `read`, `list` and `write` count. `prefix` is the root with one slash
    at its end.
    """
    made = []
    for index, rule in enumerate(rules):
        if rule["key"] in ("read", "list", "write"):
            root, glob = rule["root"], rule["glob"]
            prefix = root if root[-1:] == "/" else root + "/"
            made.append((index, rule["key"], root, prefix, None if glob is None else glob_patterns(glob)))
    return (*made,)


def path_is_plain(path: str, *, type=type, str=str) -> bool:
    """Whether this is the one spelling that a resolved path has: absolute, no NUL, `//`, `.` or `..`, no slash at its
    end.
    """
    if type(path) is not str or path[:1] != "/" or "\0" in path or "//" in path:
        return False
    if path[-1] == "/":
        return path == "/"
    if "/." not in path:
        return True
    return not ("/./" in path or "/../" in path or path.endswith(("/.", "/..")))


def path_decide(
    access: str,
    path: str,
    rules: "tuple[Any, ...]",
    *,
    path_is_plain=path_is_plain,
    glob_matches=glob_matches,
    len=len,
) -> int:
    """The index of the first rule that allows `access` ("read", "list" or "write") to the resolved `path`, or -1.

    A write rule allows reading, and a rule for reading allows listing; a list rule names folders and nothing in them.
    """
    if not path_is_plain(path) or access not in ("read", "list", "write"):
        return -1
    for index, key, root, prefix, patterns in rules:
        if (access == "write" and key != "write") or (access == "read" and key == "list"):
            continue
        if patterns is None:
            if path == root or (key != "list" and path.startswith(prefix)):
                return index
        elif path.startswith(prefix) and path != prefix:
            if glob_matches(patterns, path[len(prefix) :]):
                return index
        elif path == root and glob_matches(patterns, ""):
            return index
    return -1


def path_within(path: str, trees: tuple[str, ...], *, path_is_plain=path_is_plain) -> bool:
    """Whether the resolved `path` is one of `trees` (resolved) or below one. False for a path that is not plain."""
    if not path_is_plain(path):
        return False
    for tree in trees:  # noqa: SIM110 (any() would need a nested function)
        if path == tree or tree == "/" or path.startswith(tree + "/"):
            return True
    return False


def quoted(text: str, blanks: bool, *, ord=ord, len=len) -> str:
    """`text` as it must be written in a policy: as it is, or in double quotes with escapes (docs/spec/policy.md,
    section 3).

    `blanks`: whether blanks within it call for quotes (words of `exec:`). "" when it holds a lone surrogate that is no
    byte.
    """
    bare = text != "" and text[0] not in " \t~#" and text[-1] not in " \t" and text.isprintable()
    before = ""
    for char in text:
        if char in "\"'\\,;#{}$" or (blanks and char in "*? ") or (before == " " and char in "./~"):
            bare = False
        before = char
    if " " in text and ":" in text:
        bare = False  # it could read as the key of a second rule
    if bare:
        return text
    made = ['"']
    for char in text:
        code = ord(char)
        if char == '"' or char == "\\":
            made.append("\\" + char)
        elif char == "\n":
            made.append("\\n")
        elif char == "\t":
            made.append("\\t")
        elif 0xDC80 <= code <= 0xDCFF:
            made.append(f"\\x{code - 0xDC00:02x}")
        elif 0xD800 <= code <= 0xDFFF or code == 0:
            return ""
        elif char == " " or char.isprintable():
            made.append(char)
        else:
            for byte in char.encode("utf-8"):
                made.append(f"\\x{byte:02x}")
    made.append('"')
    return "".join(made)


def literal(text: str) -> str:
    """`text` with each wildcard character put in a set of its own, so that it stands for itself in a glob."""
    return text.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")


def unmade(text: str, *, len=len) -> str:
    """A path of `literal` spelled so that a `write:` rule never has it made as a folder (docs/spec/policy.md, 5.8).

    A name without a dot gets its last letter put in a set; "" when it has no letter that can stand alone in one.
    """
    start = text.rfind("/") + 1
    if "." in text[start + 1 :] or "[" in text[start:]:
        return text
    at = len(text) - 1
    while at >= start and text[at] in "!^":  # which would negate the set
        at -= 1
    return text[:at] + "[" + text[at] + "]" + text[at + 1 :] if at >= start else ""


def of_any_process(text: str, *, len=len) -> str:
    """`text` with a star for each number in it if it is an entry of a process, which has another number in the next
    run.
    """
    names = text.split("/")
    if not text.startswith("/proc/") or len(names) < 4 or not (names[2].isascii() and names[2].isdigit()):
        return text
    shown = names[0]
    for name in names[1:]:  # a comprehension is a function of its own before Python 3.12, which nothing sealed may make
        shown += "/*" if name.isascii() and name.isdigit() else "/" + name
    return shown


def of_one_run(path: str, cwd: str, *, len=len) -> bool:
    """Whether a path leads into a run's private folder (`agentbox-0-6c197ddef678`), as a line of a policy in `cwd`
    would name it: the next run has another one, and this one is gone then.
    """
    for name in (path[len(cwd) :] if (path + "/").startswith(cwd + "/") else path).split("/"):
        parts = name.split("-")
        if len(parts) != 3 or parts[0] != "agentbox" or not (parts[1].isascii() and parts[1].isdigit()):
            continue
        if len(parts[2]) == 12 and not parts[2].strip("0123456789abcdef"):
            return True
    return False


def path_fix(
    access: str,
    path: str,
    cwd: str,
    *,
    path_is_plain=path_is_plain,
    quoted=quoted,
    literal=literal,
    unmade=unmade,
    of_any_process=of_any_process,
    of_one_run=of_one_run,
    len=len,
) -> str:
    """The policy line that would allow this `access`, relative to `cwd` if the path is below it; "" when there
    is none.

    None exists for a path that is not plain, that names the asking process (`/proc/self`), that is gone with the run,
    or that no system can hold.
    A line for writing never has the path itself made as a folder before the next run.
    """
    if access not in ("read", "list", "write") or not path_is_plain(path) or len(path) > 4095:
        return ""
    if of_one_run(path, cwd):
        return ""
    if (path + "/").startswith(
        ("/proc/self/", "/proc/thread-self/", "/dev/fd/", "/dev/stdin/", "/dev/stdout/", "/dev/stderr/")
    ):
        return ""
    if path == cwd:
        shown = "."
    elif cwd != "/" and path.startswith(cwd + "/"):
        shown = "./" + path[len(cwd) + 1 :]
    else:
        shown = path
    text = literal(shown)
    if access == "write" and path != "/" and path != cwd and not cwd.startswith(path + "/"):
        safe = unmade(text)
        value = quoted(safe, False) if safe else ""
        return "write: " + value + ("  # not made as a folder" if safe != text else "") if value else ""
    value = quoted(of_any_process(text), False)
    return access + ": " + value if value else ""


def shown(text: str, *, ord=ord, len=len) -> str:
    """`text` fit for one line on a terminal: unprintable characters escaped, and cut to 400 characters."""
    if len(text) <= 400 and text.isprintable():
        return text
    made = []
    for char in text[:400]:
        code = ord(char)
        if char.isprintable():
            made.append(char)
        elif code < 0x100:
            made.append(f"\\x{code:02x}")
        elif 0xDC80 <= code <= 0xDCFF:
            made.append(f"\\x{code - 0xDC00:02x}")
        else:
            made.append(f"\\u{code:04x}")
    if len(text) > 400:
        made.append("…")
    return "".join(made)


def denied_text(key: str, target: str, reason: str, fix: str, policy: str, *, shown=shown) -> str:
    """The one line that a denial shows: what was refused, why, and the policy line that would allow it ("" if none
    would).
    """
    text = "agentbox: " + key + " denied: " + shown(target) + ": " + shown(reason)
    if fix:
        return text + "; to allow it, add this line to " + shown(policy) + ": " + fix
    return text


def path_reason(
    access: str, path: str, rules: "tuple[Any, ...]", *, path_is_plain=path_is_plain, path_decide=path_decide
) -> str:
    """Why `path_decide` gave -1."""
    if not path_is_plain(path):
        return "it is not a resolved absolute path"
    if access == "write" and path_decide("read", path, rules) >= 0:
        return "the policy allows reading it, not writing"
    if access == "list":
        return "no list, read or write rule covers it"
    if access == "read":
        return "no read or write rule covers it"
    return "no write rule covers it"


def path_denied_text(
    access: str,
    path: str,
    rules: "tuple[Any, ...]",
    cwd: str,
    policy: str,
    *,
    path_reason=path_reason,
    path_fix=path_fix,
    denied_text=denied_text,
) -> str:
    """The whole text of a denied file access; `policy` is the file as the user named it."""
    return denied_text(access, path, path_reason(access, path, rules), path_fix(access, path, cwd), policy)
