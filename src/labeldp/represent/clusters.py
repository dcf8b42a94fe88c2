"""Groups of alike rows, found without labels: k-means, nearest neighbours, and averages over these."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.cluster import KMeans, MiniBatchKMeans

from labeldp.errors import InputError


def kmeans(embeddings: NDArray[np.floating], clusters: int, seed: int = 0) -> NDArray[np.int32]:
    """Return the cluster of each row. Rows are brought to unit length, because encoders compare directions."""
    if not 1 <= clusters <= len(embeddings):
        raise InputError(f"There are {len(embeddings)} rows: choose between 1 and as many clusters.")
    unit = np.asarray(embeddings, np.float32)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True).clip(1e-12)
    method = KMeans if len(unit) <= 20_000 else MiniBatchKMeans
    found: NDArray[np.int32] = method(clusters, n_init=3, random_state=seed).fit_predict(unit)
    return found


def neighbours(embeddings: NDArray[np.floating], count: int, device: str = "cpu") -> NDArray[np.int64]:
    """Return the `count` rows nearest in direction to each row, itself left out."""
    if not 1 <= count < len(embeddings):
        raise InputError(f"There are {len(embeddings)} rows: each has at most {len(embeddings) - 1} neighbours.")
    unit = torch.nn.functional.normalize(torch.as_tensor(np.asarray(embeddings, np.float32), device=device), dim=1)
    found = []
    for rows in torch.split(torch.arange(len(unit), device=device), 2048):
        likeness = unit[rows] @ unit.T
        likeness[torch.arange(len(rows), device=device), rows] = -torch.inf
        found.append(likeness.topk(count, dim=1).indices.cpu())
    nearest: NDArray[np.int64] = torch.cat(found).numpy()
    return nearest


def averaged(values: NDArray[np.floating], nearest: NDArray[np.int64], rounds: int) -> NDArray[np.floating]:
    """Put the mean of each row and its nearest ones in its place, so many times: rows of a kind draw together."""
    count, near = nearest.shape
    share = values.dtype.type(1 / (near + 1))
    friends = csr_array(
        (np.full(nearest.size, share), nearest.ravel(), np.arange(0, nearest.size + 1, near)), (count, count)
    )
    for _ in range(rounds):
        values = friends @ values + share * values
    return values
