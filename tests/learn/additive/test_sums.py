import numpy as np
import pytest
from scripted import Seeded

import labeldp as ldp
from labeldp.learn.additive import BinDesign, DenseDesign
from labeldp.learn.additive.sums import compute_consistent_sums, estimate_response_sums
from labeldp.mechanisms import LinearQuery

CODES = np.arange(600) % 7 % 3
MATRIX = np.random.default_rng(0).normal(size=(600, 40))


def release(classes, delta, seed=0, epsilon=1.0):
    vault = ldp.Vault(np.minimum(CODES, classes - 1), ldp.LabelSpace(list(range(classes))), ldp.Budget(epsilon, delta))
    vault._bits = Seeded(seed)
    return vault.release(LinearQuery(MATRIX, epsilon, delta))


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("classes", [2, 3])
def test_sums_are_the_nearest_ones_that_add_up_to_the_public_totals(classes, delta):
    found, drawn = compute_consistent_sums(release(classes, delta)), release(classes, delta)
    noisy, totals = drawn.moments / drawn.grid_scale, drawn.totals
    if classes == 2:
        # The nearest pair (a, b) with a + b = t to a noisy pair (x, y) has b = (t + y - x) / 2.
        assert np.allclose(found.values[:, 0], (totals + noisy[:, 1] - noisy[:, 0]) / 2)
    else:
        assert np.allclose(found.values.sum(axis=1), totals)
        assert np.allclose(found.values - noisy, (found.values - noisy).mean(axis=1, keepdims=True))
    assert found.values.shape == (40, 1 if classes == 2 else 3)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_noise_has_the_deviation_that_is_stated(classes, delta):
    exact = MATRIX.T @ np.eye(classes)[np.minimum(CODES, classes - 1)][:, -1 if classes == 2 else 0 :]
    draws = [compute_consistent_sums(release(classes, delta, seed)) for seed in range(100)]
    errors = np.stack([each.values - exact for each in draws])
    # What is shifted to the total of three classes loses a third of the noise's variance, which the fit knows about.
    stated = draws[0].noise_std * (1.0 if classes == 2 else (2 / 3) ** 0.5)
    assert errors.std() == pytest.approx(stated, rel=0.05)
    assert abs(errors.mean()) < 5 * stated / errors.size**0.5


def responses(classes, seed, epsilon=1.5, rows=None):
    vault = ldp.Vault(np.minimum(CODES, classes - 1), ldp.LabelSpace(list(range(classes))), ldp.Budget(epsilon))
    vault._bits = Seeded(seed)
    return vault.release(ldp.RandomizedResponse(epsilon), row_selection=rows)


CHOSEN = np.arange(600) % 3 != 1


@pytest.mark.parametrize("rows", [slice(None), CHOSEN])
@pytest.mark.parametrize("classes", [2, 4])
def test_sums_of_noisy_labels_are_unbiased_and_have_the_noise_that_is_stated(classes, rows):
    bins, mask = np.arange(600) % 3, None if isinstance(rows, slice) else rows
    design = BinDesign([bins[rows]], [3])
    exact = design.transpose_dot(np.eye(classes)[np.minimum(CODES, classes - 1)][rows, -1 if classes == 2 else 0 :])
    found = [estimate_response_sums(design, responses(classes, seed, rows=mask), rows) for seed in range(400)]
    errors = np.stack([each.values - exact for each in found])
    counts, outputs = np.bincount(bins[rows], minlength=3), exact.shape[1]
    variance = np.square(errors).sum() / (400 * outputs * counts.sum())
    assert np.mean([each.noise_std**2 for each in found]) == pytest.approx(variance, rel=0.1)
    assert np.abs(errors.mean(axis=0)).max() < 5 * (variance * counts.max() / 400) ** 0.5
    assert errors.shape[1:] == (3, 1 if classes == 2 else 4)


def test_sums_of_noisy_labels_of_two_classes_have_the_noise_of_randomized_response():
    """The inverse of a channel that keeps a label with chance k has the variance k (1 - k) / (2 k - 1)^2."""
    keep = 1 / (1 + np.exp(-1.5))
    found = estimate_response_sums(BinDesign([CODES], [3]), responses(2, 0), slice(None))
    assert found.noise_std**2 == pytest.approx(keep * (1 - keep) / (2 * keep - 1) ** 2, rel=1e-9)


def test_sums_of_noisy_labels_are_those_of_any_columns():
    release = responses(4, 0)
    slow = sum(np.outer(row, label) for row, label in zip(MATRIX, release.unbiased_labels(), strict=True))
    assert np.allclose(estimate_response_sums(DenseDesign(MATRIX), release, slice(None)).values, slow)
