import numpy as np
import polars as pl
import pytest
import torch

from labeldp.errors import InputError
from labeldp.features import Embeddings, Features, Images, Table, choose_device

ROWS = 12


def kinds() -> list[Features]:
    draws = np.random.default_rng(0)
    frame = pl.DataFrame({"a": draws.normal(size=ROWS), "b": list("xyz") * 4, "c": draws.normal(size=ROWS)})
    return [
        Images(draws.integers(0, 256, (ROWS, 3, 8, 8), dtype=np.uint8)),
        Embeddings(draws.normal(size=(ROWS, 5))),
        Table.fit(frame),
    ]


@pytest.mark.parametrize("features", kinds(), ids=lambda features: features.kind)
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


@pytest.mark.parametrize("features", kinds(), ids=lambda features: features.kind)
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
            kinds()[0].to("cuda")
