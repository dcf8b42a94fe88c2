"""Many canaries in one training: a lower bound on epsilon that holds, after Steinke, Nasr and Jagielski (2023).

The game. Each of m rows, the canaries, has two labels to choose from, and a fair coin of its own says which it gets.
All is trained once. From what comes out, a guesser names the coin of some canaries and abstains on the others.

Claim. Let the training be (epsilon, delta)-private for a changed label, and p = exp(epsilon) / (1 + exp(epsilon)). Then
whatever the guesser does, the number of correct guesses among r is at most that of r independent coins with chance p,
but for an event whose probability is m delta at most.

Proof. Take the canaries one after another. Fix the coins s of those before i, and let P_b be the law of the output o if
coin i shows b, averaged over the later coins. As averages of neighbours, P_0 and P_1 are (epsilon, delta)-close, too.
Let t be the guess that o leads to. Given s and o, it is right with probability P_t(o) / (P_0(o) + P_1(o)). Write
x_t(o) = max(0, P_t(o) - exp(epsilon) P_1-t(o)). Taking x_t(o) from P_t(o) leaves odds of exp(epsilon) at most, so that
probability is at most p + g with g = x_t(o) / (P_0(o) + P_1(o)). On average over o, whose law is (P_0 + P_1) / 2,
g is at most half the sum of x_0 and x_1 over all o, and each of these is delta at most: so is g on average.
Now let u_1, ..., u_m be independent and uniform, also of o, and let guess i be right where u_i lies below its
probability given s and o: that is the law of the game. Let B_i say that u_i <= p, and F_i that p < u_i <= p + g.
Given o, the B_i are independent coins with chance p, and guess i is right only where B_i or F_i holds. Some F_i holds
with probability m delta at most. Where none does, the r guesses are right at most as often as their B_i. QED.

So the guesses may be any function of the output, and so may their number: given o, both are constants for the B_i. The
canaries influence each other through the model as they like. The published theorem has a smaller term in place of
m delta; this one is simpler, and where m delta is far below the error rate, as it should be, hardly larger.

Several ways to guess are tried: by several scores, and on the surest canaries, up to a share of all. Each of k ways has
an error rate of (error - m delta) / k; the event of the claim is the same for all, so m delta is paid once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.audit.bounds import epsilon_lower_bound_from_guesses, error_rate
from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_delta

GUESS_FRACTIONS = (1.0, 0.5, 0.25, 0.125, 0.0625)
_MIN_GUESSES = 4  # guesses from which a share is worth a try


@dataclass(frozen=True)
class OneRunAudit:
    """What epsilon is at least, and the guesses that show it."""

    lower: float
    confidence: float
    delta: float
    canaries: int
    guesses: int
    correct: int
    view: str  # what the guesser saw
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

    `scores` hold, for each view of the output, a number for each canary: the larger, the likelier its coin shows 1; and
    the farther from zero, the surer. `coins` are what was tossed.
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
    """Count the correct guesses among the surest of each size; of equally sure ones, the first. Zero is no guess."""
    order = np.argsort(-np.abs(scores), kind="stable")
    n_correct = np.append(0, np.cumsum(((scores > 0) == coins)[order]))
    n_nonzero = int(np.count_nonzero(scores))
    return [(min(size, n_nonzero), int(n_correct[min(size, n_nonzero)])) for size in sizes]


def _lower_bounds(correct: list[int], guesses: list[int], level: float) -> list[float]:
    if level <= 0:  # delta alone could explain everything
        return [0.0] * len(correct)
    bounds: list[float] = epsilon_lower_bound_from_guesses(np.array(correct), np.maximum(guesses, 1), level).tolist()
    return bounds
