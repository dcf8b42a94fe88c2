"""Detection of rows that were fitted before in this process, by hashes of their features.

What several fits learn from the same labels adds up, and without a common ledger nothing counts it.
"""

import hashlib
import warnings
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from labeldp.core.errors import PrivacyWarning
from labeldp.data.base import Features
from labeldp.data.feature_reader import is_frame, to_frame
from labeldp.estimators.stack_level import find_stack_level
from labeldp.privacy.vault import identify

# For each fit, the path of its ledger and the hashes of its rows.
_FITTED_ROWS: list[tuple[str | None, NDArray[np.uint64]]] = []
# The most hashes that are stored, 80 MB of memory.
_MAX_HASHES = 10_000_000


def fingerprint(X: Any) -> tuple[NDArray[np.uint64], str]:
    """Return a hash for each row of features, and one for all of them in order; neither depends on labels."""
    if isinstance(X, Features):
        row_hashes = np.concatenate([_hash_rows(block) for block in X.matrices(1 << 13)])
    elif is_frame(X):
        frame = to_frame(X)
        # Row hashes of Polars may change with its version. That does no harm within one process, but a ledger lasts
        # longer, so its digest does not use them.
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
    """Warn if some rows were fitted before in this process and the given ledger did not count that.

    Args:
        row_hashes: A hash for each row of features.
        ledger: The path of this fit's ledger, or None.

    Returns:
        Whether a warning was given.
    """
    ledgers = [path for path, hashes in _FITTED_ROWS if np.isin(row_hashes, hashes).any()]
    is_repeated = bool(ledgers) and (ledger is None or None in ledgers or ledger not in ledgers)
    if is_repeated:
        warnings.warn(
            "Some of these rows were fitted before in this process. If it was with the same labels, what is learned of "
            "them adds up: give one ledger= to all fits to account for it, or tune with LabelPrivateSearchCV, which "
            "uses one release.",
            PrivacyWarning,
            stacklevel=find_stack_level(),
        )
    if sum(len(hashes) for _, hashes in _FITTED_ROWS) < _MAX_HASHES:
        _FITTED_ROWS.append((ledger, np.unique(row_hashes)))
    return is_repeated
