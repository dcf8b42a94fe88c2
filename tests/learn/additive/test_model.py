import json
import pickle

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, softmax

import labeldp as ldp
from labeldp.accounting.lineage import Provenance
from labeldp.core.guarantee import Guarantee
from labeldp.data import Embeddings, Table
from labeldp.learn.additive import Bins
from labeldp.learn.additive.model import AdditiveModel, Term, as_table
from labeldp.learn.predictor import load_predictor

FRAME = pl.DataFrame(
    {
        "x": [0.0, 1.0, 2.0, 3.0, None, 5.0],
        "kind": ["a", "a", "b", "b", None, "c"],
        "y": [1.0, -1.0, 4.0, 0.5, 2.0, 9.0],
    }
)
NEW = pl.DataFrame(
    {
        "x": [float("inf"), float("-inf"), float("nan"), None, 1e30, -1e30],
        "kind": ["new", None, "a", "b", "a", "c"],
        "y": [0.0, 1.0, 2.0, None, 3.0, 5.0],
    }
)


@pytest.fixture(scope="module")
def table():
    return Table.fit(FRAME)


def made(table, classes=2, seed=0):
    """A model with random weights: two effects and a cross."""
    generator, outputs = np.random.default_rng(seed), 1 if classes == 2 else classes
    x, y, kind = Bins.fit(table, 4, 4).columns
    sides = [(x,), (kind,), (kind, y)]
    terms = [Term(side, generator.normal(size=(np.prod([c.width for c in side]), outputs))) for side in sides]
    provenance = Provenance(Guarantee(1.0, 1e-6), ())
    space = ldp.LabelSpace([f"class {index}" for index in range(classes)])
    return AdditiveModel(space, provenance, generator.normal(size=outputs), tuple(terms))


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_sums_of_the_weights_of_a_rows_bins(table, classes):
    model = made(table, classes)
    x, kind, (_, y) = model.terms[0].columns[0], model.terms[1].columns[0], model.terms[2].columns
    for row in range(6):
        of_x = x.encode(table.numeric_values[row : row + 1, 0])[0]
        of_y = y.encode(table.numeric_values[row : row + 1, 1])[0]
        of_kind = kind.encode(table.category_codes[row : row + 1, 0])[0]
        cell = of_kind * y.width + of_y
        slow = model.intercept + sum(term.weights[at] for term, at in zip(model.terms, (of_x, of_kind, cell)))  # noqa: B905
        assert np.allclose(model.scores(table)[row], slow)
    probabilities = model.predict_proba(table)
    assert probabilities.shape == (6, classes)
    assert np.allclose(probabilities.sum(axis=1), 1)
    if classes == 2:
        assert np.allclose(probabilities[:, 1], expit(model.scores(table)[:, 0]))
    else:
        assert np.allclose(probabilities, softmax(model.scores(table), axis=1))
    assert model.predict(table).tolist() == [f"class {best}" for best in probabilities.argmax(axis=1)]
    assert [term.name for term in model.terms] == ["x", "kind", "kind x y"]


@pytest.mark.parametrize("classes", [2, 3])
def test_unseen_categories_and_values_that_are_no_number_have_bins(table, classes):
    model, new = made(table, classes), table.apply(NEW)
    probabilities = model.predict_proba(new)
    assert np.isfinite(probabilities).all()
    assert np.allclose(probabilities.sum(axis=1), 1)
    x, kind = model.terms[0], model.terms[1]
    # What is missing, infinite or no number is in the last bin of its column, and so is no other value.
    assert np.array_equal(x.cells(new) == x.columns[0].width - 1, [True, True, True, True, False, False])
    assert x.cells(new)[4:].tolist() == [x.columns[0].width - 2, 0]
    # An unseen category has the bin before it.
    assert kind.cells(new)[:2].tolist() == [kind.columns[0].width - 2, kind.columns[0].width - 1]
    assert len(model.predict_proba(table.select(np.arange(0)))) == 0


@pytest.mark.parametrize("classes", [2, 3])
def test_a_saved_model_is_read_back(table, classes, tmp_path):
    model = made(table, classes)
    model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m")
    assert type(again) is AdditiveModel
    assert np.array_equal(again.predict_proba(table.apply(NEW)), model.predict_proba(table.apply(NEW)))
    assert (again.space, again.guarantee, again.lineage) == (model.space, model.guarantee, model.lineage)
    copied = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copied.predict_proba(table), model.predict_proba(table))


