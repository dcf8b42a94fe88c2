import numpy as np
import pytest
import torch

from labeldp.core.errors import InputError
from labeldp.data import Embeddings


def matrix(rows: int = 400, columns: int = 10) -> np.ndarray:
    draws = np.random.default_rng(0).normal(size=(rows, columns)) * np.arange(columns) + 100
    return draws.astype(np.float32)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4"])
def test_a_batch_is_the_rows_as_float32(kind):
    given = matrix().astype(kind)
    given.flags.writeable = False
    rows = Embeddings(given)
    assert (len(rows), rows.kind, rows.shape, rows.device.type) == (400, "embeddings", (10,), "cpu")
    batch = rows.batch(torch.tensor([5, 5, 1]))
    assert batch.dtype == torch.float32
    assert np.array_equal(batch, given[[5, 5, 1]].astype(np.float32))


def test_noise_is_in_proportion_to_the_deviation():
    torch.manual_seed(0)
    rows = Embeddings(matrix())
    batch = rows.batch(torch.arange(400))
    noise = (rows.weak(batch) - batch).std(0)
    assert noise[0] == 0  # a column that never changes stays
    assert torch.allclose(noise[1:] / torch.arange(1, 10), torch.full((9,), 0.1), rtol=0.2)
    assert (rows.strong(batch) - batch).std() > 3 * (rows.weak(batch) - batch).std()


def test_a_view_takes_half_of_the_columns_from_other_rows():
    torch.manual_seed(0)
    rows = Embeddings(matrix(columns=9)[:, 1:])
    batch = rows.batch(torch.arange(400))
    view = rows.view(batch)
    assert ((view != batch).sum(1) == 4).all()
    assert all(set(view[:, column].tolist()) <= set(batch[:, column].tolist()) for column in range(8))
    assert len({tuple(row.tolist()) for row in view != batch}) > 10
    assert not torch.equal(view, rows.view(batch))


def test_one_row_or_one_column_has_nothing_to_be_corrupted_by():
    rows = Embeddings(matrix())
    one = rows.batch(torch.tensor([3]))
    assert torch.equal(rows.view(one), one)
    narrow = Embeddings(matrix(columns=2)[:, 1:])
    batch = narrow.batch(torch.arange(400))
    assert torch.equal(narrow.view(batch), batch)


def test_moments_selecting_and_moving():
    given = matrix()
    mean, deviation = Embeddings(given).moments()
    assert np.allclose(mean, given.astype(np.float64).mean(0), rtol=1e-6)
    assert deviation[0] == 1  # never changes: one can still divide by it
    assert np.allclose(deviation[1:], given[:, 1:].astype(np.float64).std(0), rtol=1e-5)
    part = Embeddings(given).select(np.arange(400) < 7).to("cpu")
    assert np.allclose(part.moments()[0], given[:7].mean(0), rtol=1e-5)
    with pytest.raises(InputError, match="no mean"):
        part.select([]).moments()


def test_other_matrices_are_refused():
    with pytest.raises(InputError, match="floats"):
        Embeddings(np.ones((2, 2), int))
    with pytest.raises(InputError, match="shape"):
        Embeddings(np.ones(3))
    with pytest.raises(InputError, match="floats"):
        Embeddings(torch.ones(2, 2, dtype=torch.long))
    with pytest.raises(InputError, match="finite"):
        Embeddings(np.array([[1.0, np.nan]]))
