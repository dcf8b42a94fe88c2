"""Rows that were fitted before in this process, by hashes of their features: what is learnt of their labels adds up."""

import hashlib
import warnings
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from labeldp.core.errors import PrivacyWarning
from labeldp.data.base import Features
from labeldp.data.feature_reader import is_frame, to_frame
from labeldp.privacy.vault import identify

_SEEN: list[tuple[str | None, NDArray[np.uint64]]] = []  # the ledger of each fit, and hashes of its rows
_MOST_SEEN = 10_000_000


def fingerprint(X: Any) -> tuple[NDArray[np.uint64], str]:
    """Return a hash for each row of features, and one for all of them in order. No label has a part in it."""
    if isinstance(X, Features):
        rows = np.concatenate([_hashes(block) for block in X.matrices(1 << 13)])
    elif is_frame(X):
        frame = to_frame(X)
        # Polars may hash otherwise in its next version, which does no harm within one process; a ledger lives longer.
        return frame.hash_rows().to_numpy(), str(identify("estimator", "y", frame.to_arrow().to_batches()).digest)
    else:
        rows = _hashes(np.asarray(X).reshape(len(X), -1))
    return rows, hashlib.sha256(rows.tobytes()).hexdigest()


def _hashes(matrix: NDArray[Any]) -> NDArray[np.uint64]:
    plain = np.ascontiguousarray(matrix)
    if plain.dtype == object:
        texts = {str(place): [str(value) for value in column] for place, column in enumerate(plain.T)}
        return pl.DataFrame(texts).hash_rows().to_numpy()
    digests = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in plain)
    return np.frombuffer(b"".join(digests), np.uint64)


def seen_before(rows: NDArray[np.uint64], ledger: str | None) -> bool:
    """Warn if rows were fitted before in this process, and no ledger counted that, or, the first time, another one."""
    known = [each for each, seen in _SEEN if np.isin(rows, seen).any()]
    before = bool(known) and (ledger is None or None in known or ledger not in known)
    if before:
        warnings.warn(
            "Some of these rows were fitted before in this process. If it was with the same labels, what is learnt of "
            "them adds up: give one ledger= to all fits to account for it, or tune with LabelPrivateSearchCV, which "
            "uses one release.",
            PrivacyWarning,
            stacklevel=4,
        )
    if sum(len(seen) for _, seen in _SEEN) < _MOST_SEEN:
        _SEEN.append((ledger, np.unique(rows)))
    return before
