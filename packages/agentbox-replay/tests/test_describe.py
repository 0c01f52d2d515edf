"""The diff of two values: never the same line on both sides, and never nothing where something differs."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from agentbox.replay.describe import diff

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def test_another_order_of_keys_is_named() -> None:
    """A body whose keys are in another order is other bytes: the first line says that nothing else differs."""
    recorded, now = {"model": "m", "prompt": "p"}, {"prompt": "p", "model": "m"}
    lines = diff({"body": json.dumps(recorded)}, {"body": json.dumps(now)})
    assert lines[0] == "the values are equal, the order of the keys differs:"
    assert {'-  "model": "m",', '+  "model": "m"'} <= {
        line.replace("-   ", "-  ").replace("+   ", "+  ") for line in lines
    }


def test_another_spelling_is_named() -> None:
    """So is one whose blanks differ; the texts stand there as they are."""
    lines = diff({"body": '{"a":1}'}, {"body": '{"a": 1}'})
    assert lines[0] == "the values are equal, the bytes differ (blanks, escapes or numbers):"
    assert any(line.startswith("-") and r"{\"a\":1}" in line for line in lines)
    assert any(line.startswith("+") and r"{\"a\": 1}" in line for line in lines)


def test_a_long_line_is_shown_where_it_differs() -> None:
    """What is cut is what both sides have alike."""
    lines = diff({"prompt": "x" * 5000 + "one"}, {"prompt": "x" * 5000 + "two"})
    assert [line[0] for line in lines if line[0] in "-+"] == ["-", "+"]
    assert "one" in "".join(lines) and "two" in "".join(lines) and max(map(len, lines)) <= 160


@given(JSON, JSON, st.booleans())
def test_what_differs_is_shown(one: object, other: object, as_text: bool) -> None:
    """Two values that differ have two sides that differ."""
    if as_text:
        one, other = json.dumps(one), json.dumps(other, indent=2)
    lines = diff({"body": one}, {"body": other})
    assert lines or one == other
    sides = [[line[1:] for line in lines if line.startswith(sign)] for sign in "-+"]
    assert not lines or sides[0] != sides[1]


def test_equal_values_have_no_difference() -> None:
    """Whatever the order of their members, where they are no text."""
    assert diff({"a": 1, "b": [2]}, {"b": [2], "a": 1}) == []
