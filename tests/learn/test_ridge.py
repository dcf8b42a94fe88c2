from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn.ridge import LinearModel, Ridge
from labeldp.mechanisms import LinearQuery

RR = ldp.RandomizedResponse


def sums(digits, lift, epsilon=1.0, delta=1e-5, rows=None):
    return digits.release(LinearQuery(lift(digits.features), epsilon, delta), rows=rows)


@pytest.mark.parametrize("columns", [16, 256])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_model_says_of_rows_what_the_release_itself_says(digits, columns, delta):
    normalizer = RowNormalizer.fit(digits.features, columns)
    release = sums(digits, normalizer, delta=delta)
    probabilities = Ridge(normalizer).fit(digits.features, release).predict_proba(digits.features)
    assert np.allclose(np.log(probabilities), release.log_evidence(), atol=1e-5)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert (probabilities > 0).all()


def test_sums_of_the_same_rows_held_sparsely_give_the_same_model(digits):
    normalizer = RowNormalizer.fit(digits.features, 16)
    release = digits.release(LinearQuery(csr_array(normalizer(digits.features)), 1.0, 1e-5))
    model = Ridge(normalizer).fit(digits.features, release)
    assert np.allclose(np.log(model.predict_proba(digits.features)), release.log_evidence(), atol=1e-5)


def test_new_rows_are_predicted_as_well_as_the_ones_that_were_summed(digits):
    normalizer = RowNormalizer.fit(digits.features)
    model = Ridge(normalizer).fit(digits.features, sums(digits, normalizer))
    known = (model.predict(digits.features) == digits.labels).mean()
    assert digits.accuracy(model) > 0.8
    assert abs(digits.accuracy(model) - known) < 0.08
    assert len(model.predict_proba(digits.new.select(np.arange(0)))) == 0


def test_it_carries_the_guarantee_and_lineage_of_its_release(digits):
    normalizer = RowNormalizer.fit(digits.features)
    release = sums(digits, normalizer, epsilon=0.3)
    model = Ridge(normalizer).fit(digits.features, release)
    assert (model.guarantee, model.lineage, model.space) == (release.guarantee, release.lineage, release.space)
    assert (model.guarantee.epsilon, model.guarantee.delta) == (0.3, 1e-5)


def test_other_releases_and_other_columns_are_refused(digits):
    normalizer = RowNormalizer.fit(digits.features)
    with pytest.raises(ldp.InputError, match="learns from a LinearQuery, not from RandomizedResponse"):
        Ridge(normalizer).fit(digits.features, digits.release(RR(1.0)))
    with pytest.raises(ldp.InputError, match="have other columns"):
        Ridge(RowNormalizer.fit(digits.features, n_columns=9)).fit(digits.features, sums(digits, normalizer))


def test_features_of_other_columns_are_refused(digits):
    normalizer = RowNormalizer.fit(digits.features)
    model = Ridge(normalizer).fit(digits.features, sums(digits, normalizer))
    with pytest.raises(ldp.InputError, match="have 3 columns, and 64 are expected"):
        model.predict(Embeddings(np.zeros((2, 3))))


@pytest.mark.parametrize("columns", [16, 256])
def test_a_saved_model_predicts_the_same(digits, columns, tmp_path):
    normalizer = RowNormalizer.fit(digits.features, columns)
    model = Ridge(normalizer).fit(digits.features, sums(digits, normalizer))
    model.save(tmp_path / "m")
    again = LinearModel.load(tmp_path / "m")
    assert np.array_equal(again.predict_proba(digits.new), model.predict_proba(digits.new))
    assert (again.guarantee, again.lineage, again.space) == (model.guarantee, model.lineage, model.space)
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["arrays.npz", "model.json"]


def test_moments_of_two_classes_are_log_odds_also_without_their_query(tmp_path):
    rows = np.random.default_rng(0).normal(size=(500, 4))
    features = Embeddings(rows)
    normalizer = RowNormalizer.fit(features, clip=True)
    vault = ldp.Vault((rows[:, 0] > 1).astype(int), ldp.LabelSpace([0, 1]), ldp.Budget(4.0, 1e-5))
    release = vault.release(LinearQuery(normalizer(features), 4.0, 1e-5))
    model = Ridge(normalizer).fit(features, release)
    assert model.coefficients.shape == (normalizer.n_columns, 1)
    assert (model.predict(features) == (rows[:, 0] > 1)).mean() > 0.85
    again = Ridge(normalizer).fit(features, replace(release, query=None))
    assert np.array_equal(again.coefficients, model.coefficients)
    model.save(tmp_path / "model")
    retained = LinearModel.load(tmp_path / "model").predict_proba(features)
    assert np.array_equal(retained, model.predict_proba(features))
