import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, softmax
from scripted import Seeded
from sklearn.linear_model import LogisticRegression

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn.additive.log_linear import LogLinear, LogLinearModel
from labeldp.learn.predictor import load_predictor
from labeldp.mechanisms import LinearQuery, RRWithPrior

ROWS = 6_000


class Problem:
    """Rows whose log-odds are linear, and labels of so many classes; `new` are further rows."""

    def __init__(self, classes, rows=ROWS, columns=8):
        generator = np.random.default_rng(classes)
        points = generator.normal(size=(2 * rows, columns)).astype(np.float32)
        truth = generator.normal(size=(columns, classes)) * (1.0 if classes < 10 else 1.5)
        probabilities = softmax(points @ truth + 0.3 * np.arange(classes) / classes, axis=1).cumsum(axis=1)
        codes = (generator.random((2 * rows, 1)) > probabilities).sum(axis=1).clip(0, classes - 1)
        self.space = ldp.LabelSpace(list(range(classes)))
        self.features, self.new = Embeddings(points[:rows]), Embeddings(points[rows:])
        self.codes, self.truth = codes[:rows], codes[rows:]
        self.normalizer = RowNormalizer.fit(self.features)
        self.rows = self.normalizer(self.features)

    def release(self, mechanism, seed=0, rows=None):
        vault = ldp.Vault(self.codes, self.space, ldp.Budget(100.0, 1e-5))
        vault._bits = Seeded(seed)
        return vault.release(mechanism, row_selection=rows)

    def sums(self, epsilon=1.0, rows=None):
        return self.release(LinearQuery(self.rows, epsilon, 1e-5), rows=rows)

    def loss(self, model):
        probabilities = model.predict_proba(self.new)
        return float(-np.log(np.maximum(probabilities[np.arange(ROWS), self.truth], 1e-12)).mean())


@pytest.fixture(scope="module", params=[2, 5, 30])
def problem(request):
    return Problem(request.param)


def shares_loss(problem):
    shares = np.bincount(problem.codes, minlength=len(problem.space)) / ROWS
    return float(-np.log(shares[problem.truth]).mean())


def test_little_noise_gives_nearly_the_logistic_regression_of_the_labels(problem):
    model = LogLinear(problem.normalizer).fit(problem.rows, problem.sums(20.0))
    slow = LogisticRegression(C=10.0, max_iter=500).fit(problem.rows, problem.codes)
    probabilities = slow.predict_proba(problem.normalizer(problem.new))
    ideal = float(-np.log(probabilities[np.arange(ROWS), problem.truth]).mean())
    # With many classes the penalty is fixed, and more than these few columns need.
    assert problem.loss(model) < ideal + (0.03 if len(problem.space) < 20 else 0.3) < shares_loss(problem) - 0.2


def test_under_noise_it_is_better_than_the_shares(problem):
    losses = [
        problem.loss(LogLinear(problem.normalizer).fit(problem.rows, problem.sums(eps))) for eps in (0.3, 1.0, 5.0)
    ]
    assert losses[0] < shares_loss(problem)
    assert losses[0] > losses[1] > losses[2]


def test_noisy_labels_improve_it(problem):
    learner = LogLinear(problem.normalizer)
    sums = problem.sums(0.03)
    model = learner.fit(problem.rows, sums)
    prior = model.predict_proba(problem.features)
    labels = problem.release(RRWithPrior(3.0, prior / prior.sum(axis=1, keepdims=True)))
    better = learner.refine(problem.rows, labels, model)
    assert problem.loss(better) < problem.loss(model) - 0.01
    assert set(better.lineage) == {*sums.lineage, *labels.lineage}
    assert better.guarantee.epsilon == pytest.approx(3.03)


def test_probabilities_are_those_of_its_scores(problem):
    model = LogLinear(problem.normalizer).fit(problem.rows, problem.sums())
    probabilities, scores = model.predict_proba(problem.new), problem.normalizer(problem.new) @ model.coefficients
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert probabilities.shape == (ROWS, len(problem.space))
    two = len(problem.space) == 2
    assert np.allclose(probabilities, np.c_[1 - expit(scores), expit(scores)] if two else softmax(scores, axis=1))
    assert model.predict(problem.new).tolist() == probabilities.argmax(axis=1).tolist()


def test_only_the_rows_that_were_summed_take_part(problem):
    chosen = np.arange(ROWS) % 3 == 0
    one = LogLinear(problem.normalizer).fit(problem.rows, problem.sums(5.0, chosen))
    damaged = np.where(chosen[:, None], problem.rows, 99.0).astype(np.float32)
    two = LogLinear(problem.normalizer).fit(damaged, problem.sums(5.0, chosen))
    assert np.array_equal(one.coefficients, two.coefficients)
    assert problem.loss(one) < shares_loss(problem)
    labels = problem.release(ldp.RandomizedResponse(5.0), rows=chosen)
    refined = [LogLinear(problem.normalizer).refine(rows, labels, one).coefficients for rows in (problem.rows, damaged)]
    assert np.array_equal(*refined)


def test_it_is_saved_and_pickled(problem, tmp_path):
    model = LogLinear(problem.normalizer).fit(problem.rows, problem.sums())
    model.save(tmp_path / "m")
    for again in (load_predictor(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        assert type(again) is LogLinearModel
        assert np.array_equal(again.predict_proba(problem.new), model.predict_proba(problem.new))
        assert (again.space, again.guarantee, again.lineage) == (model.space, model.guarantee, model.lineage)
    (tmp_path / "m" / "arrays.npz").write_bytes(b"PK")
    with pytest.raises(ldp.InputError, match="is not a model that labeldp wrote"):
        load_predictor(tmp_path / "m")


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found[:-1],
        lambda found: np.repeat(found, 3, axis=1),
        lambda found: found * np.nan,
        lambda found: found.astype(str),
        lambda found: found[:, 0],
    ],
)
def test_crafted_coefficients_are_refused(problem, tmp_path, change):
    model = LogLinear(problem.normalizer).fit(problem.rows, problem.sums())
    replace(model, coefficients=change(model.coefficients)).save(tmp_path / "m")
    with pytest.raises(ldp.InputError, match="is not a model that labeldp wrote"):
        load_predictor(tmp_path / "m")


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_few_rows_give_finite_probabilities(problem, rows):
    chosen = np.arange(ROWS) < rows
    learner = LogLinear(problem.normalizer)
    model = learner.fit(problem.rows, problem.sums(1.0, chosen))
    assert np.isfinite(model.predict_proba(problem.new)).all()
    labels = problem.release(ldp.RandomizedResponse(1.0), rows=chosen)
    assert np.isfinite(learner.refine(problem.rows, labels, model).predict_proba(problem.new)).all()
