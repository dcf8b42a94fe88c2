import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.learn.additive import BinDesign, DenseDesign


def one_hot(codes, widths):
    """The dense matrix that a design of bins stands for."""
    return np.concatenate([np.eye(width)[code] for code, width in zip(codes, widths, strict=True)], axis=1)


@st.composite
def designs(draw):
    rows = draw(st.integers(1, 30))
    widths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    codes = [
        np.array(draw(st.lists(st.integers(0, width - 1), min_size=rows, max_size=rows)), np.uint8) for width in widths
    ]
    return BinDesign(codes, widths), one_hot(codes, widths)


@given(designs(), st.integers(1, 3), st.integers(0, 99))
def test_bins_act_as_their_dense_matrix(pair, outputs, seed):
    design, dense = pair
    generator = np.random.default_rng(seed)
    weights, values = generator.normal(size=(design.n_columns, outputs)), generator.normal(size=(len(design), outputs))
    scale = generator.random(len(design))
    assert (len(design), design.n_columns) == dense.shape
    assert np.allclose(design.dot(weights), dense @ weights)
    assert np.allclose(design.transpose_dot(values), dense.T @ values)
    assert np.allclose(design.gram(scale), dense.T @ np.diag(scale) @ dense)
    assert np.array_equal(design.to_sparse().toarray(), dense)
    mask = generator.random(len(design)) < 0.5
    assert np.array_equal(design.select(mask).to_sparse().toarray() if mask.any() else dense[mask], dense[mask])
    assert np.array_equal(design.starts, np.cumsum([0, *design.widths]))


def test_pairs_of_wide_columns_do_not_overflow_their_codes():
    generator = np.random.default_rng(0)
    codes = [generator.integers(0, 200, 500).astype(np.uint8) for _ in range(2)]
    dense = one_hot(codes, [200, 200])
    assert np.allclose(BinDesign(codes, [200, 200]).gram(np.ones(500)), dense.T @ dense)


def test_a_dense_design_multiplies():
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(50, 7)).astype(np.float32)
    design, wide = DenseDesign(matrix), matrix.astype(np.float64)
    weights, values, scale = generator.normal(size=(7, 2)), generator.normal(size=(50, 2)), generator.random(50)
    assert np.allclose(design.dot(weights), wide @ weights, atol=1e-5)
    assert np.allclose(design.transpose_dot(values), wide.T @ values, atol=1e-5)
    assert np.allclose(design.gram(scale), wide.T @ np.diag(scale) @ wide, atol=1e-5)
    assert design.gram(scale).dtype == np.float64


@pytest.mark.parametrize("most", [10, 50, 99])
@pytest.mark.parametrize("kind", ["bins", "dense"])
def test_a_sample_has_evenly_spaced_rows(most, kind):
    codes = np.arange(50) % 7
    design = BinDesign([codes], [7]) if kind == "bins" else DenseDesign(np.eye(7)[codes])
    some, rows = design.sample(most)
    assert len(some) == len(rows) == min(most, 50)
    assert (rows[0], rows[-1]) == (0, 49)
    assert np.ptp(np.diff(rows)) <= 1
    assert np.array_equal(some.gram(np.ones(len(rows))), np.diag(np.bincount(codes[rows], minlength=7)))


@given(designs(), st.integers(0, 99))
def test_functions_of_a_column_take_the_place_of_its_bins(pair, seed):
    design, dense = pair
    generator = np.random.default_rng(seed)
    sizes = generator.integers(0, 4, len(design.widths))
    functions = [
        None if generator.random() < 0.3 else generator.normal(size=(width, size))
        for width, size in zip(design.widths, sizes, strict=True)
    ]
    parts = [
        dense[:, start : start + width] @ (np.eye(width) if own is None else own)
        for start, width, own in zip(design.starts, design.widths, functions, strict=False)
    ]
    found = design.to_sparse(functions)
    assert found.shape == (len(design), sum(part.shape[1] for part in parts))
    assert found.dtype == np.float32
    assert np.allclose(found.toarray(), np.column_stack(parts), atol=1e-6)


def test_a_list_of_functions_must_have_one_entry_for_each_column():
    design = BinDesign([np.array([0, 1]), np.array([1, 0])], [2, 2])
    with pytest.raises(ValueError, match="zip"):
        design.to_sparse([np.eye(2)])
