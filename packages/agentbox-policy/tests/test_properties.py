"""Properties that hold for every policy and every target."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from agentbox.policy import Policy, PolicyError, canonical_address, is_special_address, parse
from agentbox.policy.forms.path import glob_matches, glob_patterns, path_decide, path_is_plain, path_rules, path_within

POLICY = """\
read: ./data, ./src/**/*.py, "./a,b", ./[a-c]?*
write: ./out
net: api.example.com:443, *.example.org, 127.0.0.1:8080, [::1]:80, unix:./run/*.sock, localhost:1234
exec: git status, ./tool, nosuch
env: HOME, AWS_*, *
"""
SCOPE = {"cwd": "/agentbox-vectors/ws", "home": "/agentbox-vectors/home", "search": "/usr/bin:/bin"}
policy = parse(POLICY, **SCOPE)

odd_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)
pieces = st.sampled_from(
    [
        "a",
        "b",
        ".",
        "..",
        ".git",
        "data",
        "src",
        "x.py",
        "a,b",
        "#",
        " ",
        '"',
        "\\",
        "*",
        "[",
        "]",
        "?",
        "\n",
        "\udcff",
        "é",
        "‮",
        "~",
        "$",
        "{",
        "'",
    ]
)
names = st.lists(pieces, min_size=1, max_size=4).map("".join)
paths = st.lists(names, max_size=5).map(lambda parts: "/agentbox-vectors/ws/" + "/".join(parts))
hosts = st.one_of(
    odd_text, st.ip_addresses().map(str), st.sampled_from(["api.example.com", "x.example.org", "LOCALHOST", "127.1"])
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), odd_text, st.binary(max_size=20), paths),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.tuples(inner), st.dictionaries(odd_text, inner, max_size=2)
    ),
    max_leaves=5,
)
targets = st.one_of(
    st.tuples(st.sampled_from(["read", "write"]), st.one_of(paths, odd_text)),
    st.tuples(st.just("net"), hosts, st.one_of(st.none(), st.integers(-1, 65537))),
    st.tuples(st.just("net"), hosts, st.integers(0, 65535), hosts),
    st.tuples(st.just("net"), st.one_of(paths, odd_text.map(lambda name: "@" + name)).map(lambda path: "unix:" + path)),
    st.tuples(
        st.just("exec"), st.one_of(paths, st.just("/usr/bin/git")), st.lists(st.one_of(odd_text, names), max_size=3)
    ),
    st.tuples(st.just("env"), st.one_of(odd_text, names)),
    st.tuples(anything, anything),
    st.tuples(st.sampled_from(["read", "net", "exec", "env"]), st.lists(anything, max_size=4)).map(
        lambda parts: (parts[0], *parts[1])
    ),
)


@given(targets)
@settings(max_examples=400, deadline=None)
def test_decide_is_total(target):
    """A decision is made for every target, in one line of text, and a denial has a reason."""
    decision = policy.decide(*target)
    assert decision.allowed is (decision.rule is not None and not decision.reason)
    assert decision.reason or decision.allowed
    assert "\n" not in decision.text()
    assert not decision.allowed or decision.fix is None


@given(targets)
@settings(max_examples=400, deadline=None)
def test_a_fix_works(target):
    """Whatever line a denial suggests makes the same decision come out allowed when it is added."""
    decision = policy.decide(*target)
    if decision.fix:
        assert parse(POLICY + decision.fix + "\n", **SCOPE).decide(*target).allowed


@given(paths)
@settings(max_examples=400, deadline=None)
def test_a_fix_makes_nothing(path):
    """The line that a denied write suggests allows it, and never has a folder made where the target would be."""
    decision = policy.decide("write", path)
    if decision.fix and path != SCOPE["cwd"]:
        again = parse(POLICY + decision.fix + "\n", **SCOPE)
        assert again.decide("write", path).allowed
        assert path not in again.write_folders()
        assert not any(folder.startswith(path + "/") for folder in again.write_folders())


class Hostile(str):
    """A text whose every method lies."""

    def startswith(self, *args):
        return True

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


def test_decide_denies_what_lies_about_itself():
    """Subclasses of text and numbers are not looked into, so they cannot pass for something else."""

    class Port(int):
        pass

    for target in (
        ("read", Hostile("/etc/passwd")),
        ("net", Hostile("evil.example"), 443),
        ("net", "api.example.com", Port(443)),
        ("exec", Hostile("/bin/sh"), ()),
        ("exec", "/usr/bin/git", (Hostile("git"), "status")),
        ("env", Hostile("LD_PRELOAD")),
        (Hostile("env"), "HOME"),
        ("exec", "/usr/bin/git", iter(("git", "status"))),
        ("read", "/" + "a/" * 1_000_000),
        ("net", "a" * 1_000_000, 1),
        ("net", "1" * 1_000_000, 1),
        ("exec", "/bin/x", ("x",) * 100_000),
    ):
        decision = policy.decide(*target)
        assert not decision.allowed
        assert len(decision.text()) < 2000


def test_a_full_stack_allows_nothing():
    """At the limit of the stack a decision that cannot be finished never comes out allowed."""
    seen = []

    def dive(depth):
        if depth:
            dive(depth - 1)
        else:
            seen.append(policy.decide("net", "evil.example", 443).allowed)

    overflows = 0
    for depth in range(sys.getrecursionlimit()):
        try:
            dive(depth)
        except RecursionError:
            overflows += 1
            if overflows > 3:
                break
    assert overflows
    assert set(seen) == {False}


value = st.one_of(
    odd_text, names, st.sampled_from(["git status", "a.example:443", "AWS_*", "./x", "unix:/a", "[::1]:80", "*"])
)
lines = st.one_of(
    odd_text,
    st.tuples(st.sampled_from(["read", "write", "net", "exec", "env", "allow", "raed", "allow: read"]), value).map(
        ": ".join
    ),
)
texts = st.lists(lines, max_size=6).map("\n".join)


@given(texts)
@settings(max_examples=400, deadline=None)
def test_parse_gives_a_policy_or_an_error(text):
    """Any text is a policy that survives its normal form, or a PolicyError of one line."""
    try:
        made = parse(text, **SCOPE)
    except PolicyError as error:
        assert error.code
        assert error.text
        assert "\n" not in str(error)
        assert len(str(error)) < 400
        return
    form = json.loads(json.dumps(made.normal_form()))
    again = Policy.from_normal_form(form)
    assert again.normal_form() == form == made.normal_form()
    for target in (
        ("read", "/agentbox-vectors/ws/x"),
        ("net", "a.example", 443),
        ("exec", "/usr/bin/git", ["git"]),
        ("env", "X"),
    ):
        assert again.decide(*target).text() == made.decide(*target).text()


@given(anything)
@settings(max_examples=200, deadline=None)
def test_a_normal_form_is_checked(doc):
    """What is no normal form is refused with an error of its own."""
    form = policy.normal_form()
    for broken in (
        doc,
        {**form, "rules": doc},
        {**form, "rules": [doc]},
        {**form, "cwd": doc},
        {**form, "rules": [{**form["rules"][0], "root": doc}]},
    ):
        try:
            Policy.from_normal_form(broken)
        except PolicyError as error:
            assert error.code == "normal-form"


def reference(glob: str) -> re.Pattern:
    """The meaning of a glob as a regular expression, written independently of the matcher."""
    made = []
    for segment in glob.split("/"):
        if segment == "**":
            made.append(r"(?:(?!\.)[^/]*/)*")
            continue
        text = ""
        for part in re.findall(r"\[.+?\]|.", segment):
            text += (
                "[^/]*"
                if part == "*"
                else "[^/]"
                if part == "?"
                else part.replace("[!", "[^")
                if len(part) > 1
                else re.escape(part)
            )
        made.append((r"(?!\.)" if segment[0] in "*?[" else "") + text + "/")
    return re.compile("".join(made))


