import gc
import json
import pickle
import traceback
import warnings
from types import FunctionType, MethodType, ModuleType

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import labeldp as ldp
from labeldp.data.embeddings import Embeddings
from labeldp.data.images import Images
from labeldp.privacy.vault import Ledger, identify

N = 400
CLASSES = ["no", "yes"]


@pytest.fixture(autouse=True)
def no_row_was_fitted_before(monkeypatch):
    monkeypatch.setattr("labeldp.estimators.seen_rows._FITTED_ROWS", [])


@pytest.fixture
def data():
    X = np.random.default_rng(0).normal(size=(N, 4))
    return X, np.where(X[:, 0] + 0.2 * X[:, 1] > 0, "yes", "no")


def private(**changes):
    return ldp.LabelPrivateClassifier(**{"epsilon": 5.0, "classes": CLASSES, "recipe": "moments"} | changes)


# The contract of scikit-learn


@pytest.mark.filterwarnings("ignore::labeldp.PrivacyWarning", "ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning", "ignore:invalid value encountered")
def test_the_contract_holds_without_exception():
    results = check_estimator(private(epsilon=1e7, classes="infer"), on_fail="raise", on_skip=None)
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_pipeline_consistency", "check_array_api_input"}
    assert {result["status"] for result in results} <= {"passed", "skipped"}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_the_contract_holds_for_auto():
    noisy = "auto spends part of epsilon on noisy sums, however large epsilon is, so that two fits differ"
    expected = {
        "check_classifier_data_not_an_array": noisy,
        "check_fit_idempotent": noisy,
        "check_supervised_y_2d": noisy,
    }
    estimator = ldp.LabelPrivateClassifier(epsilon=1e7, classes="infer")
    check_estimator(estimator, expected_failed_checks=expected, on_fail="raise", on_skip=None)


def test_nothing_happens_before_fit():
    estimator = private(epsilon=-1, classes=5, recipe="none such")
    assert clone(estimator).get_params()["recipe"] == "none such"
    assert is_classifier(estimator)


def test_a_pipeline_with_a_scaler(data):
    X, y = data
    model = make_pipeline(StandardScaler(), private(random_state=0)).fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.predict_proba(X).shape == (N, 2)


def test_a_pipeline_whose_steps_give_pandas(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), private()).fit(frame, y)
    assert model[-1].feature_names_in_.tolist() == list("abcd")
    assert model.score(frame, y) > 0.8


def test_a_fitted_estimator_can_be_pickled_and_cloned(data):
    X, y = data
    model = private().fit(X, y)
    read = pickle.loads(pickle.dumps(model))
    assert (read.predict_proba(X) == model.predict_proba(X)).all()
    assert read.guarantee_ == model.guarantee_
    assert read.card_ == model.card_
    assert not hasattr(clone(model), "guarantee_")
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize("model", ["mlp", LogisticRegression()])
def test_models_of_every_kind_can_be_pickled(data, model):
    X, y = data
    training = ldp_training(epochs=1)
    fitted = private(recipe="randres", model=model, training=training, estimate=False).fit(X, y)
    assert np.allclose(pickle.loads(pickle.dumps(fitted)).predict_proba(X), fitted.predict_proba(X))


def ldp_training(**settings):
    from labeldp.learn.loop import Training

    return Training(device="cpu", **settings)


# Classes


def test_classes_must_be_declared(data):
    for classes, said in ((None, "Declare every class"), ("no,yes", "must be a list"), (5, "Declare the classes as")):
        with pytest.raises(ldp.InputError, match=said):
            private(classes=classes).fit(*data)


def test_inferred_classes_are_marked_in_the_card(data):
    warnings_text = "\n".join(private(classes="infer").fit(*data).card_.sections["Warnings"])
    assert "inferred from the labels" in warnings_text
    assert private(ledger=None, classes=CLASSES).fit(-data[0], data[1]).card_.sections["Warnings"] == ["None."]


def test_columns_of_probabilities_go_by_sorted_classes_as_scorers_expect(data):
    X, y = data
    model = private(classes=["yes", "no", "maybe"], epsilon=50.0).fit(X, y)
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    assert (model.classes_[model.predict_proba(X).argmax(axis=1)] == y).mean() > 0.9


