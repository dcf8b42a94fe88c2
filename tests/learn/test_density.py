"""Distributions over a range: their centre is the prediction, and without evidence nothing drifts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn.density import (
    LOSSES,
    Density,
    central_intervals,
    check_loss,
    expected_rmse,
    label_grid,
    point_estimates,
    predict_intervals,
    quantiles,
)


@settings(max_examples=60)
@given(
    values=st.integers(2, 150),
    loss=st.sampled_from(LOSSES),
    wide=st.floats(0.5, 30),
    place=st.floats(0, 1),
)
def test_the_center_is_the_prediction(values, loss, wide, place):
    grid = np.linspace(0, values - 1, values)
    density = Density(grid, loss, wide)
    expected = place * (values - 1)
    probabilities = density.probabilities(np.array([expected]))
    assert probabilities.sum() == pytest.approx(1)
    assert (probabilities >= 0).all()
    # of a step: it can be no better for medians
    assert abs(point_estimates(probabilities, grid, loss)[0] - expected) <= 0.501


@pytest.mark.parametrize("loss", LOSSES)
def test_a_wider_scale_leaves_more_open(loss):
    grid = np.linspace(0, 50, 51)
    spread = [
        float((Density(grid, loss, scale).probabilities(np.array([20.0])) * (grid - 20) ** 2).sum())
        for scale in (1, 2, 4)
    ]
    assert spread[0] < spread[1] < spread[2]


def test_a_normal_curve_and_a_poisson_law_inside_the_range():
    grid = np.linspace(0, 200, 201)
    normal = Density(grid, "squared", 10.0).probabilities(np.array([100.0]))[0]
    plain = np.exp(-((grid - 100) ** 2) / 200)
    assert np.allclose(normal, plain / plain.sum(), atol=1e-6)
    counts = Density(grid, "poisson", 1.0).probabilities(np.array([12.0]))[0]
    from scipy.stats import poisson

    assert np.allclose(counts, poisson.pmf(grid, 12), atol=2e-3)


def test_quantiles_lie_between_the_values():
    grid = np.array([0.0, 1.0, 2.0, 3.0])
    probabilities = np.array([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]])
    assert quantiles(probabilities, grid, 0.5).tolist() == [1.5, 1.0]
    assert quantiles(probabilities, grid, 0.25).tolist() == [0.5, 0.75]
    assert quantiles(probabilities, grid, 0.999)[0] == 3.0  # never beyond the range


def test_losses_that_do_not_fit_are_refused():
    space = ldp.LabelSpace.range(-1, 1, 0.1)
    assert label_grid(space).size == 21
    for loss, labels, message in (
        ("cubic", space, "must be"),
        ("poisson", space, "from 0"),
        ("squared", ldp.LabelSpace(["a", "b"]), "needs numbers"),
    ):
        with pytest.raises(ldp.InputError, match=message):
            check_loss(loss, labels)


def test_ends_are_as_many_times_as_far_from_the_median_and_stay_within_the_range():
    grid = np.arange(0.0, 101.0)
    probabilities = Density(grid, "squared", 5.0).probabilities(np.array([50.0, 98.0]))
    low, high = central_intervals(probabilities, grid, 0.8)
    assert np.allclose([low, high], [quantiles(probabilities, grid, 0.1), quantiles(probabilities, grid, 0.9)])
    wide = central_intervals(probabilities, grid, 0.8, 2.0)
    assert high[0] - low[0] == pytest.approx(2 * 1.2816 * 5, rel=0.01)
    assert wide[1][0] - wide[0][0] == pytest.approx(2 * (high[0] - low[0]), rel=0.01)
    assert wide[1][1] == 100.0
    assert central_intervals(probabilities, grid, 0.8, 1e9)[0].tolist() == [0.0, 0.0]


def test_the_expected_error_is_that_of_labels_drawn_from_the_distribution():
    grid, generator = np.arange(0.0, 101.0), np.random.default_rng(0)
    probabilities = Density(grid, "squared", 8.0).probabilities(np.array([20.0, 60.0]))
    labels = np.stack([generator.choice(grid, 100_000, p=row / row.sum()) for row in probabilities])
    predictions = np.array([25.0, 60.0])
    slow = np.sqrt(((labels - predictions[:, None]) ** 2).mean())
    assert expected_rmse(probabilities, grid, predictions) == pytest.approx(slow, rel=0.01)


def test_errors_of_numbers_far_from_zero_do_not_cancel():
    grid = np.arange(1e7, 1e7 + 101)
    probabilities = Density(grid, "squared", 5.0).probabilities(np.array([1e7 + 50])).astype(np.float32)
    assert expected_rmse(probabilities, grid, np.array([1e7 + 50.0])) == pytest.approx(5.0, rel=0.01)


@pytest.mark.parametrize("scale", [3.0, 40.0, 5_000.0])
@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_the_center_is_the_prediction_on_a_fine_range_too(loss, scale):
    """Of which there is no table with a line for each number."""
    grid = np.arange(30_001.0)
    density = Density(grid, loss, scale if loss == "squared" else scale**0.25)
    expected = np.array([0.5, 3.0, 150.0, 7_000.0, 15_000.5, 29_000.0, 29_998.0])
    assert density._table[0].size < 2_000
    assert density.probabilities(expected) @ grid == pytest.approx(expected, abs=max(0.5, scale / 1000))


def test_intervals_come_some_rows_at_a_time(monkeypatch):
    class Model:
        space = ldp.LabelSpace.range(0, 9, 1)

        def predict_proba(self, features):
            calls.append(len(features))
            return probabilities[features.batch(torch.arange(len(features)))[:, 0].long().numpy()]

    calls, probabilities = [], np.random.default_rng(0).dirichlet(np.ones(10), 7)
    monkeypatch.setattr(
        "labeldp.learn.density.iter_blocks", lambda rows, _: [slice(i, min(i + 3, rows)) for i in (0, 3, 6)]
    )
    found = predict_intervals(Model(), Embeddings(np.arange(7.0)[:, None]), 0.8, 1.5)
    assert calls == [3, 3, 1]
    assert np.array_equal(found, central_intervals(probabilities, np.arange(10.0), 0.8, 1.5))
