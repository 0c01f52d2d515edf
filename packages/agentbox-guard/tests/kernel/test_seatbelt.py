"""The macOS profile as text; the layer is unverified, so nothing here runs it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbox.guard.errors import Unconfinable
from agentbox.guard.kernel.seatbelt import SEATBELT, _pattern, profile
from agentbox.policy import parse
from agentbox.policy.forms.path import glob_matches, glob_patterns

CONTEXT: dict[str, Any] = {
    "readable": ["/etc/hosts"],
    "writable": {"TMPDIR": "/t/tmp"},
    "sealed": ["/w/p"],
    "hidden": ["/w/t"],
}


def lines(text: str, context: dict[str, Any] | None = None) -> list[str]:
    return profile(parse(text, cwd="/w"), CONTEXT if context is None else context).splitlines()


def test_it_is_labelled_unverified_and_never_live() -> None:
    """Nothing relies on a layer that no test has run."""
    assert SEATBELT.probe() and "net" not in SEATBELT.enforces


def test_everything_is_denied_but_what_is_named() -> None:
    """The default comes first, and no rule opens the whole file system."""
    made = lines("read: ./data\n")
    assert made[:2] == ["(version 1)", "(deny default)"]
    assert '(allow file-read* (subpath "/w/data"))' in made
    assert not any('(subpath "/")' in line or line == "(allow file-read*)" for line in made)
    assert "(allow process-exec)" not in made and "(allow process-exec)" in lines("exec: *\n")


def test_what_protects_comes_after_what_allows() -> None:
    """The last match wins: sealed and hidden files stay shut inside a write root."""
    made = lines("write: .\n")
    allowed = made.index('(allow file-read* file-write* (subpath "/w"))')
    hooks = next(at for at, line in enumerate(made) if "[hH][oO][oO][kK][sS]" in line)
    assert allowed < hooks < made.index('(deny file-write* (subpath "/w/p"))')
    assert allowed < made.index('(deny file-read* file-write* (subpath "/w/t"))')


def test_a_rule_that_names_a_protected_folder_opens_it_again() -> None:
    """After the denial, as the last match wins."""
    made = lines("write: .\nwrite: ./.vscode\n")
    denial = next(at for at, line in enumerate(made) if line.startswith("(deny") and "[vV]" in line)
    assert made.index('(allow file-write* (subpath "/w/.vscode"))') > denial


def test_hosts_are_not_decided_but_ports_are() -> None:
    """A profile can tell this machine from the rest, and ports."""
    made = lines("net: a.example.com:443\nnet: 127.0.0.1:8080\nnet: b.example.com\nnet: unix:/w/s\n")
    assert made[-4:] == [
        '(allow network-outbound (remote ip "*:443"))',
        '(allow network-outbound (remote ip "localhost:8080"))',
        '(allow network-outbound (remote ip "*:*"))',
        '(allow network-outbound (literal "/w/s"))',
    ]


def test_text_that_could_end_a_string_is_quoted_or_refused() -> None:
    """A path never becomes a rule of its own."""
    assert '(allow file-read* (subpath "/w/a\\"b\\\\c"))' in lines('read: "./a\\"b\\\\c"\n')
    for value in ('"./a\\nb"', '"./\\xff"'):
        with pytest.raises(Unconfinable, match="seatbelt: the path .* cannot be written in a profile"):
            lines(f"read: {value}\n")
    with pytest.raises(Unconfinable, match="seatbelt: the glob .* cannot be written in a profile"):
        lines('read: "./a\\"*"\n')


SEGMENTS = st.sampled_from(["**", "*", "*.py", "a*b", "?x", "[a-c]x", "[!a]", "x", ".h", "*a*"])
NAMES = st.sampled_from(["a", "x", "ax", "ab", "aXb", ".h", "x.py", ".py", "b", "cx", "dx", "-"])


@given(st.lists(SEGMENTS, min_size=1, max_size=3), st.lists(NAMES, min_size=1, max_size=4))
def test_a_glob_means_the_same_as_in_the_policy(segments: list[str], names: list[str]) -> None:
    """Held against the matcher itself."""
    glob, path = "/".join(segments), "/".join(names)
    found = re.fullmatch(_pattern(glob), "/" + path)
    assert (found is not None) == glob_matches(glob_patterns(glob), path)
