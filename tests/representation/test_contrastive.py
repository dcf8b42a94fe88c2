import numpy as np
import pytest
import torch

import labeldp as ldp
from labeldp.core.errors import InputError
from labeldp.data import Embeddings
from labeldp.learn import Model, Supervised, Training
from labeldp.representation.contrastive import SimCLR, nt_xent_loss


@pytest.mark.parametrize("views", [2, 3, 4])
def test_finding_partners_is_cross_entropy_over_one_partner_and_all_other_rows(views):
    rows = 5
    z = torch.randn(views * rows, 4)
    unit = z / z.norm(dim=1, keepdim=True)
    terms = []
    for i in range(len(z)):
        likeness = {j: float(unit[i] @ unit[j]) / 0.5 for j in range(len(z))}
        others = sum(np.exp(v) for j, v in likeness.items() if j % rows != i % rows)
        for j in range(i % rows, len(z), rows):
            if j != i:
                terms.append(-np.log(np.exp(likeness[j]) / (np.exp(likeness[j]) + others)))
    assert len(terms) == views * (views - 1) * rows
    assert float(nt_xent_loss(z, views, 0.5)) == pytest.approx(np.mean(terms), rel=1e-5)


def test_two_views_give_the_loss_of_the_paper():
    z = torch.randn(12, 4, requires_grad=True)
    unit = torch.nn.functional.normalize(z, dim=1)
    likeness = (unit @ unit.T / 0.2).fill_diagonal_(-torch.inf)
    paper = torch.nn.functional.cross_entropy(likeness, torch.arange(12).roll(6))
    ours = nt_xent_loss(z, 2, 0.2)
    assert torch.equal(ours, paper)
    (slope,), (expected,) = (torch.autograd.grad(value, z) for value in (ours, paper))
    assert torch.equal(slope, expected)


@pytest.mark.parametrize("views", [0, 1])
def test_one_view_has_no_partner(digits, views):
    with pytest.raises(InputError, match="two views"):
        SimCLR("mlp", n_views=views).fit(Embeddings(digits.pixels / 16))


def test_an_encoder_learns_without_labels(digits, encoder, cnn):
    images = digits.images
    fresh = Model(cnn(images.shape, 1), None)
    fresh.network.set_normalization(*map(torch.from_numpy, images.moments()))
    before, after = (digits.nearest_accuracy(m.embed(images)) for m in (fresh, encoder))
    assert after > 0.94
    assert after > before - 0.02  # a random network keeps digits apart too; agreement between views must not undo it


@pytest.mark.parametrize("views", [2, 3])
def test_tables_and_embeddings_have_encoders_too(digits, views):
    rows = Embeddings(digits.pixels / 16)
    settings = Training(epochs=20, batch_size=256, optimizer="adamw", learning_rate=3e-3, device="cpu")
    model = SimCLR("mlp", settings, n_views=views).fit(rows)
    assert digits.nearest_accuracy(model.embed(rows)) > 0.9


def test_a_learner_starts_from_an_encoder(digits, encoder, cnn):
    images = digits.images
    vault = ldp.Vault(digits.labels, ldp.LabelSpace(list(range(10))), ldp.Budget(30.0))
    release = vault.release(ldp.RandomizedResponse(30.0), row_selection=np.arange(40))
    barely = Training(epochs=1, batch_size=20, learning_rate=1e-9, weight_decay=0.0, device="cpu")
    started = Supervised(cnn, barely).fit(images, release, start=encoder)
    pairs = zip(started.network.encoder.parameters(), encoder.network.encoder.parameters(), strict=True)
    assert all(torch.allclose(ours, theirs, atol=1e-6) for ours, theirs in pairs)
    assert started.network.head.out_features == 10
    assert started.space == vault.space
    assert encoder.network.head.out_features == 1  # the encoder itself is left as it was