def test_a_class_that_never_occurs_is_allowed(data):
    X, _ = data
    model = private(classes=[0, 1, 7]).fit(X, (X[:, 0] > 0).astype(int))
    assert model.predict(X).dtype.kind == "i"


# What is stored


def test_labels_are_not_stored():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(N, 3))
    names = np.array(["ALPHA", "BRAVO", "CANARY"])
    codes = generator.integers(0, 3, N)
    model = private(classes=names.tolist(), epsilon=0.5).fit(X, names[codes])
    stored = pickle.dumps(model)
    for kind in (np.int8, np.int16, np.int32, np.int64, np.float32, np.float64):
        assert codes[:64].astype(kind).tobytes() not in stored
    assert names[codes][:16].tobytes() not in stored
    for found in arrays_within(model):
        assert not (found.shape[:1] == (N,) and found.dtype != object and (found.reshape(N, -1)[:, 0] == codes).all())
        assert found.dtype.kind not in "OU" or len(found) < N


def arrays_within(root):
    """Give every array that can be reached from an object."""
    seen, left = set(), [root]
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, ModuleType | type | FunctionType | MethodType | str | bytes):
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.Tensor):
            thing = thing.detach().cpu().numpy()
        if isinstance(thing, np.ndarray):
            yield thing
        if isinstance(thing, list | tuple) and len(thing) == N:
            yield np.array([*thing, None], object)[:-1]
        left += [vars(thing)] if hasattr(thing, "__dict__") else []
        left += gc.get_referents(thing)


def test_the_release_is_what_the_model_was_trained_on(data):
    model = private(recipe="randres", model=LogisticRegression(), epsilon=1.0).fit(*data)
    assert model.release_.mechanism == "RandomizedResponse"
    assert model.release_.guarantee.epsilon == 1.0
    assert (model.release_.labels() == -1).sum() == N / 10  # the rows that score


def test_no_message_holds_a_label(data):
    X, _ = data
    secret = np.full(N, "SECRET-LABEL", object)
    some = np.where(np.arange(N) == 7, "SECRET-LABEL", "no")
    numbers = np.where(np.arange(N) == 7, 31337, 0)
    wrong = {
        "outside": (some, CLASSES),
        "all outside": (secret, CLASSES),
        "short": (some[:-1], CLASSES),
        "missing": (np.where(np.arange(N) == 7, None, secret), CLASSES),
        "not a number": (np.where(np.arange(N) == 7, np.nan, 31337.0), [0, 1]),
        "two columns": (np.c_[some, some], CLASSES),
        "complex": (numbers + 31337j, CLASSES),
        "other type": (numbers, CLASSES),
        "text for numbers": (secret, [0, 1]),
        "mixed": (np.where(np.arange(N) == 7, 31337, secret), CLASSES),
        "mixed list": ([31337, *secret[1:].tolist()], CLASSES),
        "ragged": ([["SECRET-LABEL"], *secret[1:].tolist()], CLASSES),
        "scalar": ("SECRET-LABEL", CLASSES),
        "none": (None, CLASSES),
        "dictionary": ({"a": "SECRET-LABEL"}, CLASSES),
        "inferred one class": (secret, "infer"),
        "inferred mixed": (np.where(np.arange(N) == 7, 31337, secret), "infer"),
        "inferred missing": (np.where(np.arange(N) == 7, None, secret), "infer"),
        "inferred fractions": (np.linspace(31337, 31338, N), "infer"),
    }
    for name, (labels, classes) in wrong.items():
        with pytest.raises((ValueError, TypeError)) as caught:
            private(classes=classes).fit(X, labels)
        for problem in chain(caught.value):
            assert "SECRET" not in str(problem), name
            assert "31337" not in str(problem), name


def chain(problem):
    """Give an exception and all that it came from."""
    while problem is not None:
        yield problem
        yield from traceback.TracebackException.from_exception(problem, capture_locals=False).format_exception_only()
        problem = problem.__cause__ or problem.__context__


# Rows of every kind


@pytest.fixture
def people():
    generator = np.random.default_rng(1)
    age = generator.normal(size=N)
    frame = pd.DataFrame(
        {
            "age": np.where(np.arange(N) % 9 == 0, np.nan, age),
            "job": pd.Categorical(np.where(age > 0, "chief", "clerk")),
            "city": pd.Series(np.where(np.arange(N) % 5 == 0, None, "Ulm"), dtype="string"),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N), unit="D"),
            "member": pd.array([True, None] * (N // 2), dtype="boolean"),
        }
    )
    return frame, np.where(age > 0, "yes", "no")


