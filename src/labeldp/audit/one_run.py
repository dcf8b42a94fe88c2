"""A lower bound on epsilon from many canaries in one training, after Steinke, Nasr and Jagielski (2023).

The game. Each of m rows, the canaries, has two labels to choose from, and a fair coin of its own decides which it gets.
There is one training on all rows. From its output, a guesser guesses the coin of some canaries.

Claim. Let the training be (epsilon, delta)-private for a changed label, and p = exp(epsilon) / (1 + exp(epsilon)). Then
for every guesser, the number of correct guesses among r is at most that of r independent coins with probability p,
except for an event whose probability is m delta at most.

Proof. Take the canaries one after another. Fix the coins s of those before i, and let P_b be the distribution of the
output o if coin i shows b, averaged over the later coins. As averages of neighbors, P_0 and P_1 are
(epsilon, delta)-close, too. Let t be the guess that o leads to. Given s and o, it is right with probability
P_t(o) / (P_0(o) + P_1(o)). Write x_t(o) = max(0, P_t(o) - exp(epsilon) P_1-t(o)). Taking x_t(o) from P_t(o) leaves odds
of exp(epsilon) at most, so that probability is at most p + g with g = x_t(o) / (P_0(o) + P_1(o)). On average over o,
whose distribution is (P_0 + P_1) / 2, g is at most half the sum of x_0 and x_1 over all o, and each of these is delta
at most: so is g on average.
Now let u_1, ..., u_m be independent and uniform, also of o, and let guess i be right where u_i lies below its
probability given s and o: that is the distribution of the game. Let B_i be the event u_i <= p, and F_i the event
p < u_i <= p + g. Given o, the B_i are independent coins with probability p, and guess i is right only where B_i or F_i
holds. Some F_i holds with probability m delta at most. Where none does, the r guesses are right at most as often as
their B_i. QED.

So the guesses may be any function of the output, and so may their number: given o, both are constants for the B_i. The
canaries may influence each other through the model. The published theorem has a smaller term in place of m delta. This
one is simpler, and hardly larger where m delta is far below the error rate, as it should be.

Several ways to guess are compared: by several scores, and on the most confident canaries, up to a fraction of all. Each
of k ways has an error rate of (error - m delta) / k; the event of the claim is the same for all, so m delta is
subtracted once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.audit.bounds import epsilon_lower_bound_from_guesses, error_rate
from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_delta

# Fractions of the canaries, most confident first, that are guessed.
GUESS_FRACTIONS = (1.0, 0.5, 0.25, 0.125, 0.0625)
# The fewest guesses of a fraction that is tried.
_MIN_GUESSES = 4


@dataclass(frozen=True)
class OneRunAudit:
    """A lower bound on epsilon, and the guesses that it comes from."""

    lower: float
    confidence: float
    delta: float
    canaries: int
    guesses: int
    correct: int
    view: str  # the view of the output with the largest bound
    views: dict[str, float]  # the bound that each view gives, within the same confidence for all together

    def to_json(self) -> dict[str, Any]:
        """Describe the bound."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def one_run(
    scores: Mapping[str, Any],
    coins: Any,
    delta: float = 0.0,
    confidence: float = 0.95,
    guess_fractions: Sequence[float] = GUESS_FRACTIONS,
) -> OneRunAudit:
    """Bound epsilon from below by guesses of fair coins.

    Args:
        scores: For each view of the output, a number for each canary. Its sign is the guess, positive for a coin of 1,
            and its absolute value the confidence; 0 is no guess.
        coins: The coins that were drawn, 0 or 1.
        delta: The delta of the training.
        confidence: The confidence of the bound.
        guess_fractions: Fractions of the canaries, most confident first, to try.

    Raises:
        InputError: There is no canary or no view, or a score is missing.
    """
    coin_values = np.asarray(coins).astype(bool)
    view_scores = {name: np.asarray(values, np.float64) for name, values in scores.items()}
    if (
        not coin_values.size
        or not view_scores
        or any(values.shape != coin_values.shape for values in view_scores.values())
    ):
        raise InputError("A one-run audit needs a coin, and for each view a score, of each canary; and at least one.")
    if any(np.isnan(values).any() for values in view_scores.values()):
        raise InputError("A score is missing: give 0 where nothing is known.")
    sizes = sorted({max(1, round(fraction * coin_values.size)) for fraction in guess_fractions})
    sizes = [size for size in sizes if size >= min(_MIN_GUESSES, sizes[-1])]
    level = (error_rate(confidence) - coin_values.size * check_delta(delta)) / (len(sizes) * len(view_scores))
    candidates = [
        (name, size, n_correct)
        for name, values in view_scores.items()
        for size, n_correct in _count_correct(values, coin_values, sizes)
    ]
    bounds = _lower_bounds([n_correct for _, _, n_correct in candidates], [size for _, size, _ in candidates], level)
    results = [(bound, *result) for bound, result in zip(bounds, candidates, strict=True)]
    lower, view, guesses, correct = max(results, key=lambda result: result[0])
    views = {name: max(result[0] for result in results if result[1] == name) for name in view_scores}
    return OneRunAudit(lower, float(confidence), float(delta), int(coin_values.size), guesses, correct, view, views)


def _count_correct(scores: NDArray[np.float64], coins: NDArray[np.bool_], sizes: list[int]) -> list[tuple[int, int]]:
    """Count the correct guesses among the most confident ones of each size; equal ones are taken in order."""
    order = np.argsort(-np.abs(scores), kind="stable")
    n_correct = np.append(0, np.cumsum(((scores > 0) == coins)[order]))
    n_nonzero = int(np.count_nonzero(scores))
    return [(min(size, n_nonzero), int(n_correct[min(size, n_nonzero)])) for size in sizes]


def _lower_bounds(correct: list[int], guesses: list[int], level: float) -> list[float]:
    if level <= 0:  # delta alone can explain all correct guesses
        return [0.0] * len(correct)
    bounds: list[float] = epsilon_lower_bound_from_guesses(np.array(correct), np.maximum(guesses, 1), level).tolist()
    return bounds
