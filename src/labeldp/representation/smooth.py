"""Rows smoothed over their nearest neighbors."""

import numpy as np
from numpy.typing import NDArray

from labeldp.data.base import Features
from labeldp.data.embeddings import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.representation.clusters import average_neighbors, nearest_neighbors, normalize_rows

_N_NEIGHBORS, _N_ROUNDS = 20, 8


def smooth_rows(features: Features, n_columns: int) -> NDArray[np.float32]:
    """Return normalized rows, averaged over nearest neighbors and projected to principal components.

    Privacy noise hides differences of single rows, but not structure that many rows share. Averages over neighbors
    retain this structure in few directions.

    Args:
        features: The rows.
        n_columns: The columns of the result.

    Returns:
        A matrix of (rows, columns).
    """
    normalized = normalize_rows(np.concatenate(list(features.matrices(1 << 13))))
    smooth = Embeddings(
        average_neighbors(normalized, nearest_neighbors(normalized, min(_N_NEIGHBORS, len(normalized) - 1)), _N_ROUNDS)
    )
    return RowNormalizer.fit(smooth, n_columns=n_columns)(smooth)
