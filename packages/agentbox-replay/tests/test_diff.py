"""Two traces compared step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentbox.replay import diff as module
from agentbox.replay.diff import diff

Tapes = Callable[..., Any]


def get(url: str, body: bytes = b"answer", status: int = 200) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """One recorded request."""
    return "http.request", {"method": "GET", "url": url, "headers": {}}, {"status": status, "body": body}


def differences(one: Any, two: Any, *, status: int = 0) -> list[str]:
    """What `diff` finds, each as its one line."""
    return [str(found) for found in diff(str(one.seal()), str(two.seal(status)))]


def test_same_behaviour(tape: Tapes) -> None:
    """Two runs that did the same have no difference, whatever order their threads came in."""
    one, two = tape("a"), tape("b")
    one.effect(*get("http://a/"), lane="0.1").effect(*get("http://b/"), lane="0.2").observe("fs.list", {"path": "/d"})
    two.observe("fs.list", {"path": "/d"}).effect(*get("http://b/"), lane="0.1").effect(*get("http://a/"), lane="0.2")
    assert differences(one, two) == []


def test_added_removed_and_changed(tape: Tapes) -> None:
    """A step of one run only is added or removed; one about the same thing with other arguments is changed."""
    one, two = tape("a"), tape("b")
    one.observe("fs.list", {"path": "/gone"}).observe("fs.write", {"path": "/o", "flags": "w"})
    two.observe("fs.write", {"path": "/o", "flags": "a"}).observe("fs.list", {"path": "/new"})
    found = diff(str(one.seal()), str(two.seal()))
    assert [str(each) for each in found] == [
        "removed step 1: fs.list /gone (direct)",
        "changed step 2: fs.write /o (direct)",
        "added step 2: fs.list /new (direct)",
    ]
    assert [line for line in found[1].lines if line[0] in "+-"] == ['- "flags": "w",', '+ "flags": "a",']


def test_results(tape: Tapes) -> None:
    """Another answer to the same request, and other content of the same file, are differences of the result."""
    one, two = tape("a"), tape("b")
    one.effect(*get("http://a/", b'{"x":1}')).observe("fs.read", {"path": "/f", "sha256": "1" * 64, "size": 1})
    two.effect(*get("http://a/", b'{"x":2}')).observe("fs.read", {"path": "/f", "sha256": "2" * 64, "size": 1})
    found = diff(str(one.seal()), str(two.seal()))
    assert [each.kind for each in found] == ["result", "result"]
    assert any('"x": 2' in line for line in found[0].lines)
    assert found[1].as_json()["first"]["step"] == 2


def test_order_of_the_main_thread(tape: Tapes) -> None:
    """The step that moved is named, not all that it moved past."""
    one, two = tape("a"), tape("b")
    for each, order in ((one, "abcd"), (two, "bcda")):
        for name in order:
            each.observe("fs.list", {"path": "/" + name})
    assert differences(one, two) == ["order step 1: fs.list /a (direct)"]


def test_header_and_status(tape: Tapes) -> None:
    """Another command and another exit status are said."""
    one, two = tape("a"), tape("b", argv=["other"])
    assert differences(one, two, status=1) == ["header", "status"]


def test_another_working_directory(tape: Tapes) -> None:
    """Runs of the same project in two folders differ in their header only."""
    one, two = tape("a"), tape("b", cwd="/else")
    one.observe("fs.list", {"path": "/work/in"})
    two.observe("fs.list", {"path": "/else/in"})
    assert differences(one, two) == ["header"]


@given(st.lists(st.integers(), unique=True))
def test_longest_rise(numbers: list[int]) -> None:
    """What is kept rises, and nothing longer would."""
    kept = [numbers[place] for place in sorted(module._longest_rise(numbers))]
    assert kept == sorted(kept)
    best = [1] * len(numbers)
    for place, number in enumerate(numbers):
        best[place] += max((best[other] for other in range(place) if numbers[other] < number), default=0)
    assert len(kept) == max(best, default=0)
