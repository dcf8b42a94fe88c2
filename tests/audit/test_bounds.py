import numpy as np
import pytest
from scipy.stats import binom

import labeldp as ldp
from labeldp.audit.bounds import (
    epsilon_lower_bound,
    epsilon_lower_bound_from_guesses,
    error_rate,
    proportion_lower_bound,
    proportion_upper_bound,
)


@pytest.mark.parametrize("chance", [0.0, 0.01, 0.3, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("trials", [1, 7, 60])
def test_a_share_is_missed_no_more_often_than_stated(chance, trials):
    hits = np.arange(trials + 1)
    law = binom.pmf(hits, trials, chance)
    assert law[proportion_lower_bound(hits, trials, 0.05) > chance].sum() <= 0.05
    assert law[proportion_upper_bound(hits, trials, 0.05) < chance].sum() <= 0.05


@pytest.mark.parametrize(
    ("p", "q", "delta"), [(0.5, 0.5, 0.0), (0.73, 0.27, 0.0), (0.3, 0.05, 0.02), (0.02, 0.0, 0.02)]
)
def test_two_worlds_bound_epsilon_by_exact_enumeration(p, q, delta):
    trials = 40
    hits, others = np.meshgrid(np.arange(trials + 1), np.arange(trials + 1))
    law = binom.pmf(hits, trials, p) * binom.pmf(others, trials, q)
    epsilon = np.log(max((p - delta) / q, 1.0)) if q else 0.0
    assert law[epsilon_lower_bound(hits, others, trials, delta, 0.1) > epsilon].sum() <= 0.1


def test_certainty_gives_a_large_bound_and_nothing_gives_none():
    assert epsilon_lower_bound(10_000, 0, 10_000, 0.0, 0.05) > 7
    assert epsilon_lower_bound(5_000, 5_000, 10_000, 0.0, 0.05) == 0
    assert epsilon_lower_bound(0, 0, 100, 0.0, 0.05) == 0
    assert epsilon_lower_bound_from_guesses(1000, 1000, 0.05) == pytest.approx(
        np.log(0.05 ** (1 / 1000) / (1 - 0.05 ** (1 / 1000)))
    )
    assert epsilon_lower_bound_from_guesses(0, 10, 0.05) == epsilon_lower_bound_from_guesses(5, 10, 0.05) == 0


@pytest.mark.parametrize("confidence", [0.3, 1.0, 1.5, "0.9", True, float("nan")])
def test_a_confidence_is_a_share(confidence):
    with pytest.raises(ldp.InputError, match=r"confidence must be a number from 0\.5 to below 1"):
        error_rate(confidence)
