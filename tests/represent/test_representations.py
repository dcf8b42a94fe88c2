from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

import labeldp as ldp
from labeldp.features import Embeddings, Images
from labeldp.learn import Model, Supervised, Training
from labeldp.learn.backbones import build
from labeldp.represent.clusters import kmeans, neighbours
from labeldp.represent.contrastive import SimCLR, find_partner
from labeldp.represent.momentum import BYOL, MoCo, follow
from labeldp.represent.scan import SCAN, scan_loss, self_label_loss

torch.set_num_threads(1)
CNN = partial(build, "cnn", width=16)


@pytest.fixture(scope="module")
def digits():
    pixels, labels = load_digits(return_X_y=True)
    return Images((pixels.reshape(-1, 1, 8, 8) * 15.9).astype(np.uint8), flip=False), labels


@pytest.fixture(scope="module")
def encoder(digits):
    settings = Training(epochs=40, batch=256, optimizer="adamw", rate=3e-3, device="cpu")
    return SimCLR(CNN, settings).fit(digits[0])


def matched_accuracy(clusters, labels):
    """The share of rows whose cluster, matched with a class one to one, is right."""
    table = np.zeros((10, 10))
    np.add.at(table, (clusters, labels), 1)
    return table[linear_sum_assignment(-table)].sum() / len(labels)


def nearest_accuracy(embeddings, labels):
    return KNeighborsClassifier(5).fit(embeddings[::2], labels[::2]).score(embeddings[1::2], labels[1::2])


def test_finding_the_partner_is_cross_entropy_over_all_other_rows():
    z = torch.randn(6, 4)
    unit = z / z.norm(dim=1, keepdim=True)
    terms = []
    for i in range(6):
        likeness = {j: float(unit[i] @ unit[j]) / 0.5 for j in range(6) if j != i}
        total = sum(np.exp(v) for v in likeness.values())
        terms.append(-np.log(np.exp(likeness[(i + 3) % 6]) / total))
    assert float(find_partner(z, 0.5)) == pytest.approx(np.mean(terms), rel=1e-5)


def test_an_encoder_learns_without_labels(digits, encoder):
    images, labels = digits
    fresh = Model(CNN(images.shape, 1), None)
    fresh.network.normalise_by(*images.moments())
    before, after = (nearest_accuracy(m.embed(images), labels) for m in (fresh, encoder))
    assert after > 0.94
    assert after > before - 0.02  # a random network keeps digits apart too; agreement between views must not undo it


@pytest.mark.parametrize("method", [BYOL, partial(MoCo, views=3)])
def test_a_slow_copy_teaches(digits, method):
    images, labels = digits
    settings = Training(epochs=20, batch=256, optimizer="adamw", rate=3e-3, device="cpu")
    model = method(CNN, settings, hidden=128, projection=32).fit(images)
    embeddings = model.embed(images)
    assert nearest_accuracy(embeddings, labels) > 0.85
    assert embeddings.std(axis=0).mean() > 0.01  # it has not collapsed to a constant


def test_finding_ones_own_row_in_the_copys_view():
    said, meant = torch.randn(5, 4), torch.randn(5, 4)
    a, b = (v / v.norm(dim=1, keepdim=True) for v in (said, meant))
    terms = []
    for i in range(5):
        likeness = [float(a[i] @ b[j]) / 0.2 for j in range(5)]
        terms.append(-np.log(np.exp(likeness[i]) / np.exp(likeness).sum()))
    assert float(MoCo().compare(said, meant)) == pytest.approx(np.mean(terms), rel=1e-5)


def test_the_copy_follows_slowly():
    target, source = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    expected = 0.9 * target.weight.detach() + 0.1 * source.weight.detach()
    follow(target, source, 0.9)
    assert torch.allclose(target.weight, expected)


def test_tables_and_embeddings_have_encoders_too(digits):
    rows = Embeddings(load_digits(return_X_y=True)[0] / 16)
    settings = Training(epochs=20, batch=256, optimizer="adamw", rate=3e-3, device="cpu")
    model = SimCLR("mlp", settings).fit(rows)
    assert nearest_accuracy(model.embed(rows), digits[1]) > 0.9


def test_a_learner_starts_from_an_encoder(digits, encoder):
    images, labels = digits
    vault = ldp.Vault(labels, ldp.LabelSpace(list(range(10))), ldp.Budget(30.0))
    release = vault.release(ldp.RandomizedResponse(30.0), rows=np.arange(40))
    barely = Training(epochs=1, batch=20, rate=1e-9, decay=0.0, device="cpu")
    started = Supervised(CNN, barely).fit(images, release, start=encoder)
    pairs = zip(started.network.encoder.parameters(), encoder.network.encoder.parameters(), strict=True)
    assert all(torch.allclose(ours, theirs, atol=1e-6) for ours, theirs in pairs)
    assert started.network.head.out_features == 10
    assert started.space == vault.space
    assert encoder.network.head.out_features == 1  # the encoder itself is left as it was


def test_neighbours_are_the_nearest_in_direction():
    rows = np.random.default_rng(0).normal(size=(40, 5))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    likeness = unit @ unit.T
    np.fill_diagonal(likeness, -9)
    assert np.array_equal(neighbours(rows, 3), np.argsort(-likeness, axis=1)[:, :3])
    with pytest.raises(ldp.InputError, match="at most 39 neighbours"):
        neighbours(rows, 40)
    with pytest.raises(ldp.InputError, match="choose between 1 and as many clusters"):
        kmeans(rows, 41)


def test_the_clustering_loss_written_out():
    a, b = torch.randn(5, 3), torch.randn(5, 3)
    p, q = torch.softmax(a, 1).numpy(), torch.softmax(b, 1).numpy()
    together = -np.mean([np.log(x @ y) for x, y in zip(p, q, strict=True)])
    mean = p.mean(axis=0)
    expected = together - 2.0 * -(mean * np.log(mean)).sum()
    assert float(scan_loss(a, b, 2.0)) == pytest.approx(expected, rel=1e-5)


def test_self_labelling_counts_clusters_alike_and_only_sure_rows():
    weak = torch.tensor([[9.0, 0], [9.0, 0], [0, 9.0], [0.1, 0]])
    strong = torch.tensor([[1.0, 0], [1.0, 0], [0, 2.0], [-50.0, 50.0]])
    first, second = (float(-torch.log_softmax(strong[i], 0)[c]) for i, c in ((0, 0), (2, 1)))
    assert float(self_label_loss(weak, strong, 0.9)) == pytest.approx((first + second) / 2, rel=1e-5)


def test_neighbours_that_agree_make_better_clusters(digits, encoder):
    images, labels = digits
    settings = Training(epochs=40, batch=128, optimizer="adamw", rate=1e-3, device="cpu")
    scan = SCAN(10, near=10, entropy=3.0, threshold=0.9, training=settings, self_label_epochs=15)
    clusters = scan.assign(scan.fit(images, encoder), images)
    by_pixels = kmeans(load_digits().data, 10)
    assert matched_accuracy(clusters, labels) > matched_accuracy(by_pixels, labels) + 0.03
    assert len(np.unique(clusters)) == 10