@pytest.mark.parametrize("make", [lambda frame: frame, pl.from_pandas], ids=["pandas", "polars"])
def test_frames_with_categories_and_missing_values(people, make):
    frame, y = people
    model = private().fit(make(frame), y)
    assert model.feature_names_in_.tolist() == list(frame)
    assert model.n_features_in_ == 5
    assert (model.predict(make(frame)) == y).mean() > 0.9
    fresh = frame.head(3).assign(job=["pilot", None, "chief"], age=[np.nan, 99.0, 0.0], city=None)
    assert model.predict(make(fresh)).shape == (3,)


@pytest.mark.parametrize("make", [lambda frame: frame, pl.from_pandas], ids=["pandas", "polars"])
def test_columns_are_held_to_those_of_the_training(people, make):
    frame, y = people
    model = private().fit(make(frame), y)
    with pytest.raises(ValueError, match="same order"):
        model.predict(make(frame[list(frame)[::-1]]))
    with pytest.raises(ValueError, match="now missing:\n- job"):
        model.predict(make(frame.drop(columns="job")))
    with pytest.raises(ldp.InputError, match="Column 'age' held numbers or dates in the training table"):
        model.predict(make(frame.assign(age="old")))


def test_a_frame_and_a_matrix_of_the_same_columns_can_stand_for_each_other(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    named, unnamed = private().fit(frame, y), private().fit(X + 1e-9, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert (named.predict(X) == named.predict(frame)).all()
    with pytest.warns(UserWarning, match="has feature names"):
        assert (unnamed.predict(frame) == unnamed.predict(X)).all()
    with pytest.warns(UserWarning, match="has feature names"), pytest.raises(ValueError, match="X has 3 features"):
        unnamed.predict(frame[list("abc")])


def test_frames_that_cannot_be_read_are_named_in_one_sentence(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    with pytest.raises(ldp.InputError, match="give each column one type"):
        private().fit(frame.assign(a=[1, "x"] * (N // 2)), y)
    with pytest.raises(ldp.InputError, match="Column 'a' holds List"):
        private().fit(frame.assign(a=[[1]] * N), y)
    with pytest.raises(ldp.InputError, match="Embeddings must be numbers"):
        private(features="embeddings").fit(frame.assign(a="x"), y)


def test_missing_numbers_are_filled_in_tables_and_refused_in_embeddings(data):
    X, y = data
    X[::7, 2] = np.nan
    assert private().fit(X, y).score(X, y) > 0.8
    with pytest.raises(ValueError, match="contains NaN"):
        private(features="embeddings").fit(X, y)


def test_embeddings(data):
    X, y = data
    model = private(features="embeddings", delta=1e-6).fit(X.astype(np.float16), y)
    assert model.score(X.astype(np.float16), y) > 0.7
    with pytest.raises(ValueError, match="X has 3 features"):
        model.predict(X[:, :3])


def test_images_with_channels_first_or_last(data):
    _, y = data
    pixels = np.random.default_rng(0).integers(0, 100, (N, 8, 8, 1), np.uint8)
    pixels[y == "yes"] += 100
    model = private().fit(pixels, y)
    assert model.n_features_in_ == 64
    assert model.score(pixels, y) > 0.9
    assert (model.predict(pixels.transpose(0, 3, 1, 2)) == model.predict(pixels)).all()
    for wrong in (pixels[:, :4, :4], pixels / 255, pixels.reshape(N, 64)):
        with pytest.raises(ldp.InputError):
            model.predict(wrong)


def test_features_are_taken_as_they_are(data):
    X, y = data
    embeddings = Embeddings(X.astype(np.float32))
    model = private().fit(embeddings, y)
    assert model.score(embeddings, y) > 0.7
    with pytest.raises(ldp.InputError, match="give it Features"):
        model.predict(X)
    with pytest.raises(ldp.InputError, match="2 columns, and 4 are expected"):
        model.predict(embeddings.__class__(X[:, :2].astype(np.float32)))
    pixels = np.random.default_rng(0).integers(0, 255, (N, 1, 8, 8), np.uint8)
    assert private().fit(Images(pixels), y).n_features_in_ == 64


def test_one_label_for_each_row(data):
    X, y = data
    with pytest.raises(ldp.InputError, match="X has 400 rows and y has 399 labels"):
        private().fit(X, y[:-1])


@pytest.mark.parametrize("form", [list, pl.Series, pd.Series, lambda y: pd.Series(y, dtype="category")])
def test_labels_in_any_container(data, form):
    X, y = data
    assert private(epsilon=50.0).fit(X, form(y)).score(X, y) > 0.9


# What is guaranteed


def test_the_guarantee_is_the_one_asked_for(data):
    model = private(epsilon=0.5, delta=1e-6).fit(*data)
    assert (model.guarantee_.epsilon, model.guarantee_.delta, model.guarantee_.unit) == (0.5, 1e-6, "label")
    assert model.get_epsilon(1e-6) == model.get_epsilon(1e-3) == 0.5
    assert model.get_epsilon(1e-9) == float("inf")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": 0}, "epsilon must be"),
        ({"epsilon": float("nan")}, "epsilon must be"),
        ({"epsilon": "1"}, "epsilon must be"),
        ({"delta": 1}, "delta must be"),
        ({"recipe": "none such"}, "There is no recipe 'none such'"),
        ({"options": {"clusters": 3}}, "has no option 'clusters'"),
        ({"features": "sounds"}, "features must be"),
        ({"choose_by": "recall"}, "There is no criterion 'recall'"),
        ({"choose_by": "auc", "classes": ["no", "yes", "perhaps"]}, "AUC is for two classes"),
        ({"recipe": "randres", "model": "none such"}, "There is no model"),
    ],
)
def test_a_wrong_setting_is_one_sentence(data, changes, said):
    with pytest.raises(ldp.InputError, match=said):
        private(**changes).fit(*data)


def test_a_fit_that_failed_before_the_vault_does_not_count_as_one(data):
    X, y = data
    with pytest.raises(ldp.InputError):
        private().fit(X, np.full(N, "other"))
    with pytest.raises(ldp.InputError):
        private(recipe="none such").fit(X, y)
    private().fit(X, y)


def test_the_score_is_measured_on_other_rows_and_can_be_left_out(data):
    X, y = data
    model = private(random_state=0).fit(X, y)
    estimate = model.score_estimate_
    assert estimate.n_rows == N / 10
    assert estimate.accuracy.low <= model.score(X, y) <= estimate.accuracy.high + 0.1
    without = private(estimate=False).fit(-X, y)
    assert without.score_estimate_ is None
    assert without.card_.sections["How good"] == ["Not measured: there were no held-out rows."]


def test_the_card_can_be_saved_as_a_page_as_text_and_as_data(data, tmp_path):
    card = private(epsilon=0.7).fit(*data).card_
    for name in ("card.html", "card.md", "card.json"):
        card.save(tmp_path / name)
    assert "Epsilon 0.7 and delta 0" in (tmp_path / "card.html").read_text()
    assert "Epsilon 0.7 and delta 0" in (tmp_path / "card.md").read_text()
    assert json.loads((tmp_path / "card.json").read_text())["guarantee"]["epsilon"] == 0.7


@pytest.mark.filterwarnings("ignore::labeldp.ReusedReleaseWarning")
def test_random_state_fixes_training_but_not_noise(data, tmp_path):
    X, y = data
    noisy = {"recipe": "randres", "model": LogisticRegression(), "epsilon": 1.0, "random_state": 0}
    first, second = (private(**noisy).fit(X + i * 1e-9, y) for i in range(2))
    assert ((first.release_.labels() < 0) == (second.release_.labels() < 0)).all()  # the same rows are set aside
    assert (first.release_.labels() != second.release_.labels()).any()
    assert not np.allclose(first.predict_proba(X), second.predict_proba(X))
    # From one ledger both learn from the same release, and the training has a seed.
    settings = {"recipe": "randres", "model": "mlp", "training": ldp_training(epochs=1), "ledger": tmp_path / "ledger"}
    third, fourth = (private(**settings, random_state=0).fit(X + 1, y) for _ in range(2))
    assert (third.predict_proba(X) == fourth.predict_proba(X)).all()
    assert third.release_.entry == fourth.release_.entry


def test_n_jobs_is_for_the_fit_alone(data):
    before = torch.get_num_threads()
    model = private(n_jobs=1).fit(*data)
    assert model.predict(data[0]).shape == (N,)
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="n_jobs"):
        private(n_jobs=0).fit(-data[0], data[1])


# What adds up


def test_a_ledger_adds_up_over_fits(data, tmp_path):
    ledger = tmp_path / "people.ledger"
    private(epsilon=1.0, ledger=ledger, budget=2.5, random_state=0).fit(*data)
    model = private(epsilon=1.0, ledger=ledger, random_state=1).fit(*data)  # the total stays what the ledger says
    assert model.guarantee_.epsilon == 1.0
    assert "epsilon 2 and delta 0 in all" in model.card_.to_markdown()
    with pytest.raises(ldp.BudgetExceeded, match=r"costs epsilon 1 .* has epsilon 0\.5"):
        private(epsilon=1.0, ledger=ledger, random_state=2).fit(*data)
    with pytest.raises(ldp.LedgerError, match="belongs to other data"):
        private(epsilon=0.1, ledger=ledger).fit(data[0] + 1, data[1])


def test_a_larger_epsilon_does_not_raise_the_budget_of_a_ledger(data, tmp_path):
    private(epsilon=0.5, ledger=tmp_path / "l").fit(*data)
    with pytest.raises(ldp.BudgetExceeded, match="epsilon 0 and delta 0 left"):
        private(epsilon=0.6, ledger=tmp_path / "l").fit(*data)
    assert Ledger(tmp_path / "l").facts()["budget"]["epsilon"] == 0.5


def test_a_budget_may_have_a_delta(data, tmp_path):
    settings = {"epsilon": 1.0, "delta": 1e-6, "ledger": tmp_path / "l", "budget": ldp.Budget(2.0, 2e-6)}
    for seed in range(2):
        private(**settings, random_state=seed).fit(*data)
    with pytest.raises(ldp.BudgetExceeded):
        private(**settings, random_state=2).fit(*data)


@pytest.mark.parametrize(("recipe", "delta"), [("randres", 0.0), ("moments", 0.0), ("moments", 1e-6)])
def test_a_budget_may_add_up_renyi_divergences(data, recipe, delta):
    model = private(recipe=recipe, epsilon=1.0, delta=delta, budget=ldp.Budget(8.0, 1e-5, "rdp")).fit(*data)
    assert (model.guarantee_.epsilon, model.guarantee_.delta) == (1.0, delta)


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, lambda X: pl.DataFrame(X, [f"c{i}" for i in range(4)])])
@pytest.mark.filterwarnings("ignore::labeldp.ReusedReleaseWarning")
def test_the_ledger_knows_the_same_rows_again(data, tmp_path, make):
    X, y = data
    rows = make(X)
    if isinstance(rows, pd.DataFrame):
        rows.columns = list("abcd")
    first, again = (private(ledger=tmp_path / "l", random_state=0).fit(rows, y) for _ in range(2))
    assert first.release_.entry == again.release_.entry


def test_every_reuse_of_a_stored_release_is_warned_of(data, tmp_path):
    private(ledger=tmp_path / "l").fit(*data)
    with pytest.warns(ldp.ReusedReleaseWarning, match="used again at no cost: labels that changed since are not in"):
        again = private(ledger=tmp_path / "l").fit(*data)
    assert "used again at no cost" in again.card_.text("md")


def test_a_second_secret_is_not_answered_by_the_releases_of_the_first(data, tmp_path):
    """Same X, same ledger, other labels: the second fit returned the model and the score of the first."""
    X, y = data
    other = np.roll(y, 7)
    first = private(epsilon=4.0, ledger=tmp_path / "l", budget=9.0).fit(X, pd.Series(y, name="ill"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ldp.ReusedReleaseWarning)
        for fit in (
            lambda model: model.fit(X, pd.Series(other, name="rich")),
            lambda model: model.set_params(label="married", epsilon=1.0).fit(X, other),
        ):
            second = fit(private(epsilon=4.0, ledger=tmp_path / "l"))
            assert second.release_.entry != first.release_.entry
    with pytest.raises(ldp.BudgetExceeded):  # the costs of all three add up
        private(epsilon=0.5, ledger=tmp_path / "l", label="old").fit(X, y)
    entries = Ledger(tmp_path / "l").entries()
    assert {entry.label for entry in entries} == {"ill", "rich", "married"}


@pytest.mark.parametrize(
    ("make", "declared", "name"),
    [
        (lambda y: y, None, None),
        (lambda y: pd.Series(y), None, None),
        (lambda y: pd.Series(y, name="ill"), None, "ill"),
        (lambda y: pd.Series(y, name=0), None, "0"),
        (lambda y: pl.Series("ill", y), None, "ill"),
        (lambda y: pd.DataFrame({"ill": y}), None, "ill"),
        (lambda y: pd.Series(y, name="ill"), "rich", "rich"),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_the_ledger_has_the_name_of_the_label(data, tmp_path, make, declared, name):
    X, y = data
    private(ledger=tmp_path / "l", label=declared).fit(X, make(y))
    assert {entry.label for entry in Ledger(tmp_path / "l").entries()} == {name}


@pytest.mark.parametrize("names", [(None, "ill"), ("ill", None)])
def test_a_label_without_a_name_matches_every_name(data, tmp_path, names):
    X, y = data
    first = private(ledger=tmp_path / "l", label=names[0]).fit(X, y)
    with pytest.warns(ldp.ReusedReleaseWarning):
        again = private(ledger=tmp_path / "l", label=names[1]).fit(X, y)
    assert first.release_.entry == again.release_.entry


def test_a_label_name_is_a_text(data):
    with pytest.raises(ldp.InputError, match="label is the name of the label"):
        private(label=5).fit(*data)


def test_the_identity_of_a_frame_does_not_hang_on_hashes_of_polars(data):
    from labeldp.estimators.seen_rows import fingerprint

    frame = pl.DataFrame(data[0], [f"c{i}" for i in range(4)])
    assert fingerprint(frame)[1] == identify("any", "y", frame.to_arrow().to_batches()).digest


def test_refitting_without_a_ledger_warns(data):
    X, y = data
    private().fit(X, y)
    with pytest.warns(ldp.PrivacyWarning, match="adds up: give one ledger="):
        private().fit(X, y)
    with pytest.warns(ldp.PrivacyWarning):
        private().fit(X[:50], y[:50])
    with pytest.warns(ldp.PrivacyWarning):
        private(features="embeddings").fit(X[::-1], y[::-1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ldp.PrivacyWarning)
        private().fit(X + 1, y)


@pytest.mark.filterwarnings("ignore::labeldp.ReusedReleaseWarning")
def test_another_ledger_does_not_know_what_was_fitted_before(data, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ldp.PrivacyWarning)
        for _ in range(2):
            private(ledger=tmp_path / "one").fit(*data)
    with pytest.warns(ldp.PrivacyWarning, match="adds up"):
        model = private(ledger=tmp_path / "two").fit(*data)
    assert "states the last training alone" in model.card_.text("md")


def test_a_grid_search_warns(data):
    grid = GridSearchCV(private(), {"recipe": ["moments"]}, cv=2)
    with pytest.warns(ldp.PrivacyWarning):
        grid.fit(*data)


def test_classifiers_have_names_here_too(data):
    fitted = private(recipe="randres", model="logistic").fit(*data)
    assert fitted.score(*data) > 0.8


@pytest.mark.filterwarnings("ignore::labeldp.ReusedReleaseWarning")
def test_a_fit_that_is_repeated_asks_for_nothing_new(data, tmp_path):
    for _ in range(2):
        private(epsilon=1.0, recipe="auto", ledger=tmp_path / "l").fit(*data)
    requests = [entry.request for entry in Ledger(tmp_path / "l").entries()]
    assert len(set(requests)) == len(requests)


def test_labels_left_among_the_features_are_refused():
    frame = pd.DataFrame({"a": np.arange(300.0), "y": ["no", "yes"] * 150})
    with pytest.raises(ldp.InputError, match="X holds the column of the labels, 'y'"):
        private().fit(frame, frame["y"])


def test_a_pickled_estimator_does_not_carry_the_features():
    X = np.random.default_rng(0).normal(size=(3000, 40))
    fitted = private().fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    assert len(pickle.dumps(fitted)) < X.nbytes / 4


def test_cards_warn_of_much_and_of_fits_that_add_up(data):
    loud = private(epsilon=50.0).fit(*data)
    assert any("hardly protected" in sentence for sentence in loud.card_.facts["warnings"])
    with pytest.warns(ldp.PrivacyWarning):
        again = private().fit(*data)
    assert any("adds up" in sentence for sentence in again.card_.facts["warnings"])


# Users who own several rows


USERS = [f"user {i % 150}" for i in range(N)]


def test_users_are_protected_as_a_whole(data):
    X, y = data
    fitted = private(labels_per_user=2).fit(X, y, users=USERS)
    assert (fitted.guarantee_.epsilon, fitted.guarantee_.unit) == (5.0, "user")
    about = fitted.card_.facts["users"]
    assert (about["count"], about["labels_per_user"], about["rows"], about["dropped"]) == (150, 2, 300, 100)
    assert about["label"]["epsilon"] == 2.5
    assert "At most 2 labels of each user took part; 100 of 400 rows were dropped" in fitted.card_.to_markdown()
    assert fitted.score(X, y) > 0.7


def test_users_with_one_row_each_need_no_number(data):
    X, y = data
    assert private().fit(X, y, users=np.arange(N)).guarantee_.unit == "user"


def test_users_with_several_rows_do_and_nothing_is_spent_before(data, tmp_path):
    X, y = data
    with pytest.raises(ldp.InputError, match=r"labels_per_user.* 1 keeps 150, 2 keeps 300, and 3 keeps all"):
        private(ledger=tmp_path / "l").fit(X, y, users=USERS)
    assert not (tmp_path / "l").exists()
    with pytest.raises(ldp.InputError, match="say who owns each row"):
        private(labels_per_user=2).fit(X, y)
    with pytest.raises(ldp.InputError, match="owner of each of the 400 rows"):
        private(labels_per_user=2).fit(X, y, users=USERS[:-1])


def test_users_can_be_routed_through_a_pipeline(data):
    X, y = data
    with config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), private(labels_per_user=3).set_fit_request(users=True))
        assert pipe.fit(X, y, users=USERS)[-1].guarantee_.unit == "user"


def test_a_classifier_without_sample_weights_is_refused_before_anything_is_spent(tmp_path):
    from sklearn.neighbors import KNeighborsClassifier

    X, y = np.random.default_rng(0).normal(size=(300, 2)), ["no", "yes", "yes"] * 100
    path = tmp_path / "ledger.db"
    with pytest.raises(ldp.InputError, match="KNeighborsClassifier takes no sample weights"):
        ldp.LabelPrivateClassifier(
            1.0, classes=["no", "yes"], recipe="randres", model=KNeighborsClassifier(), ledger=path
        ).fit(X, y)
    assert not Ledger(path).entries()


def test_some_rows_may_have_no_label_where_that_is_public():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    y = np.where(X[:, 0] > 0, "yes", "no").astype(object)
    partial_labels = np.where(np.arange(1500) % 3 == 0, None, y)
    fitted = ldp.LabelPrivateClassifier(
        2.0, classes=ldp.LabelSpace(["yes", "no"], missing="public"), recipe="moments"
    ).fit(X, partial_labels)
    assert (fitted.predict(X) == y).mean() > 0.9
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert 70 < fitted.score_estimate_.n_rows < 130  # a tenth of those that have one
    with pytest.raises(ldp.InputError, match="A label is missing, first in row 0"):
        ldp.LabelPrivateClassifier(2.0, classes=["no", "yes"]).fit(X, partial_labels)


def test_frames_that_cannot_be_read_are_one_sentence():
    import pandas as pd

    rows = np.arange(40.0).reshape(20, 2)
    with pytest.raises(ldp.InputError, match="two columns of one name"):
        ldp.LabelPrivateClassifier(1.0, classes=[0, 1]).fit(pd.DataFrame(rows, columns=["a", "a"]), [0, 1] * 10)
    with pytest.raises(ldp.InputError, match=r"give X\.collect\(\)"):
        ldp.LabelPrivateClassifier(1.0, classes=[0, 1]).fit(pl.DataFrame(rows).lazy(), [0, 1] * 10)


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_the_label_column_among_the_features_is_noticed_also_where_y_is_a_frame(frame):
    import pandas as pd

    table = pd.DataFrame({"x": np.arange(40.0), "y": [0, 1] * 20})
    table = table if frame == "pandas" else pl.from_pandas(table)
    with pytest.raises(ldp.InputError, match="X holds the column of the labels, 'y'"):
        ldp.LabelPrivateClassifier(1.0, classes=[0, 1]).fit(table, table[["y"]])


@pytest.mark.filterwarnings("ignore::labeldp.ReusedReleaseWarning")
def test_rows_that_a_ledger_knows_are_warned_of_where_there_is_none(tmp_path):
    X, y = np.random.default_rng(7).normal(size=(300, 2)), [0, 1, 1] * 100
    known = {"classes": [0, 1], "recipe": "moments", "estimate": False}
    ldp.LabelPrivateClassifier(1.0, **known, ledger=tmp_path / "l").fit(X, y)
    ldp.LabelPrivateClassifier(1.0, **known, ledger=tmp_path / "l").fit(X, y)
    with pytest.warns(ldp.PrivacyWarning, match="fitted before in this process"):
        ldp.LabelPrivateClassifier(1.0, **known).fit(X, y)


@pytest.mark.parametrize(
    ("changes", "rows", "said"),
    [
        ({"training": {"epochs": 2}}, (40, 4), r"training must be a labeldp\.learn\.Training"),
        ({"features": "images"}, (40, 8, 8), r"of shape \(rows, channels, height, width\)"),
        ({"recipe": "moments", "model": "trees"}, (40, 4), "a linear model of its own: leave the model out"),
        ({"choose_by": "f1"}, (40, 4), "There is no criterion 'f1'"),
    ],
)
def test_what_could_not_be_used_is_refused_before_anything_is_spent(changes, rows, said, tmp_path):
    model = ldp.LabelPrivateClassifier(1.0, [0, 1], ledger=tmp_path / "l", **changes)
    with pytest.raises(ldp.InputError, match=said):
        model.fit(np.zeros(rows), np.arange(40) % 2)
    assert not (tmp_path / "l").exists()


def test_what_a_notebook_shows_is_short(data):
    fitted = private().fit(*data)
    for shown in (fitted.release_, fitted.card_):
        assert len(repr(shown)) < 200
    assert "Guarantee(epsilon=" in repr(fitted.release_)


def test_declared_classes_keep_their_order_and_numbers_of_a_range_have_their_own_estimator():
    X = np.random.default_rng(0).normal(size=(300, 3))
    stars = np.clip(np.rint(3 + X[:, 0]), 1, 5).astype(int)
    ordered = ldp.LabelSpace([1, 2, 3, 4, 5], ordered=True)
    options = {"loss": "squared"}
    clf = ldp.LabelPrivateClassifier(5.0, ordered, recipe="lp-mst", options=options, model="linear").fit(X, stars)
    assert clf.release_.space.ordered
    with pytest.raises(ldp.InputError, match="take LabelPrivateRegressor"):
        ldp.LabelPrivateClassifier(5.0, ldp.LabelSpace.range(1, 5, 1)).fit(X, stars)


def test_few_labels_among_many_rows_are_learnt_from_and_none_is_paid_for_in_vain():
    space = ldp.LabelSpace(["no", "yes"], missing="public")
    for seed in range(4):
        X = np.random.default_rng(seed).normal(size=(1000, 3))
        y = [("no", "yes")[int(x[0] > 0)] if place % 50 == 0 else None for place, x in enumerate(X)]
        clf = ldp.LabelPrivateClassifier(5.0, space, recipe="randres", random_state=seed, model="logistic").fit(X, y)
        assert clf.score_estimate_ is None  # 20 labels are too few to set some aside
        assert (clf.release_.labels() >= 0).sum() == 20


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (RidgeClassifier(), "RidgeClassifier gives no probabilities"),
        (LogisticRegression, r"the class LogisticRegression: give an instance, LogisticRegression\(\)"),
    ],
)
def test_a_model_that_cannot_be_trained_costs_nothing(data, tmp_path, model, said):
    clf = ldp.LabelPrivateClassifier(2.0, ["no", "yes"], "randres", model=model, ledger=tmp_path / "m.ledger")
    with pytest.raises(ldp.InputError, match=said):
        clf.fit(*data)
    assert Ledger(tmp_path / "m.ledger").entries() == []


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("make", [np.zeros, lambda shape: pl.DataFrame(np.zeros(shape))], ids=["array", "frame"])
def test_too_few_rows_are_one_sentence(make, rows):
    model = ldp.LabelPrivateClassifier(1.0, ["no", "yes"])
    with pytest.raises(ldp.InputError, match=f"X has {rows} samples?: give at least 2 rows"):
        model.fit(make((rows, 3)), ["no"] * rows)
