import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import numpy as np
import pytest
import skops.io
from packaging.requirements import Requirement
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.tree._tree import Tree

import labeldp as ldp
from labeldp.learn.estimator_files import _TRUSTED_TYPES, read_estimator, serialize_estimator

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(200, 3))
Y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int)

SAFE = [
    LogisticRegression(),
    Ridge(),
    SGDClassifier(loss="log_loss", max_iter=50, tol=None),
    GaussianNB(),
    LinearDiscriminantAnalysis(),
    MLPClassifier((4,), solver="lbfgs", max_iter=500, tol=1.0),
    DecisionTreeClassifier(max_depth=3),
    RandomForestClassifier(3, max_depth=3),
    ExtraTreesRegressor(3, max_depth=3),
    AdaBoostClassifier(n_estimators=3),
    BaggingClassifier(n_estimators=2),
    make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=2)),
    HistGradientBoostingClassifier(max_iter=2),
    HistGradientBoostingRegressor(max_iter=2),
]


@pytest.mark.parametrize("estimator", SAFE, ids=lambda each: type(each).__name__)
def test_usual_estimators_are_saved(tmp_path, estimator):
    fitted = estimator.fit(X, Y)
    (tmp_path / "e.skops").write_bytes(serialize_estimator(fitted))
    assert np.array_equal(read_estimator(tmp_path / "e.skops").predict(X), fitted.predict(X))


@pytest.mark.parametrize(
    "estimator",
    [
        GradientBoostingClassifier(n_estimators=2),
        SVC(),
        KNeighborsClassifier(algorithm="brute"),
        HistGradientBoostingClassifier(max_iter=2, categorical_features=[2]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_compiled_code_takes_without_a_check_is_neither_written_nor_read(tmp_path, estimator):
    counts = X.copy()
    counts[:, 2] = np.arange(len(X)) % 3
    fitted = estimator.fit(counts, Y)
    with pytest.raises(ldp.InputError, match=f"This {type(estimator).__name__} cannot be saved"):
        serialize_estimator(fitted)
    skops.io.dump(fitted, tmp_path / "e.skops")
    with pytest.raises((ldp.InputError, skops.io.exceptions.UntrustedTypesFoundException)):
        read_estimator(tmp_path / "e.skops")


def boosted():
    return HistGradientBoostingClassifier(max_iter=2).fit(X, Y)


def refused(tmp_path, fitted):
    skops.io.dump(fitted, tmp_path / "e.skops")
    with pytest.raises(ldp.InputError, match=r"because it contains a .*tree"):
        read_estimator(tmp_path / "e.skops")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("left", 2**31),
        ("right", 2**31),
        ("left", 0),
        ("right", 0),
        ("feature_idx", 3),
        ("feature_idx", -1),
        ("feature_idx", 2**40),
        ("is_categorical", 1),
    ],
)
def test_nodes_of_a_boosted_tree_that_point_outside_are_refused(tmp_path, field, value):
    fitted = boosted()
    fitted._predictors[1][0].nodes[field][0] = value
    refused(tmp_path, fitted)


@pytest.mark.parametrize(
    "change",
    [
        lambda fitted: setattr(fitted._predictors[0][0], "nodes", fitted._predictors[0][0].nodes[:0]),
        lambda fitted: setattr(fitted._predictors[0][0], "nodes", fitted._predictors[0][0].nodes[:2]),
        lambda fitted: fitted._predictors[0][0].nodes["is_leaf"].__setitem__(slice(None), 0),
        lambda fitted: setattr(fitted, "n_features_in_", 1),
        lambda fitted: delattr(fitted, "n_features_in_"),
        lambda fitted: setattr(fitted._bin_mapper, "is_categorical_", np.ones(3, np.uint8)),
        lambda fitted: setattr(fitted, "_preprocessor", StandardScaler()),
    ],
    ids=["no nodes", "too few nodes", "no leaf", "fewer features", "no features", "categories", "preprocessor"],
)
def test_a_boosted_model_that_contradicts_its_trees_is_refused(tmp_path, change):
    fitted = boosted()
    change(fitted)
    refused(tmp_path, fitted)


def changed_tree(change):
    """A forest, one of whose trees has another state."""
    fitted = RandomForestClassifier(2, max_depth=3, random_state=0).fit(X, Y)
    old = fitted.estimators_[1].tree_
    state = old.__getstate__()
    state["nodes"] = state["nodes"].copy()
    change(state)
    new = Tree(old.n_features, np.array([2]), 1)
    new.__setstate__(state)
    fitted.estimators_[1].tree_ = new
    return fitted


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("left_child", 2**31),
        ("right_child", 2**31),
        ("left_child", -2),
        ("right_child", -1),
        ("left_child", 0),
        ("feature", 3),
        ("feature", -1),
    ],
)
def test_nodes_of_a_tree_that_point_outside_are_refused(tmp_path, field, value):
    refused(tmp_path, changed_tree(lambda state: state["nodes"][field].__setitem__(0, value)))


def test_a_tree_of_another_number_of_features_is_refused(tmp_path):
    fitted = RandomForestClassifier(2, max_depth=3).fit(X, Y)
    fitted.estimators_[0].n_features_in_ = 2
    refused(tmp_path, fitted)
    del fitted.estimators_[0].n_features_in_
    refused(tmp_path, fitted)


def test_the_process_survives_a_crafted_file(tmp_path):
    fitted = boosted()
    fitted._predictors[0][0].nodes["left"][0] = fitted._predictors[0][0].nodes["right"][0] = 2**31
    skops.io.dump(fitted, tmp_path / "e.skops")
    code = (
        "import sys, numpy as np; from pathlib import Path; from labeldp.learn.estimator_files import read_estimator\n"
        "try: read_estimator(Path(sys.argv[1])).predict_proba(np.zeros((5, 3)))\n"
        "except ValueError as problem: print(type(problem).__name__)"
    )
    environment = {"PYTHONPATH": str(Path(ldp.__file__).parents[1])}
    args = [sys.executable, "-c", code, tmp_path / "e.skops"]
    done = subprocess.run(args, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "InputError")


def test_nothing_is_trusted_that_is_not_there():
    from importlib import import_module

    for name in _TRUSTED_TYPES:
        module, _, kind = name.rpartition(".")
        assert hasattr(import_module(module), kind)


def test_no_version_of_skops_with_a_known_vulnerability_is_accepted():
    """CVE-2025-54412 and 54413 are fixed in 0.12, CVE-2025-54886 in 0.13."""
    (needed,) = (Requirement(line) for line in requires("labeldp") if Requirement(line).name == "skops")
    assert not any(needed.specifier.contains(version) for version in ("0.11.0", "0.12.0"))
