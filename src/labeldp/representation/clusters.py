"""Groups of alike rows, found without labels: k-means, nearest neighbours, and averages over these."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.cluster import KMeans, MiniBatchKMeans

from labeldp.core.errors import InputError
from labeldp.data.row_selection import blocks

_COMPARED = 2048  # rows that a GPU compares with all rows at once


def kmeans(embeddings: NDArray[np.floating], clusters: int, seed: int = 0) -> NDArray[np.int32]:
    """Return the cluster of each row. Rows are brought to unit length, because encoders compare directions."""
    if not 1 <= clusters <= len(embeddings):
        raise InputError(f"There are {len(embeddings)} rows: choose between 1 and as many clusters.")
    unit = unit_rows(embeddings)
    method = KMeans if len(unit) <= 20_000 else MiniBatchKMeans
    found: NDArray[np.int32] = method(clusters, n_init=3, random_state=seed).fit_predict(unit)
    return found


def neighbours(embeddings: NDArray[np.floating], count: int, device: str = "cpu") -> NDArray[np.int64]:
    """Return the `count` rows nearest in direction to each row, itself left out."""
    if not 1 <= count < len(embeddings):
        raise InputError(f"There are {len(embeddings)} rows: each has at most {len(embeddings) - 1} neighbours.")
    unit = unit_rows(embeddings)
    if device != "cpu":
        return _neighbours_on(device, unit, count)
    nearest = np.empty((len(unit), count), np.int64)
    for part in blocks(len(unit), len(unit)):
        likeness = unit[part] @ unit.T
        np.fill_diagonal(likeness[:, part], -np.inf)
        near = np.argpartition(likeness, -count, axis=1)[:, -count:]
        order = np.argsort(-np.take_along_axis(likeness, near, axis=1), axis=1)
        nearest[part] = np.take_along_axis(near, order, axis=1)
    return nearest


def unit_rows(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    """Bring rows to length 1; a row of zeros stays as it is."""
    single = np.asarray(rows, np.float32)
    return single / np.linalg.norm(single, axis=1, keepdims=True).clip(1e-12)


def _neighbours_on(device: str, unit: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    import torch

    rows, found = torch.from_numpy(unit).to(device), []
    for part in torch.split(torch.arange(len(rows), device=device), _COMPARED):
        likeness = rows[part] @ rows.T
        likeness[torch.arange(len(part), device=device), part] = -torch.inf
        found.append(likeness.topk(count, dim=1).indices.cpu())
    return torch.cat(found).numpy()


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
