"""A policy as a value: its rules, the decisions on it, and its normal form (docs/spec/policy.md, sections 4 and 8).

Never raises from a decision, and never changes after it was made.
"""

from __future__ import annotations

from agentbox.policy.errors import PolicyError
from agentbox.policy.forms.path import denied_text, path_decide, path_rules, shown
from agentbox.policy.rules import KINDS
from agentbox.policy.rules._base import Unusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentbox.policy.rules._base import Form, Kind, Scope

FORMAT = "agentbox-policy/1"

HEADER = {
    "format": (str,),
    "name": (str,),
    "path": (str, type(None)),
    "sha256": (str,),
    "cwd": (str,),
    "home": (str,),
    "search": (str,),
}
"""The members of a normal form beside `rules`, and their types."""


class Rule:
    """One rule: `key` and `value` as written, where it stands (`file` as the user named it, `line` from 1), and its
    compiled `form`.
    """

    __slots__ = ("file", "form", "key", "line", "value")

    def __init__(self, key: str, value: str, file: str, line: int, form: Form) -> None:
        self.key = key
        self.value = value
        self.file = file
        self.line = line
        self.form = form

    @property
    def where(self) -> str:
        """`FILE:LINE`."""
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return f"{self.key}: {self.value}"

    def __repr__(self) -> str:
        return f"<Rule {self.where} {self}>"


class Decision:
    """What a policy says to one target.

    `allowed`; `key` and `target` (as text); `rule`, the one that allows it or, when denied, the one that came nearest
    (or None); `reason`, why it is denied ("" when allowed); `fix`, the exact policy line that would allow it, or None
    when no line can.
    """

    __slots__ = ("allowed", "fix", "key", "policy_name", "reason", "rule", "target")

    def __init__(
        self,
        allowed: bool,
        key: str,
        target: str,
        *,
        rule: Rule | None = None,
        reason: str = "",
        fix: str | None = None,
        policy_name: str = "",
    ) -> None:
        self.allowed = allowed
        self.key = key
        self.target = target
        self.rule = rule
        self.reason = reason
        self.fix = fix
        self.policy_name = policy_name

    def __bool__(self) -> bool:
        return self.allowed

    def text(self) -> str:
        """One line for a reader: what was decided, and by which rule or why not and what to write."""
        if self.allowed and self.rule is not None:
            return shown(f"agentbox: {self.key} allowed: {self.target}: {self.rule.where}: {self.rule}")
        return denied_text(self.key, self.target, self.reason, self.fix or "", self.policy_name)

    def __repr__(self) -> str:
        return f"<Decision {self.text()}>"


