"""Which event tells two worlds apart best: chosen on draws that are not used again."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labeldp.audit.bounds import two_worlds

Outcomes = NDArray[np.int64]  # one row a draw; its columns are views of one release

_FEW = 40  # values of a column up to which every one is looked at by itself
_CUTS = 400


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


def best_event(here: Outcomes, there: Outcomes, delta: float, level: float) -> tuple[float, Event]:
    """Return the event whose bound would be largest on these draws, and that bound, which is biased upwards."""
    found = [_best_of(here[:, column], there[:, column], column, delta, level) for column in range(here.shape[1])]
    return max(found, key=lambda pair: pair[0])


def _best_of(
    here: NDArray[np.int64], there: NDArray[np.int64], column: int, delta: float, level: float
) -> tuple[float, Event]:
    values = np.unique(np.concatenate([here, there]))
    candidates = list[tuple[Event, int, int]]()
    for world, (likely, rare) in enumerate(((here, there), (there, here))):
        if values.size <= _FEW:
            counts = [np.array([(draws == value).sum() for value in values]) for draws in (likely, rare)]
            order = np.argsort(-(counts[0] + 0.5) / (counts[1] + 0.5), kind="stable")
            hits, others = (np.cumsum(count[order]) for count in counts)
            sets = [Event(column, world, values[order[: place + 1]]) for place in range(values.size)]
            candidates += zip(sets, hits.tolist(), others.tolist(), strict=True)
        else:
            candidates += _thresholds(likely, rare, column, world, values)
    bounds = two_worlds(
        np.array([hits for _, hits, _ in candidates]), np.array([o for _, _, o in candidates]), here.size, delta, level
    )
    best = int(np.argmax(bounds))
    return float(bounds[best]), candidates[best][0]


def _thresholds(
    likely: NDArray[np.int64], rare: NDArray[np.int64], column: int, world: int, values: NDArray[np.int64]
) -> list[tuple[Event, int, int]]:
    cuts = np.unique(np.quantile(values, np.linspace(0, 1, _CUTS // 2), method="nearest"))
    common = np.quantile(np.concatenate([likely, rare]), np.linspace(0, 1, _CUTS // 2), method="nearest")
    found = []
    ordered = np.sort(likely), np.sort(rare)
    for cut in np.union1d(cuts, common).tolist():
        below = [int(np.searchsorted(draws, cut, "left")) for draws in ordered]
        upto = [int(np.searchsorted(draws, cut, "right")) for draws in ordered]
        found.append((Event(column, world, least=cut), likely.size - below[0], rare.size - below[1]))
        found.append((Event(column, world, most=cut), upto[0], upto[1]))
    return found
