from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.optimize import minimize
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from labeldp.learn.additive import (
    BasisFunctions,
    BinDesign,
    BinnedColumn,
    DenseDesign,
    PriorComponent,
    fit_block,
    fit_sums,
    make_prior,
)
from labeldp.learn.additive.fit import linear_kernel, output_probabilities, smooth_kernel

ROWS = 4_000


def drawn(chances, generator):
    """One-hot labels."""
    codes = (generator.random((len(chances), 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(0, chances.shape[1] - 1)
    return np.eye(chances.shape[1])[codes]


class Problem:
    """Bins of several columns, the first of which the log-odds depend on, and as many new rows."""

    def __init__(self, rows=ROWS, seed=0, outputs=1, widths=(6, 6, 6), strength=1.0):
        generator = np.random.default_rng(seed)
        self.widths, codes = list(widths), [generator.integers(0, width, 2 * rows) for width in widths]
        self.truth = np.zeros((sum(widths), outputs))
        self.truth[: widths[0]] = strength * generator.normal(size=(widths[0], outputs))
        both = BinDesign(codes, self.widths)
        self.design, self.new = both.select(slice(0, rows)), both.select(slice(rows, None))
        scores = both.dot(self.truth) - 0.5
        probabilities = (
            np.concatenate([1 - expit(scores), expit(scores)], axis=1) if outputs == 1 else softmax(scores, 1)
        )
        labels = drawn(probabilities, generator)
        self.labels, self.new_labels = labels[:rows], labels[rows:]
        self.sums = self.design.transpose_dot(self.labels[:, -outputs:])
        self.totals = self.labels[:, -outputs:].sum(axis=0)

    def noisy(self, noise, seed):
        """Sums with noise of this deviation, shifted so that all columns add up to the totals."""
        sums = self.sums + noise * np.random.default_rng(seed).normal(size=self.sums.shape)
        for start, width in zip(self.design.starts, self.widths, strict=False):
            part = sums[start : start + width]
            part -= (part.sum(axis=0) - self.totals) / width
        return sums

    def loss(self, fit):
        return surprise(self.new.dot(fit.weights) + fit.intercept, self.new_labels)


def surprise(scores, labels):
    found = output_probabilities(scores)
    found = np.concatenate([1 - found, found], axis=1) if found.shape[1] == 1 else found
    return float(-np.log(np.maximum((found * labels).sum(axis=1), 1e-12)).mean())


def wide_prior(columns, variance=100.0):
    return [PriorComponent(slice(0, columns), None, variance)]


@pytest.mark.parametrize("outputs", [1, 3])
def test_without_noise_and_with_a_wide_prior_it_is_logistic_regression_on_the_labels(outputs):
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(ROWS, 4))
    scores = matrix @ generator.normal(size=(4, outputs)) + 0.5
    probabilities = np.concatenate([1 - expit(scores), expit(scores)], axis=1) if outputs == 1 else softmax(scores, 1)
    labels = drawn(probabilities, generator)
    sums, totals = matrix.T @ labels[:, -outputs:], labels[:, -outputs:].sum(axis=0)
    fit = fit_sums(DenseDesign(matrix), sums, totals, 0.0, wide_prior(4), max_steps=30)
    slow = LogisticRegression(C=1e6, tol=1e-10, max_iter=1000).fit(matrix, labels.argmax(axis=1))
    found = output_probabilities(matrix @ fit.weights + fit.intercept)
    expected = slow.predict_proba(matrix)[:, -outputs:]
    assert np.abs(found - expected).max() < 0.01
    if outputs == 1:
        assert fit.weights[:, 0] == pytest.approx(slow.coef_[0], abs=0.01)
        assert fit.intercept == pytest.approx(slow.intercept_, abs=0.01)


def test_bins_are_fitted_as_their_dense_matrix():
    problem = Problem()
    sums = problem.noisy(5.0, 1)
    prior = make_prior(problem.widths, [6, 0, 6])
    one = fit_sums(problem.design, sums, problem.totals, 25.0, prior)
    two = fit_sums(DenseDesign(problem.design.to_sparse().toarray()), sums, problem.totals, 25.0, prior)
    assert np.allclose(one.weights, two.weights, atol=1e-3)
    given = [0.1, 0.1, 0.05, 0.2, 0.1, 0.1, 0.05]
    assert [part.variance for part in prior] == given  # the search leaves what it is given


@pytest.mark.parametrize("noise", [0.0, 10.0])
def test_the_weights_are_the_posterior_mean_around_themselves(noise):
    """Of one column: solve the posterior by least squares in whitened form, with the variances that were found."""
    problem = Problem()
    fit = fit_sums(problem.design, problem.noisy(noise, 2), problem.totals, noise**2, wide_prior(18, 0.3), max_steps=60)
    probability = expit(problem.design.dot(fit.weights) + fit.intercept)[:, 0]
    dense = problem.design.to_sparse().toarray()
    weight = probability * (1 - probability)
    curvature = dense.T @ (dense * weight[:, None])
    curvature -= np.outer(dense.T @ weight, dense.T @ weight) / weight.sum()
    residual = problem.noisy(noise, 2)[:, 0] - dense.T @ probability + curvature @ fit.weights[:, 0]
    scatter = curvature + (noise**2 + 1e-6) * np.eye(18)

    def energy(weights):
        left = residual - curvature @ weights
        value = left @ np.linalg.solve(scatter, left) + weights @ weights / fit.components[0].variance
        return value, 2 * (weights / fit.components[0].variance - curvature @ np.linalg.solve(scatter, left))

    slow = minimize(energy, np.zeros(18), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "maxiter": 5000}).x
    assert np.allclose(fit.weights[:, 0], slow, atol=0.02)


def smooth_functions(column, cosines=3, detail=0.3):
    """The values of some functions at the bins of a column that are all in order, but for the last one."""
    return BasisFunctions(cosines, 0.75, detail, 2).evaluate(
        BinnedColumn("x", np.arange(column - 2, dtype=np.float32), None, column), True
    )


@pytest.mark.parametrize("detail", [0.0, 0.3])
@pytest.mark.parametrize("noise", ["variance", "covariance"])
def test_sums_of_functions_have_the_posterior_of_these_sums(detail, noise):
    """As the test above: the sums have the covariance F'(HTH + H)F and that of the noise."""
    problem, generator = Problem(widths=(7, 6, 5)), np.random.default_rng(2)
    functions = block_diag(smooth_functions(7, detail=detail), np.eye(6), smooth_functions(5, detail=detail))
    count = functions.shape[1]
    drawn_noise = generator.normal(size=(count, 3 * count)) * 4
    of_noise = 100.0 * np.eye(count) if noise == "variance" else drawn_noise @ drawn_noise.T / 3
    sums = functions.T @ problem.sums + generator.multivariate_normal(np.zeros(count), of_noise)[:, None]
    stated = 100.0 if noise == "variance" else of_noise
    prior = wide_prior(18, 0.3)
    fit = fit_sums(problem.design, sums, problem.totals, stated, prior, functions=functions, max_steps=60)
    probability = expit(problem.design.dot(fit.weights) + fit.intercept)[:, 0]
    dense, weight = problem.design.to_sparse().toarray(), probability * (1 - probability)
    curvature = dense.T @ (dense * weight[:, None])
    curvature -= np.outer(dense.T @ weight, dense.T @ weight) / weight.sum()
    residual = sums[:, 0] - functions.T @ (dense.T @ probability - curvature @ fit.weights[:, 0])
    spread = fit.components[0].variance * np.eye(18)
    total = functions.T @ (curvature @ spread @ curvature + curvature) @ functions + of_noise
    slow = spread @ curvature @ functions @ np.linalg.solve(total, residual)
    assert np.allclose(fit.weights[:, 0], slow, atol=0.01)
    assert np.abs(slow).max() > 0.3


@pytest.mark.parametrize("outputs", [1, 3])
def test_functions_that_say_the_same_as_the_bins_give_the_same_weights(outputs):
    """Sums of an invertible F, with the covariance that follows for them."""
    problem, generator = Problem(outputs=outputs), np.random.default_rng(0)
    sums, functions = problem.noisy(10.0, 0), generator.normal(size=(18, 18)) + 3 * np.eye(18)
    prior, totals = make_prior(problem.widths, [5, 0, 5]), problem.totals
    plain = fit_sums(problem.design, sums, totals, 100.0, prior)
    noise = 100.0 * functions.T @ functions
    other = fit_sums(problem.design, functions.T @ sums, totals, noise, prior, functions=functions)
    assert np.allclose(plain.weights, other.weights, atol=1e-4)
    assert np.allclose(plain.intercept, other.intercept, atol=1e-4)
    same = fit_sums(problem.design, sums, totals, 100.0 * np.eye(18), prior)
    assert np.allclose(plain.weights, same.weights, atol=1e-8)


@pytest.mark.parametrize("shape", ["linear", "bent"])
def test_effects_over_many_bins_are_found_better_from_functions_than_from_counts(shape):
    """Both ways have the same privacy: rows have the length 1, and the noise of each sum is the same."""
    codes, losses = np.random.default_rng(0).integers(0, 32, 6_000), []
    x = np.linspace(-1, 1, 32)
    truth = (0.9 * x if shape == "linear" else 1.2 * np.square(x) - 0.4)[:, None]
    design, probability = BinDesign([codes], [33]), expit(truth[codes])
    functions = smooth_functions(33, cosines=4, detail=0.0)[:, :-1]
    for seed in range(12):
        random = np.random.default_rng(seed)
        labels = drawn(np.concatenate([1 - probability, probability], 1), random)[:, 1:]
        exact, totals, fits = design.transpose_dot(labels), labels.sum(axis=0), []
        for own in (None, functions):
            sums = exact if own is None else own.T @ exact
            sums = sums + 40.0 * random.normal(size=sums.shape)
            fits.append(fit_sums(design, sums, totals, 1_600.0, make_prior([33], [32]), functions=own))
        losses.append([float(np.square((fit.weights + fit.intercept)[:32] - truth).mean()) for fit in fits])
    counts, smooth = np.mean(losses, axis=0)
    assert smooth < 0.7 * counts


def test_the_variances_of_the_prior_say_which_columns_are_relevant():
    problem = Problem(rows=20_000)
    prior = [PriorComponent(slice(start, start + 6), None, 0.1) for start in (0, 6, 12)]
    apart = [replace(each, kind=str(index)) for index, each in enumerate(prior)]
    for noise in (0.0, 20.0):
        sums = problem.noisy(noise, 0)
        fits = [fit_sums(problem.design, sums, problem.totals, noise**2, each) for each in (prior, apart)]
        for fit, times in zip(fits, (2, 20), strict=True):
            relevant, *others = (part.variance for part in fit.components)
            assert relevant > 0.15
            assert max(others) < relevant / times
        # Components of one kind are expected to have similar variances.
        ratios = [max(own) / min(own) for own in ([part.variance for part in fit.components] for fit in fits)]
        assert ratios[1] > 3 * ratios[0]
        assert [part.kind for part in fits[1].components] == ["0", "1", "2"]


def test_columns_of_one_kind_tell_of_each_other_how_much_there_is_to_find():
    """Twelve columns with effects of one size, of which noise hides much: their mean variance is known better."""
    losses = []
    for seed in range(6):
        generator = np.random.default_rng(seed)
        design = BinDesign([generator.integers(0, 4, 2_000) for _ in range(12)], [4] * 12)
        truth = 0.4 * generator.normal(size=(48, 1))
        probability = expit(design.dot(truth))
        labels = drawn(np.concatenate([1 - probability, probability], axis=1), generator)[:, 1:]
        sums = design.transpose_dot(labels) + 40.0 * generator.normal(size=(48, 1))
        prior = [PriorComponent(slice(start, start + 4), None, 0.2) for start in range(0, 48, 4)]
        apart = [replace(each, kind=str(index)) for index, each in enumerate(prior)]
        fits = [fit_sums(design, sums, labels.sum(axis=0), 1_600.0, each) for each in (prior, apart)]
        found = [expit(design.dot(fit.weights) + fit.intercept) for fit in fits]
        losses.append([float(np.square(each - probability).mean()) for each in found])
    together, alone = np.mean(losses, axis=0)
    assert together < 0.97 * alone


@pytest.mark.parametrize("outputs", [1, 3])
def test_under_noise_it_is_better_than_no_penalty_and_than_the_shares(outputs):
    losses = []
    for seed in range(6):
        problem, noise = Problem(rows=2_000, seed=seed, outputs=outputs, widths=(12, 12, 12)), 25.0
        sums = problem.noisy(noise, seed)
        fit = fit_sums(problem.design, sums, problem.totals, noise**2, make_prior(problem.widths, [0, 0, 0]))
        bare = fit_sums(problem.design, sums, problem.totals, 0.0, wide_prior(36))
        shares = replace(fit, weights=0 * fit.weights, intercept=np.log(problem.labels.mean(axis=0))[-outputs:])
        if outputs == 1:
            shares = replace(shares, intercept=np.log(problem.totals / (2_000 - problem.totals)))
        losses.append([problem.loss(each) for each in (fit, bare, shares)])
    fitted, bare, shares = np.mean(losses, axis=0)
    assert fitted < shares - 0.02
    assert fitted < bare - 0.02


def test_pure_noise_gives_about_the_shares():
    owed = []
    for seed in range(8):
        problem, noise = Problem(strength=0.0, seed=seed), 40.0
        sums, prior = problem.noisy(noise, seed), make_prior(problem.widths, [0, 6, 0])
        fit = fit_sums(problem.design, sums, problem.totals, noise**2, prior)
        share = np.full(ROWS, problem.labels[:, 1].mean())
        owed.append(problem.loss(fit) - log_loss(problem.new_labels[:, 1], share))
    assert np.mean(owed) < 0.005


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_mean_probability_is_the_total(outputs):
    problem = Problem(outputs=outputs)
    fit = fit_sums(problem.design, problem.noisy(9.0, 0), problem.totals, 81.0, make_prior(problem.widths, [0] * 3))
    probabilities = output_probabilities(problem.design.dot(fit.weights) + fit.intercept)
    assert np.allclose(probabilities.sum(axis=0), problem.totals, atol=0.5)


@pytest.mark.parametrize("total", [-50.0, 0.0, ROWS + 9.0])
def test_totals_outside_the_rows_give_finite_weights(total):
    problem = Problem()
    fit = fit_sums(problem.design, problem.noisy(3.0, 0), np.array([total]), 9.0, make_prior(problem.widths, [0] * 3))
    assert np.isfinite(fit.weights).all()
    assert np.isfinite(fit.intercept).all()


def test_a_sample_of_the_rows_gives_about_the_same_curvature(monkeypatch):
    problem = Problem(rows=20_000)
    given = problem.design, problem.noisy(9.0, 0), problem.totals, 81.0, make_prior(problem.widths, [6, 6, 6])
    whole = fit_sums(*given)
    monkeypatch.setattr("labeldp.learn.additive.fit._CURVATURE_ROWS", 4_000)
    one, two = (expit(problem.new.dot(fit.weights) + fit.intercept) for fit in (whole, fit_sums(*given)))
    assert 0 < np.abs(one - two).max() < 0.01


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("noise", [0.0, 15.0])
def test_a_block_is_fitted_as_sums_of_the_same_column(outputs, noise):
    """On top of a model that leaves nothing to an intercept. `fit_sums` solves the dense problem."""
    problem = Problem(rows=20_000, outputs=outputs, widths=(9,), strength=0.7)
    offset = np.full((20_000, outputs), -0.5)
    offset[:] = np.log(problem.labels.mean(axis=0))[-outputs:] if outputs > 1 else offset
    sums = problem.noisy(noise, 3)
    codes = problem.design.codes[0]
    weights, variance = fit_block(codes, 9, sums, noise**2, offset, max_steps=40)
    prior = [PriorComponent(slice(0, 9), None, 0.05)]
    fit = fit_sums(problem.design, sums, problem.totals, noise**2, prior, offset, max_steps=40)
    one, two = (output_probabilities(np.eye(9) @ each + offset[0]) for each in (weights, fit.weights + fit.intercept))
    assert np.abs(one - two).max() < 0.01
    assert 0.3 < variance / fit.components[0].variance < 3


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_noise_of_each_bin_of_a_block_may_differ(outputs):
    """The weights are the posterior mean around themselves, bin by bin."""
    problem, generator = Problem(rows=20_000, outputs=outputs, widths=(9,), strength=0.7), np.random.default_rng(3)
    noise = np.where(np.arange(9) % 3 == 0, 30_000.0, 100.0)[:, None]
    sums, offset = (
        problem.sums + noise**0.5 * generator.normal(size=problem.sums.shape),
        np.full((20_000, outputs), -0.5),
    )
    weights, variance = fit_block(problem.design.codes[0], 9, sums, noise, offset, max_steps=60)
    probability = output_probabilities(offset + problem.design.dot(weights))
    curvature = (1.0 if outputs == 1 else 1.5) * problem.design.transpose_dot(probability * (1 - probability))
    residual = sums - problem.design.transpose_dot(probability) + curvature * weights
    slow = variance * curvature * residual / (variance * curvature**2 + curvature + noise)
    slow -= slow.mean(axis=1, keepdims=True) * (outputs > 1)
    assert np.allclose(weights, slow, atol=0.01)
    quiet, _ = fit_block(problem.design.codes[0], 9, sums, 100.0, offset, max_steps=60)
    assert np.abs(weights - quiet)[::3].max() > 0.1


def test_a_block_that_is_only_noise_says_nothing():
    problem = Problem(widths=(30,), strength=0.0)
    weights, variance = fit_block(
        problem.design.codes[0], 30, problem.noisy(40.0, 0), 1_600.0, np.full((ROWS, 1), -0.5)
    )
    assert np.abs(weights).max() < 0.2
    assert variance < 0.05


def test_an_empty_bin_of_a_block_has_no_weight():
    codes = np.arange(ROWS) % 4
    sums = np.array([[900.0], [500.0], [500.0], [100.0], [0.0]])
    weights, _ = fit_block(codes, 5, sums, 0.0, np.zeros((ROWS, 1)))
    assert weights[4] == pytest.approx(0, abs=1e-9)
    assert weights[0] > 1 > -1 > weights[3]


@pytest.mark.parametrize(("ordered", "width"), [(1, 2), (5, 5), (5, 6), (64, 65)])
def test_the_smooth_kernel_is_a_covariance_of_ordered_bins(ordered, width):
    kernel = smooth_kernel(ordered, width)
    assert kernel.shape == (width, width)
    assert np.array_equal(kernel, kernel.T)
    assert np.linalg.eigvalsh(kernel).min() > -1e-9
    assert np.array_equal(np.diag(kernel), [1.0] * ordered + [0.0] * (width - ordered))
    assert (np.diff(kernel[0, :ordered]) < 0).all()


def test_the_linear_kernel_is_that_of_a_line_over_ordered_bins():
    kernel = linear_kernel(5, 7)
    line = np.array([-1, -0.5, 0, 0.5, 1, 0, 0]) * 3**0.5
    assert np.allclose(kernel, np.outer(line, line))


def test_the_prior_has_a_smooth_a_linear_and_a_rough_part_for_many_ordered_bins():
    parts = make_prior([9, 5, 3], [8, 4, 0])
    assert [(part.column_slice.start, part.column_slice.stop, part.kernel is None) for part in parts] == [
        (0, 9, False),
        (0, 9, False),
        (0, 9, True),
        (9, 14, True),
        (14, 17, True),
    ]
    assert [part.kind for part in parts] == ["smooth", "linear", "rough", "free", "free"]


def test_smooth_effects_are_found_better_with_the_kernel():
    generator, noise, losses = np.random.default_rng(0), 30.0, []
    codes = generator.integers(0, 40, 6_000)
    truth = 1.5 * np.sin(np.arange(40) / 8)[:, None]
    design = BinDesign([codes], [40])
    for seed in range(5):
        labels = drawn(np.concatenate([1 - expit(truth[codes]), expit(truth[codes])], 1), np.random.default_rng(seed))
        sums = design.transpose_dot(labels[:, 1:]) + noise * np.random.default_rng(seed).normal(size=(40, 1))
        fits = [
            fit_sums(design, sums, labels[:, 1:].sum(axis=0), noise**2, make_prior([40], [ordered]))
            for ordered in (40, 0)
        ]
        losses.append([float(np.square(fit.weights + fit.intercept - truth).mean()) for fit in fits])
    smooth, rough = np.mean(losses, axis=0)
    assert smooth < 0.7 * rough
