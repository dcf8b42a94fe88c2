"""What recipes are compared with: a baseline that a user would write by hand, and learners on clean labels."""

import numpy as np
import polars as pl
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge

from grid.methods import FEW_CLASSES

_CATEGORIES = 200  # of a column that have a code of their own


def ordinal(problem):
    """Return training and test rows as matrices of numbers, categories by their rank."""
    if not isinstance(problem.train, pl.DataFrame):
        return problem.train.astype(np.float32), problem.test.astype(np.float32)
    columns = [_ordinal_column(problem.train[name], problem.test[name]) for name in problem.train.columns]
    return tuple(np.column_stack(part) for part in zip(*columns, strict=True))


def _ordinal_column(train, test):
    if train.dtype.is_numeric():
        return [part.cast(pl.Float64).fill_null(np.nan).to_numpy() for part in (train, test)]
    common = train.drop_nulls().value_counts(sort=True)[train.name].head(_CATEGORIES).to_list()
    codes = {value: float(rank) for rank, value in enumerate(common)}
    return [
        part.replace_strict(codes, default=len(codes) + 1.0, return_dtype=pl.Float64).to_numpy()
        for part in (train, test)
    ]


def twenty_lines(problem, epsilon, seed):
    """Return a function that fits by randomized response and gives test probabilities, the channel inverted.

    The noise has a seed: these labels are no secret.
    """
    random, classes, rows = np.random.default_rng(seed), len(problem.space), len(problem.labels)
    right = np.exp(epsilon) / (np.exp(epsilon) + classes - 1)
    other = (problem.labels + random.integers(1, classes, rows)) % classes
    noisy = np.where(random.random(rows) < right, problem.labels, other)
    train, test = ordinal(problem)
    if classes <= FEW_CLASSES:
        settings = {"max_iter": 60, "learning_rate": 0.08, "max_leaf_nodes": 15, "l2_regularization": 10.0}
        leaf = max(1, min(200, rows // 20))
        model = HistGradientBoostingClassifier(**settings, min_samples_leaf=leaf, random_state=seed)
    else:
        model = LogisticRegression(max_iter=300)
    model.fit(train, noisy)

    def predict():
        found = np.zeros((len(test), classes))
        found[:, model.classes_] = model.predict_proba(test)
        wrong = (1 - right) / (classes - 1)
        found = np.maximum((found - wrong) / (right - wrong), 1e-4)
        return found / found.sum(axis=1, keepdims=True)

    return predict


def clean_trees(problem, seed):
    """Fit LightGBM's defaults to clean labels, and return a function that predicts for the test rows."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    train, test = ordinal(problem)
    kind = LGBMRegressor if problem.numbers else LGBMClassifier
    return _fitted(kind(n_jobs=1, random_state=seed, verbose=-1), problem, train, test)


def clean_linear(problem, seed):
    """Fit logistic or ridge regression to clean labels of standardised rows, and return a function that predicts."""
    features = problem.features()
    mean, deviation = features.moments()
    train, test = ((_matrix(each) - mean) / deviation for each in (features, problem.test_features(features)))
    model = Ridge(alpha=float(train.shape[1])) if problem.numbers else LogisticRegression(C=0.1, max_iter=300)
    return _fitted(model, problem, train, test)


def _fitted(model, problem, train, test):
    model.fit(train, problem.labels)
    if problem.numbers:
        return lambda: model.predict(test)

    def predict():
        found = np.zeros((len(test), len(problem.space)))
        found[:, model.classes_] = model.predict_proba(test)
        return found

    return predict


def _matrix(features):
    return features.matrix(np.arange(len(features)))
