import numpy as np
import pytest
from scipy.optimize import check_grad, minimize
from scipy.special import logsumexp, softmax

from labeldp.learn.additive import softmax as module
from labeldp.learn.additive.design import DenseDesign
from labeldp.learn.additive.probability_calibration import fit_calibration_factor
from labeldp.learn.additive.softmax import RotatedRows, compute_uncertainty, default_penalty, fit_softmax

CLASSES, COLUMNS = 5, 8


class Problem:
    """Rows with a softmax model, its labels, and as many new rows."""

    def __init__(self, rows=3_000, seed=0, strength=1.0, classes=CLASSES):
        generator = np.random.default_rng(seed)
        self.matrix, self.new = generator.normal(size=(2, rows, COLUMNS)).astype(np.float32)
        self.matrix[:, 0] *= 5  # directions have different lengths
        self.new[:, 0] *= 5
        truth = strength * generator.normal(size=(COLUMNS, classes))
        truth[0] /= 5
        self.labels, self.new_labels = (
            (generator.random((rows, 1)) > softmax(each @ truth, axis=1).cumsum(axis=1))
            .sum(axis=1)
            .clip(0, classes - 1)
            for each in (self.matrix, self.new)
        )
        self.rotated = RotatedRows.of(self.matrix)
        self.sums = self.rotated.basis.T @ (self.matrix.T @ np.eye(classes)[self.labels])

    def noisy(self, noise, seed=0):
        drawn = noise * np.random.default_rng(seed).normal(size=self.sums.shape)
        return self.sums + drawn - drawn.mean(axis=1, keepdims=True)

    def loss(self, weights):
        scores = self.new.astype(np.float64) @ (self.rotated.basis @ weights)
        return float((logsumexp(scores, axis=1) - scores[np.arange(len(scores)), self.new_labels]).mean())


@pytest.fixture(scope="module")
def problem():
    return Problem()


def energy(problem, sums, penalty):
    """The penalised loss and its gradient, in float64 and without a change of units."""
    rows = problem.rotated.matrix.astype(np.float64)

    def value(flat):
        weights = flat.reshape(sums.shape)
        own = logsumexp(rows @ weights, axis=1).sum() - (sums * weights).sum()
        return own + 0.5 * (penalty[:, None] * weights**2).sum()

    def slope(flat):
        weights = flat.reshape(sums.shape)
        return (rows.T @ softmax(rows @ weights, axis=1) - sums + penalty[:, None] * weights).ravel()

    return value, slope


def test_rotated_rows_have_uncorrelated_directions(problem):
    rotated = problem.rotated
    gram = rotated.matrix.astype(np.float64).T @ rotated.matrix
    assert np.allclose(gram, np.diag(rotated.eigenvalues), atol=1e-2)
    assert np.allclose(rotated.basis.T @ rotated.basis, np.eye(COLUMNS), atol=1e-5)


def test_a_direction_without_length_is_left_out():
    matrix = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    rotated = RotatedRows.of(np.concatenate([matrix, matrix[:, :1]], axis=1))
    assert rotated.basis.shape == (4, 3)
    assert (rotated.eigenvalues > 0).all()


