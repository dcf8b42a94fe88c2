import numpy as np
import pytest
import torch

from labeldp.learn import Training
from labeldp.represent.clusters import kmeans
from labeldp.represent.scan import SCAN, scan_loss, self_label_loss


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
    """On average: a start may merge two digits, and then it stays so."""
    found = []
    for seed in (0, 1):
        settings = Training(epochs=40, batch=128, optimizer="adamw", rate=1e-3, device="cpu", seed=seed)
        scan = SCAN(10, near=10, entropy=3.0, threshold=0.9, training=settings, self_label_epochs=15)
        clusters = scan.assign(scan.fit(digits.images, encoder), digits.images)
        assert len(np.unique(clusters)) == 10
        found.append(digits.matched_accuracy(clusters))
    assert np.mean(found) > digits.matched_accuracy(kmeans(digits.pixels, 10)) + 0.02
