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


def quoted(text: str, blanks: bool, *, wild=False, ord=ord, len=len) -> str:
    """`text` as it must be written in a policy: as it is, or in double quotes with escapes (docs/spec/policy.md,
    section 3).

    `blanks`: whether blanks within it call for quotes (words of `exec:`). `wild`: whether `*`, `?` and `[` would be
    wildcards, and are escaped; a zero is then written as a `*` that is one. "" when it holds a lone surrogate that is
    no byte.
    """
    plain = text.replace("\0", "*") if wild else text
    bare = text != "" and text[0] not in " \t~#" and text[-1] not in " \t" and plain.isprintable()
    before = ""
    for char in text:
        if (
            char in "\"'\\,;#{}$"
            or (blanks and char in "*? ")
            or (wild and char in "*?[")
            or (before == " " and char in "./~")
        ):
            bare = False
        before = char
    if " " in text and ":" in text:
        bare = False  # it could read as the key of a second rule
    if bare:
        return plain
    made = ['"']
    for char in text:
        code = ord(char)
        if char == '"' or char == "\\" or (wild and char in "*?["):
            made.append("\\" + char)
        elif char == "\n":
            made.append("\\n")
        elif char == "\t":
            made.append("\\t")
        elif 0xDC80 <= code <= 0xDCFF:
            made.append(f"\\x{code - 0xDC00:02x}")
        elif code == 0 and wild:
            made.append("*")
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


def looks_random(word: str, marked: bool, *, len=len) -> bool:
    """Whether ASCII letters and digits look like no word: a process number, a time, a hash, or chosen at random.

    `marked`: something beside it says that the name is a temporary one, so that less is enough.
    """
    digits = changes = 0
    before = ""
    for char in word:
        kind = "digit" if char <= "9" else "upper" if char <= "Z" else "lower"
        digits += kind == "digit"
        changes += before != "" and kind != before and not (before == "upper" and kind == "lower")
        before = kind
    if digits == len(word):
        return marked or digits >= 5
    if len(word) < 6:
        return False
    if not word.strip("X"):  # the template of mkdtemp(3), as a guard tells of it
        return True
    hexadecimal = not word.strip("0123456789abcdef") or not word.strip("0123456789ABCDEF")
    if hexadecimal and digits and (marked or digits >= 2 or len(word) >= 12):
        return True
    return changes >= (2 if marked else 3)


def random_part(name: str, *, looks_random=looks_random, len=len) -> "tuple[int, int] | None":
    """Start and end of what another run would choose anew in a file's name, or None: `report.tmp.7e1d64b4b5d6`."""
    marked = False
    for word in name.lower().replace(".", "-").replace("_", "-").split("-"):
        if word in ("tmp", "temp", "lock", "swp", "partial", "pid"):
            marked = True
    if name[:3] == "tmp" and len(name) >= 11 and not name[3:11].strip("abcdefghijklmnopqrstuvwxyz0123456789_"):
        return (3, 11)  # as the tempfile module of Python chooses them
    start = end = -1
    at = 0
    while at < len(name):
        after = at
        while after < len(name) and name[after].isascii() and name[after].isalnum():
            after += 1
        word = name[at:after]
        if word:
            day = name[at : at + 10]
            dated = len(word) == 4 and len(day) == 10 and day[4] == day[7] and day[4] in "-_."
            if (
                looks_random(word, marked)
                or (start >= 0 and at == end + 1 and word[0] <= "9")
                or (dated and (word + day[5:7] + day[8:]).isascii() and (word + day[5:7] + day[8:]).isdigit())
            ):
                start = at if start < 0 else start
                end = after
        at = after + 1
    return (start, end) if start >= 0 else None


def any_name(path: str, *, random_part=random_part, enumerate=enumerate, len=len) -> str:
    """A path to write, as a line of a policy names it, with a zero for what another run would choose anew in a name.

    The folder that the name is in is never opened whole if it is the working directory or lies outside of it. Below a
    folder of such a name everything is meant (two zeros). The path itself when nothing in it looks random.
    """
    if path.startswith(("/proc/", "/sys/", "/dev/")) and not path.startswith("/dev/shm/"):
        return path
    names = path.split("/")
    made = names[0]
    for count, name in enumerate(names):
        if count == 0:
            continue
        if name in (".git", ".hg", ".svn", ".ssh", ".gnupg"):
            return path
        part = random_part(name)
        if part is None or (len(name[: part[0]].strip("._-~#")) < 3 and (path[0] == "/" or count == 1)):
            made += "/" + name
            continue
        made += "/" + name[: part[0]] + "\0" + name[part[1] :]
        rest = names[count + 1 :]
        while rest and "/." in "/" + "/".join(rest):  # which no wildcard matches
            made += "/" + rest[0]
            rest = rest[1:]
        return made + "/\0\0" if rest else made
    return path


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
    exact=False,
    path_is_plain=path_is_plain,
    quoted=quoted,
    any_name=any_name,
    of_any_process=of_any_process,
    of_one_run=of_one_run,
    len=len,
) -> str:
    """The policy line that would allow this `access`, relative to `cwd` if the path is below it; "" when there
    is none.

    None exists for a path that is not plain, that names the asking process (`/proc/self`), that is gone with the run,
    or that no system can hold. A name that looks as if another run would choose another is written with a `*`, unless
    the line is to be `exact`.
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
    objects = shown.find(".git/objects/")
    if access == "read" and objects >= 0 and not exact:  # named by what is in them, and read one after the other
        value = quoted(shown[:objects] + ".git/objects", False, wild=True)
        return "read: " + value + "  # all objects of this repository" if value else ""
    if access != "write":
        value = of_any_process(quoted(shown, False, wild=True))
        return access + ": " + value if value else ""
    text = shown if exact else any_name(shown)
    value = quoted(text, False, wild=True)
    if not value or text == shown:
        return "write: " + value if value else ""
    return "write: " + value + ("  # all in any folder of this form" if "\0\0" in text else "  # any name of this form")


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
