import math

import numpy as np
import pytest

from labeldp.privacy.mechanisms import vote_tails as tails
from labeldp.privacy.mechanisms.vote_tails import (
    gaussian_difference_tail,
    gaussian_tail,
    laplace_difference_tail,
    log_one_minus_exp,
)


def law(noise, scale):
    x = np.arange(-math.ceil(60 * scale) - 60, math.ceil(60 * scale) + 61)
    mass = np.exp(-np.abs(x) / scale) if noise == "laplace" else np.exp(-(x.astype(float) ** 2) / (2 * scale**2))
    return mass / mass.sum()


def tail_of(mass, last):
    middle = mass.size // 2
    return np.array([mass[middle + k :].sum() for k in range(last + 1)])


@pytest.mark.parametrize("scale", [0.4, 1.0, 3.3, 12.0])
def test_tails_are_those_of_the_discrete_laws(scale):
    gaussian, laplace = law("gaussian", scale), law("laplace", scale)
    for ours, mass in [
        (gaussian_tail(scale, 9), gaussian),
        (gaussian_difference_tail(scale, 9), np.convolve(gaussian, gaussian)),
        (laplace_difference_tail(scale, np.arange(10)), np.convolve(laplace, laplace)),
    ]:
        true = tail_of(mass, 9)
        seen = true > 1e-12
        assert np.exp(ours[seen]) == pytest.approx(true[seen], rel=1e-6)
        assert (np.exp(ours[seen]) >= true[seen] * (1 - 1e-12)).all()


def test_far_tails_do_not_vanish():
    assert gaussian_tail(1.0, 200)[200] == pytest.approx(-20000, rel=1e-3)
    assert np.isfinite(gaussian_difference_tail(0.5, 500)).all()


def test_wide_noise_is_bounded_by_an_integral(monkeypatch):
    for tail in (gaussian_tail, gaussian_difference_tail):
        summed = tail(4000.0, 8000)
        monkeypatch.setattr(tails, "_MAX_SUMMED_DEVIATION", 3000.0)
        bound = tail(4000.0, 8000)
        monkeypatch.undo()
        assert (bound >= summed - 1e-8)[1:].all()
        assert np.abs(bound - summed).max() < 1e-3


def test_log_one_minus_exp():
    assert log_one_minus_exp(np.array([-1e-20, -1.0, -50.0])) == pytest.approx(
        [math.log(1e-20), math.log(1 - math.exp(-1)), -math.exp(-50)]
    )
