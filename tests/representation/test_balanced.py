import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import labeldp as ldp
from labeldp.representation.balanced import _distances, _memberships, balanced_kmeans
from labeldp.representation.clusters import kmeans

SIZE = 200


def matched(groups, labels):
    table = np.zeros((groups.max() + 1, labels.max() + 1))
    np.add.at(table, (groups, labels), 1)
    return table[linear_sum_assignment(-table)].sum() / len(labels)


@pytest.fixture
def classes():
    """Two classes that are close to each other and one that is long, all of one size."""
    noise = np.random.default_rng(0).normal(size=(3 * SIZE, 3)) * [0, 0.05, 0.05]
    labels = np.repeat([0, 1, 2], SIZE)
    noise[:, 2] += (labels == 2) * np.linspace(-6, 2, 3 * SIZE)
    return noise + np.array([[1, 0.15, 0], [1, -0.15, 0], [-1, 0, -0.7]])[labels], labels


def test_clusters_of_equal_size_are_the_classes_where_plain_clusters_are_not(classes):
    rows, labels = classes
    shares = balanced_kmeans(rows, 3)
    assert matched(shares.argmax(axis=1), labels) > 0.95
    assert matched(kmeans(rows, 3), labels) < 0.9
    assert np.allclose(shares.sum(axis=1), 1, atol=1e-5)
    assert np.allclose(shares.sum(axis=0), SIZE, rtol=0.05)
    assert np.array_equal(shares, balanced_kmeans(rows, 3))  # no noise, no labels: the same again


def test_memberships_by_plain_loops():
    generator = np.random.default_rng(1)
    unit = generator.normal(size=(12, 4)).astype(np.float32)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    centres = generator.normal(size=(3, 4)).astype(np.float32)
    far = [[sum((u - c / np.linalg.norm(c)) ** 2) for c in centres] for u in unit]
    assert np.allclose(_distances(unit, centres), far, atol=1e-5)
    slow = [[np.exp(-(d - min(row)) / 0.05) for d in row] for row in far]
    for _ in range(1000):  # the fast one stops where kinds differ by less than a twentieth
        slow = [[value / sum(row) for value in row] for row in slow]
        totals = [sum(row[column] for row in slow) / 4 for column in range(3)]  # of twelve rows, four in each kind
        if max(abs(total - 1) for total in totals) < 0.05:
            break
        slow = [[value / total for value, total in zip(row, totals, strict=True)] for row in slow]
    assert np.allclose(_memberships(unit, centres), slow, atol=1e-4)


def test_there_are_no_more_clusters_than_rows():
    with pytest.raises(ldp.InputError, match="choose between 1 and as many clusters"):
        balanced_kmeans(np.eye(3), 4)
