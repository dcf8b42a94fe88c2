import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from scripted import Seeded

import labeldp as ldp
from labeldp.learn.additive.responses import _fit_factor, fit_responses
from labeldp.learn.additive.softmax import RotatedRows
from labeldp.mechanisms import RRWithPrior

CLASSES, ROWS = 4, 12_000


@pytest.fixture(scope="module")
def problem():
    """Rows, their labels by a softmax model, and the model; the second half of the rows is new."""
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(2 * ROWS, 6)).astype(np.float32)
    matrix[:, -1] = 0.5
    truth = 1.2 * generator.normal(size=(6, CLASSES))
    probabilities = softmax(matrix @ truth, axis=1).cumsum(axis=1)
    return matrix, (generator.random((2 * ROWS, 1)) > probabilities).sum(axis=1).clip(0, CLASSES - 1), truth


def log_loss(problem, weights):
    matrix, labels, _ = problem
    scores = matrix[ROWS:].astype(np.float64) @ weights
    return float((logsumexp(scores, axis=1) - scores[np.arange(ROWS), labels[ROWS:]]).mean())


def released(problem, epsilon, seed=0, prior=None):
    labels = problem[1][:ROWS]
    vault = ldp.Vault(labels, ldp.LabelSpace(list(range(CLASSES))), ldp.Budget(epsilon))
    vault._bits = Seeded(seed)
    mechanism = ldp.RandomizedResponse(epsilon) if prior is None else RRWithPrior(epsilon, prior)
    return vault.release(mechanism).log_evidence(np.arange(ROWS))


def fitted(problem, evidence, start):
    rotated = RotatedRows.of(problem[0][:ROWS])
    return rotated.basis @ fit_responses(rotated, evidence, rotated.basis.T @ start)


@pytest.mark.parametrize("start", ["nothing", "half of the truth", "a wrong one"])
def test_noisy_labels_improve_on_the_start(problem, start):
    _, _, truth = problem
    begin = {"nothing": 0.0, "half of the truth": 0.5, "a wrong one": -0.3}[start] * truth
    weights = fitted(problem, released(problem, 1.5), begin)
    assert log_loss(problem, weights) < log_loss(problem, begin) - 0.02
    # Few rounds lead back from a start that contradicts the labels, but not the whole way.
    assert log_loss(problem, weights) < log_loss(problem, truth) + (0.15 if start == "a wrong one" else 0.04)


@pytest.mark.parametrize("epsilon", [1.5, 2.5, 5.0])
@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_the_log_loss_is_calibrated(problem, epsilon, scale):
    weights = fitted(problem, released(problem, epsilon), scale * problem[2])
    losses = [log_loss(problem, factor * weights) for factor in np.geomspace(0.3, 3, 60)]
    assert log_loss(problem, weights) < min(losses) + 0.01


def test_labels_among_the_likely_classes_are_learnt_as_well(problem):
    matrix, _, truth = problem
    prior = softmax(0.5 * matrix[:ROWS] @ truth, axis=1)
    weights = fitted(problem, released(problem, 1.5, prior=prior), 0.5 * truth)
    assert log_loss(problem, weights) < log_loss(problem, 0.5 * truth) - 0.02


def test_the_best_factor_is_that_of_the_true_model(problem):
    """The likelihood of the releases is largest near the weights from which the labels were drawn."""
    matrix, _, truth = problem
    scores = (matrix[:ROWS] @ truth).astype(np.float32)
    for by in (0.5, 1.0, 2.0):
        assert _fit_factor(by * scores, released(problem, 2.0)) == pytest.approx(1 / by, rel=0.15)
    assert _fit_factor(scores, np.zeros((ROWS, CLASSES), np.float32)) == 1.0


def test_releases_that_say_nothing_and_few_rows_give_finite_weights(problem):
    matrix, _, truth = problem
    for rows in (1, 2, 5, 50):
        rotated = RotatedRows.of(matrix[:rows])
        found = fit_responses(rotated, np.zeros((rows, CLASSES), np.float32), rotated.basis.T @ truth)
        assert np.isfinite(found).all()
