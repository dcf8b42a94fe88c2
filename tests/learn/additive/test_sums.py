import numpy as np
import pytest
from scripted import Seeded

import labeldp as ldp
from labeldp.learn.additive.sums import Sums, consistent_sums, level_columns

CODES = np.arange(600) % 7 % 3
MATRIX = np.random.default_rng(0).normal(size=(600, 40))


def release(classes, delta, seed=0, epsilon=1.0):
    vault = ldp.Vault(np.minimum(CODES, classes - 1), ldp.LabelSpace(list(range(classes))), ldp.Budget(epsilon, delta))
    vault._bits = Seeded(seed)
    return vault.release(ldp.LinearQuery(MATRIX, epsilon, delta))


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("classes", [2, 3])
def test_sums_are_the_nearest_ones_that_add_up_to_the_public_totals(classes, delta):
    found, drawn = consistent_sums(release(classes, delta)), release(classes, delta)
    noisy, totals = drawn.moments / drawn.scale, drawn.totals
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
    draws = [consistent_sums(release(classes, delta, seed)) for seed in range(100)]
    errors = np.stack([each.values - exact for each in draws])
    # What is shifted to the total of three classes loses a third of the noise's variance, which the fit knows about.
    stated = draws[0].noise * (1.0 if classes == 2 else (2 / 3) ** 0.5)
    assert errors.std() == pytest.approx(stated, rel=0.05)
    assert abs(errors.mean()) < 5 * stated / errors.size**0.5


def test_levelled_columns_add_up_to_one_total():
    generator = np.random.default_rng(0)
    widths = np.array([3, 10, 1])
    starts = np.cumsum([0, *widths])
    sums = Sums(generator.normal(100, 30, size=(14, 2)), 30.0)
    levelled, total = level_columns(sums, starts, 10_000)
    own = np.add.reduceat(sums.values, starts[:-1], axis=0)
    assert np.allclose(np.add.reduceat(levelled.values, starts[:-1], axis=0), total)
    assert np.allclose(total, (own / widths[:, None]).sum(axis=0) / (1 / widths).sum())
    for start, width in zip(starts, widths, strict=False):
        shift = (levelled.values - sums.values)[start : start + width]
        assert np.allclose(shift, shift[0])
    assert levelled.noise == sums.noise


def test_the_total_is_known_better_than_from_any_column():
    generator, widths = np.random.default_rng(0), np.array([4, 4, 8, 20])
    starts, exact = np.cumsum([0, *widths]), np.repeat(4_000 / widths, widths)[:, None]
    draws = [Sums(exact + generator.normal(size=exact.shape), 1.0) for _ in range(400)]
    found = [level_columns(each, starts, 10_000)[1][0] for each in draws]
    assert np.var(found) == pytest.approx(1 / (1 / widths).sum(), rel=0.25)
    assert np.var([each.values[:4].sum() for each in draws]) > 1.5 * np.var(found)


@pytest.mark.parametrize(("value", "total"), [(-50.0, 0.5), (9_000.0, 99.5)])
def test_the_total_stays_between_no_row_and_all(value, total):
    levelled, found = level_columns(Sums(np.full((4, 1), value), 1.0), np.array([0, 2, 4]), 100)
    assert found == [total]
    assert np.allclose(levelled.values, total / 2)