@given(
    st.lists(
        st.one_of(
            st.just("**"),
            st.text("ab.*?", min_size=1, max_size=4).filter(lambda name: "**" not in name),
            st.just("[a-b]x"),
            st.just("[!a]"),
            st.just("*.[!b]"),
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.text("abx.", min_size=1, max_size=4), min_size=1, max_size=5),
)
@settings(max_examples=1500, deadline=None)
def test_globs_mean_what_the_reference_says(segments, parts):
    """The matcher agrees with regular expressions made from the same glob."""
    glob, rest = "/".join(segments), "/".join(parts)
    assert glob_matches(glob_patterns(glob), rest) == bool(reference(glob).fullmatch(rest + "/"))


def test_globs_do_not_explode():
    """A pattern made to backtrack costs at most pattern length times path length."""
    assert not glob_matches(glob_patterns("*a*a*a*a*a*a*a*a*a*ab"), "a" * 255)
    assert not glob_matches(glob_patterns("**/a/" * 20 + "b"), "/".join("a" * 1500))  # an exploding one never ends


@given(paths)
def test_a_path_that_is_not_plain_is_never_allowed(path):
    """Nothing but the one spelling of a resolved path can be allowed, even by a rule for everything."""
    rules = path_rules([{"key": "write", "root": "/", "glob": None}])
    allowed = path_decide("read", path, rules) == 0
    assert allowed == path_is_plain(path) == path_within(path, ("/",))
    if allowed:
        assert os.path.normpath(path) == path


@given(st.ip_addresses())
def test_canonical_address_agrees_with_the_library(address):
    """Addresses are written as `ipaddress` writes them, mapped ones as IPv4."""
    mapped = getattr(address, "ipv4_mapped", None)
    assert canonical_address(str(address)) == str(mapped or address)
    if isinstance(address, ipaddress.IPv6Address):
        assert canonical_address(address.exploded) == canonical_address(str(address))


@given(st.ip_addresses())
@settings(max_examples=500)
def test_special_addresses_cover_what_the_library_calls_not_global(address):
    """Nothing that `ipaddress` calls private, loopback, link-local or multicast is taken for a public address."""
    if (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
    ):
        mapped = getattr(address, "ipv4_mapped", None)
        nat64 = address.version == 6 and address in ipaddress.ip_network("64:ff9b::/96")
        if mapped is None and not nat64:
            assert is_special_address(str(address)) is not None
