"""Canaries: rows whose label a coin decided, a training on them, and scores of the coins from its result.

The memorization game of Malek et al. (2021): a canary gets a random wrong label, and the guesser must distinguish it
from another random wrong one. The two labels are equally likely to be either, so which of them was used is a fair coin.
The coins of different canaries are independent: their game is the one of `one_run`. With two classes there is no second
wrong label, and the coin decides between the two classes.

What is proved. The paper trains once with many canaries and treats guesses as independent, which they are not: all come
from one model. By the proof in `one_run` the lower end of the interval needs no such assumption, if the training is
private: given the model, the coins can be guessed no better than independent ones. The threshold was chosen on the
other half of the canaries, whose coins are fixed there, too. So `lower` exceeds epsilon with a probability of half the
error rate plus (canaries times delta) at most. The upper end is a heuristic for the success of this attack, as if
guesses were independent. It is no upper bound on epsilon.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.audit.bounds import (
    epsilon_lower_bound_from_guesses,
    error_rate,
    proportion_lower_bound,
    proportion_upper_bound,
)
from labeldp.core.errors import InputError
from labeldp.core.guarantee import Budget
from labeldp.core.label_space import Codes, EncodedLabels
from labeldp.data.base import Features
from labeldp.learn.predictor import Predictor
from labeldp.privacy.vault import Identity, Ledger, Vault
from labeldp.recipes.held_out import split_held_out
from labeldp.recipes.registry import get_recipe
from labeldp.recipes.result import TrainingResult
from labeldp.recipes.task import RowMask, Task
from labeldp.recipes.training import train

# Name of the view of a model by its preference, weighted by its confidence. Results of audits store it.
CONFIDENT_VIEW = "model, where sure"
_MIN_CANARIES = 8
# By default, this fraction of the training rows are canaries, up to the maximum.
MAX_CANARIES, _CANARY_FRACTION = 1000, 0.2
# Smaller probabilities count as this one in logarithms.
_MIN_PROBABILITY = 1e-12


@dataclass(frozen=True, eq=False)
class CanarySet:
    """Labels of all rows; those of `row_ids` were chosen between two `options` by `coins`.

    A canary is a row, or a user: then one coin decides the labels of all rows of the user. `canary_ids` is the index of
    the coin of each row.
    """

    codes: Codes
    row_ids: NDArray[np.int64]
    options: NDArray[np.int64]  # (rows, 2)
    coins: NDArray[np.int64]
    canary_ids: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CanaryScores:
    """Scores of the coins by view, the confidence of the model, and the outputs of the training."""

    scores: dict[str, NDArray[np.float64]]
    model_confidence: NDArray[np.float64]  # the larger probability of the two options of each canary
    probabilities: NDArray[np.floating]  # of the trained model, for every row
    evidence: NDArray[np.floating] | None  # log-likelihoods of each row's releases, where releases have some
    model: Predictor | None = None


def plant_canaries(
    codes: Codes,
    eligible_mask: RowMask,
    n_classes: int,
    rng: np.random.Generator,
    n_canaries: int | None = None,
    max_canaries: int = MAX_CANARIES,
    users: NDArray[np.int64] | None = None,
) -> CanarySet:
    """Choose canaries at random, with two options for each, and draw the coins.

    Args:
        codes: The labels of all rows.
        eligible_mask: The rows that can be canaries.
        n_classes: The number of classes.
        rng: The source of randomness.
        n_canaries: The number of canaries; None for a fifth of the eligible rows or users, up to `max_canaries`.
        max_canaries: The most canaries where their number is not given.
        users: The owner of each row: then canaries are users, not rows.

    Raises:
        InputError: The number of canaries is too small or too large.
    """
    eligible_ids = np.flatnonzero(eligible_mask)
    unit_of_row = (
        np.arange(eligible_ids.size) if users is None else np.unique(users[eligible_ids], return_inverse=True)[1]
    )
    n_units, unit_name = int(unit_of_row.max(initial=-1)) + 1, "rows" if users is None else "users"
    n_canaries = min(max_canaries, int(_CANARY_FRACTION * n_units)) if n_canaries is None else n_canaries
    if not _MIN_CANARIES <= n_canaries <= n_units:
        raise InputError(
            f"{n_canaries} canaries are not between {_MIN_CANARIES} and the {n_units} {unit_name} that are trained on."
        )
    canary_of_unit = np.full(n_units, -1)
    canary_of_unit[rng.permutation(n_units)[:n_canaries]] = np.arange(n_canaries)
    order = np.argsort(canary_of_unit[unit_of_row], kind="stable")[np.count_nonzero(canary_of_unit[unit_of_row] < 0) :]
    row_ids, canary_ids = eligible_ids[order], canary_of_unit[unit_of_row][order]
    if n_classes == 2:
        options = np.tile([0, 1], (row_ids.size, 1))
    else:
        # Two different offsets from 1 to n_classes - 1 give two wrong labels; all pairs are equally likely.
        first_offset = rng.integers(1, n_classes, row_ids.size)
        second_offset = rng.integers(1, n_classes - 1, row_ids.size)
        second_offset += second_offset >= first_offset
        options = (codes[row_ids, None] + np.stack([first_offset, second_offset], axis=1)) % n_classes
    coins = rng.integers(0, 2, n_canaries)
    codes_with_canaries = codes.copy()
    codes_with_canaries[row_ids] = options[np.arange(row_ids.size), coins[canary_ids]]
    return CanarySet(codes_with_canaries, row_ids, options, coins, canary_ids)


def select_training_rows(task: Task, recipe: str) -> RowMask:
    """Return the rows whose labels a recipe trains on: all but those that it sets aside to choose with."""
    return split_held_out(task, get_recipe(recipe).has_several_candidates(task), False)[0]


def train_and_score(
    canary_set: CanarySet,
    task: Task,
    recipe: str,
    options: Mapping[str, Any] | None = None,
    *,
    reference_probabilities: NDArray[np.floating] | None = None,
    ledger: Ledger | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> CanaryScores:
    """Train once by a recipe in a temporary vault, and score each coin by the result.

    The guesser sees the model, and the releases of the training where they have evidence of single rows.

    Args:
        canary_set: The labels with canaries.
        task: The task of the training.
        recipe: The name of the recipe.
        options: The options of the recipe.
        reference_probabilities: Probabilities of a model that did not train on these canaries. The score of a canary is
            the difference to them.
        ledger: The ledger of the temporary vault; None for one in memory.
        report: Is called with each phase of the training.
    """
    identity = None if ledger is None else Identity("canaries", "label", len(canary_set.codes))
    budget = Budget(task.epsilon, task.delta)
    vault = Vault(
        EncodedLabels(canary_set.codes), task.space, budget, users=task.users, ledger=ledger, identity=identity
    )
    return score_canaries(
        canary_set,
        train(vault, task, recipe, options, score=False, report=report, with_rehearsal=False),
        task.features,
        reference_probabilities,
    )


def score_canaries(
    canary_set: CanarySet,
    trained: TrainingResult,
    features: Features,
    reference_probabilities: NDArray[np.floating] | None = None,
) -> CanaryScores:
    """Score each coin by the result of a training; see `train_and_score`."""
    probabilities = trained.model.predict_proba(features)
    log_probabilities = _option_scores(np.log(np.maximum(probabilities, _MIN_PROBABILITY)), canary_set)
    reference_scores = (
        0.0
        if reference_probabilities is None
        else _option_scores(np.log(np.maximum(reference_probabilities, _MIN_PROBABILITY)), canary_set)
    )
    shifts = log_probabilities - reference_scores
    model_confidence = np.exp(log_probabilities.max(axis=1))
    # Two scores of a model: its log-odds of the options, and its preference, weighted by its confidence.
    scores = {
        "model": shifts[:, 1] - shifts[:, 0],
        CONFIDENT_VIEW: np.sign(log_probabilities[:, 1] - log_probabilities[:, 0]) * model_confidence,
    }
    row_evidence = [release.log_evidence() for release in trained.releases if release.kind == "likelihood"]
    evidence = np.sum(row_evidence, axis=0) if row_evidence else None
    if evidence is not None:
        evidence_scores = _option_scores(evidence, canary_set)
        scores["releases"] = evidence_scores[:, 1] - evidence_scores[:, 0]
    return CanaryScores(scores, model_confidence, probabilities, evidence, trained.model)


def _option_scores(log_scores: NDArray[Any], canary_set: CanarySet) -> NDArray[np.float64]:
    """Return the score of either option for each canary, summed over its rows."""
    option_scores = np.zeros((canary_set.coins.size, 2))
    np.add.at(
        option_scores,
        canary_set.canary_ids,
        np.take_along_axis(log_scores[canary_set.row_ids], canary_set.options, axis=1),
    )
    return option_scores


@dataclass(frozen=True)
class CanaryGameResult:
    """The guess rate on one half of the canaries, with its interval, and what follows for epsilon."""

    lower: float
    upper: float  # of this attack, if guesses were independent; no bound on epsilon
    rate: float | None
    rate_low: float
    rate_high: float
    guesses: int
    correct: int
    canaries: int
    threshold: float
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """Describe the interval; an infinite end is null."""
        return {
            "attack_interval": [self.lower, self.upper if math.isfinite(self.upper) else None],
            "guess_rate": [self.rate, self.rate_low, self.rate_high],
            **{name: getattr(self, name) for name in ("guesses", "correct", "canaries", "threshold", "confidence")},
        }


def measure_canary_game(scores: Any, model_confidence: Any, coins: Any, confidence: float = 0.95) -> CanaryGameResult:
    """Choose a threshold of confidence on every second canary, and measure the rate of right guesses on the others."""
    scores = np.asarray(scores, np.float64)
    model_confidence = np.asarray(model_confidence, np.float64)
    coins = np.asarray(coins)
    if not scores.shape == model_confidence.shape == coins.shape or coins.size < _MIN_CANARIES:
        raise InputError(f"A canary game needs a score, a confidence and a coin of at least {_MIN_CANARIES} canaries.")
    error = error_rate(confidence)
    is_correct = (scores > 0) == coins.astype(bool)
    threshold = _best_threshold(model_confidence[::2], is_correct[::2], error / 2)
    is_guessed = model_confidence[1::2] >= threshold
    guesses, correct = int(is_guessed.sum()), int(is_correct[1::2][is_guessed].sum())
    if not guesses:
        return CanaryGameResult(0.0, math.inf, None, 0.0, 1.0, 0, 0, int(coins.size), threshold, float(confidence))
    low, high = (
        float(bound(correct, guesses, error / 2)) for bound in (proportion_lower_bound, proportion_upper_bound)
    )
    upper = max(0.0, math.log(high / (1 - high))) if high < 1 else math.inf
    lower = float(epsilon_lower_bound_from_guesses(correct, guesses, error / 2))
    rate = correct / guesses
    return CanaryGameResult(
        lower, upper, rate, low, high, guesses, correct, int(coins.size), threshold, float(confidence)
    )


def _best_threshold(model_confidence: NDArray[np.float64], is_correct: NDArray[np.bool_], level: float) -> float:
    """Return the confidence from which guesses would give the best bound; ties are guessed together."""
    order = np.argsort(-model_confidence, kind="stable")
    correct, guesses = np.cumsum(is_correct[order]), np.arange(1, is_correct.size + 1)
    ends_tie = np.append(np.diff(model_confidence[order]) != 0, True)
    bounds = np.where(ends_tie, epsilon_lower_bound_from_guesses(correct, guesses, level), -1.0)
    # Without a positive bound, all canaries are guessed: then the interval is narrowest.
    best = is_correct.size - 1 if bounds.max() <= 0 else int(np.argmax(bounds))
    return float(model_confidence[order][best])