class Policy:
    """A set of rules; what none of them allows is denied.

    `name`: the file as the user named it; `path`: its resolved path, None if it was no file; `text`: its text, "" when
    it came from a normal form; `sha256`: of its bytes, hexadecimal; `cwd`: what relative paths were resolved against;
    `home`: what `~` stood for; `search`: the PATH in which programs were looked up; `rules`: in the order of the file.
    """

    __slots__ = ("_sha256", "cwd", "home", "name", "path", "paths", "rules", "search", "text")

    def __init__(
        self, rules: tuple[Rule, ...], *, name: str, path: str | None, text: str, scope: Scope, sha256: str = ""
    ) -> None:
        self.rules = rules
        self.name = name
        self.path = path
        self.text = text
        self.cwd = scope.cwd
        self.home = scope.home
        self.search = scope.search
        self._sha256 = sha256
        self.paths = compiled_paths(rules)

    @property
    def sha256(self) -> str:
        """The digest of the policy's bytes, made when it is first asked for: start-up does not wait for it."""
        if not self._sha256:
            self._sha256 = _digest(self.text.encode("utf-8"))
        return self._sha256

    def rules_of(self, keys: tuple[str, ...]) -> tuple[Rule, ...]:
        """The rules of these keys, in the order of the file."""
        return tuple(rule for rule in self.rules if rule.key in keys)

    def decide(self, key: str, *target: object) -> Decision:
        """Whether the policy allows `target`; never raises, and denies what it cannot understand.

        Targets: `("read", path)`, `("list", path)` and `("write", path)` with an absolute resolved path; `("net", host,
        port)` or `("net", host, port, address)` with a port or None for a look-up and the address that the name led to;
        `("net", "unix:/path")`, or `unix:@name` for an abstract socket; `("exec", file, argv)` with an absolute
        resolved file and all of argv; `("env", name)`.
        """
        try:
            return self._decide(key, target)
        except Exception as error:
            # Not to be decided is to be denied: RecursionError, MemoryError and defects end here (spec, section 4).
            return Decision(
                False, _safe(key), "", reason=f"it cannot be decided ({type(error).__name__})", policy_name=self.name
            )

    def _decide(self, key: str, given: tuple[object, ...]) -> Decision:
        kind = KINDS.get(key) if type(key) is str else None
        if kind is None:
            return Decision(False, _safe(key), "", reason="there is no such kind of rule", policy_name=self.name)
        try:
            target = kind.target(given)
        except Unusable as fault:
            return Decision(False, key, _shown(given), reason=str(fault), policy_name=self.name)
        rule = kind.find(self, target)
        if rule is not None:
            return Decision(True, key, kind.show(target), rule=rule, policy_name=self.name)
        reason, near = kind.explain(self, target)
        fix = kind.fix(self, target) or None
        return Decision(False, key, kind.show(target), rule=near, reason=reason, fix=fix, policy_name=self.name)

    def absent(self) -> tuple[tuple[Rule, str], ...]:
        """The rules that name nothing that exists now, or no program, each with a clause that says so: most often a
        mistake.

        What a write rule covers may come into being in the run, and is left out.
        """
        found = ((rule, KINDS[rule.key].absent(self, rule)) for rule in self.rules)
        return tuple((rule, reason) for rule, reason in found if reason)

    def is_writable(self, path: str) -> bool:
        """Whether a write rule covers the resolved `path`."""
        return path_decide("write", path, self.paths) >= 0

    def changeable(self) -> tuple[str, ...]:
        """The resolved roots of all write rules, those of globs included: outside of them no rule lets change
        anything.
        """
        return tuple(dict.fromkeys(rule.form["root"] for rule in self.rules_of(("write",))))

    def write_roots(self) -> tuple[str, ...]:
        """The resolved roots of the write rules without wildcards: files, and folders with all that is under them."""
        return tuple(
            dict.fromkeys(rule.form["root"] for rule in self.rules_of(("write",)) if rule.form["glob"] is None)
        )

    def made_folders(self) -> tuple[str, ...]:
        """Those of `write_folders` that are made when they are missing: below the working directory or the home."""
        from os.path import realpath

        own = [tree.rstrip("/") + "/" for tree in (self.cwd, realpath(self.home)) if tree == self.cwd or tree != "/"]
        return tuple(folder for folder in self.write_folders() if folder.startswith(tuple(own)))

    def normal_form(self) -> dict[str, Any]:
        """The policy as plain data for JSON: everything a decision needs, resolved (docs/spec/policy.md, section 8)."""
        rules = [{"key": rule.key, "value": rule.value, "line": rule.line, **rule.form} for rule in self.rules]
        header = {"format": FORMAT, "name": self.name, "path": self.path, "sha256": self.sha256}
        return {**header, "cwd": self.cwd, "home": self.home, "search": self.search, "rules": rules}

    def write_folders(self) -> tuple[str, ...]:
        """The folders that write rules ask to have made before a run: those written with a slash at the end
        (docs/spec/policy.md, section 5). What others name may come to be a file or a folder, as the agent makes it.
        """
        from agentbox.policy.lexer import Value

        asked = [rule for rule in self.rules_of(("write",)) if rule.form["glob"] is None]
        return tuple(dict.fromkeys(rule.form["root"] for rule in asked if Value(rule.value).plain[-1:] == "/"))

    def renamed(self, name: str, path: str | None = None) -> Policy:
        """The same policy under another `name` of its file in messages, and with another resolved `path` if one is
        given.
        """
        from agentbox.policy.rules._base import Scope

        rules = tuple(Rule(rule.key, rule.value, name, rule.line, rule.form) for rule in self.rules)
        scope = Scope(self.cwd, self.home, self.search)
        return Policy(rules, name=name, path=path or self.path, text=self.text, scope=scope, sha256=self._sha256)

    def with_interpreter(self, file: str) -> Policy:
        """The same policy for a run whose command is run by the interpreter `file` (resolved): a rule for a bare
        `python`, `python3` or `node` means that one as well as what PATH gives (docs/spec/policy.md, section 7). An
        interpreter that the agent may write is none.
        """
        from agentbox.policy.rules._base import Scope
        from agentbox.policy.rules.exec import same_language

        rules: list[Rule] = []
        for rule in self.rules:
            rules.append(rule)
            form = rule.form
            named = rule.key == "exec" and form["match"] == "name" and form["file"] != file
            if named and same_language(form["program"], file) and not self.is_writable(file):
                rules.append(Rule(rule.key, rule.value, rule.file, rule.line, {**form, "file": file}))
        if len(rules) == len(self.rules):
            return self
        scope = Scope(self.cwd, self.home, self.search)
        return Policy(tuple(rules), name=self.name, path=self.path, text=self.text, scope=scope, sha256=self._sha256)

    @staticmethod
    def from_normal_form(doc: object) -> Policy:
        """The policy out of its normal form. Raises `PolicyError` (code `normal-form`) for anything else."""
        from agentbox.policy.rules._base import Scope

        head = _header(doc)
        name = head["name"]
        rules = tuple(_restored(rule, name, count) for count, rule in enumerate(head["rules"]))
        scope = Scope(head["cwd"], head["home"], head["search"])
        return Policy(rules, name=name, path=head["path"], text="", scope=scope, sha256=head["sha256"])


