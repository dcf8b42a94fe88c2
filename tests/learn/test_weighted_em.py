import numpy as np
import pytest
from scripted import Seeded
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import labeldp as ldp
from labeldp.learn.weighted_em import WeightedEM
from labeldp.mechanisms import GroupHistogram, OneHotGaussian, OneHotLaplace, RRWithPrior

LOGISTIC = LogisticRegression(C=0.1, max_iter=300)


@pytest.fixture(scope="module")
def patients():
    features, labels = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(features), labels


def released(labels, mechanism, rows=None, seed=0):
    vault = ldp.Vault(labels, ldp.LabelSpace([0, 1]), ldp.Budget(mechanism.epsilon, 1e-5))
    vault._bits = Seeded(seed)
    return vault.release(mechanism, row_selection=rows)


def test_learning_from_evidence_beats_learning_from_noisy_labels(patients):
    features, labels = patients
    ours, plain = [], []
    for seed in range(5):
        release = released(labels, ldp.RandomizedResponse(0.7), seed=seed)
        ours.append((WeightedEM(LOGISTIC).fit(features, release).predict(features) == labels).mean())
        plain.append(
            (LogisticRegression(max_iter=300).fit(features, release.labels()).predict(features) == labels).mean()
        )
    assert np.mean(ours) > 0.88
    assert np.mean(ours) > np.mean(plain) + 0.03


def test_a_rare_class_is_found_at_a_small_epsilon():
    generator = np.random.default_rng(0)
    labels = (generator.random(20_000) < 0.2).astype(int)
    features = generator.normal(size=(20_000, 3)) + 3 * labels[:, None]
    release = released(labels, ldp.RandomizedResponse(0.5))
    predicted = WeightedEM(LOGISTIC).fit(features, release).predict(features)
    assert (predicted[labels == 1] == 1).mean() > 0.9


@pytest.mark.parametrize(
    "mechanism",
    [
        OneHotLaplace(2.0),
        OneHotGaussian(2.0, 1e-5),
        RRWithPrior(2.0, np.full((569, 2), 0.5)),
    ],
)
def test_any_likelihood_will_do(patients, mechanism):
    features, labels = patients
    model = WeightedEM(LOGISTIC).fit(features, released(labels, mechanism))
    assert (model.predict(features) == labels).mean() > 0.85


def test_a_prior_is_fitted_once_and_not_fed_back(patients):
    features, labels = patients
    groups = (features[:, 0] > 0).astype(int)
    release = released(labels, GroupHistogram(groups, 1.0))
    one, ten = (WeightedEM(LOGISTIC, n_rounds=r).fit(features, release).predict_proba(features) for r in (1, 10))
    assert np.array_equal(one, ten)


def test_unreleased_rows_are_left_out(patients):
    features, labels = patients
    half = np.arange(0, 569, 2)
    release = released(labels, ldp.RandomizedResponse(4.0), rows=half)
    spoiled = features.copy()
    spoiled[1::2] = 1e6
    a, b = (WeightedEM(LOGISTIC).fit(x, release).coef_ for x in (features, spoiled))
    assert np.array_equal(a, b)


def test_rows_must_match(patients):
    features, labels = patients
    with pytest.raises(ldp.InputError, match="10 rows of features and 569"):
        WeightedEM(LOGISTIC).fit(features[:10], released(labels, ldp.RandomizedResponse(1.0)))


def test_initial_probabilities_are_where_it_begins(patients):
    """With no evidence at all, one round fits the guess itself."""
    features, labels = patients
    release = released(labels, ldp.RandomizedResponse(1e-6))
    predictions = np.log(np.where(np.eye(2, dtype=bool)[labels], 0.99, 0.01))
    model = WeightedEM(LOGISTIC, n_rounds=1).fit(features, release, predictions)
    assert (model.predict(features) == labels).mean() > 0.95
    upside_down = WeightedEM(LOGISTIC, n_rounds=1).fit(features, release, predictions[:, ::-1])
    assert (upside_down.predict(features) == labels).mean() < 0.05


def test_initial_probabilities_are_weighed_against_the_evidence(patients):
    features, labels = patients
    release = released(labels, ldp.RandomizedResponse(8.0))
    wrong = np.log(np.where(np.eye(2, dtype=bool)[labels], 0.4, 0.6))
    assert (WeightedEM(LOGISTIC).fit(features, release, wrong).predict(features) == labels).mean() > 0.95


def test_initial_probabilities_of_unreleased_rows_make_no_difference(patients):
    features, labels = patients
    release = released(labels, ldp.RandomizedResponse(2.0), rows=np.arange(0, 569, 2))
    predictions = np.log(np.full((569, 2), 0.5))
    spoiled = predictions.copy()
    spoiled[1::2] = np.log([1e-9, 1.0])
    a, b = (WeightedEM(LOGISTIC, n_rounds=2).fit(features, release, g).coef_ for g in (predictions, spoiled))
    assert np.array_equal(a, b)


def test_a_prior_release_ignores_initial_probabilities(patients):
    features, labels = patients
    release = released(labels, GroupHistogram((features[:, 0] > 0).astype(int), 1.0))
    predictions = np.log(np.where(np.eye(2, dtype=bool)[labels], 0.99, 0.01))
    a, b = (WeightedEM(LOGISTIC).fit(features, release, g).coef_ for g in (None, predictions))
    assert np.array_equal(a, b)


def test_a_class_that_one_row_may_have_does_not_end_early_stopping():
    """Boosted trees hold rows out from 10,000 on, some of every class."""
    rows = np.random.default_rng(0).normal(size=(10_500, 1))
    labels = np.arange(10_500) % 2
    labels[7] = 2
    release = ldp.Vault(labels, ldp.LabelSpace([0, 1, 2]), ldp.Budget(700.0)).release(ldp.RandomizedResponse(700.0))
    fitted = WeightedEM(HistGradientBoostingClassifier(max_iter=2, random_state=0), 1).fit(rows, release)
    assert fitted.classes_.tolist() == [0, 1, 2]


def test_the_only_row_of_a_class_weighs_as_much_in_two_halves():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    labels = np.arange(40) % 2
    labels[7] = 2
    release = ldp.Vault(labels, ldp.LabelSpace([0, 1, 2]), ldp.Budget(700.0)).release(ldp.RandomizedResponse(700.0))
    plain = LogisticRegression(C=1.0).fit(rows, labels)
    fitted = WeightedEM(LogisticRegression(C=1.0), 1).fit(rows, release)
    assert np.allclose(fitted.predict_proba(rows), plain.predict_proba(rows), atol=1e-3)
