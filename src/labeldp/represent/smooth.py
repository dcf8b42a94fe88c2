"""Rows that are like their neighbours."""

import numpy as np
import torch
from numpy.typing import NDArray

from labeldp.features.base import Features
from labeldp.features.embeddings import Embeddings
from labeldp.represent.clusters import averaged, neighbours
from labeldp.represent.lift import Lift

_NEAR, _ROUNDS = 20, 8


def smooth_rows(points: Features, columns: int) -> NDArray[np.float32]:
    """Return rows of length 1 that are like their neighbours.

    Noise drowns what tells one row from the next, and leaves what many have in common. So rows are drawn towards their
    neighbours, and few directions hold all that is left.
    """
    rows = torch.cat([points.batch(part) for part in torch.split(torch.arange(len(points)), 1 << 13)])
    unit = torch.nn.functional.normalize(rows.flatten(1).float(), dim=1).cpu().numpy()
    smooth = Embeddings(averaged(unit, neighbours(unit, min(_NEAR, len(unit) - 1)), _ROUNDS))
    return Lift.fit(smooth, columns=columns)(smooth)
