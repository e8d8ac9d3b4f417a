import pytest

from radixserve.cache.return_times import NUM_CLASSES, ReturnTimes, class_of
from radixserve.cache.uses import Use

ONCE, TWICE = class_of(1), class_of(2)


def learn(num_ticks: int, gaps: dict[int, int]) -> ReturnTimes:
    """One use of each count a tick; those of a count in `gaps` return after so many ticks, the others never."""
    times = ReturnTimes()
    open_uses: dict[int, list[Use]] = {count: [] for count in gaps}
    for clock in range(num_ticks):
        for count, gap in gaps.items():
            if gap <= len(open_uses[count]):
                open_uses[count][-gap].again(clock)
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
