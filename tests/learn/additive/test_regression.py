"""Additive regression from noisy sums: against slow linear algebra, and on rows whose effects are known."""

import numpy as np
import polars as pl
import pytest
from scripted import Seeded

import labeldp as ldp
from labeldp.data.tables import Table
from labeldp.learn.additive import BasisFunctions, BinDesign, PriorComponent, make_prior
from labeldp.learn.additive.model import AdditiveModel, AdditiveNumberModel
from labeldp.learn.additive.regression import fit_number_sums
from labeldp.learn.predictor import load_predictor
from labeldp.mechanisms import NumberSums
from labeldp.privacy.mechanisms.numeric_responses import UnbiasedBins
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.pipelines.additive import Layout
from labeldp.recipes.pipelines.additive_regression import additive_number_steps
from labeldp.recipes.task import Task

ROWS = 6_000
SPACE = ldp.LabelSpace.range(-5, 5, 0.1)


@pytest.fixture(scope="module")
def problem():
    """A bent effect, a linear one, a category and a column without any."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(ROWS, 3))
    town = generator.choice(["north", "south", "west"], ROWS)
    truth = 1.5 * np.sin(4 * x[:, 0]) + x[:, 1] + (town == "west")
    labels = np.clip(truth + 0.5 * generator.normal(size=ROWS), -5, 5)
    table = Table.fit(pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "town": town}))
    return table, np.round(labels * 10) / 10, truth


def number_sums(problem, epsilon, seed=0, functions=None):
    table, labels, _ = problem
    vault = ldp.Vault(labels, SPACE, ldp.Budget(100.0, 1e-6))
    vault._bits = Seeded(seed)
    task = Task(table, SPACE, all_rows(ROWS), epsilon, 1e-6)
    steps = additive_number_steps(task, epsilon)
    with pytest.MonkeyPatch.context() as patch:
        layout = Layout(16, 12, 4, (), 0, functions)
        patch.setattr("labeldp.recipes.pipelines.additive_regression.choose_layout", lambda *given, **named: layout)
        release = vault.release(next(steps).mechanism)
        with pytest.raises(StopIteration) as stopped:
            steps.send(release)
    return vault, *stopped.value.value


def error(model, problem):
    table, _, truth = problem
    return float(((model.predict(table) - truth) ** 2).mean())


@pytest.mark.parametrize("functions", [None, BasisFunctions(5, 0.75, 0.3, 2)])
@pytest.mark.parametrize("noise", [5.0, 40.0])
def test_weights_are_the_posterior_mean_of_slow_linear_algebra(noise, functions):
    """The variances of the prior and of the scatter are those that the fit has found."""
    generator = np.random.default_rng(1)
    codes = [generator.integers(0, width, 2_000) for width in (6, 4)]
    design, values = BinDesign(codes, [6, 4]), generator.normal(size=2_000) + codes[0] / 3
    values -= values.mean()
    dense = design.to_sparse().toarray()
    blocks = None if functions is None else np.linalg.qr(generator.normal(size=(10, 7)))[0]
    exact = dense.T @ values[:, None]
    sums = exact if blocks is None else blocks.T @ exact
    sums = sums + noise * generator.normal(size=sums.shape)
    fit = fit_number_sums(design, sums, noise**2, float(values.var()), make_prior([6, 4], [5, 0]), functions=blocks)
    left = values.var() - (design.dot(fit.weights)[:, 0]).var()
    spread = np.zeros((10, 10))
    for part in fit.components:
        kernel = np.eye(part.column_slice.stop - part.column_slice.start) if part.kernel is None else part.kernel
        spread[part.column_slice, part.column_slice] += part.variance * kernel
    centred = dense - dense.mean(axis=0)
    gram, seen = centred.T @ centred, np.eye(10) if blocks is None else blocks
    total = seen.T @ (gram @ spread @ gram + left * gram) @ seen + noise**2 * np.eye(seen.shape[1])
    slow = spread @ gram @ seen @ np.linalg.solve(total, sums)
    difference = centred @ (fit.weights - slow)  # a shift of all bins of a column changes nothing
    assert np.abs(difference).max() < 0.05 * np.abs(centred @ slow).max()


def test_effects_that_nothing_supports_are_small():
    generator = np.random.default_rng(2)
    codes = [generator.integers(0, 8, 3_000) for _ in range(2)]
    values = np.where(codes[0] > 3, 1.0, -1.0) + 0.1 * generator.normal(size=3_000)
    values -= values.mean()
    design = BinDesign(codes, [8, 8])
    sums = design.transpose_dot(values[:, None]) + 20 * generator.normal(size=(16, 1))
    components = [PriorComponent(slice(0, 8)), PriorComponent(slice(8, 16))]
    fit = fit_number_sums(design, sums, 400.0, float(values.var()), components)
    assert np.ptp(fit.weights[:8]) > 10 * np.ptp(fit.weights[8:])


@pytest.mark.parametrize("functions", [None, BasisFunctions(5, 0.75, 0.3, 2)])
def test_known_effects_are_found(problem, functions):
    _, model, sums = number_sums(problem, 2.0, functions=functions)
    assert error(model, problem) < 0.05 * problem[2].var()
    assert model.deviation == pytest.approx(0.5, abs=0.2)
    mean, variance = sums.mean_and_variance
    assert mean == pytest.approx(problem[1].mean(), abs=0.1)
    assert variance == pytest.approx(problem[1].var(), rel=0.1)


def test_sums_and_noisy_numbers_together_are_better_than_either():
    """Means over draws: at these epsilons, both say about as much."""
    generator = np.random.default_rng(3)
    x = generator.uniform(-1, 1, size=(ROWS, 3))
    truth = 1.5 * np.sin(4 * x[:, 0]) + x[:, 1]
    labels = np.round(np.clip(truth + 0.5 * generator.normal(size=ROWS), -5, 5) * 10) / 10
    problem = Table.fit(pl.DataFrame(x)), labels, truth
    found = []
    for seed in range(5):
        vault, alone, sums = number_sums(problem, 0.1, seed)
        noisy = vault.release(UnbiasedBins(3.0, np.full(len(SPACE), 1 / len(SPACE))))
        strong = vault.release(NumberSums(np.ones((ROWS, 1)), 1e-3, n_values=len(SPACE)))
        assert strong.n_labels == ROWS
        both = sums.fit(noisy)
        assert set(both.lineage) == {*sums.sums.lineage, *noisy.lineage}
        found.append([error(alone, problem), error(both, problem)])
    alone, both = np.mean(found, axis=0)
    assert both < 0.5 * alone


def test_a_regression_model_is_saved_and_loaded(problem, tmp_path):
    _, model, _ = number_sums(problem, 1.0)
    model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m")
    assert type(again) is AdditiveNumberModel
    assert again.deviation == model.deviation
    assert np.array_equal(again.predict(problem[0]), model.predict(problem[0]))
    assert np.allclose(again.predict_proba(problem[0]).sum(axis=1), 1)
    with pytest.raises(ldp.InputError, match="not a model"):
        AdditiveModel.load(tmp_path / "m")


@pytest.mark.parametrize("deviation", [np.array([0.0]), np.array([np.nan]), np.array([1.0, 2.0])])
def test_a_crafted_file_of_numbers_is_refused(problem, tmp_path, deviation):
    _, model, _ = number_sums(problem, 1.0)
    model.save(tmp_path / "m")
    with np.load(tmp_path / "m" / "arrays.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "m" / "arrays.npz", **arrays | {"deviation": deviation})
    with pytest.raises(ldp.InputError, match="not a model"):
        load_predictor(tmp_path / "m")


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_of_numbers_does_not_matter(unit):
    generator = np.random.default_rng(5)
    codes = [generator.integers(0, 8, 2_000) for _ in range(2)]
    values = np.sin(codes[0]) + 0.3 * generator.normal(size=2_000)
    values -= values.mean()
    design = BinDesign(codes, [8, 8])
    sums = design.transpose_dot(values[:, None]) + 10 * generator.normal(size=(16, 1))
    prior = make_prior([8, 8], [8, 8])
    one = fit_number_sums(design, sums, 100.0, float(values.var()), prior)
    two = fit_number_sums(design, sums * unit, 100.0 * unit**2, float(values.var()) * unit**2, prior)
    assert np.allclose(two.weights, one.weights * unit, rtol=1e-6)
