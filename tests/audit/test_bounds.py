import numpy as np
import pytest
from scipy.stats import binom

import labeldp as ldp
from labeldp.audit.bounds import error_rate, guessing, share_high, share_low, two_worlds


@pytest.mark.parametrize("chance", [0.0, 0.01, 0.3, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("trials", [1, 7, 60])
def test_a_share_is_missed_no_more_often_than_stated(chance, trials):
    hits = np.arange(trials + 1)
    law = binom.pmf(hits, trials, chance)
    assert law[share_low(hits, trials, 0.05) > chance].sum() <= 0.05
    assert law[share_high(hits, trials, 0.05) < chance].sum() <= 0.05


@pytest.mark.parametrize(
    ("p", "q", "delta"), [(0.5, 0.5, 0.0), (0.73, 0.27, 0.0), (0.3, 0.05, 0.02), (0.02, 0.0, 0.02)]
)
def test_two_worlds_bound_epsilon_by_exact_enumeration(p, q, delta):
    trials = 40
    hits, others = np.meshgrid(np.arange(trials + 1), np.arange(trials + 1))
    law = binom.pmf(hits, trials, p) * binom.pmf(others, trials, q)
    epsilon = np.log(max((p - delta) / q, 1.0)) if q else 0.0
    assert law[two_worlds(hits, others, trials, delta, 0.1) > epsilon].sum() <= 0.1


def test_certainty_gives_a_large_bound_and_nothing_gives_none():
    assert two_worlds(10_000, 0, 10_000, 0.0, 0.05) > 7
    assert two_worlds(5_000, 5_000, 10_000, 0.0, 0.05) == 0
    assert two_worlds(0, 0, 100, 0.0, 0.05) == 0
    assert guessing(1000, 1000, 0.05) == pytest.approx(np.log(0.05 ** (1 / 1000) / (1 - 0.05 ** (1 / 1000))))
    assert guessing(0, 10, 0.05) == guessing(5, 10, 0.05) == 0


@pytest.mark.parametrize("confidence", [0.3, 1.0, 1.5, "0.9", True, float("nan")])
def test_a_confidence_is_a_share(confidence):
    with pytest.raises(ldp.InputError, match=r"confidence must be a number from 0\.5 to below 1"):
        error_rate(confidence)
