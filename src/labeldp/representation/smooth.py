"""Rows that are like their neighbours."""

import numpy as np
from numpy.typing import NDArray

from labeldp.data.base import Features
from labeldp.data.embeddings import Embeddings
from labeldp.data.row_normalizer import Lift
from labeldp.representation.clusters import averaged, neighbours, unit_rows

_NEAR, _ROUNDS = 20, 8


def smooth_rows(points: Features, columns: int) -> NDArray[np.float32]:
    """Return rows of length 1 that are like their neighbours.

    Noise drowns what tells one row from the next, and leaves what many have in common. So rows are drawn towards their
    neighbours, and few directions hold all that is left.
    """
    unit = unit_rows(np.concatenate(list(points.matrices(1 << 13))))
    smooth = Embeddings(averaged(unit, neighbours(unit, min(_NEAR, len(unit) - 1)), _ROUNDS))
    return Lift.fit(smooth, columns=columns)(smooth)
