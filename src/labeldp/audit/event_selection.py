"""The choice of the event that separates two neighboring worlds best, on draws that are not used again."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labeldp.audit.bounds import epsilon_lower_bound

# One row for each draw; its columns are views of one release.
Outcomes = NDArray[np.int64]

# The most events of a column that are compared.
_MAX_EVENTS = 400
# The choice uses the level divided by this number, because it compares many events.
_LEVEL_DIVISOR = 10


@dataclass(frozen=True, eq=False)
class DistinguishingEvent:
    """A set of values of one column, or one side of a threshold; and the world in which it is likelier."""

    column: int
    world: int
    values: NDArray[np.int64] | None = None
    min_value: int | None = None
    max_value: int | None = None  # used where `min_value` is None

    def count_draws(self, outcomes: Outcomes) -> int:
        """Count the draws in which the event occurred."""
        column = outcomes[:, self.column]
        if self.values is not None:
            return int(np.isin(column, self.values).sum())
        if self.min_value is not None:
            return int((column >= self.min_value).sum())
        return int((column <= (self.max_value or 0)).sum())

    def __str__(self) -> str:
        if self.values is not None:
            return f"view {self.column} is in {{{', '.join(map(str, sorted(self.values.tolist())))}}}"
        side = f"at least {self.min_value}" if self.min_value is not None else f"at most {self.max_value}"
        return f"view {self.column} is {side}"


def best_event(
    outcomes: Outcomes, neighbor_outcomes: Outcomes, delta: float, level: float, ordered: bool = False
) -> tuple[float, DistinguishingEvent]:
    """Return the event with the largest bound on these draws, and that bound, which is biased upwards.

    The level is stricter than the given one, because among many rare events some have a large bound by chance.
    """
    candidates = list[tuple[DistinguishingEvent, int, int]]()
    for column in range(outcomes.shape[1]):
        list_events = _threshold_events if ordered else _value_set_events
        candidates += list_events(outcomes[:, column], neighbor_outcomes[:, column], column, 0)
        candidates += list_events(neighbor_outcomes[:, column], outcomes[:, column], column, 1)
    hits, neighbor_hits = (np.array([counts[index] for counts in candidates]) for index in (1, 2))
    bounds = epsilon_lower_bound(hits, neighbor_hits, len(outcomes), delta, level / _LEVEL_DIVISOR)
    best = int(np.argmax(bounds))
    return float(bounds[best]), candidates[best][0]


def _value_set_events(
    likely: NDArray[np.int64], rare: NDArray[np.int64], column: int, world: int
) -> list[tuple[DistinguishingEvent, int, int]]:
    """Return the value with the largest ratio of counts, the set of the first two values, and so on."""
    values, inverse = np.unique(np.concatenate([likely, rare]), return_inverse=True)
    counts = [np.bincount(part, minlength=values.size) for part in (inverse[: likely.size], inverse[likely.size :])]
    order = np.argsort(-(counts[0] + 0.5) / (counts[1] + 0.5), kind="stable")
    hits, rare_hits = (np.cumsum(world_counts[order]).tolist() for world_counts in counts)
    events = [
        DistinguishingEvent(column, world, values[order[: last + 1]]) for last in range(min(values.size, _MAX_EVENTS))
    ]
    return list(zip(events, hits, rare_hits, strict=False))


def _threshold_events(
    likely: NDArray[np.int64], rare: NDArray[np.int64], column: int, world: int
) -> list[tuple[DistinguishingEvent, int, int]]:
    """Return both sides of thresholds at evenly spaced quantiles of the distinct values, and of the draws."""
    all_draws = np.concatenate([likely, rare])
    steps = np.linspace(0, 1, _MAX_EVENTS // 2)
    cuts = [np.quantile(draws, steps, method="nearest") for draws in (np.unique(all_draws), all_draws)]
    events, sorted_draws = [], (np.sort(likely), np.sort(rare))
    for cut in np.union1d(*cuts).tolist():
        n_below = [int(np.searchsorted(draws, cut, "left")) for draws in sorted_draws]
        n_up_to = [int(np.searchsorted(draws, cut, "right")) for draws in sorted_draws]
        events.append(
            (DistinguishingEvent(column, world, min_value=cut), likely.size - n_below[0], rare.size - n_below[1])
        )
        events.append((DistinguishingEvent(column, world, max_value=cut), n_up_to[0], n_up_to[1]))
    return events
