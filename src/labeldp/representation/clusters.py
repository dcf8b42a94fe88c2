"""Clusters without labels: k-means, nearest neighbors, and averages over neighbors."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.cluster import KMeans, MiniBatchKMeans

from labeldp.core.errors import InputError
from labeldp.data.feature_rows import iter_blocks

_GPU_BLOCK_ROWS = 2048  # rows that a GPU compares with all rows at once


def kmeans(embeddings: NDArray[np.floating], n_clusters: int, seed: int = 0) -> NDArray[np.int32]:
    """Return the cluster of each row. Rows are normalized to length 1, because encoders compare directions."""
    if not 1 <= n_clusters <= len(embeddings):
        raise InputError(
            f"There are {len(embeddings)} rows: choose between 1 and as many clusters.", parameter="n_clusters"
        )
    normalized = normalize_rows(embeddings)
    method = KMeans if len(normalized) <= 20_000 else MiniBatchKMeans
    clusters: NDArray[np.int32] = method(n_clusters, n_init=3, random_state=seed).fit_predict(normalized)
    return clusters


def nearest_neighbors(embeddings: NDArray[np.floating], n_neighbors: int, device: str = "cpu") -> NDArray[np.int64]:
    """Return the `n_neighbors` rows nearest in direction to each row, without itself, (rows, neighbors)."""
    if not 1 <= n_neighbors < len(embeddings):
        raise InputError(f"There are {len(embeddings)} rows: each has at most {len(embeddings) - 1} neighbors.")
    normalized = normalize_rows(embeddings)
    if device != "cpu":
        return _nearest_neighbors_on(device, normalized, n_neighbors)
    nearest = np.empty((len(normalized), n_neighbors), np.int64)
    for part in iter_blocks(len(normalized), len(normalized)):
        similarity = normalized[part] @ normalized.T
        np.fill_diagonal(similarity[:, part], -np.inf)
        candidates = np.argpartition(similarity, -n_neighbors, axis=1)[:, -n_neighbors:]
        order = np.argsort(-np.take_along_axis(similarity, candidates, axis=1), axis=1)
        nearest[part] = np.take_along_axis(candidates, order, axis=1)
    return nearest


def normalize_rows(matrix: NDArray[np.floating]) -> NDArray[np.float32]:
    """Normalize rows to length 1; a row of zeros is unchanged."""
    float_matrix = np.asarray(matrix, np.float32)
    return float_matrix / np.linalg.norm(float_matrix, axis=1, keepdims=True).clip(1e-12)


def _nearest_neighbors_on(device: str, normalized: NDArray[np.float32], n_neighbors: int) -> NDArray[np.int64]:
    import torch

    tensor, neighbor_ids = torch.from_numpy(normalized).to(device), []
    for part in torch.split(torch.arange(len(tensor), device=device), _GPU_BLOCK_ROWS):
        similarity = tensor[part] @ tensor.T
        similarity[torch.arange(len(part), device=device), part] = -torch.inf
        neighbor_ids.append(similarity.topk(n_neighbors, dim=1).indices.cpu())
    return torch.cat(neighbor_ids).numpy()


def average_neighbors(values: NDArray[np.floating], nearest: NDArray[np.int64], n_rounds: int) -> NDArray[np.floating]:
    """Replace each row by the mean of itself and its nearest neighbors, `n_rounds` times."""
    n_rows, n_neighbors = nearest.shape
    weight = values.dtype.type(1 / (n_neighbors + 1))
    neighbor_weights = csr_array(
        (np.full(nearest.size, weight), nearest.ravel(), np.arange(0, nearest.size + 1, n_neighbors)), (n_rows, n_rows)
    )
    for _ in range(n_rounds):
        values = neighbor_weights @ values + weight * values
    return values
