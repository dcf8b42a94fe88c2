from functools import partial

import numpy as np
import pytest
import torch

from labeldp.core.errors import InputError
from labeldp.learn import Training
from labeldp.learn.backbones import build
from labeldp.learn.base import update_ema
from labeldp.representation.momentum import BYOL, MoCo


@pytest.mark.parametrize("method", [BYOL, partial(MoCo, n_views=3)])
def test_a_slow_copy_teaches(digits, method, cnn):
    images = digits.images
    settings = Training(epochs=20, batch_size=256, optimizer="adamw", learning_rate=3e-3, device="cpu")
    model = method(cnn, settings, ema_decay=0.9, final_ema_decay=0.99, hidden_features=128, projection_features=32).fit(
        images
    )
    embeddings = model.embed(images)
    assert digits.nearest_accuracy(embeddings) > 0.87
    assert embeddings.std(axis=0).mean() > 0.01  # it has not collapsed to a constant


def test_finding_ones_own_row_in_the_copys_view():
    said, meant = torch.randn(5, 4), torch.randn(5, 4)
    a, b = (v / v.norm(dim=1, keepdim=True) for v in (said, meant))
    terms = []
    for i in range(5):
        likeness = [float(a[i] @ b[j]) / 0.2 for j in range(5)]
        terms.append(-np.log(np.exp(likeness[i]) / np.exp(likeness).sum()))
    assert float(MoCo().prediction_loss(said, meant)) == pytest.approx(np.mean(terms), rel=1e-5)


def test_the_copy_follows_more_and_more_slowly():
    method = MoCo(ema_decay=0.9, final_ema_decay=1.0)
    assert [method.ema_decay_at(done) for done in (0, 0.5, 1)] == pytest.approx([0.9, 0.95, 1.0])


def test_views_may_be_smaller_than_the_pictures(digits):
    small = partial(build, "resnet18", width=4)
    sizes = []
    settings = Training(epochs=1, batch_size=64, device="cpu")
    images = digits.images.select(range(64))
    view = images.view
    images.view = lambda batch, size: sizes.append(view(batch, size).shape[2:]) or view(batch, size)
    images.to = lambda _: images
    model = MoCo(small, settings, view_size=6, n_views=3, hidden_features=16, projection_features=8).fit(images)
    assert set(sizes) == {(6, 6)}
    assert model.embed(images).shape == (64, 32)


def test_smaller_views_need_a_backbone_that_takes_any_size(digits, cnn):
    with pytest.raises(InputError, match="images of one size"):
        MoCo(cnn, Training(epochs=1, device="cpu"), view_size=6).fit(digits.images)


def test_the_copy_follows_slowly():
    target, source = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    expected = 0.9 * target.weight.detach() + 0.1 * source.weight.detach()
    update_ema(target, source, 0.9)
    assert torch.allclose(target.weight, expected)
