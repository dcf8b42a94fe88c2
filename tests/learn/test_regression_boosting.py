import json

import numpy as np
import polars as pl
import pytest
from scripted import Seeded

import labeldp as ldp
from labeldp.data.embeddings import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.data.tables import Table
from labeldp.learn.predictor import load_predictor
from labeldp.learn.regression_boosting import BoostedRegressionModel, RegressionBoosting
from labeldp.learn.ridge import Ridge
from labeldp.mechanisms import NumberSums
from labeldp.privacy.mechanisms.numeric_responses import UnbiasedBins
from labeldp.report.card.origin import describe_model

ROWS, SPACE = 6_000, ldp.LabelSpace.range(-4, 4, 0.1)
EVEN = np.full(len(SPACE), 1 / len(SPACE))


class Problem:
    """A product of two columns, of which a line knows nothing."""

    def __init__(self, bent=1.0):
        generator = np.random.default_rng(0)
        x = generator.uniform(-1, 1, size=(2 * ROWS, 4))
        self.truth = x[:, 0] + 3 * bent * x[:, 1] * x[:, 2]
        labels = np.clip(self.truth + 0.3 * generator.normal(size=len(x)), -4, 4)
        self.labels = np.round(labels[:ROWS] * 10) / 10
        rows = pl.DataFrame(x)
        self.table = Table.fit(rows[:ROWS])
        self.new = self.table.apply(rows[ROWS:])

    def trained(self, epsilon, seed=0, **settings):
        vault = ldp.Vault(self.labels, SPACE, ldp.Budget(100.0))
        vault._bits = Seeded(seed)
        normalizer = RowNormalizer.fit(self.table, n_columns=8, clip=True)
        sums = vault.release(NumberSums(normalizer(self.table), 5.0, n_values=len(SPACE)))
        start = Ridge(normalizer).fit(self.table, sums)
        noisy = vault.release(UnbiasedBins(epsilon, EVEN))
        return start, RegressionBoosting(**settings).fit(self.table, noisy, start), noisy

    def error(self, model):
        return float(((model.predict(self.new) - self.truth[ROWS:]) ** 2).mean())


@pytest.fixture(scope="module")
def problem():
    return Problem()


def test_trees_learn_what_a_line_misses(problem):
    start, model, noisy = problem.trained(4.0)
    assert problem.error(model) < 0.5 * problem.error(start)
    assert len(model.trees) > 5
    assert model.deviation < start.deviation
    assert set(model.lineage) == {*start.lineage, *noisy.lineage}
    assert describe_model(model) == f"linear model, with {len(model.trees)} boosted trees added"


def test_where_noise_hides_everything_the_model_stays_near_its_start():
    problem = Problem(bent=0.0)
    for seed in range(5):
        start, model, _ = problem.trained(0.5, seed)
        assert problem.error(model) < problem.error(start) + 0.1  # the variance of all labels is 0.4


def test_predictions_stay_in_the_declared_range(problem):
    model = problem.trained(4.0)[1]
    found = model.predict(problem.new)
    assert (found.min(), found.max()) >= (-4.0, -4.0)
    assert found.max() <= 4.0
    assert np.allclose(model.predict_proba(problem.new).sum(axis=1), 1)


def test_rows_without_a_number_are_left_out(problem):
    start, _, noisy = problem.trained(4.0)
    half = noisy.keep(np.arange(ROWS) % 2 == 0)
    model = RegressionBoosting().fit(problem.table, half, start)
    assert problem.error(model) < problem.error(start)
    with pytest.raises(ldp.InputError, match="no number"):
        RegressionBoosting().fit(problem.table, noisy.keep(np.zeros(ROWS, bool)), start)


def test_nothing_to_split_and_other_rows():
    problem = Problem()
    start, _, noisy = problem.trained(1.0)
    with pytest.raises(ldp.InputError, match="same data set"):
        RegressionBoosting().fit(problem.new.select(np.arange(10)), noisy, start)

    class Zero:
        space, provenance, lineage, guarantee = SPACE, start.provenance, (), None

        def predict(self, features):
            return np.zeros(len(features))

    model = RegressionBoosting().fit(Embeddings(np.ones((ROWS, 2))), noisy, Zero())
    assert len(model.trees) == 0


def test_a_boosted_regression_model_is_saved_and_loaded(problem, tmp_path):
    model = problem.trained(4.0, max_rounds=5)[1]
    model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m")
    assert type(again) is BoostedRegressionModel
    assert np.array_equal(again.predict(problem.new), model.predict(problem.new))
    assert again.deviation == model.deviation


@pytest.mark.parametrize("change", [{"deviation": 0}, {"deviation": "wide"}, {"space": None}])
def test_a_crafted_file_of_boosted_numbers_is_refused(problem, tmp_path, change):
    problem.trained(4.0, max_rounds=3)[1].save(tmp_path / "m")
    facts = json.loads((tmp_path / "m" / "model.json").read_text())
    (tmp_path / "m" / "model.json").write_text(json.dumps(facts | change))
    with pytest.raises(ldp.InputError, match="not a model"):
        load_predictor(tmp_path / "m")
