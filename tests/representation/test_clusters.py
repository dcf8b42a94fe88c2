import numpy as np
import pytest

import labeldp as ldp
from labeldp.representation.clusters import average_neighbors, kmeans, nearest_neighbors


def test_neighbors_are_the_nearest_in_direction():
    rows = np.random.default_rng(0).normal(size=(40, 5))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    likeness = unit @ unit.T
    np.fill_diagonal(likeness, -9)
    assert np.array_equal(nearest_neighbors(rows, 3), np.argsort(-likeness, axis=1)[:, :3])
    assert np.array_equal(nearest_neighbors(rows, 3, "cpu:0"), nearest_neighbors(rows, 3))  # as on a GPU
    with pytest.raises(ldp.InputError, match="at most 39 neighbors"):
        nearest_neighbors(rows, 40)
    with pytest.raises(ldp.InputError, match="choose between 1 and as many clusters"):
        kmeans(rows, 41)


def test_averages_over_neighbors_by_a_plain_loop():
    values = np.random.default_rng(0).normal(size=(30, 4))
    nearest = nearest_neighbors(values, 5)
    slow = values
    for _ in range(3):
        slow = np.array([np.mean([slow[i], *slow[nearest[i]]], axis=0) for i in range(len(slow))])
    assert np.allclose(average_neighbors(values, nearest, 3), slow)
    assert average_neighbors(values.astype(np.float32), nearest, 1).dtype == np.float32
