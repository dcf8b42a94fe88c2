import numpy as np
import polars as pl
import pytest
from scripted import Seeded
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import labeldp as ldp
from labeldp.data import Embeddings, Table
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn.predictor import load_predictor
from labeldp.learn.ridge import Ridge
from labeldp.learn.sklearn_learner import SklearnLearner, SklearnModel, StandardizedFeatures, standardized_matrix
from labeldp.learn.weighted_em import WeightedEM
from labeldp.mechanisms import LinearQuery

LOGISTIC = LogisticRegression(C=0.1, max_iter=300)
RR = ldp.RandomizedResponse


def test_it_is_weighted_on_standardised_rows(digits):
    release = digits.release(RR(3.0))
    model = SklearnLearner(LOGISTIC, 3).fit(digits.features, release)
    rows = digits.features._matrix
    deviation = rows.std(axis=0)
    by_hand = (rows - rows.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    expected = WeightedEM(LOGISTIC, 3).fit(by_hand, release).predict_proba(by_hand)
    assert np.allclose(model.predict_proba(digits.features), expected, atol=0.02)
    assert digits.accuracy(model) > 0.85


def test_features_of_any_scale_and_constant_columns_will_do():
    generator = np.random.default_rng(0)
    labels = np.arange(600) % 2
    rows = np.c_[generator.normal(size=600) * 1e5 + labels * 3e5, np.full(600, 7.0), generator.normal(size=600)]
    vault = ldp.Vault(labels, ldp.LabelSpace([0, 1]), ldp.Budget(2.0))
    model = SklearnLearner(LOGISTIC).fit(Embeddings(rows), vault.release(RR(2.0)))
    assert (model.predict(Embeddings(rows)) == labels).mean() > 0.85


def test_images_are_standardised_by_channel(digits):
    release = digits.release(RR(4.0))
    model = SklearnLearner(LOGISTIC, 3).fit(digits.images, release)
    assert len(model.mean) == 1
    assert (model.predict(digits.images) == digits.labels).mean() > 0.85


def test_a_class_that_nobody_has_is_predicted_too():
    vault = ldp.Vault([0, 1] * 50, ldp.LabelSpace([0, 1, 2]), ldp.Budget(50.0))
    rows = Embeddings(np.random.default_rng(0).normal(size=(100, 2)))
    probabilities = SklearnLearner(GaussianNB(), 1).fit(rows, vault.release(RR(50.0))).predict_proba(rows)
    assert probabilities.shape == (100, 3)
    assert (probabilities[:, 2] < 1e-8).all()


def test_a_start_adds_what_it_rests_on(digits):
    vault = ldp.Vault(digits.labels, ldp.LabelSpace(list(range(10))), ldp.Budget(3.0, 1e-5))
    normalizer = RowNormalizer.fit(digits.features)
    sums = vault.release(LinearQuery(normalizer(digits.features), 0.5, 1e-5))
    noisy = vault.release(RR(1.5))
    linear = Ridge(normalizer).fit(digits.features, sums)
    alone = SklearnLearner(LOGISTIC, 1).fit(digits.features, noisy)
    both = SklearnLearner(LOGISTIC, 1).fit(digits.features, noisy, linear)
    assert (alone.guarantee, alone.lineage) == (noisy.guarantee, noisy.lineage)
    assert (both.guarantee.epsilon, both.guarantee.delta) == (2.0, 1e-5)
    assert set(both.lineage) == {*noisy.lineage, *sums.lineage}


def test_a_good_start_is_made_use_of(digits):
    """Randomized response at 0.5 alone tells next to nothing; with a good guess it does no harm."""
    vault = ldp.Vault(digits.labels, ldp.LabelSpace(list(range(10))), ldp.Budget(4.0, 1e-5))
    vault._bits = Seeded(0)
    normalizer = RowNormalizer.fit(digits.features)
    linear = Ridge(normalizer).fit(digits.features, vault.release(LinearQuery(normalizer(digits.features), 1.0, 1e-5)))
    noisy = vault.release(RR(0.5))
    alone, both = (SklearnLearner(LOGISTIC, 2).fit(digits.features, noisy, start) for start in (None, linear))
    assert digits.accuracy(both) > digits.accuracy(alone) + 0.2


def test_rows_must_match(digits):
    with pytest.raises(ldp.InputError, match="397 rows of features and 1400 in the release"):
        SklearnLearner(LOGISTIC).fit(digits.new, digits.release(RR(1.0)))


@pytest.mark.parametrize(
    "classifier",
    [
        LOGISTIC,
        HistGradientBoostingClassifier(max_iter=5),
        RandomForestClassifier(5, max_depth=4),
        GaussianNB(),
    ],
    ids=lambda c: type(c).__name__,
)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_saved_model_predicts_the_same(classifier, classes, tmp_path):
    frame = pl.DataFrame({"x": np.linspace(-1, 1, 300), "town": ["a", "b", None] * 100})
    table = Table.fit(frame)
    vault = ldp.Vault(np.arange(300) * classes // 300, ldp.LabelSpace(list(range(classes))), ldp.Budget(3.0))
    vault._bits = Seeded(0)
    model = SklearnLearner(classifier, 2).fit(table, vault.release(RR(3.0)))
    model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m")
    assert isinstance(again, SklearnModel)
    assert np.array_equal(again.predict_proba(table), model.predict_proba(table))
    assert (again.guarantee, again.lineage, again.space) == (model.guarantee, model.lineage, model.space)
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["arrays.npz", "classifier.skops", "model.json"]


def test_a_file_with_types_of_its_own_is_not_loaded(tmp_path, digits):
    import skops.io

    model = SklearnLearner(GaussianNB(), 1).fit(digits.features, digits.release(RR(3.0)))
    model.save(tmp_path / "m")
    (tmp_path / "m" / "classifier.skops").unlink()
    skops.io.dump({"run": Own()}, tmp_path / "m" / "classifier.skops")
    with pytest.raises(ldp.InputError, match="is not a model that labeldp wrote"):
        load_predictor(tmp_path / "m")


def test_what_could_not_be_read_back_is_not_written(tmp_path, digits):
    model = SklearnLearner(Odd(), 1).fit(digits.features, digits.release(RR(3.0)))
    assert digits.accuracy(model) > 0.5
    with pytest.raises(ldp.InputError, match=r"This Odd cannot be saved, because it contains \S*\.Odd"):
        model.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


class Own:
    """Something that a file could make run."""


class Odd(GaussianNB):
    """A classifier of the user's own."""


@pytest.mark.parametrize("classifier", [LOGISTIC, HistGradientBoostingClassifier(max_iter=5), GaussianNB()])
def test_released_labels_of_one_class_give_a_model_of_that_class(classifier, tmp_path):
    """As noise can have it: of few rows, all answers may be the same."""
    rows = Embeddings(np.random.default_rng(0).normal(size=(12, 3)))
    release = ldp.Vault(["b"] * 12, ldp.LabelSpace(["a", "b", "c"]), ldp.Budget(700.0)).release(RR(700.0))
    assert set(release.labels()) == {1}
    model = SklearnLearner(classifier).fit(rows, release)
    assert np.allclose(model.predict_proba(rows), [1e-9, 1.0, 1e-9])
    model.save(tmp_path / "m")
    assert (SklearnModel.load(tmp_path / "m").predict(rows) == "b").all()


def test_the_difference_of_two_huge_numbers_is_standardised():
    largest = 3.4e38
    column = np.array([-largest, largest, largest, largest] * 10, np.float32)
    features = Embeddings(np.stack([column, np.arange(40, dtype=np.float32)], axis=1))
    found = StandardizedFeatures.of(features).X
    exact = np.stack([column, np.arange(40)], axis=1).astype(np.float64)
    exact = (exact - exact.mean(axis=0)) / exact.std(axis=0)
    assert found.dtype == np.float32
    assert np.allclose(found, exact, rtol=1e-5)


def test_rows_far_from_those_of_the_training_stay_finite():
    known, new = Embeddings(np.array([[1e-30], [3e-30]])), Embeddings(np.array([[1e38], [-1e38]]))
    seen = StandardizedFeatures.of(known)
    assert standardized_matrix(new, seen.mean, seen.deviation).tolist() == [[1e6], [-1e6]]


def test_a_prepared_learner_gives_the_same_model():
    rows = np.minimum(np.random.default_rng(0).normal(size=(600, 2)), 1.0)  # with ties at the largest value
    table = Table.fit(pl.DataFrame(rows, schema=["a", "b"]))
    vault = ldp.Vault((rows[:, 0] > 0).astype(int), ldp.LabelSpace([0, 1]), ldp.Budget(3.0))
    chosen = np.arange(600) < 500
    release = vault.release(RR(3.0), row_selection=chosen)
    learner = SklearnLearner(HistGradientBoostingClassifier(max_iter=10, random_state=0), 2)
    plain, prepared = (each.fit(table, release) for each in (learner, learner.prepare(table, chosen)))
    assert np.array_equal(plain.predict_proba(table), prepared.predict_proba(table))
