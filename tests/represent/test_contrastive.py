import numpy as np
import pytest
import torch

import labeldp as ldp
from labeldp.features import Embeddings
from labeldp.learn import Model, Supervised, Training
from labeldp.represent.contrastive import SimCLR, find_partner


def test_finding_the_partner_is_cross_entropy_over_all_other_rows():
    z = torch.randn(6, 4)
    unit = z / z.norm(dim=1, keepdim=True)
    terms = []
    for i in range(6):
        likeness = {j: float(unit[i] @ unit[j]) / 0.5 for j in range(6) if j != i}
        total = sum(np.exp(v) for v in likeness.values())
        terms.append(-np.log(np.exp(likeness[(i + 3) % 6]) / total))
    assert float(find_partner(z, 0.5)) == pytest.approx(np.mean(terms), rel=1e-5)


def test_an_encoder_learns_without_labels(digits, encoder, cnn):
    images = digits.images
    fresh = Model(cnn(images.shape, 1), None)
    fresh.network.normalise_by(*images.moments())
    before, after = (digits.nearest_accuracy(m.embed(images)) for m in (fresh, encoder))
    assert after > 0.94
    assert after > before - 0.02  # a random network keeps digits apart too; agreement between views must not undo it


def test_tables_and_embeddings_have_encoders_too(digits):
    rows = Embeddings(digits.pixels / 16)
    settings = Training(epochs=20, batch=256, optimizer="adamw", rate=3e-3, device="cpu")
    model = SimCLR("mlp", settings).fit(rows)
    assert digits.nearest_accuracy(model.embed(rows)) > 0.9


def test_a_learner_starts_from_an_encoder(digits, encoder, cnn):
    images = digits.images
    vault = ldp.Vault(digits.labels, ldp.LabelSpace(list(range(10))), ldp.Budget(30.0))
    release = vault.release(ldp.RandomizedResponse(30.0), rows=np.arange(40))
    barely = Training(epochs=1, batch=20, rate=1e-9, decay=0.0, device="cpu")
    started = Supervised(cnn, barely).fit(images, release, start=encoder)
    pairs = zip(started.network.encoder.parameters(), encoder.network.encoder.parameters(), strict=True)
    assert all(torch.allclose(ours, theirs, atol=1e-6) for ours, theirs in pairs)
    assert started.network.head.out_features == 10
    assert started.space == vault.space
    assert encoder.network.head.out_features == 1  # the encoder itself is left as it was
