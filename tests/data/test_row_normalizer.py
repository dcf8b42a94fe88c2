import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import labeldp as ldp
from labeldp.data import Embeddings, Images, Table
from labeldp.data.row_normalizer import RowNormalizer, principal_directions

RANDOM = np.random.default_rng(0)


def frame(rows=50):
    generator = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "income": [None if i % 7 == 0 else float(v) for i, v in enumerate(generator.lognormal(8, 2, rows))],
            "age": generator.integers(18, 90, rows),
            "town": [None if i % 11 == 0 else str(t) for i, t in enumerate(generator.choice(["a", "b", "c"], rows))],
        }
    )


def lengths(rows):
    return np.linalg.norm(rows.astype(np.float64), axis=1)


@given(arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 6)), elements=st.floats(-1e6, 1e6, width=32)))
@settings(max_examples=100)
def test_every_row_has_length_one(matrix):
    features = Embeddings(matrix)
    for columns in (2, 256):
        rows = RowNormalizer.fit(features, columns)(features)
        assert rows.dtype == np.float32
        assert lengths(rows) == pytest.approx(1, abs=1e-5)
        assert (rows[:, -1] > 0.2).all()


def test_rows_are_centered_and_differ_in_direction_alone():
    features = Embeddings(RANDOM.normal(5, 1, size=(500, 8)))
    rows = RowNormalizer.fit(features)(features)
    assert rows.shape == (500, 9)
    assert np.abs(rows[:, :-1].mean(axis=0)).max() < 0.05
    matrix = features.batch(every(features)).numpy()
    expected = matrix - matrix.mean(axis=0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    expected = np.c_[expected, np.full(500, 0.25)] / np.sqrt(1 + 0.25**2)
    assert np.allclose(rows, expected, atol=1e-5)


def every(features):
    import torch

    return torch.arange(len(features))


@pytest.mark.parametrize("value", [0.0, 0.1, -3e4])
def test_constant_features_leave_the_constant_alone(value):
    features = Embeddings(np.full((20, 3), value, np.float32))
    lift = RowNormalizer.fit(features)
    assert np.allclose(lift(features), [[0, 0, 0, 1]], atol=1e-6)


@pytest.mark.parametrize("columns", [2, 256])
def test_one_row_is_enough(columns):
    features = Embeddings(RANDOM.normal(size=(1, 5)))
    lift = RowNormalizer.fit(features, columns)
    assert np.allclose(lift(features), [0] * (lift.n_columns - 1) + [1], atol=1e-6)
    assert lengths(lift(Embeddings(RANDOM.normal(size=(4, 5))))) == pytest.approx(1, abs=1e-5)


def test_many_columns_are_reduced_to_those_that_vary_most():
    strong = RANDOM.normal(size=(300, 3)) * 10
    features = Embeddings(np.c_[RANDOM.normal(size=(300, 40)) * 0.01, strong])
    lift = RowNormalizer.fit(features, n_columns=3)
    assert lift.n_columns == 4
    assert np.abs(lift.basis[:40]).max() < 0.05
    assert np.allclose(lift.basis.T @ lift.basis, np.eye(3), atol=1e-5)
    likeness = lift(features)[:, :-1] @ lift(features)[:, :-1].T
    centered = strong - strong.mean(axis=0)
    unit = centered / np.linalg.norm(centered, axis=1, keepdims=True)
    assert np.allclose(likeness * (1 + 0.25**2), unit @ unit.T, atol=0.05)


@pytest.mark.parametrize(("height", "width"), [(60, 12), (12, 60), (12, 12), (2, 30)])
def test_directions_are_those_of_the_larger_gram_matrix(height, width):
    rows = (RANDOM.normal(size=(height, width)) * np.geomspace(1, 30, width)).astype(np.float32)
    found = principal_directions(rows, 10)
    variances, directions = np.linalg.eigh(rows.T.astype(np.float64) @ rows)
    count = min(10, height)
    assert found.shape == (width, count)
    assert np.allclose(found.T @ found, np.eye(count), atol=1e-5)
    assert np.abs((directions[:, ::-1][:, :count] * found).sum(axis=0)) == pytest.approx(1, abs=1e-4)
    assert np.square(rows @ found).sum(axis=0) == pytest.approx(variances[::-1][:count], rel=1e-4)


def test_few_rows_span_few_directions():
    rows = np.zeros((5, 40), np.float32)
    assert principal_directions(rows, 9).shape == (40, 1)
    rows[0, 3], rows[1, 4] = 2.0, 1.0
    assert np.allclose(np.abs(principal_directions(rows, 9)), np.eye(40)[:, [3, 4]])


def test_of_a_table_wider_than_its_sample_a_gram_matrix_of_rows_is_used(monkeypatch):
    sides = []
    found = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda gram: sides.append(len(gram)) or found(gram))
    wide = Embeddings(RANDOM.normal(size=(30, 5000)))
    assert RowNormalizer.fit(wide, clip=True)(wide).shape == (30, 30)
    assert sides == [30]


