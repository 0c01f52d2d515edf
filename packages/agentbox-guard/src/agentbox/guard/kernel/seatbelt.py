"""The macOS layer: a Seatbelt profile written from the policy. Unverified: no test has run it on macOS.

It never claims more than the profile says: hosts are not decided, since a profile knows ports only. Sources:
sandbox-exec(1), sandbox_init(3), and the system's own profiles; the last rule that matches wins.
"""

from __future__ import annotations

import sys

from agentbox.guard.errors import Unconfinable
from agentbox.guard.kernel import protected, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from agentbox.policy import Policy, Rule

MACOS_TREES = ("/System", "/Library/Frameworks", "/usr", "/bin", "/sbin", "/private/var/db/dyld", "/private/etc/ssl")
"""What programs of macOS read to start, beside `system.SYSTEM_TREES`."""

_HEAD = (
    "(version 1)",
    "(deny default)",
    "(allow process-fork)",
    "(allow process-info* (target same-sandbox))",
    "(allow signal (target same-sandbox))",
    "(allow sysctl-read)",
    "(allow file-read-metadata)",
    '(allow file-read* file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty"))',
    '(allow file-read* (literal "/") (literal "/dev/random") (literal "/dev/urandom"))',
    '(allow mach-lookup (global-name "com.apple.system.notification_center"))',
)
_WILD = {"*": "[^/]*", "?": "[^/]"}
_SPECIAL = frozenset(".^$*+?()[]{}|\\/")


class Seatbelt:
    """A layer like those of Linux; not in their table, as it is not verified."""

    name = "seatbelt"
    enforces = frozenset({"exec", "list", "read", "write"})

    def probe(self, platform: str = sys.platform) -> str:
        """Always something missing: the layer is unverified, so nothing relies on it."""
        if platform != "darwin":
            return "it is for macOS"
        return "it is unverified: agentbox has not been tested on macOS"

    def plan(self, policy: Policy, context: Mapping[str, Any]) -> str:
        """The profile; see `profile`."""
        return profile(policy, context)

    def apply(self, plan: str) -> None:
        """Confine the calling process for good. Raises `OSError`."""
        from agentbox.guard.kernel import syscalls

        syscalls.sandbox_init(plan)

    def advice(self) -> str:
        """There is no way to get it yet."""
        return "use a Linux machine or a Linux container for programs without a guard"


SEATBELT = Seatbelt()


def profile(policy: Policy, context: Mapping[str, Any]) -> str:
    """The profile's text. `context` is the guard's welcome message (`readable`, `writable`, `sealed`, `hidden`), with
    `programs` where they are known.

    Raises `Unconfinable` for a path that cannot be written in a profile.
    """
    lines = list(_HEAD)
    trees = (*MACOS_TREES, *system.SYSTEM_TREES)
    programs = [*context.get("programs", ()), *_ruled_programs(policy)]
    beside = [tree for program in programs for tree in system.program_trees(program)]
    lines += _allow("file-read*", [*trees, *beside, *context.get("readable", ()), *context.get("sealed", ())])
    lines += _allow("process-exec", [*trees, *beside])
    if any(rule.form["match"] == "any" for rule in policy.rules_of(("exec",))):
        lines.append("(allow process-exec)")
    for rule in policy.rules_of(("read", "write")):
        lines.append(f"(allow file-read*{' file-write*' if rule.key == 'write' else ''} {_filter(rule)})")
    # Names are read as a folder's data; a folder named exactly gives nothing below it.
    lines += [f"(allow file-read* {_exactly(rule)})" for rule in policy.rules_of(("list",))]
    lines += _protections(policy)
    lines += _allow("file-read* file-write*", context.get("writable", {}).values())
    lines += [f"(deny file-write* {_tree(path)})" for path in context.get("sealed", ())]
    lines += [f"(deny file-read* file-write* {_tree(path)})" for path in context.get("hidden", ())]
    lines += [_network(rule) for rule in policy.rules_of(("net",))]
    return "\n".join(lines) + "\n"


def _allow(operation: str, paths: Iterable[str]) -> list[str]:
    return [f"(allow {operation} {_tree(path)})" for path in dict.fromkeys(paths)]


