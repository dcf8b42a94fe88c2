"""Rows that are like their neighbours."""

import numpy as np
from numpy.typing import NDArray

from labeldp.data.base import Features
from labeldp.data.embeddings import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.representation.clusters import average_neighbors, nearest_neighbors, normalize_rows

_N_NEIGHBORS, _N_ROUNDS = 20, 8


def smooth_rows(features: Features, n_columns: int) -> NDArray[np.float32]:
    """Return rows of length 1 that are like their neighbours.

    Noise drowns what tells one row from the next, and leaves what many have in common. So rows are drawn towards their
    neighbours, and few directions hold all that is left.
    """
    normalized = normalize_rows(np.concatenate(list(features.matrices(1 << 13))))
    smooth = Embeddings(
        average_neighbors(normalized, nearest_neighbors(normalized, min(_N_NEIGHBORS, len(normalized) - 1)), _N_ROUNDS)
    )
    return RowNormalizer.fit(smooth, n_columns=n_columns)(smooth)
