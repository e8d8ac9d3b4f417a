from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixserve.cache.return_times import AGES, NUM_CLASSES, NUM_MEASURED, ReturnTimes, class_of
from radixserve.cache.uses import Use

ONCE, TWICE = class_of(1), class_of(2)


def learn(num_ticks: int, gaps: dict[int, int]) -> ReturnTimes:
    """One use of each count a tick; those of a count in `gaps` return after so many ticks, the others never."""
    times = ReturnTimes()
    open_uses: dict[int, list[Use]] = {count: [] for count in gaps}
    for clock in range(num_ticks):
        for count, gap in gaps.items():
            if gap <= len(open_uses[count]):
                times.again(open_uses[count][-gap], clock)
        times.advance(clock)
        for count in (1, 2):
            use = Use(clock, 1, count)
            times.add(use)
            if count in gaps:
                open_uses[count].append(use)
    return times


def test_what_returns_is_worth_more_than_what_does_not() -> None:
    times = learn(1_000, {2: 20})
    assert times.worth(TWICE, 1) > 10 * times.worth(ONCE, 1)


def test_a_prefix_is_worth_most_just_before_its_time() -> None:
    times = learn(1_000, {2: 20})
    assert times.worth(TWICE, 1) == pytest.approx(1 / 20, rel=0.25)
    assert times.worth(TWICE, 16) > 2 * times.worth(TWICE, 1)
    assert times.worth(TWICE, 100) < times.worth(TWICE, 1) / 10


def test_without_uses_what_is_old_is_worth_less() -> None:
    times = ReturnTimes()
    worths = [times.worth(ONCE, age) for age in (1, 10, 100, 1_000, 10_000, 10**9)]
    assert worths == sorted(set(worths), reverse=True)


def test_classes_that_say_nothing_yet_are_like_the_average() -> None:
    times = learn(1_000, {1: 20, 2: 20})
    assert times.worth(NUM_CLASSES - 1, 1) == pytest.approx(times.worth(TWICE, 1), rel=0.1)


def test_every_use_is_counted_once_for_each_span() -> None:
    times = learn(40, {2: 2})
    assert times._at_risk[TWICE][:4] == [38, 37, 0, 0]
    assert times._returned[TWICE][:4] == [0, 37, 0, 0]
    assert times._at_risk[ONCE][:4] == [38, 37, 36, 34]
    assert times._returned[ONCE] == [0] * len(times._returned[ONCE])


@dataclass
class _Followed:
    """A use that is kept, and when it returned: what the tables count without keeping any."""

    use: Use
    age: int = 10**9


@given(st.lists(st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=6), max_size=80))
def test_the_tables_say_what_following_every_use_would(ticks: list[list[tuple[int, bool]]]) -> None:
    """Each tick, some of the present uses come again, and some of these are shared: only the first return of each counts."""
    times, followed, present = ReturnTimes(), [], [_Followed(Use(0, 1, 1)) for _ in range(2)]
    times.advance(0)
    for first in present:
        times.add(first.use)
    followed += present
    for clock, picks in enumerate(ticks, 1):
        times.advance(clock)
        before_tick = list(present)
        for pick, shared in picks:
            before = before_tick[pick % len(before_tick)]
            before.age = min(before.age, clock - before.use.time)
            after = _Followed(times.again(before.use, clock))
            times.add(after.use)
            followed.append(after)
            if shared:
                present.append(after)
            else:
                present[pick % len(before_tick)] = after
    at_risk, returned = ([[0] * len(AGES) for _ in range(NUM_CLASSES)] for _ in range(2))
    for each in followed:
        for span in range(NUM_MEASURED):
            if AGES[span + 1] <= len(ticks) - each.use.time and each.age >= AGES[span]:
                at_risk[class_of(each.use.count)][span] += 1
                returned[class_of(each.use.count)][span] += each.age < AGES[span + 1]
    assert times._at_risk == at_risk
    assert times._returned == returned


def test_what_is_kept_of_a_tick_does_not_grow_with_the_uses_in_it() -> None:
    """A chat of many turns: each request uses every run of its path, and each run has a use of its own."""
    times, runs = ReturnTimes(), []
    for clock in range(200):
        times.advance(clock)
        runs = [times.again(use, clock) for use in runs] + [Use(clock, clock + 1, clock + 1)]
        for use in runs:
            times.add(use)
    cohorts = [cohort for tick in times._log for cohort in tick.values()]
    assert len(cohorts) <= 200 * NUM_CLASSES
    assert sum(len(cohort.returned) for cohort in cohorts) <= 200 * NUM_CLASSES
