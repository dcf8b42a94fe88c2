"""A model's score, measured privately on rows that it has not seen."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_epsilon
from labeldp.evaluate.inputs import check_proba, chosen_rows, distributions, predicted_codes
from labeldp.evaluate.intervals import Interval, share
from labeldp.evaluate.table import Table, group
from labeldp.privacy.mechanisms.base import in_parts
from labeldp.privacy.mechanisms.linear import GroupHistogram
from labeldp.privacy.mechanisms.selection import RightCount
from labeldp.privacy.vault import Vault
from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.scores import NoisyRight

METHOD = (
    "noisy counts of labels as predicted, and of labels by prediction and confidence, on {rows} held-out rows at "
    "epsilon {epsilon:g}; 95 % intervals for new rows, sample and privacy noise included"
)


@dataclass(frozen=True)
class Score:
    """What was measured on `rows` held-out rows at `epsilon`, each with its 95 % interval for new rows.

    `recall` and `precision` go by class. `auc` is that of the second of two classes, or the mean of one class against
    the others.
    """

    rows: int
    epsilon: float
    accuracy: Interval
    recall: tuple[Interval, ...]
    precision: tuple[Interval, ...]
    log_loss: Interval
    calibration_error: Interval
    auc: Interval
    method: str

    def to_json(self) -> dict[str, Any]:
        """Describe the score; `from_json` reads it back."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Score":
        """Read what `to_json` wrote."""
        known = dict(data)
        for name in ("accuracy", "log_loss", "calibration_error", "auc"):
            known[name] = Interval.from_json(data[name])
        for name in ("recall", "precision"):
            known[name] = tuple(Interval.from_json(each) for each in data[name])
        return cls(**known)


def measure(
    vault: Vault, proba: Any, rows: Any, epsilon: float, derived_from: Sequence[Release] = (), bins: int = 10
) -> Score:
    """Score public predictions on `rows`, which the model must not have learned from.

    `proba` is (n, K), for all rows of the vault; only the given ones are looked at. Half of epsilon pays for one count
    of right predictions, hence the accuracy: a single count has far less noise than a table. The other half pays for
    the table of labels by predicted class and confidence, with at most `bins` bins for each class (fewer where noise
    would drown them), from which all else is read. The releases that the model was trained on are named in
    `derived_from`. In a vault of users, epsilon is what a user pays for all of theirs; intervals take rows as
    independent, which they are if each user has one.
    """
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1:
        raise InputError("bins must be a whole number above zero.")
    chances = check_proba(proba, vault.rows, len(vault.space))
    here = chosen_rows(rows, vault.rows)
    half = in_parts(check_epsilon(epsilon), 2)
    codes = predicted_codes(chances, here, vault.rows, len(vault.space))
    counting = vault.shared(RightCount(codes, half), here)
    count = vault.release(counting, rows=here, derived_from=derived_from)
    # Rows whose label is missing, a public fact, take no part.
    here = here if count.active is None else np.flatnonzero(count.active)
    known = distributions(chances, here)
    groups = np.zeros(vault.rows, np.int32)
    groups[here] = group(known, counting.epsilon, int(bins))
    table = vault.shared(GroupHistogram(groups, half), here)
    counts = vault.release(table, rows=here, derived_from=derived_from)
    if not isinstance(count, NoisyRight) or not isinstance(counts, NoisyCounts):
        raise TypeError("Counting gave no counts.")
    seen = Table(counts, known, groups[here].astype(np.int64))
    classes = range(len(vault.space))
    return Score(
        rows=here.size,
        epsilon=epsilon,
        accuracy=share(count.right, count.size, count.scale),
        recall=tuple(seen.recall(c) for c in classes),
        precision=tuple(seen.precision(c) for c in classes),
        log_loss=seen.log_loss(),
        calibration_error=seen.calibration_error(),
        auc=seen.auc(),
        method=METHOD.format(rows=here.size, epsilon=epsilon),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Interval):
        return value.to_json()
    return [each.to_json() for each in value] if isinstance(value, tuple) else value
