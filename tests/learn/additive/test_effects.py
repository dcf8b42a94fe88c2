import json

import numpy as np
import polars as pl
import pytest

import labeldp as ldp
from labeldp.accounting.lineage import Provenance
from labeldp.core.label_space import LabelSpace
from labeldp.data.table_encoder import CategoricalColumn, NumericColumn, TableEncoder
from labeldp.data.tables import Table
from labeldp.learn.additive import BinnedColumn, Bins
from labeldp.learn.additive.effects import MISSING_LABEL, OTHER_LABEL, describe_effects
from labeldp.learn.additive.model import AdditiveModel, Term
from labeldp.learn.boosting import BoostedModel
from labeldp.learn.trees import Trees

SPACE = LabelSpace(["no", "yes"])
NAMES = tuple(f"town {place:02d}" for place in range(20))
ENCODER = TableEncoder(
    (NumericColumn("age", 0.0, True), NumericColumn("pay", 0.0, False)), (CategoricalColumn("town", NAMES),)
)


def number(name="age", edges=(20, 30, 40)):
    return BinnedColumn(name, np.array(edges, np.float32), None, len(edges) + 2)


def town(n_own=15):
    indices = np.minimum(np.arange(len(NAMES) + 2), n_own)
    indices[-1] = n_own + 1
    return BinnedColumn("town", None, indices, n_own + 2)


def model(*terms, space=SPACE):
    outputs = 1 if len(space) == 2 else len(space)
    held = tuple(Term(columns, np.reshape(np.asarray(weights, float), (-1, outputs))) for columns, weights in terms)
    return AdditiveModel(space, Provenance(None, ()), np.zeros(outputs), held)


def one(columns, weights, **how):
    (found,) = describe_effects(model((columns, weights), **how), ENCODER)
    return found


def test_a_number_is_described_by_inner_edges_and_centred():
    found = one((number(),), [1.0, 2.0, 3.0, 6.0, -2.0])
    assert (found.names, found.name, found.kind) == (("age",), "age", "number")
    assert found.bins == (("below 30", "up to 30", "30 to 40", "above 40", MISSING_LABEL),)
    assert found.values == pytest.approx([-1, 0, 1, 4, -4])
    assert found.strength == pytest.approx(np.std([1, 2, 3, 6, -2]))
    assert found.edges == ((30, 40),)


def test_a_bin_for_missing_values_without_rows_is_left_out_of_mean_and_strength():
    found = one((number(),), [1.0, 2.0, 3.0, 6.0, 0.0])
    assert found.bins[0][-1] == "above 40"
    assert found.values == pytest.approx([-2, -1, 0, 3])
    assert found.strength == pytest.approx(np.std([1, 2, 3, 6]))


@pytest.mark.parametrize(
    ("edges", "labels"),
    [((), ("any value",)), ((7,), ("lower values", "higher values")), ((7, 8), ("below 8", "up to 8", "above 8"))],
)
def test_few_bins_do_not_show_the_smallest_value(edges, labels):
    found = one((number(edges=edges),), [*range(1, len(edges) + 2), 0])
    assert found.bins == (labels,)
    assert found.edges == (edges[1:],)


@pytest.mark.parametrize("distinct", [2, 3, 5, 40, 2000])
def test_no_label_or_edge_is_the_smallest_or_largest_value(distinct):
    values = 1000.5 + np.arange(4000) % distinct
    table = Table.fit(pl.DataFrame({"pay": values}))
    (column,) = Bins.fit(table, 16, 16).columns
    (found,) = describe_effects(model(((column,), np.arange(1.0, column.width + 1))), table.encoder)
    text = json.dumps(found.to_json()).replace(",", "")
    for extreme in (values.min(), values.max()):
        assert f"{extreme:.6g}" not in text
        assert extreme not in found.edges[0]
    assert len(found.bins[0]) == column.width


@pytest.mark.parametrize(
    ("edges", "labels"),
    [
        ((0.001, 0.25, 1234.5, 2_500_000), ("up to 0.25", "0.25 to 1234", "1234 to 2500000")),  # to the even digit
        ((0.1, 1 / 3, 0.33334), ("up to 0.33333", "0.33333 to 0.33334")),
        ((-5, 1000, 2_500_000), ("up to 1,000", "1,000 to 2,500,000")),
    ],
)
def test_edges_are_written_in_few_digits_that_differ(edges, labels):
    found = one((number(edges=edges),), [*range(1, len(edges) + 2), 0])
    assert found.bins[0][1:-1] == labels


def test_twelve_frequent_categories_are_named_and_the_others_share_their_mean():
    weights = np.arange(17.0) ** 2 + 1
    found = one((town(),), weights)
    assert found.kind == "category"
    assert found.bins == ((*NAMES[:12], OTHER_LABEL, MISSING_LABEL),)
    assert found.values[:12] == pytest.approx(weights[:12] - weights.mean())
    assert found.values[12] == pytest.approx(weights[12:16].mean() - weights.mean())
    assert found.strength == pytest.approx(weights.std())
    assert not any(name in json.dumps(found.to_json()) for name in NAMES[12:])


def test_a_category_of_a_shared_bin_is_not_named():
    found = one((town(n_own=3),), [1, 2, 3, 4, 0])
    assert found.bins == ((*NAMES[:3], OTHER_LABEL),)


