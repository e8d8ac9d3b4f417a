"""How soon prefixes are used again, learned from the uses themselves: a life table for each class of prefixes.

A class is how often a prefix was used. For each class and each span of ages it is counted how many uses were still the last of
their prefix when they came to that age, and how many of these were followed by the next use within the span. Each use is counted
once for each span, when the clock leaves it, so that those which never return count as they should: the life table of
actuaries (Kaplan and Meier 1958, "Nonparametric estimation from incomplete observations").

A request uses every run of its path, and a chat of a thousand turns has a thousand of them. So no use is kept for the tables: all
of one tick and class make one cohort, two counts for each span at most.

The worth of a prefix is the most that keeping it can yield for its place and time: the largest, over how long it is kept, of the
chance that it is used again, divided by the expected time until that or until it is given up. That is the index of Gittins
(1979, "Bandit processes and dynamic allocation indices"), which orders jobs of unknown length.
"""

from bisect import bisect_right
from math import ceil

import numpy as np
import numpy.typing as npt

from radixserve.cache.uses import Use

NUM_CLASSES = 10
COUNT_BOUNDS = (2, 3, 4, 5, 6, 7, 10, 18, 34)
"""Uses at which the next class begins."""

AGES = tuple(sorted({ceil(2 ** (half / 2)) for half in range(34)}))
"""Starts of the spans of ages: two an octave. The last one has no end."""

WINDOW = 4_096
"""Uses are followed up to this age, in ticks of the clock."""

NUM_MEASURED = bisect_right(AGES, WINDOW) - 1
"""Spans that end within the window."""

PRIOR = 4
"""Uses of the average class that each class starts with."""

ENOUGH = 20
"""Uses that a span needs to say anything. A chance that can't be measured is taken to be `FADING` of that of the span before."""

FADING = 0.9

LEAST_INTERVAL, MOST_INTERVAL = 8, 256
"""Ticks between two updates: an eighth of the ticks so far within these."""


def class_of(count: int) -> int:
    """The class of what was used `count` times."""
    return bisect_right(COUNT_BOUNDS, count)


class Cohort:
    """The uses of one tick in one class."""

    __slots__ = ("num_left", "returned")

    def __init__(self) -> None:
        self.num_left = 0
        """Uses that did not return in the spans that were counted."""
        self.returned: dict[int, int] = {}
        """How many returned in each of the other spans, as far as the clock has come."""


class ReturnTimes:
    """The life tables, and what they say a prefix is worth."""

    def __init__(self) -> None:
        self._log: list[dict[int, Cohort]] = [{} for _ in range(WINDOW + 1)]
        """The cohorts of each tick within the window, by class."""
        self._at_risk = [[0] * len(AGES) for _ in range(NUM_CLASSES)]
        self._returned = [[0] * len(AGES) for _ in range(NUM_CLASSES)]
        self._next_update = 0
        self._worth = self._compute()

    def advance(self, clock: int) -> None:
        """Starts the tick `clock`: counts the uses that come to the end of a span now. Call it once for each tick."""
        for span in range(min(NUM_MEASURED, bisect_right(AGES, clock) - 1)):
            for class_, cohort in self._log[(clock - AGES[span + 1]) % len(self._log)].items():
                returned = cohort.returned.pop(span, 0)
                self._at_risk[class_][span] += cohort.num_left
                self._returned[class_][span] += returned
                cohort.num_left -= returned
        self._log[clock % len(self._log)] = {}
        if clock >= self._next_update:
            self._worth = self._compute()
            self._next_update = clock + min(max(clock // 8, LEAST_INTERVAL), MOST_INTERVAL)

    def add(self, use: Use) -> None:
        """Follows a use of the present tick."""
        cohorts, class_ = self._log[use.time % len(self._log)], class_of(use.count)
        cohort = cohorts.get(class_)
        if cohort is None:
            cohort = cohorts[class_] = Cohort()
        cohort.num_left += 1

    def again(self, use: Use, time: int) -> Use:
        """The next use of the same run; it isn't followed yet. The one before returned, if it hadn't: a part of it may have."""
        if not use.returned:
            use.returned = True
            span = bisect_right(AGES, time - use.time) - 1
            if span < NUM_MEASURED:
                returned = self._log[use.time % len(self._log)][class_of(use.count)].returned
                returned[span] = returned.get(span, 0) + 1
        return Use(time, use.turn, use.count + 1)

    def worth(self, class_: int, age: int) -> float:
        """Uses to be expected a tick of keeping what is `age` ticks old."""
        return self._worth[class_][bisect_right(AGES, max(age, 1)) - 1]

    def _compute(self) -> list[list[float]]:
        chances = self._chances()
        survival = np.ones((NUM_CLASSES, len(AGES) + 1))
        survival[:, 1:] = np.cumprod(1 - chances, axis=1)
        spans = np.diff(np.array([*AGES, 2 * AGES[-1]]))
        kept = np.zeros_like(survival)
        kept[:, 1:] = np.cumsum(survival[:, :-1] * spans * (1 - chances / 2), axis=1)
        # used[c, a, b]: from the start of span a to the start of span b
        used = survival[:, :, None] - survival[:, None, :]
        time = kept[:, None, :] - kept[:, :, None]
        rate = np.divide(used, time, out=np.zeros_like(used), where=time > 0)
        worth: list[list[float]] = rate.max(axis=2)[:, :-1].tolist()
        return worth

    def _chances(self) -> npt.NDArray[np.float64]:
        """For each class and span: the share of what comes to its start that is used again before its end."""
        at_risk, returned = np.array(self._at_risk, dtype=float), np.array(self._returned, dtype=float)
        total = at_risk.sum(axis=0)
        average = (returned.sum(axis=0) + 1e-3) / (total + 1)
        chances = np.full_like(at_risk, 1e-2)
        for span in range(len(AGES)):
            expected = average[span] if total[span] >= ENOUGH else FADING * chances[:, max(span - 1, 0)]
            chances[:, span] = (returned[:, span] + PRIOR * expected) / (at_risk[:, span] + PRIOR)
        return chances
