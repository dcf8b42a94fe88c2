"""The one-run bound against an oracle: every outcome of small games, with its exact probability."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

import labeldp as ldp
from labeldp.audit.bounds import epsilon_lower_bound_from_guesses
from labeldp.audit.one_run import one_run

EPSILONS = [0.0, 0.3, 1.0, 2.5]


def steady(answers):
    """Surer of the later canaries, whatever the answers."""
    return np.where(answers, 1, -1) * np.arange(1, len(answers) + 1)


def fickle(answers):
    """How many guesses are sure, and which, depends on the answers of all others."""
    size = np.roll(answers, 1) * 2 + answers.sum() % 3
    return np.where(answers, 1, -1) * (size + 0.1)


def copied(answers):
    """Every guess but the first repeats the first answer: errors come together."""
    return np.where(answers[0], 1.0, -1.0) * np.ones(len(answers))


def game(m, epsilon, delta=0.0):
    """All (coins, answers, probability): randomized responses, but with probability delta all coins are released."""
    keep = np.exp(epsilon) / (1 + np.exp(epsilon))
    for coins, answers in product(product((0, 1), repeat=m), repeat=2):
        same = sum(c == a for c, a in zip(coins, answers, strict=True))
        probability = (1 - delta) * keep**same * (1 - keep) ** (m - same) + delta * (same == m)
        yield coins, answers, probability / 2**m


@cache
def bound(coins, answers, score, delta, confidence, shares):
    scores = {"a": score(np.array(answers))} | ({"b": steady(np.array(answers))} if len(shares) == 3 else {})
    return one_run(scores, coins, delta, confidence, shares).lower


def how_often_wrong(m, epsilon, score, delta, confidence, shares):
    return sum(
        probability
        for coins, answers, probability in game(m, epsilon, delta)
        if bound(coins, answers, score, delta, confidence, shares) > epsilon + 1e-12
    )


@pytest.mark.parametrize("score", [steady, fickle, copied])
@pytest.mark.parametrize("m", [3, 4, 5, 6])
def test_the_bound_is_too_large_no_more_often_than_stated(m, score):
    for epsilon, confidence in product(EPSILONS, (0.6, 0.9)):
        wrong = how_often_wrong(m, epsilon, score, 0.0, confidence, (1.0, 0.7, 0.4))
        assert wrong <= 1 - confidence + 1e-12


@pytest.mark.parametrize("delta", [0.001, 0.02, 0.1])
@pytest.mark.parametrize("m", [3, 5])
def test_delta_is_allowed_for(m, delta):
    for epsilon, confidence in product(EPSILONS, (0.5, 0.8)):
        wrong = how_often_wrong(m, epsilon, fickle, delta, confidence, (1.0, 0.5))
        assert wrong <= 1 - confidence + 1e-12


@pytest.mark.parametrize("m", [4, 6])
def test_the_error_rate_is_that_of_the_binomial_test(m):
    """With one way to guess, the error is that of the binomial test: nothing is lost but what is discrete."""
    wrong = how_often_wrong(m, 1.0, steady, 0.0, 0.6, (1.0,))
    tails = binom.sf(np.arange(-1, m), m, np.exp(1) / (1 + np.exp(1)))
    assert wrong == pytest.approx(max(tails[tails < 0.4], default=0.0))


def test_the_bound_is_zero_where_delta_is_too_large():
    coins = np.ones(100)
    assert one_run({"model": coins}, coins, 0.0).lower > 2
    assert one_run({"model": coins}, coins, 1e-3).lower == 0  # 100 canaries could all be bad luck


def test_the_best_view_and_share_are_named():
    generator = np.random.default_rng(0)
    coins = generator.integers(0, 2, 800)
    blind, sharp = generator.normal(size=800), np.where(coins, 1.0, -1.0)
    sharp[200:] *= generator.choice([-1, 1], 600)
    sharp[:200] *= 5
    found = one_run({"model": blind, "releases": sharp}, coins)
    assert (found.view, found.guesses, found.correct) == ("releases", 200, 200)
    assert found.views["model"] < 1 < found.lower == found.views["releases"]
    assert found.lower == pytest.approx(float(epsilon_lower_bound_from_guesses(200, 200, 0.05 / 10)))
    assert found.to_json()["canaries"] == 800


def test_mistakes_are_named():
    with pytest.raises(ldp.InputError, match="needs a coin"):
        one_run({"model": [1.0]}, [1, 0])
    with pytest.raises(ldp.InputError, match="needs a coin"):
        one_run({}, [1, 0])
    with pytest.raises(ldp.InputError, match="A score is missing"):
        one_run({"model": [np.nan]}, [1])