def compiled_paths(rules: tuple[Rule, ...]) -> tuple[object, ...]:
    """The rules for files as the sealed matcher takes them; each knows its place in `rules`."""
    return path_rules([{"key": rule.key, **rule.form} for rule in rules])


def _header(doc: object) -> dict[str, Any]:
    if type(doc) is not dict or doc.get("format") != FORMAT:
        got = doc.get("format") if type(doc) is dict else type(doc).__name__
        raise PolicyError(f"got {got!r}, expected a normal form of {FORMAT}", code="normal-form")
    for name, types in HEADER.items():
        if type(doc.get(name)) not in types:
            raise PolicyError(f"got {doc.get(name)!r} as {name} of a normal form", code="normal-form")
    if type(doc.get("rules")) is not list:
        raise PolicyError("got a normal form without a list of rules", code="normal-form")
    if doc["cwd"][:1] != "/" or len(doc["sha256"]) != 64:
        raise PolicyError("got a normal form with a wrong cwd or sha256", code="normal-form")
    return doc


def _restored(doc: object, name: str, count: int) -> Rule:
    kind: Kind | None = KINDS.get(doc["key"]) if type(doc) is dict and type(doc.get("key")) is str else None
    if type(doc) is not dict or kind is None or type(doc.get("value")) is not str or type(doc.get("line")) is not int:
        raise PolicyError(
            f"got a wrong rule {count} in a normal form, expected key, value and line", code="normal-form"
        )
    members = {member: value for member, value in doc.items() if member not in ("key", "value", "line")}
    return Rule(kind.key, doc["value"], name, doc["line"], kind.restore(members))


def _safe(key: object) -> str:
    return shown(key[:40]) if type(key) is str else type(key).__name__


def _shown(given: tuple[object, ...]) -> str:
    """A target that cannot be used, as text; only exact types are looked into, as anything else may run code of its
    own.
    """
    parts: list[str] = []
    for part in given[:4]:
        if part is None and parts:
            continue  # what was not said: the port of a look-up
        if type(part) is str:
            parts.append(part[:200])
        elif type(part) is int or part is None:
            parts.append(str(part)[:40] if part is None or abs(part) < 1 << 64 else "a huge number")
        else:
            parts.append(f"<{type(part).__name__}>")
    return " ".join(parts)


def _digest(data: bytes) -> str:
    """SHA-256; the C module alone loads in a tenth of the time that `hashlib` takes. Its name changed in 3.12."""
    try:
        from _sha2 import sha256  # type: ignore[import-not-found]
    except ImportError:
        from _sha256 import sha256  # type: ignore[import-not-found]
    return str(sha256(data).hexdigest())