def test_a_bin_for_unknown_categories_without_rows_is_left_out():
    few = TableEncoder((), (CategoricalColumn("town", ("a", "b")),))
    column = BinnedColumn("town", None, np.array([0, 1, 2, 3]), 4)
    (found,) = describe_effects(model(((column,), [1, 3, 0, 0])), few)
    assert found.bins == (("a", "b"),)
    assert found.values == pytest.approx([-1, 1])


def test_of_several_classes_what_they_share_is_taken_out():
    space = LabelSpace(list("abcdefgh"))
    weights = np.random.default_rng(0).normal(size=(5, 8)) * np.arange(1, 9)
    found = one((number(),), weights, space=space)
    shifted = one((number(),), weights + np.array([[5], [1], [2], [3], [4]]), space=space)
    assert found.values.shape == (5, 8)
    assert found.values == pytest.approx(shifted.values)
    assert found.values.sum(axis=1) == pytest.approx(np.zeros(5), abs=1e-12)
    assert found.values.mean(axis=0) == pytest.approx(np.zeros(8), abs=1e-12)
    reported = found.to_json()
    moved = (found.values**2).mean(axis=0)
    assert reported["classes"] == sorted(np.argsort(moved)[-6:].tolist())
    assert np.shape(reported["values"]) == (5, 6)


def test_a_cross_is_a_grid_whose_empty_rows_are_left_out():
    grid = np.zeros((5, 17))
    grid[:4, :16] = np.random.default_rng(1).normal(size=(4, 16))
    found = one((number(), town()), grid)
    assert (found.name, found.kind, found.edges) == ("age x town", "cross", ((30, 40), ()))
    assert found.bins == (("below 30", "up to 30", "30 to 40", "above 40"), (*NAMES[:12], OTHER_LABEL))
    inner = grid[:4, :16] - grid[:4, :16].mean()
    assert found.values[:, :12] == pytest.approx(inner[:, :12])
    assert found.values[:, 12] == pytest.approx(inner[:, 12:].mean(axis=1))
    assert found.strength == pytest.approx(inner.std())


def test_effects_come_strongest_first_also_below_trees_and_other_models_have_none():
    weak, strong = ((number("pay"),), [0.1, 0.2, 0, 0.1, 0]), ((number(),), [1, 2, 3, 6, 0])
    start = model(weak, strong)
    assert [effect.name for effect in describe_effects(start, ENCODER)] == ["age", "pay"]
    trees = Trees.from_lightgbm("", 3, 1)
    boosted = BoostedModel(SPACE, start.provenance, trees, np.zeros(1), start)
    assert [effect.name for effect in describe_effects(boosted, ENCODER)] == ["age", "pay"]
    assert describe_effects(BoostedModel(SPACE, start.provenance, trees, np.zeros(1)), ENCODER) is None


@pytest.mark.parametrize("classes", [2, 3])
def test_a_training_shows_bins_for_missing_values_only_where_it_had_some(classes):
    rng = np.random.default_rng(classes)  # rows of their own, as each row is fitted once in a process
    x = rng.normal(size=3000)
    job = rng.choice(["cook", "nurse", "guard"], 3000)
    frame = pl.DataFrame({"whole": x, "holes": np.where(x > 1, np.nan, x), "job": job, "town": job})
    frame = frame.with_columns(town=pl.when(pl.col("whole") < 0).then(None).otherwise(pl.col("town")))
    y = np.digitize(x, [0.0, 1.0][: classes - 1])
    pairs = [("job", "holes"), ("town", "whole")]
    estimator = ldp.LabelPrivateClassifier(
        3.0, list(range(classes)), "additive", delta=1e-6, cross=pairs, estimate=False
    ).fit(frame, y)
    found = {effect.name: effect for effect in estimator.effects_}
    shows = {name: [MISSING_LABEL in labels for labels in effect.bins] for name, effect in found.items()}
    assert shows == {
        "whole": [False], "holes": [True], "job": [False], "town": [True],
        "job x holes": [False, True], "town x whole": [True, False],
    }  # fmt: skip
    assert set(found["job"].bins[0]) == {"cook", "nurse", "guard"}
    assert estimator.effects_ == sorted(estimator.effects_, key=lambda effect: -effect.strength)
    assert estimator.effects_[0].values.shape[1:] == (() if classes == 2 else (classes,))


def test_an_estimator_with_another_model_has_no_effects():
    x = np.random.default_rng(9).normal(size=(300, 2))
    other = ldp.LabelPrivateClassifier(3.0, [False, True], "randres", model="logistic").fit(x, x[:, 0] > 0)
    assert other.effects_ is None


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"cross": [("x0", "x7")]}, "no feature column 'x7'"),
        ({"cross": [("x0", "x0")]}, "two different columns"),
        ({"cross": [("x0", "x1")], "recipe": "moments"}, "not moments"),
    ],
)
def test_wrong_crosses_of_an_estimator_are_refused_before_there_is_a_ledger(tmp_path, how, said):
    x = np.random.default_rng(8).normal(size=(300, 2))
    with pytest.raises(ldp.InputError, match=said):
        ldp.LabelPrivateClassifier(3.0, [False, True], ledger=tmp_path / "x.ledger", **how).fit(x, x[:, 0] > 0)
    assert not list(tmp_path.iterdir())
