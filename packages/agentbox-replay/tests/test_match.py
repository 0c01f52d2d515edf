"""Cursor and matcher: which recorded step a live call is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbox.replay.cursor import Cursor
from agentbox.replay.match import MAIN, Matcher


def make(*steps: tuple[str, str]) -> tuple[Cursor, Matcher]:
    cursor = Cursor()
    for offset, (lane, key) in enumerate(steps):
        cursor.add(lane, key.encode(), offset)
    return cursor, Matcher(cursor)


def test_equal_calls_are_served_first_in_first_out() -> None:
    """Equal calls of one lane get the recorded steps in recorded order, and one more gets none."""
    _, matcher = make(("0.0", "a"), ("0.0", "a"), ("0.0", "a"))
    assert [matcher.take("0.0", b"a") for _ in range(4)] == [0, 1, 2, None]


def test_main_lane_is_strict() -> None:
    """A call of the main thread that was recorded later is not taken out of order."""
    cursor, matcher = make(("0.0", "a"), ("0.0", "b"))
    assert matcher.take("0.0", b"b") is None
    assert matcher.expected("0.0") == 0
    assert cursor.consumed == 0


def test_swapped_thread_labels_are_bound_by_what_they_do() -> None:
    """Two threads that are numbered the other way round are still told apart."""
    _, matcher = make(("0.1", "a"), ("0.2", "x"), ("0.1", "b"), ("0.2", "y"))
    assert matcher.take("0.1", b"x") == 1
    assert matcher.take("0.2", b"a") == 0
    assert matcher.take("0.1", b"y") == 3
    assert matcher.take("0.2", b"b") == 2


def test_pool_threads_may_swap_work() -> None:
    """A worker thread may do what another one did when recorded, in any order."""
    _, matcher = make(("0.1", "a"), ("0.1", "b"), ("0.2", "c"), ("0.2", "d"))
    assert sorted(matcher.take("0.1", key) for key in (b"d", b"b", b"c", b"a")) == [0, 1, 2, 3]


def test_own_lane_comes_before_an_earlier_equal_step_elsewhere() -> None:
    """Of two equal steps the one of the caller's own lane is served, though the other was recorded first."""
    _, matcher = make(("0.1", "a"), ("0.2", "a"))
    assert matcher.take("0.2", b"a") == 1


def test_task_lanes_relax_the_order_of_their_thread() -> None:
    """Direct actions of asyncio tasks carry the thread's lane, so that lane has no order of its own."""
    _, matcher = make(("0.0", "a"), ("0.0", "b"), ("0.0.1", "x"))
    assert matcher.take("0.0", b"b") == 1
    assert matcher.take("0.0", b"a") == 0


def test_consuming_twice_is_an_error() -> None:
    """The cursor refuses to consume a step a second time."""
    cursor, _ = make(("0.0", "a"))
    cursor.consume(0)
    with pytest.raises(ValueError, match="step 1 is consumed already"):
        cursor.consume(0)


def test_main_lane_may_take_another_lanes_next_step() -> None:
    """Work that a thread did when recorded may be done by the main thread."""
    _, matcher = make(("0.1", "a"), ("0.0", "b"))
    assert matcher.take(MAIN, b"a") == 0
    assert matcher.take(MAIN, b"b") == 1


LANES = st.lists(st.lists(st.sampled_from("abcdef"), max_size=8), min_size=1, max_size=4)


@st.composite
def interleavings(draw: st.DrawFn, lanes: list[list[str]]) -> list[tuple[int, str]]:
    """One way to run the lanes together, each in its own order."""
    order = draw(st.permutations([place for place, keys in enumerate(lanes) for _ in keys]))
    at = [0] * len(lanes)
    steps = []
    for place in order:
        steps.append((place, lanes[place][at[place]]))
        at[place] += 1
    return steps


@given(st.data(), LANES)
def test_any_interleaving_of_independent_lanes_replays(data: st.DataObject, lanes: list[list[str]]) -> None:
    """Whatever the scheduler does, lanes that each do the same again consume every step, none twice."""
    recorded = data.draw(interleavings(lanes))
    live = data.draw(interleavings(lanes))
    # Lane 0 is the main thread; the others get their numbers in any order.
    numbers = [0, *data.draw(st.permutations(range(1, len(lanes))))]
    # Keys that differ between lanes make them independent.
    cursor, matcher = make(*((f"0.{place}", f"{place}{key}") for place, key in recorded))
    taken = [matcher.take(f"0.{numbers[place]}", f"{place}{key}".encode()) for place, key in live]
    assert None not in taken
    assert sorted(step for step in taken if step is not None) == list(range(len(recorded)))
    assert list(cursor.unconsumed()) == []


@given(st.data(), LANES)
def test_lanes_with_equal_calls_replay_in_worker_threads(data: st.DataObject, lanes: list[list[str]]) -> None:
    """Threads that make the same calls as each other consume every step as well, whoever comes first."""
    recorded = data.draw(interleavings(lanes))
    live = data.draw(interleavings(lanes))
    cursor, matcher = make(*((f"0.{place + 1}", key) for place, key in recorded))
    taken = [matcher.take(f"0.{place + 1}", key.encode()) for place, key in live]
    assert None not in taken
    assert len(set(taken)) == cursor.consumed == len(recorded)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.data())
def test_a_single_change_is_found_at_its_step(keys: list[str], data: st.DataObject) -> None:
    """One changed call of a single-threaded agent matches nothing, and its own step is the one expected."""
    place = data.draw(st.integers(0, len(keys) - 1))
    _, matcher = make(*(("0.0", key) for key in keys))
    for step, key in enumerate(keys[:place]):
        assert matcher.take("0.0", key.encode()) == step
    assert matcher.take("0.0", b"changed") is None
    assert matcher.expected("0.0") == place


@given(
    st.lists(st.tuples(st.sampled_from(["0.0", "0.1", "1.0", "0.0.1"]), st.sampled_from("ab")), max_size=20), st.data()
)
def test_nothing_is_consumed_twice(steps: list[tuple[str, str]], data: st.DataObject) -> None:
    """Whatever is asked, each recorded step is given out at most once and only for its own key."""
    cursor, matcher = make(*steps)
    calls = data.draw(st.lists(st.tuples(st.sampled_from(["0.0", "0.1", "2.0"]), st.sampled_from("abz")), max_size=30))
    given_out = []
    for lane, key in calls:
        step = matcher.take(lane, key.encode())
        if step is not None:
            assert steps[step][1] == key
            given_out.append(step)
    assert len(given_out) == len(set(given_out)) == cursor.consumed


def test_many_equal_steps_stay_cheap() -> None:
    """Thousands of equal steps in scrambled lanes are matched without looking through all of them each time."""
    cursor, matcher = make(*((f"0.{place % 50 + 1}", "tick") for place in range(20_000)))
    for _ in range(20_000):
        assert matcher.take("0.7", b"tick") is not None
    assert cursor.consumed == len(cursor)
