import copy
import pickle

import numpy as np
import polars as pl
import pytest
import torch

from labeldp.core.errors import InputError, MissingExtra
from labeldp.data import Embeddings, Features, Images, Pairs, Table, choose_device
from labeldp.data.base import check_device

ROWS = 12


def examples() -> list[Features]:
    draws = np.random.default_rng(0)
    frame = pl.DataFrame({"a": draws.normal(size=ROWS), "b": list("xyz") * 4, "c": draws.normal(size=ROWS)})
    return [
        Images(draws.integers(0, 256, (ROWS, 3, 8, 8), dtype=np.uint8)),
        Embeddings(draws.normal(size=(ROWS, 5))),
        Table.fit(frame),
    ]


@pytest.mark.parametrize("features", examples(), ids=lambda features: features.kind)
def test_every_kind_keeps_the_interface(features):
    torch.manual_seed(0)
    rows = torch.tensor([4, 0, 4, 7])
    batch = features.batch(rows)
    assert len(features) == ROWS
    assert batch.dtype == torch.float32
    assert batch.shape == (4, *features.shape)
    before = batch.clone()
    for vary in (features.weak, features.strong, features.view):
        varied = vary(batch)
        assert varied.shape == batch.shape
        assert varied.dtype == torch.float32
        assert varied.device == features.device
        assert torch.equal(batch, before)
    mean, deviation = features.moments()
    assert mean.shape == deviation.shape == features.shape[:1]
    assert (deviation > 0).all()
    part = features.select([7, 4]).to("cpu")
    assert type(part) is type(features)
    assert torch.equal(part.batch(torch.tensor([1, 0])), features.batch(torch.tensor([4, 7])))


@pytest.mark.parametrize(
    "features",
    [*examples(), Pairs.fit(pl.DataFrame({"u": list("abcabcabcabc"), "i": list("xyxyxyxyxyxy")}))],
    ids=lambda features: features.kind,
)
def test_arrays_are_the_rows_of_batches(features):
    rows = np.array([7, 0, 7, 11])
    expected = features.batch(torch.from_numpy(rows)).flatten(1).numpy()
    found = features.matrix(rows)
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
    whole = features.matrix(np.arange(ROWS))
    blocks = list(features.matrices(5))
    assert [len(block) for block in blocks] == [5, 5, 2]
    assert np.array_equal(np.concatenate(blocks), whole)
    assert [block.shape for block in features.select([]).matrices(5)] == [(0, whole.shape[1])]
    assert (
        features.digest() == features.select(np.arange(ROWS)).digest() != features.select(np.arange(1, ROWS)).digest()
    )


def places(features: Features) -> dict[str, int]:
    return {name: value.data_ptr() for name, value in vars(features).items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("features", examples()[1:], ids=lambda features: features.kind)
def test_tensors_are_made_once_share_the_arrays_on_a_cpu_and_stay_out_of_pickles(features):
    features = copy.copy(features)
    small = len(pickle.dumps(features))
    assert not places(features)
    features.weak(features.batch(torch.arange(ROWS)))
    before = places(features)
    arrays = {value.ctypes.data for value in vars(features).values() if isinstance(value, np.ndarray)}
    for name in {"_matrix_tensor", "_numbers_tensor", "_codes_tensor"} & set(before):
        assert before[name] in arrays
    features.strong(features.batch(torch.arange(3)))
    assert places(features) == before
    assert features.to("cpu") is features
    read = pickle.loads(pickle.dumps(features))
    assert not places(read)
    assert len(pickle.dumps(features)) < small + 400  # moments may be known by now, and no second copy of rows
    assert read.digest() == features.digest()


@pytest.mark.parametrize("features", examples(), ids=lambda features: features.kind)
def test_a_seed_fixes_what_is_drawn(features):
    batch = features.batch(torch.arange(ROWS))
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(torch.cat([features.weak(batch), features.strong(batch), features.view(batch)]))
    assert torch.equal(*drawn)


def test_devices():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device().type in ("cpu", "cuda")
    with pytest.raises(InputError, match="no device"):
        choose_device("abacus")
    with pytest.raises(InputError, match="no device 'meta'"):
        choose_device("meta")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no GPU"):
            choose_device("cuda")
        with pytest.raises(InputError, match="no GPU"):
            examples()[0].to("cuda")


def test_without_torch_there_is_the_cpu_alone(monkeypatch):
    assert check_device("cpu") == "cpu"
    assert check_device("auto") == choose_device("auto").type
    monkeypatch.setattr("labeldp.core.lazy.find_spec", lambda name: None)
    assert check_device("auto") == check_device("cpu") == "cpu"
    with pytest.raises(MissingExtra, match="The device 'cuda' needs torch"):
        check_device("cuda")
