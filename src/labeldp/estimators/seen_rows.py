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

_FITTED_ROWS: list[tuple[str | None, NDArray[np.uint64]]] = []  # the ledger of each fit, and hashes of its rows
_MAX_HASHES = 10_000_000


def fingerprint(X: Any) -> tuple[NDArray[np.uint64], str]:
    """Return a hash for each row of features, and one for all of them in order. No label has a part in it."""
    if isinstance(X, Features):
        row_hashes = np.concatenate([_hash_rows(block) for block in X.matrices(1 << 13)])
    elif is_frame(X):
        frame = to_frame(X)
        # Polars may hash otherwise in its next version, which does no harm within one process; a ledger lives longer.
        return frame.hash_rows().to_numpy(), str(identify("estimator", "y", frame.to_arrow().to_batches()).digest)
    else:
        row_hashes = _hash_rows(np.asarray(X).reshape(len(X), -1))
    return row_hashes, hashlib.sha256(row_hashes.tobytes()).hexdigest()


def _hash_rows(matrix: NDArray[Any]) -> NDArray[np.uint64]:
    contiguous = np.ascontiguousarray(matrix)
    if contiguous.dtype == object:
        texts = {str(index): [str(value) for value in column] for index, column in enumerate(contiguous.T)}
        return pl.DataFrame(texts).hash_rows().to_numpy()
    digests = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in contiguous)
    return np.frombuffer(b"".join(digests), np.uint64)


def warn_if_fitted_before(row_hashes: NDArray[np.uint64], ledger: str | None) -> bool:
    """Warn if rows were fitted before in this process, and no ledger counted that, or, the first time, another one."""
    ledgers = [path for path, hashes in _FITTED_ROWS if np.isin(row_hashes, hashes).any()]
    is_repeated = bool(ledgers) and (ledger is None or None in ledgers or ledger not in ledgers)
    if is_repeated:
        warnings.warn(
            "Some of these rows were fitted before in this process. If it was with the same labels, what is learnt of "
            "them adds up: give one ledger= to all fits to account for it, or tune with LabelPrivateSearchCV, which "
            "uses one release.",
            PrivacyWarning,
            stacklevel=4,
        )
    if sum(len(hashes) for _, hashes in _FITTED_ROWS) < _MAX_HASHES:
        _FITTED_ROWS.append((ledger, np.unique(row_hashes)))
    return is_repeated
