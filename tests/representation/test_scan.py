import numpy as np
import pytest
import torch

import labeldp as ldp
from labeldp.learn import Supervised, Training
from labeldp.mechanisms import GroupHistogram
from labeldp.recipes.training import check_encoder_without_labels
from labeldp.representation.clusters import kmeans
from labeldp.representation.scan import SCAN, scan_loss, self_label_loss


def test_the_clustering_loss_written_out():
    a, b = torch.randn(5, 3), torch.randn(5, 3)
    p, q = torch.softmax(a, 1).numpy(), torch.softmax(b, 1).numpy()
    together = -np.mean([np.log(x @ y) for x, y in zip(p, q, strict=True)])
    mean = p.mean(axis=0)
    expected = together - 2.0 * -(mean * np.log(mean)).sum()
    assert float(scan_loss(a, b, 2.0)) == pytest.approx(expected, rel=1e-5)


def test_self_labeling_weighs_clusters_equally_and_uses_only_confident_rows():
    weak = torch.tensor([[9.0, 0], [9.0, 0], [0, 9.0], [0.1, 0]])
    strong = torch.tensor([[1.0, 0], [1.0, 0], [0, 2.0], [-50.0, 50.0]])
    first, second = (float(-torch.log_softmax(strong[i], 0)[c]) for i, c in ((0, 0), (2, 1)))
    assert float(self_label_loss(weak, strong, 0.9)) == pytest.approx((first + second) / 2, rel=1e-5)


def test_neighbors_that_agree_make_better_clusters(digits, encoder):
    """On average: a start may merge two digits, and then it stays so."""
    found = []
    for seed in (0, 1):
        settings = Training(epochs=40, batch_size=128, optimizer="adamw", learning_rate=1e-3, device="cpu", seed=seed)
        scan = SCAN(10, n_neighbors=10, entropy_weight=3.0, threshold=0.9, training=settings, self_label_epochs=15)
        clusters = scan.assign(scan.fit(digits.images, encoder), digits.images)
        assert len(np.unique(clusters)) == 10
        found.append(digits.matched_accuracy(clusters))
    assert np.mean(found) > digits.matched_accuracy(kmeans(digits.pixels, 10)) + 0.02


def test_clusters_from_an_encoder_that_learnt_from_labels_cost_what_it_cost(digits, cnn):
    """Labels that nothing but the network knows: clusters of its output would tell them."""
    rows, space = np.arange(120), ldp.LabelSpace([0, 1])
    images = digits.images.select(rows)
    vault = ldp.Vault(np.random.default_rng(0).integers(0, 2, rows.size), space, ldp.Budget(20.0))
    once = Training(epochs=1, batch_size=64, device="cpu")
    learnt = Supervised(cnn, once).fit(images, vault.release(ldp.RandomizedResponse(8.0)))
    found = SCAN(2, n_neighbors=5, training=once, self_label_epochs=1).fit(images, learnt)
    assert (found.guarantee, found.lineage) == (learnt.guarantee, learnt.lineage)
    with pytest.raises(ldp.InputError, match="was trained with labels"):
        check_encoder_without_labels(found)
    counts = vault.release(GroupHistogram(SCAN.assign(found, images), 0.5), derived_from=[found])
    assert counts.guarantee.epsilon == 8.5
    assert set(counts.lineage) > set(found.lineage)


def test_clusters_from_a_label_free_encoder_cost_nothing(digits, encoder):
    few = digits.images.select(np.arange(60))
    once = Training(epochs=1, batch_size=32, device="cpu")
    found = SCAN(3, n_neighbors=5, training=once, self_label_epochs=0).fit(few, encoder)
    assert (found.guarantee, found.lineage) == (None, ())
    check_encoder_without_labels(found)
