"""Additive models of released sums and of noisy labels of the same rows: what they rest on, and how good they are."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scripted import Seeded

import labeldp as ldp
from labeldp.accounting.lineage import Provenance
from labeldp.data import Table
from labeldp.learn.additive import AdditiveSums, BasisFunctions, BinDesign, Bins, CrossSums, fit_sums, make_prior
from labeldp.learn.additive.fit import class_probabilities
from labeldp.learn.additive.sums import combine_estimates, estimate_response_sums
from labeldp.mechanisms import LinearQuery

ROWS = 4_000
FUNCTIONS = BasisFunctions(4, 0.75, 0.3, 2)


@given(st.integers(1, 6), st.integers(1, 3), st.floats(0.01, 100), st.integers(0, 999))
def test_two_estimates_are_combined_by_generalised_least_squares(count, outputs, variance, seed):
    generator = np.random.default_rng(seed)
    first, second = generator.normal(size=(2, count, outputs))
    root = generator.normal(size=(count, count + 1))
    covariance = root @ root.T + 0.01 * np.eye(count)
    whole = np.zeros((2 * count, 2 * count))
    whole[:count, :count], whole[count:, count:] = variance * np.eye(count), covariance
    both = np.vstack([np.eye(count)] * 2)
    precision = both.T @ np.linalg.solve(whole, both)
    slow = np.linalg.solve(precision, both.T @ np.linalg.solve(whole, np.vstack([first, second])))
    found, left = combine_estimates(first, variance, second, covariance)
    assert np.allclose(found, slow, atol=1e-6)
    assert np.allclose(left, np.linalg.inv(precision), atol=1e-6)
    assert np.array_equal(left, left.T)


def test_the_combined_noise_has_the_covariance_that_is_stated():
    generator = np.random.default_rng(0)
    root, exact = generator.normal(size=(3, 3)), np.array([[4.0], [-2.0], [9.0]])
    errors = []
    for _ in range(20_000):
        first, second = exact + generator.normal(size=(3, 1)) * 1.5, exact + root @ generator.normal(size=(3, 1))
        found, stated = combine_estimates(first, 2.25, second, root @ root.T)
        errors.append(found[:, 0] - exact[:, 0])
    assert np.allclose(np.cov(np.array(errors).T), stated, atol=0.05)  # an entry has a deviation of at most 0.015
    assert np.abs(np.mean(errors, axis=0)).max() < 0.06


def test_what_one_estimate_does_not_tell_comes_from_the_other():
    """Bins of two columns: their totals agree, so that the covariance of the sums of all bins is singular."""
    first, second = np.array([[1.0], [2.0], [3.0]]), np.array([[10.0], [20.0], [30.0]])
    found, left = combine_estimates(first, 4.0, second, np.diag([0.0, 4.0, 1e12]))
    assert found[:, 0] == pytest.approx([10.0, 11.0, 3.0])
    assert left == pytest.approx(np.diag([0.0, 2.0, 4.0]), abs=1e-6)
    found, left = combine_estimates(first, 0.0, second, np.eye(3))
    assert np.array_equal(found, first)
    assert not left.any()


class Problem:
    """Numbers with missing values and a category; two numbers act together. As many rows again are new."""

    def __init__(self, classes=2, rows=ROWS, seed=0):
        generator = np.random.default_rng(seed)
        a, b, c = generator.normal(size=(3, 2 * rows))
        town = generator.choice(["north", "south", "west"], 2 * rows)
        inputs = np.column_stack([a, np.sin(2 * b), town == "west", np.sign(a * b)])
        scores = inputs @ generator.normal(size=(4, classes)) * (1.2 if classes == 2 else 1.5)
        probabilities = softmax(scores, axis=1).cumsum(axis=1)
        codes = (generator.random((2 * rows, 1)) > probabilities).sum(axis=1).clip(0, classes - 1)
        seen = np.where(generator.random(2 * rows) < 0.1, None, c.astype(object)).astype(float)
        frame = pl.DataFrame({"a": a, "b": b, "c": seen, "town": town}).fill_nan(None)
        self.table = Table.fit(frame[:rows])
        self.new, self.truth = self.table.apply(frame[rows:]), codes[rows:]
        self.codes, self.space = codes[:rows], ldp.LabelSpace(list(range(classes)), missing="public")
        self.bins = Bins.fit(self.table, 20, 8)
        widths = [column.width for column in self.bins.columns]
        self.design = BinDesign([self.bins.encode(self.table, index) for index in range(4)], widths)

    def vault(self, seed=0, labels=None):
        vault = ldp.Vault(list(self.codes) if labels is None else labels, self.space, ldp.Budget(100.0, 1e-3))
        vault._bits = Seeded(seed)
        return vault

    def functions(self, kind):
        if kind == "counts":
            return [None] * 4
        if kind == "identity":
            return [np.eye(width) for width in self.design.widths]
        return [FUNCTIONS.evaluate(column, column.name == "c") for column in self.bins.columns]

    def sums(self, vault, epsilon, kind="functions", delta=1e-6):
        functions = self.functions(kind)
        matrix = np.column_stack([self.design.to_sparse(functions).toarray(), np.ones(len(self.table))])
        counts = vault.release(LinearQuery(matrix, epsilon, delta))
        return AdditiveSums(self.table, self.bins.columns, self.design, functions, counts)

    def crossed(self, sums, vault, epsilon):
        """The sums with the counts of the cross of a and b."""
        columns = Bins.fit(self.table, 6, 6).columns[:2]
        cells = np.zeros(len(self.table), np.int64)
        for index, column in enumerate(columns):
            cells = cells * column.width + column.encode(self.table.numeric_values[:, index])
        width = columns[0].width * columns[1].width
        counts = vault.release(LinearQuery(np.eye(width)[cells], epsilon, 1e-6))
        sums.crosses.append(CrossSums(columns, cells, counts))
        return sums

    def loss(self, chances):
        return float(-np.log(np.maximum(chances[np.arange(len(self.truth)), self.truth], 1e-12)).mean())

    def shares_loss(self):
        return self.loss(np.tile(np.bincount(self.codes) / len(self.codes), (len(self.truth), 1)))


def of_responses_alone(problem, noisy):
    """What `fit_sums` makes of sums of noisy labels, for comparison."""
    found = estimate_response_sums(problem.design, noisy, slice(None))
    prior = make_prior(problem.design.widths, [column.n_ordered for column in problem.bins.columns])
    covariance = found.noise_std**2 * problem.design.gram(np.ones(ROWS))
    totals = np.clip(found.values[: problem.design.widths[0]].sum(axis=0), 0.5, ROWS - 0.5)
    fit = fit_sums(problem.design, found.values, totals, covariance, prior)
    new = BinDesign([problem.bins.encode(problem.new, index) for index in range(4)], problem.design.widths)
    return problem.loss(class_probabilities(new.dot(fit.weights) + fit.intercept))


@pytest.mark.parametrize("kind", ["counts", "functions"])
@pytest.mark.parametrize(("classes", "of_sums", "of_rows", "draws"), [(2, 0.2, 0.6, 10), (4, 0.5, 1.5, 5)])
def test_sums_and_noisy_labels_are_better_together_than_alone(kind, classes, of_sums, of_rows, draws):
    """Means over draws, at epsilons where either alone says about as much."""
    losses = []
    for seed in range(draws):
        problem = Problem(classes, seed=seed)
        vault = problem.vault(seed)
        sums, noisy = problem.sums(vault, of_sums, kind), vault.release(ldp.RandomizedResponse(of_rows))
        first, both = (problem.loss(sums.fit(each).predict_proba(problem.new)) for each in (None, noisy))
        losses.append([first, both, of_responses_alone(problem, noisy), problem.shares_loss()])
    first, both, second, shares = np.mean(losses, axis=0)
    assert both < min(first, second) - 0.003
    assert max(first, second) < shares


def test_crosses_are_fitted_to_both_as_well():
    gains = []
    for seed in range(6):
        problem = Problem(seed=3 + 10 * seed)
        vault = problem.vault(seed)
        sums, noisy = problem.sums(vault, 3.0), vault.release(ldp.RandomizedResponse(1.5))
        crossed = problem.crossed(sums, vault, 0.1)
        losses = []
        for responses in (None, noisy):
            model, scores = crossed.fit_main_effects(noisy)
            term, found = crossed.fit_cross_effect(crossed.crosses[0], scores, responses)
            whole = model.with_terms([term], model.provenance)
            assert np.allclose(whole.scores(problem.table), found)
            losses.append([problem.loss(each.predict_proba(problem.new)) for each in (model, whole)])
        gains.append(np.array(losses)[:, 0] - np.array(losses)[:, 1])
    alone, both = np.mean(gains, axis=0)
    assert both > alone + 0.005


@pytest.mark.parametrize("crossed", [False, True])
def test_a_model_rests_on_all_that_it_was_fitted_to(crossed):
    problem = Problem(rows=500)
    vault = problem.vault()
    sums = problem.sums(vault, 0.5)
    if crossed:
        sums = problem.crossed(sums, vault, 0.25)
    noisy = vault.release(ldp.RandomizedResponse(1.0))
    assert sums.releases == [sums.counts, *(cross.counts for cross in sums.crosses)]
    for responses in (None, noisy):
        model = sums.fit(responses)
        sources = [*sums.releases, *([responses] if responses else [])]
        assert set(model.lineage) == {use for each in sources for use in each.lineage}
        assert len(model.lineage) == len(sources)
        assert model.guarantee.epsilon == pytest.approx(0.5 + 0.25 * crossed + (1.0 if responses else 0.0))
        assert model.guarantee.delta == pytest.approx(1e-6 * (1 + crossed))
        assert [term.name for term in model.terms] == ["a", "b", "c", "town", *["a x b"] * crossed]
    assert sums.fit_main_effects(noisy)[0].lineage == Provenance.of(sums.counts, noisy).lineage


@pytest.mark.parametrize("responses", [False, True])
def test_counts_are_functions_of_bins_too(responses):
    problem = Problem(rows=1_000)
    found = []
    for kind in ("counts", "identity"):
        vault = problem.vault()
        sums = problem.sums(vault, 1.0, kind)
        found.append(sums.fit(vault.release(ldp.RandomizedResponse(1.0)) if responses else None).scores(problem.new))
    assert np.allclose(*found, atol=1e-6)


@pytest.mark.parametrize("responses", [False, True])
def test_the_scores_are_those_of_the_model(responses):
    problem = Problem(4, rows=1_000)
    vault = problem.vault()
    sums, noisy = problem.sums(vault, 1.0), vault.release(ldp.RandomizedResponse(1.0))
    model, scores = sums.fit_main_effects(noisy if responses else None)
    assert np.allclose(model.scores(problem.table), scores)
    assert scores.shape == (1_000, 4)


def test_labels_with_hardly_any_noise_decide():
    """Sums that say nothing beside them, and the other way round."""
    problem = Problem()
    vault = problem.vault()
    faint, clear = problem.sums(vault, 0.001), problem.sums(vault, 30.0)
    loud, quiet = vault.release(ldp.RandomizedResponse(0.001)), vault.release(ldp.RandomizedResponse(12.0))
    expected = clear.fit().predict_proba(problem.new)
    assert np.abs(faint.fit(quiet).predict_proba(problem.new) - expected).max() < 0.1
    assert np.abs(clear.fit(loud).predict_proba(problem.new) - expected).max() < 0.01
    assert np.abs(faint.fit().predict_proba(problem.new) - expected).max() > 0.3


@pytest.mark.parametrize("responses", [False, True])
def test_rows_without_a_label_take_no_part(responses):
    """Their features may be anything: the model that is fitted does not see them."""
    problem, scores = Problem(rows=1_200), []
    missing = np.arange(1_200) % 3 == 0
    labels = [None if none else int(code) for none, code in zip(missing, problem.codes, strict=True)]
    for damaged in (False, True):
        if damaged:
            codes = [np.where(missing, 0, each) for each in problem.design.codes]
            problem.design = BinDesign(codes, problem.design.widths)
        vault = problem.vault(labels=labels)
        sums = problem.crossed(problem.sums(vault, 4.0), vault, 4.0)
        if damaged:
            cross = sums.crosses[0]
            sums.crosses[0] = cross._replace(cells=np.where(missing, 0, cross.cells))
        noisy = vault.release(ldp.RandomizedResponse(3.0)) if responses else None
        scores.append(sums.fit(noisy).scores(problem.new))
    assert np.array_equal(*scores)
    assert problem.loss(class_probabilities(scores[0])) < problem.shares_loss() - 0.02


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_mean_probability_is_about_the_share_of_the_class(classes, delta):
    """Of the released sums it is the last one; noisy labels of all rows tell it as well."""
    problem = Problem(classes)
    vault = problem.vault()
    sums, noisy = problem.sums(vault, 2.0, delta=delta), vault.release(ldp.RandomizedResponse(2.0))
    shares = np.bincount(problem.codes) / ROWS
    for model in (sums.fit(), sums.fit(noisy)):
        assert np.allclose(model.predict_proba(problem.table).mean(axis=0), shares, atol=0.02)
