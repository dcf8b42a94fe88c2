"""Which event tells two worlds apart best: chosen on draws that are not used again."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labeldp.audit.bounds import two_worlds

Outcomes = NDArray[np.int64]  # one row a draw; its columns are views of one release

_CUTS = 400  # events of a column that are looked at
_STRICTER = 10


@dataclass(frozen=True, eq=False)
class Event:
    """A set of values of one column, or one side of a threshold; and the world in which it is likelier."""

    column: int
    world: int
    values: NDArray[np.int64] | None = None
    least: int | None = None
    most: int | None = None  # where there is no least

    def seen(self, outcomes: Outcomes) -> int:
        """Count the draws in which it happened."""
        column = outcomes[:, self.column]
        if self.values is not None:
            return int(np.isin(column, self.values).sum())
        if self.least is not None:
            return int((column >= self.least).sum())
        return int((column <= (self.most or 0)).sum())

    def __str__(self) -> str:
        if self.values is not None:
            return f"view {self.column} is in {{{', '.join(map(str, sorted(self.values.tolist())))}}}"
        side = f"at least {self.least}" if self.least is not None else f"at most {self.most}"
        return f"view {self.column} is {side}"


def best_event(
    here: Outcomes, there: Outcomes, delta: float, level: float, ordered: bool = False
) -> tuple[float, Event]:
    """Return the event whose bound would be largest on these draws, and that bound, which is biased upwards.

    The level is stricter than asked, because of many events that were seen a few times some look good by luck.
    """
    candidates = list[tuple[Event, int, int]]()
    for column in range(here.shape[1]):
        find = _thresholds if ordered else _sets
        candidates += find(here[:, column], there[:, column], column, 0)
        candidates += find(there[:, column], here[:, column], column, 1)
    hits, others = (np.array([counts[place] for counts in candidates]) for place in (1, 2))
    bounds = two_worlds(hits, others, len(here), delta, level / _STRICTER)
    best = int(np.argmax(bounds))
    return float(bounds[best]), candidates[best][0]


def _sets(likely: NDArray[np.int64], rare: NDArray[np.int64], column: int, world: int) -> list[tuple[Event, int, int]]:
    """Give the value with the largest ratio of counts, the first two of these, and so on."""
    values, place = np.unique(np.concatenate([likely, rare]), return_inverse=True)
    counts = [np.bincount(part, minlength=values.size) for part in (place[: likely.size], place[likely.size :])]
    order = np.argsort(-(counts[0] + 0.5) / (counts[1] + 0.5), kind="stable")
    hits, others = (np.cumsum(count[order]).tolist() for count in counts)
    events = [Event(column, world, values[order[: last + 1]]) for last in range(min(values.size, _CUTS))]
    return list(zip(events, hits, others, strict=False))


def _thresholds(
    likely: NDArray[np.int64], rare: NDArray[np.int64], column: int, world: int
) -> list[tuple[Event, int, int]]:
    """Give both sides of thresholds at even steps of the values, and at even shares of the draws."""
    every = np.concatenate([likely, rare])
    steps = np.linspace(0, 1, _CUTS // 2)
    cuts = [np.quantile(draws, steps, method="nearest") for draws in (np.unique(every), every)]
    found, ordered = [], (np.sort(likely), np.sort(rare))
    for cut in np.union1d(*cuts).tolist():
        below = [int(np.searchsorted(draws, cut, "left")) for draws in ordered]
        upto = [int(np.searchsorted(draws, cut, "right")) for draws in ordered]
        found.append((Event(column, world, least=cut), likely.size - below[0], rare.size - below[1]))
        found.append((Event(column, world, most=cut), upto[0], upto[1]))
    return found