def _ruled_programs(policy: Policy) -> list[str]:
    return [rule.form["file"] for rule in policy.rules_of(("exec",)) if rule.form["file"]]


def _tree(path: str) -> str:
    return f"(subpath {_quoted(path)})"


def _exactly(rule: Rule) -> str:
    """The folder of a `list:` rule, or what its glob matches."""
    return f"(literal {_quoted(rule.form['root'])})" if rule.form["glob"] is None else _filter(rule)


def _filter(rule: Rule) -> str:
    """What a path rule covers: its root and all below, or what its glob matches."""
    root, glob = rule.form["root"], rule.form["glob"]
    if glob is None:
        return _tree(root)
    return f"(regex #{_quoted('^' + _literal(root.rstrip('/')) + _pattern(glob) + '$', escaped=True)})"


def _pattern(glob: str) -> str:
    """A glob as a regular expression that begins with the slash after the root (docs/spec/policy.md, section 5)."""
    made = []
    for segment in glob.split("/"):
        made.append("(/[^./][^/]*)*" if segment == "**" else "/" + _segment(segment))
    return "".join(made)


def _segment(text: str) -> str:
    made = []
    at = 0
    while at < len(text):
        char = text[at]
        end = text.find("]", at + 2)
        if char == "[" and end > 0:
            inner = text[at + 1 : end]
            negated = inner[0] in "!^"
            made.append("[" + ("^/" if negated else "") + inner[negated:].replace("\\", "\\\\") + "]")
            at = end + 1
            continue
        if at == 0 and char in _WILD:
            # At the start of a name a wildcard matches no dot, and so not nothing before one either.
            first = "[^./]" if char == "?" else "[^./][^/]*"
            made.append(first if char == "?" or text[1:2] in ("", ".") else f"({first})?")
        else:
            made.append(_WILD.get(char) or _literal(char))
        at += 1
    return "".join(made)


def _protections(policy: Policy) -> list[str]:
    """The built-in protection by name, which comes after the rules; what a rule names is opened again."""
    folders = "|".join(_any_case(name) for name in sorted(protected.FOLDERS | protected.INNER_FOLDERS))
    files = "|".join(_any_case(name) for name in sorted(protected.FILES | protected.INNER_FILES))
    endings = "|".join(_any_case(name) for name in protected.ENDINGS)
    lines = [
        f'(deny file-write* (regex #"/({folders})/"))',
        f'(deny file-write* (regex #"/({files})$"))',
        f'(deny file-write* (regex #"({endings})$"))',
        f'(deny file-write* (regex #"/{_any_case(".git")}/({_any_case("hooks")}/|{_any_case("config")}$)"))',
    ]
    for rule in policy.rules_of(("write",)):
        if rule.form["glob"] is None and protected.place_of(rule.form["root"] + "/x")[0]:
            lines.append(f"(allow file-write* {_filter(rule)})")
    return lines


def _any_case(name: str) -> str:
    return "".join(f"[{char.lower()}{char.upper()}]" if char.isalpha() else _literal(char) for char in name)


def _network(rule: Rule) -> str:
    """A profile names this machine or any, and a port; names of hosts are left to the guard."""
    form = rule.form
    if form["match"] == "socket":
        return f"(allow network-outbound (literal {_quoted(form['root'])}))"
    here = form["host"] in ("localhost", "127.0.0.1", "::1")
    return f'(allow network-outbound (remote ip "{"localhost" if here else "*"}:{form["port"] or "*"}"))'


def _literal(text: str) -> str:
    return "".join("\\" + char if char in _SPECIAL and char != "/" else char for char in text)


def _quoted(text: str, *, escaped: bool = False) -> str:
    """A string of the profile's language. `escaped`: a regular expression, in which backslashes are its own."""
    if not text.isprintable():
        raise Unconfinable(f"seatbelt: the path {text!a} cannot be written in a profile")
    if escaped:
        if '"' in text:
            raise Unconfinable(f"seatbelt: the glob {text!a} cannot be written in a profile")
        return f'"{text}"'
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
