import lightgbm
import numpy as np
import polars as pl
import pytest

import labeldp as ldp
from labeldp.data import Embeddings, Table
from labeldp.learn.trees import Trees, tree_matrix


def rows_of(seed=0, count=3000):
    """Rows with few values, with many, with missing values and with none, with zeros and with huge numbers."""
    generator = np.random.default_rng(seed)
    columns = [
        generator.integers(0, 5, count),
        generator.normal(size=count),
        np.where(generator.random(count) < 0.3, np.nan, generator.normal(size=count)),
        np.where(generator.random(count) < 0.5, 0.0, generator.normal(size=count)),
        generator.normal(size=count) * 1e30,
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def boosted(rows, outputs=1, rounds=20, **params):
    generator = np.random.default_rng(1)
    wave = np.nan_to_num(rows[:, 2]) + rows[:, 0] * np.sign(rows[:, 1]) + (rows[:, 3] == 0)
    if outputs == 1:
        labels, params = wave + generator.normal(size=len(rows)), {"objective": "regression"} | params
    else:
        labels = np.digitize(wave, [-1.0, 1.5])
        params = {"objective": "multiclass", "num_class": outputs} | params
    params |= {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5}
    return lightgbm.train(params, lightgbm.Dataset(rows, labels, free_raw_data=False), rounds)


def trees_of(booster, rows, outputs=1):
    return Trees.from_lightgbm(booster.model_to_string(), rows.shape[1], outputs)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("use_missing", [True, False])
def test_scores_are_those_of_lightgbm(outputs, use_missing):
    rows, new = rows_of(), rows_of(1, 20_000)  # more than a block
    new[::7, 0], new[::5, 3] = np.nan, np.nan  # columns without missing values in training
    booster = boosted(rows, outputs, use_missing=use_missing)
    found = trees_of(booster, rows, outputs).scores(new)
    assert np.array_equal(found, booster.predict(new, raw_score=True).reshape(len(new), outputs))
    assert np.unique(found).size > 100


def test_values_on_a_threshold_and_beside_it_go_where_lightgbm_sends_them():
    rows = rows_of()
    booster = boosted(rows)
    trees = trees_of(booster, rows)
    exact = np.array(booster.trees_to_dataframe()["threshold"].dropna(), np.float64).astype(np.float32)
    beside = [np.nextafter(exact, np.float32(side)) for side in (-np.inf, np.inf)]
    values = np.unique(np.concatenate([exact, *beside, trees.threshold, [0.0, -0.0, 1e-35, -1e-35]]).astype(np.float32))
    new = np.stack([values] * rows.shape[1], axis=1)
    assert np.array_equal(trees.scores(new)[:, 0], booster.predict(new, raw_score=True))


def test_trees_without_a_split_and_no_trees_at_all():
    rows = np.zeros((100, 2), np.float32)
    data = lightgbm.Dataset(rows, np.arange(100.0))
    booster = lightgbm.train({"objective": "regression", "verbosity": -1, "num_threads": 1}, data, 3)
    trees = Trees.from_lightgbm(booster.model_to_string(), 2, 1)
    assert len(trees) >= 1
    assert not trees.feature.size
    assert np.allclose(trees.scores(rows[:4]), booster.predict(rows[:4], raw_score=True)[:, None])
    assert np.array_equal(Trees.none(2, 3).scores(rows[:4]), np.zeros((4, 3)))
    for each in (trees, Trees.none(2, 3)):
        assert np.array_equal(Trees.from_arrays(each.arrays()).scores(rows), each.scores(rows))


def test_categorical_splits_are_refused():
    rows = rows_of()
    data = lightgbm.Dataset(rows, (rows[:, 0] % 2) * 5, categorical_feature=[0])
    booster = lightgbm.train({"objective": "regression", "verbosity": -1, "num_threads": 1}, data, 2)
    with pytest.raises(ldp.InputError, match="categorical splits cannot be read"):
        trees_of(booster, rows)


def test_rows_of_another_width_are_refused():
    rows = rows_of()
    with pytest.raises(ldp.InputError, match="read rows of 5 columns, not of shape"):
        trees_of(boosted(rows, rounds=1), rows).scores(rows[:, :4])


def test_arrays_describe_the_same_trees():
    rows = rows_of()
    trees = trees_of(boosted(rows, 3), rows, 3)
    assert np.array_equal(Trees.from_arrays(trees.arrays()).scores(rows), trees.scores(rows))


@pytest.mark.parametrize("outputs", [1, 3])
def test_trees_that_are_scaled_and_joined_add_their_scores(outputs):
    rows, new = rows_of(), rows_of(1)
    one, two = (trees_of(boosted(rows, outputs, rounds=count), rows, outputs) for count in (7, 4))
    joined = one.scaled(0.5).with_trees(two.scaled(-2.0))
    assert len(joined) == len(one) + len(two)
    assert np.allclose(joined.scores(new), 0.5 * one.scores(new) - 2 * two.scores(new))
    assert np.array_equal(Trees.from_arrays(joined.arrays()).scores(new), joined.scores(new))
    nothing = Trees.none(rows.shape[1], outputs)
    for each in (one.with_trees(nothing), nothing.with_trees(one)):
        assert np.array_equal(each.scores(new), one.scores(new))


def test_trees_of_other_columns_or_scores_are_not_joined():
    with pytest.raises(ldp.InputError, match="only if they read the same columns"):
        Trees.none(3, 1).with_trees(Trees.none(4, 1))
    with pytest.raises(ldp.InputError, match="add to the same scores"):
        Trees.none(3, 1).with_trees(Trees.none(3, 2))


def changed(arrays, name, place, value):
    array = np.array(arrays[name])
    array[place] = value
    return arrays | {name: array}


CRAFTED = {
    "a child that is its own parent": lambda a: changed(a, "left", 0, 0),
    "a child before its parent": lambda a: changed(a, "right", 5, 1),
    "a child outside the tree": lambda a: changed(a, "left", 0, 10**6),
    "a child in the next tree": lambda a: changed(a, "left", 0, int(a["node_offsets"][1])),
    "a leaf outside the tree": lambda a: changed(a, "left", np.flatnonzero(a["left"] < 0)[0], ~(10**6)),
    "a leaf that two nodes share": lambda a: (
        changed(a, "left", np.flatnonzero(a["left"] < 0)[0], ~0) | {"right": np.where(a["right"] == ~0, ~1, a["right"])}
    ),
    "a feature that does not exist": lambda a: changed(a, "feature", 0, 5),
    "a feature below zero": lambda a: changed(a, "feature", 0, -1),
    "a value that is no number": lambda a: changed(a, "value", 0, np.nan),
    "a threshold that is no number": lambda a: changed(a, "threshold", 0, np.nan),
    "trees that overlap": lambda a: changed(a, "node_offsets", 1, int(a["node_offsets"][2]) + 1),
    "trees that begin elsewhere": lambda a: changed(a, "node_offsets", 0, 1),
    "fewer values than leaves": lambda a: a | {"value": a["value"][:-1]},
    "fewer thresholds than nodes": lambda a: a | {"threshold": a["threshold"][:-1]},
    "marks of another shape": lambda a: a | {"leaf_offsets": a["leaf_offsets"][:-1]},
    "no marks": lambda a: a | {"node_offsets": np.zeros(0, int), "leaf_offsets": np.zeros(0, int)},
    "no outputs": lambda a: a | {"n_outputs": 0},
    "a missing array": lambda a: {name: value for name, value in a.items() if name != "right"},
    "texts": lambda a: a | {"feature": np.array(["x"] * len(a["feature"]))},
}


@pytest.mark.parametrize("crafted", CRAFTED)
def test_crafted_arrays_are_refused(crafted):
    rows = rows_of()
    arrays = trees_of(boosted(rows, rounds=4), rows).arrays()
    Trees.from_arrays(arrays)
    with pytest.raises(ldp.InputError, match="do not describe trees"):
        Trees.from_arrays(CRAFTED[crafted](arrays))


def test_trees_read_numbers_with_gaps_and_category_codes():
    frame = pl.DataFrame({"size": [1.5, None, 3.0], "colour": ["red", "blue", "red"], "age": [1, 2, 3]})
    table = Table.fit(frame)
    assert np.array_equal(
        tree_matrix(table), np.array([[1.5, 1, 0], [np.nan, 2, 1], [3, 3, 0]], np.float32), equal_nan=True
    )
    dense = Embeddings(np.arange(6.0).reshape(3, 2))
    assert np.array_equal(tree_matrix(dense), np.arange(6.0).reshape(3, 2))