def test_columns_up_to_the_limit_are_unchanged():
    features = Embeddings(RANDOM.normal(size=(9, 4)))
    assert RowNormalizer.fit(features, n_columns=4).basis is None
    assert RowNormalizer.fit(features, n_columns=3).basis.shape == (4, 3)


def test_a_table_with_categories_and_missing_values():
    table = Table.fit(frame())
    lift = RowNormalizer.fit(table)
    rows = lift(table)
    assert rows.shape == (50, len(table.encoded_columns) + 1)
    assert np.isfinite(rows).all()
    assert lengths(rows) == pytest.approx(1, abs=1e-5)
    one_hot = rows[:, 2:-1]
    assert (one_hot >= 0).all()  # flags and categories are not centered: an entry that is not there costs nothing
    assert ((one_hot > 0).sum(axis=1) <= 2).all()


def test_an_outlier_does_not_drown_the_other_columns():
    data = pl.DataFrame({"x": [*RANDOM.normal(size=999), 1e9], "y": RANDOM.normal(size=1000)})
    table = Table.fit(data)
    row = RowNormalizer.fit(table)(table)[-1]
    assert abs(row[1]) > 0.01
    assert row[0] > row[1]


@pytest.mark.parametrize("columns", [3, 256])
def test_the_map_is_the_same_for_new_rows(columns):
    table = Table.fit(frame())
    lift = RowNormalizer.fit(table, columns)
    whole = lift(table)
    assert np.allclose(lift(table.select(np.arange(5))), whole[:5], atol=1e-6)
    assert np.allclose(lift(table.apply(frame().tail(7))), whole[-7:], atol=1e-6)
    strange = frame(3).with_columns(town=pl.lit("never seen"))
    assert lengths(lift(table.apply(strange))) == pytest.approx(1, abs=1e-5)
    assert lift(table.select(np.arange(0))).shape == (0, lift.n_columns)


def test_pictures_are_lifted_by_their_pixels():
    images = Images(RANDOM.integers(0, 255, (30, 3, 4, 4)).astype(np.uint8))
    lift = RowNormalizer.fit(images, n_columns=10)
    assert lift(images).shape == (30, 11)
    assert lengths(lift(images)) == pytest.approx(1, abs=1e-5)


def test_its_arrays_give_it_back():
    features = Embeddings(RANDOM.normal(size=(40, 6)))
    for columns in (3, 256):
        lift = RowNormalizer.fit(features, columns)
        assert np.array_equal(RowNormalizer(**lift.arrays())(features), lift(features))


def test_other_columns_are_refused():
    lift = RowNormalizer.fit(Embeddings(RANDOM.normal(size=(40, 6))))
    with pytest.raises(ldp.InputError, match="have 5 columns, and 6 are expected"):
        lift(Embeddings(RANDOM.normal(size=(40, 5))))
    with pytest.raises(ldp.InputError, match="have 1 columns, and 6"):
        lift(Embeddings(RANDOM.normal(size=(40, 1))))


def test_the_difference_of_two_huge_numbers_of_a_table_is_cut():
    huge = pl.DataFrame({"x": [-3.4e38, 3.4e38, 3.4e38, 3.4e38], "y": [0.0, 1.0, 2.0, 3.0]})
    table = Table.fit(huge)
    rows = RowNormalizer.fit(table, clip=True)(table)
    assert np.isfinite(rows).all()
    assert rows[0, 0] < 0 < rows[1, 0]
