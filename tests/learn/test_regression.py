"""Regressors that learn numbers from evidence: against plain least squares on clean labels, and on noisy ones."""

import numpy as np
import pytest
from scripted import Seeded
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, PoissonRegressor, Ridge

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn.predictor import load_predictor
from labeldp.learn.regression import Regression, TargetPrior
from labeldp.mechanisms import DiscreteLaplace, GroupHistogram, RROnBins, UnbiasedBins

SPACE = ldp.LabelSpace.range(0, 100, 1)
EVEN = np.full(101, 1 / 101)


def people(rows, seed):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 3)).astype(np.float32)
    y = np.clip(np.rint(45 + x @ [12, -6, 0] + generator.normal(0, 8, rows)), 0, 100)
    return Embeddings(x), y


def released(labels, mechanism, seed=0, space=SPACE):
    vault = ldp.Vault(labels, space, ldp.Budget(1e9))
    vault._bits = Seeded(seed)
    return vault.release(mechanism)


FEATURES, LABELS = people(1500, 0)
NEW, TRUTH = people(1500, 1)
KNOWN = TargetPrior(45.0, 15.6, 10.0)


def error(model):
    return float(((model.predict(NEW) - TRUTH) ** 2).mean())


@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
def test_of_nearly_clean_labels_it_learns_what_plain_regression_does(loss):
    release = released(LABELS, RROnBins(60.0, EVEN))
    model = Regression(LinearRegression(), loss).fit(FEATURES, release)
    plain = Regression(LinearRegression()).fit_values(FEATURES, release, LABELS)
    assert error(model) < 1.03 * error(plain)
    assert model.guarantee == release.guarantee


def test_the_scale_is_found_where_labels_are_nearly_clean():
    release = released(LABELS, RROnBins(60.0, EVEN))
    assert Regression(LinearRegression()).fit(FEATURES, release).scale == pytest.approx(8.0, rel=0.1)
    assert Regression(LinearRegression(), target_prior=KNOWN).fit(FEATURES, release).scale == pytest.approx(
        8.0, rel=0.1
    )


@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
def test_evidence_teaches_more_than_the_released_values(loss):
    release = released(LABELS, RROnBins(1.0, EVEN), seed=2)
    learned = Regression(Ridge(3.0), loss, target_prior=KNOWN).fit(FEATURES, release)
    plain = Regression(Ridge(3.0)).fit_values(FEATURES, release, release.values())
    assert error(learned) < 110 < 150 < error(plain)  # 64 is scatter, 245 what a constant has


def test_all_releases_of_numbers_can_be_learnt_from():
    for mechanism in (UnbiasedBins(2.0, EVEN), DiscreteLaplace(2.0)):
        assert error(Regression(Ridge(3.0), target_prior=KNOWN).fit(FEATURES, released(LABELS, mechanism))) < 100


def test_without_evidence_nothing_moves():
    release = released(LABELS, DiscreteLaplace(1e-6))
    for loss in ("squared", "absolute", "poisson"):
        model = Regression(Ridge(3.0), loss, target_prior=TargetPrior(20.0, 15.0, 1.0)).fit(FEATURES, release)
        assert np.abs(model.predict(NEW) - 20.0).max() < 0.6


def test_absolute_loss_finds_the_median_and_squared_loss_the_mean():
    generator = np.random.default_rng(0)
    labels = np.rint(np.minimum(generator.exponential(20, 4000), 100))
    features = Embeddings(generator.normal(size=(4000, 1)).astype(np.float32))
    release = released(labels, RROnBins(60.0, EVEN))
    predicted = {
        loss: Regression(LinearRegression(), loss).fit(features, release).predict(features).mean()
        for loss in ("squared", "absolute")
    }
    assert predicted["squared"] == pytest.approx(labels.mean(), abs=0.5)
    assert predicted["absolute"] == pytest.approx(np.median(labels), abs=1.0)


def test_counts_are_never_below_zero():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(3000, 2)).astype(np.float32)
    counts = np.minimum(generator.poisson(np.exp(0.5 + x[:, 0])), 20)
    space = ldp.LabelSpace.range(0, 20, 1)
    release = released(counts, RROnBins(3.0, np.full(21, 1 / 21), loss="poisson"), space=space)
    model = Regression(PoissonRegressor(alpha=1e-3), "poisson").fit(Embeddings(x), release)
    predicted = model.predict(Embeddings(x))
    assert predicted.min() >= 0
    assert np.corrcoef(predicted, np.exp(0.5 + x[:, 0]).clip(max=20))[0, 1] > 0.95


def test_evidence_in_blocks_gives_the_same(monkeypatch):
    release = released(LABELS, RROnBins(2.0, EVEN))
    whole = Regression(Ridge(3.0), max_rounds=3).fit(FEATURES, release)
    monkeypatch.setattr("labeldp.learn.regression._BLOCK_ENTRIES", 1000)
    parts = Regression(Ridge(3.0), max_rounds=3).fit(FEATURES, release)
    assert np.allclose(whole.predict(NEW), parts.predict(NEW))


def test_only_released_rows_are_learnt_from():
    release = released(LABELS, RROnBins(60.0, EVEN))
    upper = np.arange(1500) < 700
    some = Regression(LinearRegression()).fit(FEATURES, release.keep(upper))
    x = FEATURES._matrix[upper]
    plain = LinearRegression().fit(x, LABELS[upper])
    assert np.allclose(some.predict(NEW), plain.predict(NEW._matrix).clip(0, 100), atol=1.0)
    with pytest.raises(ldp.InputError, match="covers no row"):
        Regression(LinearRegression()).fit(FEATURES, release.keep(np.zeros(1500, bool)))


@pytest.mark.parametrize("regressor", [Ridge(3.0), HistGradientBoostingRegressor(max_iter=20), PoissonRegressor()])
def test_a_model_is_saved_and_predicts_the_same(regressor, tmp_path):
    release = released(LABELS, RROnBins(3.0, EVEN))
    model = Regression(regressor, "absolute", max_rounds=2).fit(FEATURES, release)
    model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m")
    assert np.array_equal(again.predict(NEW), model.predict(NEW))
    probabilities = again.predict_proba(NEW)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.array_equal(probabilities, model.predict_proba(NEW))
    assert (again.space, again.guarantee, again.lineage) == (SPACE, model.guarantee, model.lineage)


def test_what_cannot_be_learnt_from_is_one_sentence():
    vault = ldp.Vault(LABELS, SPACE, ldp.Budget(9.0))
    counts = vault.release(GroupHistogram(np.zeros(1500, int), 1.0))
    classes = ldp.Vault(["a", "b"] * 750, ldp.LabelSpace(["a", "b"]), ldp.Budget(1.0))
    for release, message in (
        (counts, "has no evidence about single rows"),
        (classes.release(ldp.RandomizedResponse(1.0)), "Regression needs numbers"),
        (vault.release(DiscreteLaplace(1.0)), "1500 in the release"),
    ):
        features = FEATURES.select(np.arange(10)) if "1500" in message else FEATURES
        with pytest.raises(ldp.InputError, match=message):
            Regression(Ridge()).fit(features, release)