def test_further_terms_add_up_and_leave_the_model_as_it_is(table):
    model = made(table)
    more = model.with_terms(model.terms[:1], Provenance(Guarantee(2.0, 1e-6), ()))
    assert len(model.terms) == 3
    assert np.allclose(more.scores(table), model.scores(table) + model.terms[0].weights[model.terms[0].cells(table)])
    assert (model.guarantee.epsilon, more.guarantee.epsilon) == (1.0, 2.0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # NumPy leaves a damaged file open
@pytest.mark.parametrize("name", ["arrays.npz", "terms.json", "model.json"])
@pytest.mark.parametrize("damage", ["absent", "cut", "empty", "other"])
def test_damaged_files_are_no_model(table, tmp_path, name, damage):
    made(table).save(tmp_path / "m")
    path = tmp_path / "m" / name
    data = path.read_bytes()
    if damage == "absent":
        path.unlink()
    else:
        path.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "other": b"[1, 2]"}[damage])
    with pytest.raises(ldp.InputError, match="is not a model that labeldp wrote"):
        AdditiveModel.load(tmp_path / "m")


def objects(values):
    return np.array([{}] * len(values), object)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("1.0.map", lambda map_: map_ + 1),
        ("1.0.map", lambda map_: map_ - 1),
        ("1.0.map", lambda map_: map_ + 2**62),
        ("1.0.map", lambda map_: map_.astype(float)),
        ("1.0.map", lambda map_: map_[:, None]),
        ("1.0.map", objects),
        ("0.0.edges", lambda edges: edges[::-1]),
        ("0.0.edges", lambda edges: edges[:-1]),
        ("0.0.edges", lambda edges: edges * np.nan),
        ("0.0.edges", lambda edges: edges.astype(str)),
        ("0.0.edges", lambda edges: edges[:, None]),
        ("0.weights", lambda weights: weights[:-1]),
        ("0.weights", lambda weights: np.repeat(weights, 2, axis=1)),
        ("0.weights", lambda weights: weights * np.inf),
        ("0.weights", lambda weights: weights.astype(complex)),
        ("2.weights", lambda weights: weights[:5]),
        ("intercept", lambda intercept: np.zeros(2)),
        ("intercept", lambda intercept: np.zeros((1, 1))),
        ("intercept", lambda intercept: intercept * np.nan),
    ],
)
def test_crafted_arrays_are_refused(table, tmp_path, name, change):
    made(table).save(tmp_path / "m")
    with np.load(tmp_path / "m" / "arrays.npz") as file:
        arrays = dict(file.items())
    np.savez(tmp_path / "m" / "arrays.npz", **arrays | {name: change(arrays[name])})
    with pytest.raises(ldp.InputError, match="is not a model that labeldp wrote"):
        load_predictor(tmp_path / "m")


@pytest.mark.parametrize(
    "change",
    [
        lambda terms: terms[0].clear(),
        lambda terms: terms[2].extend(terms[2]),
        lambda terms: terms[0][0].update(width=10**12),
        lambda terms: terms[0][0].update(width=-1),
        lambda terms: terms[1][0].update(width=2),
        lambda terms: terms[0][0].pop("name"),
        lambda terms: terms.append(terms[0]),
    ],
)
def test_crafted_terms_are_refused(table, tmp_path, change):
    made(table).save(tmp_path / "m")
    terms = json.loads((tmp_path / "m" / "terms.json").read_text())
    change(terms)
    (tmp_path / "m" / "terms.json").write_text(json.dumps(terms))
    with pytest.raises(ldp.InputError, match="is not a model that labeldp wrote"):
        load_predictor(tmp_path / "m")


def test_other_features_and_other_tables_are_refused(table):
    with pytest.raises(ldp.InputError, match="needs the columns of a table"):
        as_table(Embeddings(np.zeros((2, 3))))
    model = made(table)
    others = [
        FRAME.drop("x"),
        FRAME.drop("kind"),
        FRAME.with_columns(kind=pl.lit(1.0)),
        FRAME.with_columns(x=pl.lit("text")),
        FRAME.with_columns(kind=pl.Series(list("abcdef"))),
    ]
    for other in others:
        with pytest.raises(ldp.InputError, match="differs from that of the training"):
            model.predict_proba(Table.fit(other))
