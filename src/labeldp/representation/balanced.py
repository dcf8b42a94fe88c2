"""Soft clusters of about equal size, computed without labels.

k-means on embeddings of an encoder splits some classes and merges others. If classes are known to be about equally
frequent, clusters can be constrained to be so, too. Sinkhorn's algorithm (as in Asano et al. 2020) scales memberships
to equal cluster sizes, and cluster centers are the means weighted by memberships.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from labeldp.core.errors import InputError

_TEMPERATURE = 0.05  # of memberships, in units of squared distance between rows of length 1
_RESTARTS, _SAMPLE_ROWS = 16, 10_000  # restarts on a sample of rows; the best one is refined on all rows
_MAX_ITERATIONS, _SINKHORN_STEPS = 30, 100
_SIZE_TOLERANCE = 0.05  # relative difference of cluster sizes from equal sizes

Matrix = NDArray[np.float32]


def balanced_kmeans(embeddings: NDArray[np.floating], n_clusters: int, seed: int = 0) -> Matrix:
    """Return the membership of each row in each cluster, (rows, clusters), from the restart of least cost.

    Args:
        embeddings: The rows, which are normalized to length 1.
        n_clusters: The number of clusters.
        seed: The seed of the restarts.

    Returns:
        Memberships, which add up to 1 for each row.

    Raises:
        InputError: There are more clusters than rows.
    """
    if not 1 <= n_clusters <= len(embeddings):
        raise InputError(
            f"There are {len(embeddings)} rows: choose between 1 and as many clusters.", parameter="n_clusters"
        )
    normalized = np.asarray(embeddings, np.float32)
    normalized = normalized / np.linalg.norm(normalized, axis=1, keepdims=True).clip(1e-12)
    sample = normalized[np.random.default_rng(seed).permutation(len(normalized))[: max(_SAMPLE_ROWS, 20 * n_clusters)]]
    candidates = [
        _refine_centers(sample, _initial_centers(sample, n_clusters, seed + restart)) for restart in range(_RESTARTS)
    ]
    return _memberships(normalized, _refine_centers(normalized, min(candidates, key=lambda each: _cost(sample, each))))


def _initial_centers(normalized: Matrix, n_clusters: int, seed: int) -> Matrix:
    sample_ids = np.random.default_rng(seed).permutation(len(normalized))[: max(2000, 20 * n_clusters)]
    centers: Matrix = KMeans(n_clusters, n_init=1, random_state=seed).fit(normalized[sample_ids]).cluster_centers_
    return centers


def _refine_centers(normalized: Matrix, centers: Matrix) -> Matrix:
    for _ in range(_MAX_ITERATIONS):
        previous, centers = centers, _memberships(normalized, centers).T @ normalized
        if np.allclose(centers, previous, rtol=1e-3, atol=1e-3 * abs(centers).max()):
            break
    return centers


def _distances(normalized: Matrix, centers: Matrix) -> Matrix:
    directions = centers / np.linalg.norm(centers, axis=1, keepdims=True).clip(1e-12)
    return 2 - 2 * normalized @ directions.T


def _memberships(normalized: Matrix, centers: Matrix) -> Matrix:
    distances = _distances(normalized, centers)
    memberships = np.exp((distances.min(axis=1, keepdims=True) - distances) / _TEMPERATURE)
    for _ in range(_SINKHORN_STEPS):
        memberships /= memberships.sum(axis=1, keepdims=True)
        sizes = memberships.sum(axis=0) * (memberships.shape[1] / len(memberships))  # 1 for equal sizes
        if abs(sizes - 1).max() < _SIZE_TOLERANCE:
            break
        memberships /= sizes.clip(1e-12)
    return memberships / memberships.sum(axis=1, keepdims=True)


def _cost(normalized: Matrix, centers: Matrix) -> float:
    return float((_memberships(normalized, centers) * _distances(normalized, centers)).sum())