def test_the_gradient_is_that_of_the_loss(problem, monkeypatch):
    """By finite differences of the loss that the minimiser is given, and by the slow one."""
    given = {}

    def caught(loss, begin, **how):
        given.update(loss=loss, begin=begin)
        return minimize(loss, begin, **how)

    monkeypatch.setattr(module, "minimize", caught)
    penalty = default_penalty(problem.rotated, CLASSES, 10.0, 0.25)
    fit_softmax(problem.rotated, problem.sums, penalty)
    point = np.random.default_rng(0).normal(size=given["begin"].size)
    unit = np.repeat(1 / np.sqrt(penalty + problem.rotated.eigenvalues / CLASSES), CLASSES)
    value, slope = energy(problem, problem.sums, penalty)
    assert check_grad(value, slope, point * unit) < 1e-3 * np.linalg.norm(slope(point * unit))
    assert given["loss"](point)[0] == pytest.approx(value(point * unit), rel=1e-5)
    expected = slope(point * unit) * unit
    assert np.allclose(given["loss"](point)[1], expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("noise", [1.0, 30.0])
def test_it_finds_the_minimum(problem, noise):
    sums, penalty = problem.noisy(noise), default_penalty(problem.rotated, CLASSES, noise, 0.25)
    value, slope = energy(problem, sums, penalty)
    slow = minimize(value, np.zeros(sums.size), jac=slope, method="L-BFGS-B", options={"maxiter": 5_000}).fun
    found = value(fit_softmax(problem.rotated, sums, penalty).ravel())
    assert found < slow + 1e-3 * (value(np.zeros(sums.size)) - slow)
    begun = fit_softmax(problem.rotated, sums, penalty, fit_softmax(problem.rotated, problem.sums, penalty), 15)
    assert value(begun.ravel()) < slow + 1e-3 * (value(np.zeros(sums.size)) - slow)


def test_the_penalty_grows_with_noise_and_certainty_and_for_short_directions(problem):
    one, two = (default_penalty(problem.rotated, CLASSES, noise, 0.25) for noise in (1.0, 10.0))
    assert (two > one).all()
    assert (np.diff(one) < 0).all()  # lengths rise
    lengths = problem.rotated.eigenvalues
    curvature = 0.25 * lengths.mean() / CLASSES
    assert np.allclose(one, (1 + 1 / curvature) / 25 * (lengths / lengths.mean()) ** -0.5)
    assert (default_penalty(problem.rotated, CLASSES, 1.0, 0.1) > one).all()


def test_even_probabilities_are_open_and_sure_ones_are_not():
    assert compute_uncertainty(np.full((5, 4), 0.25)) == pytest.approx(1.0)
    assert compute_uncertainty(np.eye(4)) == 1e-3
    assert 0.1 < compute_uncertainty(np.array([[0.9, 0.1], [0.95, 0.05]])) < 0.5


def calibrated(rotated, sums, noise, penalty, weights):
    def refit(changed):
        return fit_softmax(rotated, changed, penalty, weights)

    return weights * fit_calibration_factor(DenseDesign(rotated.matrix), sums, noise, weights, refit)


@pytest.mark.parametrize("noise", [2.0, 20.0, 60.0])
def test_calibrated_weights_are_near_the_best_factor_on_new_rows(noise):
    losses = []
    for seed in range(4):
        problem = Problem(seed=seed)
        sums, penalty = problem.noisy(noise, seed), default_penalty(problem.rotated, CLASSES, noise, 0.25)
        weights = fit_softmax(problem.rotated, sums, penalty)
        found = calibrated(problem.rotated, sums, noise, penalty, weights)
        ratio = found / weights
        assert np.allclose(ratio, ratio[0, 0])
        assert ratio[0, 0] > 0
        best = min(problem.loss(factor * weights) for factor in np.geomspace(0.05, 20, 80))
        losses.append([problem.loss(found), best, problem.loss(weights)])
    found, best, plain = np.mean(losses, axis=0)
    assert found < best + (0.01 if noise < 50 else 0.04)  # much noise asks for caution
    assert found < plain + 1e-3


def test_sums_that_are_only_noise_get_a_small_factor():
    problem = Problem(strength=0.0)
    penalty = default_penalty(problem.rotated, CLASSES, 100.0, 0.25)
    sums = problem.noisy(100.0)
    weights = fit_softmax(problem.rotated, sums, penalty)
    assert problem.loss(calibrated(problem.rotated, sums, 100.0, penalty, weights)) < np.log(CLASSES) + 0.02


def test_calibration_is_the_same_each_time(problem):
    penalty = default_penalty(problem.rotated, CLASSES, 5.0, 0.25)
    weights = fit_softmax(problem.rotated, problem.noisy(5.0), penalty)
    one, two = (calibrated(problem.rotated, problem.noisy(5.0), 5.0, penalty, weights) for _ in range(2))
    assert np.array_equal(one, two)
