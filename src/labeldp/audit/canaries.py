"""Canaries: rows with a label that a coin decided, one training, and what its outcome tells about the coins.

The memorisation game of Malek et al. (2021): a canary gets a random wrong label, and the guesser must tell it from
another random wrong one. The two labels are equally likely to be either, so which of them was used is a fair coin, and
the coins of different canaries are independent: their game is the one of `one_run`. With two classes there is
no second wrong label, and the coin decides between the two classes.

What is proved. The paper trains once with many canaries and treats guesses as independent, which they are not:
all come from one model. By the proof in `one_run` the lower end of the interval needs no such assumption, if the
training is private: given the model, the coins can be guessed no better than independent ones. The threshold was
chosen on the other half of the canaries, whose coins are fixed there, too. So `lower` exceeds epsilon with a chance of
half the error rate plus (canaries times delta) at most. The upper end is a heuristic: it says where the success of
this attack would lie if guesses were independent, and never what epsilon is at most.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.audit.bounds import error_rate, guessing, share_high, share_low
from labeldp.core.errors import InputError
from labeldp.core.guarantee import Budget
from labeldp.core.label_space import Codes, Encoded
from labeldp.data.base import Features
from labeldp.learn.predictor import Predictor
from labeldp.privacy.vault import Identity, Ledger, Vault
from labeldp.recipes.base import find
from labeldp.recipes.runner import TrainingResult, split_held_out, train
from labeldp.recipes.task import Rows, Task

SURE = "model, where sure"
_FEWEST = 8
MOST, _SHARE = 1000, 0.2  # canaries, of the rows that are trained on
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Game:
    """Labels of all rows; those of `rows` were chosen between two `options` by `coins`.

    A canary is a row; or a user, one coin for all of whose rows decides. `canary` is the number of each row's coin.
    """

    codes: Codes
    rows: NDArray[np.int64]
    options: NDArray[np.int64]  # (rows, 2)
    coins: NDArray[np.int64]
    canary: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Played:
    """What a training told: a score for each coin by view, and how sure the model is of either option."""

    scores: dict[str, NDArray[np.float64]]
    sureness: NDArray[np.float64]
    chances: NDArray[np.floating]  # of the trained model, for every row
    evidence: NDArray[np.floating] | None  # of what was released of every row, where it speaks of single rows
    model: Predictor | None = None


def deal(
    codes: Codes,
    eligible: Rows,
    classes: int,
    generator: np.random.Generator,
    count: int | None = None,
    most: int = MOST,
    users: NDArray[np.int64] | None = None,
) -> Game:
    """Choose canaries among eligible rows, or among the `users` who own them, two options for each, and toss the coins.

    Without a count, a fifth of these are canaries, and no more than `most`.
    """
    places = np.flatnonzero(eligible)
    owner = np.arange(places.size) if users is None else np.unique(users[places], return_inverse=True)[1]
    units, what = int(owner.max(initial=-1)) + 1, "rows" if users is None else "users"
    count = min(most, int(_SHARE * units)) if count is None else count
    if not _FEWEST <= count <= units:
        raise InputError(f"{count} canaries are not between {_FEWEST} and the {units} {what} that are trained on.")
    number = np.full(units, -1)
    number[generator.permutation(units)[:count]] = np.arange(count)
    order = np.argsort(number[owner], kind="stable")[np.count_nonzero(number[owner] < 0) :]
    rows, canary = places[order], number[owner][order]
    if classes == 2:
        options = np.tile([0, 1], (rows.size, 1))
    else:
        # Two different numbers from 1 to classes - 1, added to the label: wrong labels, all pairs alike.
        first = generator.integers(1, classes, rows.size)
        second = generator.integers(1, classes - 1, rows.size)
        second += second >= first
        options = (codes[rows, None] + np.stack([first, second], axis=1)) % classes
    coins = generator.integers(0, 2, count)
    changed = codes.copy()
    changed[rows] = options[np.arange(rows.size), coins[canary]]
    return Game(changed, rows, options, coins, canary)


def rows_to_train(task: Task, recipe: str) -> Rows:
    """Return the rows whose labels a recipe learns from: not those that it sets aside to choose with."""
    return split_held_out(task, find(recipe).has_several_candidates(task), False)[0]


def play(
    game: Game,
    task: Task,
    recipe: str,
    options: Mapping[str, Any] | None = None,
    *,
    reference: NDArray[np.floating] | None = None,
    ledger: Ledger | None = None,
    report: Callable[[str], None] = lambda what: None,
) -> Played:
    """Train once by a recipe in a throwaway vault, and score each coin by what comes out.

    The guesser sees the model; and what was released on the way, where that speaks of single rows. `reference` holds
    the chances that a model gave which never saw these coins: it tells what the model would say of each canary anyway.
    """
    identity = None if ledger is None else Identity("canaries", "label", len(game.codes))
    limit = Budget(task.epsilon, task.delta)
    vault = Vault(Encoded(game.codes), task.space, limit, users=task.users, ledger=ledger, identity=identity)
    return listen(
        game,
        train(vault, task, recipe, options, score=False, report=report, with_rehearsal=False),
        task.features,
        reference,
    )


def listen(
    game: Game, trained: TrainingResult, features: Features, reference: NDArray[np.floating] | None = None
) -> Played:
    """Score each coin by what a training told; see `play`."""
    chances = trained.model.predict_proba(features)
    told = _pairs(np.log(np.maximum(chances, _TINY)), game)
    usual = 0.0 if reference is None else _pairs(np.log(np.maximum(reference, _TINY)), game)
    leaned = told - usual
    sureness = np.exp(told.max(axis=1))
    # Two ways to read a model: by how far it leans to one option, and by its preference where it is sure of either.
    scores = {"model": leaned[:, 1] - leaned[:, 0], SURE: np.sign(told[:, 1] - told[:, 0]) * sureness}
    local = [release.log_evidence() for release in trained.releases if release.kind == "likelihood"]
    evidence = np.sum(local, axis=0) if local else None
    if evidence is not None:
        own = _pairs(evidence, game)
        scores["releases"] = own[:, 1] - own[:, 0]
    return Played(scores, sureness, chances, evidence, trained.model)


def _pairs(logs: NDArray[Any], game: Game) -> NDArray[np.float64]:
    """Return the score of either option for each canary, summed over its rows."""
    found = np.zeros((game.coins.size, 2))
    np.add.at(found, game.canary, np.take_along_axis(logs[game.rows], game.options, axis=1))
    return found


@dataclass(frozen=True)
class CanaryGame:
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


def canary_game(scores: Any, sureness: Any, coins: Any, confidence: float = 0.95) -> CanaryGame:
    """Choose on every second canary how sure the model must be, and measure the guess rate on the others."""
    scores, sureness, coins = np.asarray(scores, np.float64), np.asarray(sureness, np.float64), np.asarray(coins)
    if not scores.shape == sureness.shape == coins.shape or coins.size < _FEWEST:
        raise InputError(f"A canary game needs a score, a sureness and a coin of at least {_FEWEST} canaries.")
    error = error_rate(confidence)
    right = (scores > 0) == coins.astype(bool)
    threshold = _threshold(sureness[::2], right[::2], error / 2)
    guessed = sureness[1::2] >= threshold
    guesses, correct = int(guessed.sum()), int(right[1::2][guessed].sum())
    if not guesses:
        return CanaryGame(0.0, math.inf, None, 0.0, 1.0, 0, 0, int(coins.size), threshold, float(confidence))
    low, high = (float(end(correct, guesses, error / 2)) for end in (share_low, share_high))
    upper = max(0.0, math.log(high / (1 - high))) if high < 1 else math.inf
    lower = float(guessing(correct, guesses, error / 2))
    rate = correct / guesses
    return CanaryGame(lower, upper, rate, low, high, guesses, correct, int(coins.size), threshold, float(confidence))


def _threshold(sureness: NDArray[np.float64], right: NDArray[np.bool_], level: float) -> float:
    """Return the sureness from which guesses would give the best bound; ties are guessed together."""
    order = np.argsort(-sureness, kind="stable")
    correct, guesses = np.cumsum(right[order]), np.arange(1, right.size + 1)
    last = np.append(np.diff(sureness[order]) != 0, True)
    bounds = np.where(last, guessing(correct, guesses, level), -1.0)
    # Where nothing is found, every guess counts: then the interval is narrowest.
    best = right.size - 1 if bounds.max() <= 0 else int(np.argmax(bounds))
    return float(sureness[order][best])
