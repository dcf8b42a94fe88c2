import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noiselaws import direct_delta

import labeldp as ldp
from labeldp.accounting import GaussianLoss, PureLoss, calibrate, compose
from labeldp.accounting.calibration import (
    analytic_gaussian_ratio,
    bisect_largest,
    calibrated_loss,
    lattice_sigma,
    smallest_noise,
    unit_shift_sigma,
)
from labeldp.accounting.losses import covers, gaussian_delta
from labeldp.mechanisms import BestCandidate, LinearQuery, NumberSums

EPSILONS = [0.01, 0.1, 0.5, 1.0, 3.0, 8.0, 10.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_sigma_meets_delta_by_direct_summation(epsilon, delta):
    sigma = unit_shift_sigma(epsilon, delta)
    assert direct_delta(epsilon, sigma) <= delta * (1 + 1e-4)  # the oracle itself rounds
    assert direct_delta(epsilon, 0.99 * sigma) > delta


def test_analytic_ratio_is_the_edge():
    for epsilon in EPSILONS:
        ratio = analytic_gaussian_ratio(epsilon, 1e-6)
        assert gaussian_delta(epsilon, ratio) <= 1e-6 < gaussian_delta(epsilon, ratio * 0.999)


def test_a_fine_lattice_costs_nothing_over_continuous_noise():
    assert lattice_sigma(1.0, 1e-6, 1e4) == pytest.approx(1e4 * analytic_gaussian_ratio(1.0, 1e-6), rel=1e-4)


def test_calibrated_plan_never_exceeds_its_target():
    def plan(sigma):
        return [GaussianLoss(sigma, math.sqrt(2), n_shifts=1)] * 3 + [PureLoss(0.1)]

    sigma = calibrate(plan, 1.0, 1e-6)
    assert 0.99 < compose(plan(sigma), 1e-6) <= 1.0


def test_rounding_goes_up():
    assert smallest_noise(lambda x: x >= math.pi, 1.0) == 3.1416
    assert smallest_noise(lambda x: x >= 123456.71, 1.0) == 123457


def test_impossible_targets_say_so():
    with pytest.raises(ldp.InputError, match="No amount of noise"):
        calibrate(lambda s: [GaussianLoss(s, 1.0)], 1.0, 0.0)
    with pytest.raises(ldp.InputError, match="delta"):
        unit_shift_sigma(1.0, 0.0)


def test_a_very_small_epsilon_is_calibrated_without_long_sums():
    sigma = unit_shift_sigma(1e-6, 1e-6)
    assert sigma == pytest.approx(math.sqrt(2) * analytic_gaussian_ratio(1e-6, 1e-6), rel=1e-3)
    assert GaussianLoss(sigma, math.sqrt(2), n_shifts=1).epsilon(1e-6) <= 1e-6 * (1 + 1e-6)


def test_noise_that_just_meets_its_target_is_enough():
    assert calibrate(lambda scale: [PureLoss(1 / scale)], 1.0) == 1.0
    assert calibrate(lambda scale: [PureLoss(2 / scale)], 0.5) == 4.0


def test_the_last_good_value_is_found_to_one_in_a_million():
    found = bisect_largest(lambda x: x <= 3.0, 1.0, 10.0)
    assert 3.0 * (1 - 1e-6) <= found <= 3.0


@given(st.floats(0.01, 20), st.floats(1e-12, 1e-2), st.integers(1, 40), st.floats(1e-3, 1e3))
@settings(max_examples=60)
def test_a_loss_is_known_before_the_query_that_it_will_cover(epsilon, delta, columns, length):
    matrix = length * np.random.default_rng(columns).normal(size=(20, columns))
    loss = calibrated_loss(epsilon, delta)
    assert covers(loss, LinearQuery(matrix, epsilon, delta).loss())
    assert covers(loss, NumberSums(matrix, epsilon, delta, n_values=7).loss())
    assert not covers(loss, LinearQuery(matrix, epsilon * 1.001, delta).loss())
    assert loss.epsilon(delta) == pytest.approx(epsilon, rel=1e-4)


def test_a_pure_mechanism_loses_what_was_asked_for():
    assert calibrated_loss(0.3) == BestCandidate(np.zeros((3, 2), int), 0.3).loss() == PureLoss(0.3)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ldp.InputError, match="epsilon must be"):
            calibrated_loss(wrong)


def test_a_query_of_few_grid_steps_is_not_covered_before_it_is_known():
    """Its noise is calibrated by Renyi's bound, not by that of the lattice."""
    short = LinearQuery(np.full((4, 1), 1e-6), 6.0, 1e-6, max_row_norm=1.0)
    assert short.sigma < 3
    assert not covers(calibrated_loss(6.0, 1e-6), short.loss())
