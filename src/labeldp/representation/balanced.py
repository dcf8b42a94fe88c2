"""As many kinds of rows as there are classes, all of about the same size, found without labels.

k-means on what an encoder sees splits some classes and joins others. Where classes are known to be about equally
frequent, groups can be asked to be: shares of rows in groups are brought to equal sums (Sinkhorn's algorithm, as in
Asano et al. 2020), and groups move to the mean of their shares.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from labeldp.core.errors import InputError

_SOFTNESS = 0.05  # of shares, in units of squared distance between rows of length 1
_RESTARTS, _TRIED = 16, 10_000  # restarts on so many rows, the best of which is finished on all
_MOVES, _BALANCINGS, _UNEVEN = 30, 100, 0.05  # kinds may differ that much from one size

Shares = NDArray[np.float32]


def balanced(rows: NDArray[np.floating], kinds: int, seed: int = 0) -> Shares:
    """Return the share of each row in each kind; rows are compared by direction. The least costly of restarts wins."""
    if not 1 <= kinds <= len(rows):
        raise InputError(f"There are {len(rows)} rows: choose between 1 and as many kinds.")
    unit = np.asarray(rows, np.float32)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True).clip(1e-12)
    some = unit[np.random.default_rng(seed).permutation(len(unit))[: max(_TRIED, 20 * kinds)]]
    tried = [_settled(some, _begun(some, kinds, seed + restart)) for restart in range(_RESTARTS)]
    return _shares(unit, _settled(unit, min(tried, key=lambda each: _cost(some, each))))


def _begun(unit: Shares, kinds: int, seed: int) -> Shares:
    few = np.random.default_rng(seed).permutation(len(unit))[: max(2000, 20 * kinds)]
    centres: Shares = KMeans(kinds, n_init=1, random_state=seed).fit(unit[few]).cluster_centers_
    return centres


def _settled(unit: Shares, centres: Shares) -> Shares:
    for _ in range(_MOVES):
        before, centres = centres, _shares(unit, centres).T @ unit
        if np.allclose(centres, before, rtol=1e-3, atol=1e-3 * abs(centres).max()):
            break
    return centres


def _distances(unit: Shares, centres: Shares) -> Shares:
    directions = centres / np.linalg.norm(centres, axis=1, keepdims=True).clip(1e-12)
    return 2 - 2 * unit @ directions.T


def _shares(unit: Shares, centres: Shares) -> Shares:
    far = _distances(unit, centres)
    shares = np.exp((far.min(axis=1, keepdims=True) - far) / _SOFTNESS)
    for _ in range(_BALANCINGS):
        shares /= shares.sum(axis=1, keepdims=True)
        sizes = shares.sum(axis=0) * (shares.shape[1] / len(shares))  # 1 each, if they were equal
        if abs(sizes - 1).max() < _UNEVEN:
            break
        shares /= sizes.clip(1e-12)
    return shares / shares.sum(axis=1, keepdims=True)


def _cost(unit: Shares, centres: Shares) -> float:
    return float((_shares(unit, centres) * _distances(unit, centres)).sum())
