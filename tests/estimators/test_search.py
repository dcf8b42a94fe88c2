import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import labeldp as ldp
from labeldp.estimators.limited_vault import LimitedVault
from labeldp.learn.sklearn_learner import SklearnLearner
from labeldp.mechanisms import GroupHistogram, OneHotGaussian
from labeldp.privacy.vault import Ledger
from labeldp.recipes.registry import RECIPES, Recipe, get_recipe
from labeldp.recipes.request import Request

N = 600


@pytest.fixture(autouse=True)
def no_row_was_fitted_before(monkeypatch):
    monkeypatch.setattr("labeldp.estimators.seen_rows._FITTED_ROWS", [])


@pytest.fixture
def data():
    X = np.random.default_rng(0).normal(size=(N, 3))
    return X, np.where(X[:, 0] > 0, "yes", "no")


def search(grid, **changes):
    settings = {"epsilon": 4.0, "classes": ["no", "yes"], "recipe": "randres", "random_state": 0}
    return ldp.LabelPrivateSearchCV(ldp.LabelPrivateClassifier(**settings | changes), grid)


MODELS = {"model": [DecisionTreeClassifier(max_depth=1, max_features=1, random_state=0), LogisticRegression()]}


def test_all_settings_are_trained_within_one_epsilon_and_none_is_warned_about(data):
    X, y = data
    found = search(MODELS).fit(X, y)
    assert found.guarantee_.epsilon == 4.0
    assert found.best_params_["model"] in MODELS["model"]
    assert found.best_estimator_.model == found.best_params_["model"]
    assert (found.predict(X) == found.best_estimator_.predict(X)).all()
    assert (found.predict_proba(X) == found.best_estimator_.predict_proba(X)).all()
    assert found.classes_.tolist() == ["no", "yes"]
    assert found.score_estimate_.n_rows == N / 10
    assert is_classifier(found)
    assert found.score(X, y) > 0.7
    assert [r["mechanism"] for r in found.best_estimator_.card_.facts["releases"]] == [
        "RandomizedResponse",
        "BestCandidate",
    ]


def test_the_better_setting_is_chosen(data):
    X, _ = data
    y = np.where(X[:, 0] * X[:, 1] > 0, "yes", "no")  # a linear model cannot tell
    models = [LogisticRegression(), DecisionTreeClassifier(max_depth=6, min_samples_leaf=10, random_state=0)]
    found = search({"model": models}, epsilon=20.0).fit(X, y)
    assert found.best_params_["model"] is models[1]


@pytest.mark.parametrize("by", ["auc", "log-loss"])
def test_the_classifier_says_by_what_settings_are_chosen(data, by):
    X, y = data
    found = search(MODELS, choose_by=by).fit(X, y)
    releases = found.best_estimator_.card_.facts["releases"]
    assert [(each["mechanism"], each.get("by")) for each in releases] == [
        ("RandomizedResponse", None),
        ("HighestScore", by),
    ]
    assert found.guarantee_.epsilon == 4.0
    assert found.best_estimator_.choose_by == by


def test_options_that_change_the_learning_can_be_searched(data):
    from labeldp.learn.loop import Training

    training = Training(epochs=1, device="cpu")
    found = search({"options": [{"mixup": 0.0}, {"mixup": 4.0}]}, model="linear", training=training).fit(*data)
    assert found.guarantee_.epsilon == 4.0


def test_an_option_that_changes_the_release_is_refused_before_it_is_drawn(data, tmp_path):
    grid = {"options": [{"clusters": 4}, {"clusters": 8}]}
    settings = {"recipe": "noise-cluster", "model": LogisticRegression(), "epsilon": 1.0}
    with pytest.raises(ldp.InputError, match="another release than the first"):
        search(grid, **settings).fit(*data)
    # The budget of the data set would have allowed it.
    with pytest.raises(ldp.InputError, match="another release than the first"):
        search(grid, **settings, ledger=tmp_path / "l", budget=9.0).fit(data[0] + 1, data[1])
    assert not Ledger(tmp_path / "l").entries()  # a rehearsal finds it


def test_a_search_is_held_to_its_delta_as_to_its_epsilon():
    vault = ldp.Vault([0, 1] * 5, ldp.LabelSpace([0, 1]), ldp.Budget(4.0, 1e-5))
    limited_vault = LimitedVault(vault, 2.0, 1e-6)
    first = limited_vault.release(OneHotGaussian(0.5, 1e-6))
    assert limited_vault.release(OneHotGaussian(0.5, 1e-6)).entry == first.entry
    with pytest.raises(ldp.InputError, match="another release than the first"):
        limited_vault.release(GroupHistogram(np.zeros(10, int), 0.5, 1e-6))
    assert vault.guarantee().delta == 1e-6


def test_a_parameter_that_is_not_of_learning_is_refused(data):
    for name, values in {"epsilon": [1.0, 2.0], "recipe": ["randres", "moments"], "random_state": [0, 1]}.items():
        with pytest.raises(ldp.InputError, match=f"'{name}' cannot be searched"):
            search({name: values}).fit(*data)


