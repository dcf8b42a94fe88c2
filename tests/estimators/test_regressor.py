"""The regressor of scikit-learn: its contract, what it stores, and what it refuses."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_regressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import labeldp as ldp

RANGE = (0, 100, 1)


@pytest.fixture(autouse=True)
def no_row_was_fitted_before(monkeypatch):
    monkeypatch.setattr("labeldp.estimators.seen_rows._FITTED_ROWS", [])


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 4))
    return X, np.clip(50 + X @ [12, -6, 4, 0] + generator.normal(0, 5, 400), 0, 100)


def private(epsilon=20.0, **options):
    return ldp.LabelPrivateRegressor(**{"epsilon": epsilon, "range": RANGE, "recipe": "bins"} | options)


@pytest.mark.filterwarnings("ignore")
def test_the_contract_of_scikit_learn():
    estimator = private(epsilon=1e7, range="infer", recipe="bins", model=Ridge(1e-3), estimate=False)
    results = check_estimator(estimator, on_fail="raise", on_skip=None)
    assert {result["status"] for result in results} <= {"passed", "skipped"}
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_pipeline_consistency", "check_array_api_input"}


def test_nothing_happens_before_fit():
    estimator = private(epsilon=-1, range=5, recipe="none such")
    assert clone(estimator).get_params()["recipe"] == "none such"
    assert is_regressor(estimator)


@pytest.mark.parametrize("recipe", ["auto", "bins", "sums", "laplace"])
def test_it_learns_and_says_its_price(data, recipe):
    X, y = data
    model = private(epsilon=4.0, recipe=recipe).fit(X, y)
    assert model.score(X, y) > 0.4  # R squared
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (4.0, 0.0)
    assert model.get_epsilon(0.0) == 4.0
    assert model.score_estimate_.rmse.low < 10 < model.score_estimate_.rmse.high + 10
    assert model.predict(X).dtype == np.float64
    assert model.n_features_in_ == 4


@pytest.mark.parametrize("loss", ["absolute", "poisson"])
def test_other_losses(data, loss):
    X, y = data
    assert private(loss=loss).fit(X, y).score(X, y) > 0.5
    with pytest.raises(ldp.InputError, match="'sums' has no option 'loss'"):
        private(loss=loss, recipe="sums").fit(X, y)


def test_intervals_cover_about_the_stated_share(data):
    X, y = data
    model = private().fit(X, y)
    low, high = model.predict_interval(X).T
    assert (low <= model.predict(X) + 1e-6).all()
    assert 0.6 < ((low <= y) & (y <= high)).mean() <= 1.0
    with pytest.raises(ldp.InputError, match="between 0 and 1"):
        model.predict_interval(X, 2.0)


def test_frames_pipelines_and_pickles(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = make_pipeline(StandardScaler(), private()).fit(X, y)
    assert model.score(X, y) > 0.5
    named = private().fit(frame, pd.Series(y, name="y"))
    assert list(named.feature_names_in_) == list("abcd")
    assert np.allclose(pickle.loads(pickle.dumps(named)).predict(frame), named.predict(frame))


def test_the_labels_are_not_stored(data):
    X, y = data
    model = private(epsilon=1.0).fit(X, y)
    stored = pickle.dumps(model)
    assert y.tobytes() not in stored
    assert np.rint(y).astype(np.int8).tobytes() not in stored


@pytest.mark.filterwarnings("ignore::labeldp.ReusedReleaseWarning")
def test_a_ledger_adds_up(data, tmp_path):
    X, y = data
    one = private(epsilon=1.0, ledger=tmp_path / "l", budget=2.0).fit(X, y)
    again = private(epsilon=1.0, ledger=tmp_path / "l", budget=2.0).fit(X, y)
    assert np.array_equal(one.predict(X), again.predict(X))  # the same request is answered by the same release
    private(epsilon=1.0, ledger=tmp_path / "l", budget=2.0, recipe="laplace").fit(X, y)
    with pytest.raises(ldp.BudgetExceeded):
        private(epsilon=0.5, ledger=tmp_path / "l", budget=2.0, recipe="laplace").fit(X, y)


def test_a_range_that_is_inferred_is_warned_of(data):
    X, y = data
    card = private(range="infer", estimate=False).fit(X, y).card_.to_markdown()
    assert "range was inferred from the labels" in card
    assert "inferred" not in private(estimate=False).fit(X + 1, y).card_.to_markdown()


def test_the_card_describes_a_regression(data):
    X, y = data
    card = private().fit(X, y).card_.to_markdown()
    assert "Root mean squared error" in card
    assert "0 to 100 in steps of 1, declared" in card
    for word in ("Accuracy", "accuracy", "Classes", "class "):
        assert word not in card


BAD = {
    "no range": ({"range": None}, "Declare the numbers"),
    "half a range": ({"range": (0, 100)}, "three numbers"),
    "text": ({"range": "wide"}, "three numbers"),
    "words": ({"range": ("a", "b", "c")}, "three numbers"),
    "step": ({"range": (0, 100, 33)}, "whole number of steps"),
    "too narrow": ({"range": (0, 10, 1)}, "outside the declared"),
    "recipe for classes": ({"recipe": "randres"}, "learns classes, and these labels are numbers"),
    "loss": ({"loss": "cubic"}, "one of squared, absolute, poisson"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(data, case, tmp_path):
    X, y = data
    options, message = BAD[case]
    with pytest.raises(ldp.InputError, match=message):
        private(**options).fit(X, y)


def test_no_message_holds_a_label():
    X = np.zeros((30, 1))
    for y in (["secret"] * 30, [1234567.0] * 30, [np.nan] * 30):
        with pytest.raises(ldp.InputError) as problem:
            private().fit(X, y)
        assert "secret" not in str(problem.value)
        assert "1234567" not in str(problem.value)
        assert problem.value.__context__ is None


def test_a_classifier_refuses_recipes_for_numbers(data):
    X, _ = data
    with pytest.raises(ldp.InputError, match="'bins' learns numbers, and these labels are classes"):
        ldp.LabelPrivateClassifier(classes=[0, 1], recipe="bins").fit(X, np.arange(400) % 2)


@pytest.mark.parametrize("recipe", ["bins", "sums", "laplace"])
def test_some_rows_may_have_no_number_where_that_is_public(data, recipe):
    X, y = data
    partial_labels = np.where(np.arange(400) % 4 == 0, None, y)
    space = ldp.LabelSpace.range(*RANGE, missing="public")
    fitted = private(epsilon=50.0, range=space, recipe=recipe).fit(X, partial_labels)
    assert np.abs(fitted.predict(X) - y).mean() < 8
    assert fitted.score_estimate_.n_rows < 40  # a tenth of those that have one
    with pytest.raises(ldp.InputError, match="A label is missing, first in row 0"):
        private().fit(X, partial_labels)
    with pytest.raises(ldp.InputError, match="must be a range of numbers"):
        private(range=ldp.LabelSpace([0, 1])).fit(X, y)


@pytest.mark.parametrize(("recipe", "epsilon"), [("sums", 0.05), ("auto", 0.25), ("auto", 4.0), ("bins", 4.0)])
def test_intervals_cover_the_stated_share_also_where_noise_is_large(recipe, epsilon):
    """Models underestimate their errors: of four labels of five, the worst of these held one in a hundred."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    coverages = []
    for seed in range(3):
        with warnings.catch_warnings(action="ignore"):
            fitted = private(epsilon, range=(0, 400, 1), recipe=recipe, random_state=seed).fit(X, y)
        low, high = fitted.predict_interval(X).T
        coverages.append(float(((low <= y) & (y <= high)).mean()))
        assert (low <= high).all()
        assert low.min() >= 0
        assert high.max() <= 400
    assert np.mean(coverages) > 0.8


def test_a_fine_range_is_held_to_the_error_without_a_table_of_all_its_values(data, monkeypatch):
    X, y = data
    monkeypatch.setattr("labeldp.recipes.training.expected_rmse", None)  # which takes such a table, after the charge
    fitted = private(2.0, range=(0, 100, 0.01), recipe="sums").fit(X, y)
    assert fitted._interval_widening == max(1, fitted.score_estimate_.careful / fitted._model.deviation)


def test_a_fine_range_is_learnt_and_predicted_without_a_table_of_all_its_numbers():
    X = np.random.default_rng(0).normal(size=(2_000, 3))
    y = np.clip(np.rint(50_000 + 10_000 * X[:, 0]), 0, 100_000)
    model = ldp.LabelPrivateRegressor(20.0, range=(0, 100_000, 1)).fit(X, y)
    ends = model.predict_interval(X[:20])
    assert ends.shape == (20, 2)
    assert (ends[:, 0] < ends[:, 1]).all()
    assert model.release_.has_row_evidence