def test_a_budget_that_is_spent_is_named_as_such(data, tmp_path):
    ledger = tmp_path / "l"
    search(MODELS, ledger=ledger).fit(*data)
    with pytest.raises(ldp.BudgetExceeded, match="has epsilon 0 and delta 0 left"):
        search(MODELS, ledger=ledger, random_state=1).fit(*data)


@pytest.mark.filterwarnings("ignore::labeldp.ReusedReleaseWarning")
def test_the_same_search_from_a_ledger_costs_nothing_more(data, tmp_path):
    ledger = tmp_path / "l"
    first, second = (search(MODELS, ledger=ledger).fit(*data) for _ in range(2))
    assert first.best_estimator_.release_.entry == second.best_estimator_.release_.entry


def test_a_search_needs_settings_and_rows_enough_to_choose_by(data):
    X, y = data
    with pytest.raises(ldp.InputError, match="no setting to search"):
        search([]).fit(X, y)
    with pytest.raises(ldp.InputError, match="100 rows are too few"):
        search(MODELS).fit(X[:100], y[:100])
    assert search({"model": [LogisticRegression()]}).fit(X[100:250], y[100:250]).best_params_


def test_a_search_over_auto_knows_whose_candidate_won(data):
    from labeldp.learn.loop import Training

    grid = {"training": [Training(epochs=1, device="cpu"), Training(epochs=2, device="cpu")]}
    found = search(grid, recipe="auto").fit(*data)
    assert found.best_params_["training"] in grid["training"]
    assert found.guarantee_.epsilon == 4.0


@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_best_setting_is_named_where_settings_give_different_numbers_of_models(data, monkeypatch, best):
    def steps(task, models: int = 1, depth: int = 1):
        noisy = yield Request(ldp.RandomizedResponse(task.epsilon))
        trees = [DecisionTreeClassifier(max_depth=depth, random_state=0) for _ in range(models)]
        return [SklearnLearner(tree).fit(task.features, noisy) for tree in trees]

    get_recipe("randres")
    monkeypatch.setitem(
        RECIPES, "tried", Recipe("tried", "of this test", steps, has_several_candidates=lambda task: True)
    )
    X = data[0]
    pattern = (X[:, 0] > 0) ^ (X[:, 1] > 0)  # one cut does not separate it
    grid = [{"models": 1, "depth": 1}, {"models": 3, "depth": 1}, {"models": 2, "depth": 1}]
    grid[best]["depth"] = 6
    found = search({"options": grid}, recipe="tried", epsilon=20.0).fit(X, np.where(pattern, "yes", "no"))
    assert found.best_params_["options"] == grid[best]


def test_a_second_search_warns(data):
    search(MODELS).fit(*data)
    with pytest.warns(ldp.PrivacyWarning, match="adds up"):
        clone(search(MODELS)).fit(*data)


def test_a_warning_points_to_the_code_that_called_the_search(data):
    search(MODELS).fit(*data)
    with pytest.warns(ldp.PrivacyWarning) as caught:
        search(MODELS).fit(*data)
    assert [each.filename for each in caught if each.category is ldp.PrivacyWarning] == [__file__]


def test_users_search_within_one_epsilon_of_theirs(data):
    X, y = data
    users = np.arange(N) // 2
    found = search(MODELS, labels_per_user=2).fit(X, y, users=users)
    assert (found.guarantee_.epsilon, found.guarantee_.unit) == (4.0, "user")
    releases = found.best_estimator_.card_.facts["releases"]
    assert [(each["mechanism"], each["epsilon"]) for each in releases] == [
        ("RandomizedResponse", 2.0),
        ("BestCandidate", 4.0),
    ]
    with pytest.raises(ldp.InputError, match="another release"):
        search({"options": [{"stages": 1}, {"stages": 2}]}, recipe="lp-mst", labels_per_user=2).fit(
            X + 1, y, users=users
        )


def test_a_search_over_regressors_is_refused():
    estimator = ldp.LabelPrivateRegressor(range=(0, 1, 1))
    with pytest.raises(ldp.InputError, match="for numbers, auto chooses"):
        ldp.LabelPrivateSearchCV(estimator, {"model": ["ridge", "trees"]}).fit(np.zeros((300, 1)), np.zeros(300))


def test_an_encoder_may_be_among_what_is_searched(monkeypatch):
    """The estimator itself has no encoder; each setting is checked for itself."""
    given = []

    def trained(vault, tasks, *more, **how):
        given.extend(task.encoder for task in tasks)
        raise ldp.InputError("far enough")

    monkeypatch.setattr("labeldp.estimators.base.train_best", trained)
    pictures, encoder = np.zeros((300, 1, 8, 8), np.uint8), object()
    refining = ldp.LabelPrivateClassifier(1.0, [0, 1], "refine", features="images")
    with pytest.raises(ldp.InputError, match="far enough"):
        ldp.LabelPrivateSearchCV(refining, {"encoder": [encoder]}).fit(pictures, np.arange(300) % 2)
    assert given == [encoder]
