"""Choosing among candidates without looking at labels.

Protocol: `split_rows` sets two disjoint parts aside. `choose` picks on the first; `measure` scores the winner on the
second. The winner's score on the first part would be partly the luck that made it win; on the second it is not, and
since the parts are disjoint, each label pays for one of them only.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.evaluate.criteria import Criterion, auc_scores, check_criterion, log_loss_scores
from labeldp.evaluate.inputs import chosen_rows, distributions, predicted_codes, predicted_numbers
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.mechanisms.selection import BestCandidate, HighestScore
from labeldp.privacy.mechanisms.sums import LeastLoss
from labeldp.privacy.vault import Vault
from labeldp.releases.base import Release
from labeldp.releases.scores import Choice

_ALIKE = 0.95  # the share of rows that candidates give to one class, where accuracy tells them apart no more


def choose(
    vault: Vault,
    candidates: Sequence[Any],
    rows: Any,
    epsilon: float,
    derived_from: Sequence[Release] = (),
    *,
    by: Criterion = "auto",
) -> Choice:
    """Release which candidate is best on `rows`, by a noisy maximum: `choice.best` is its place.

    Args:
        vault: The labels.
        candidates: Public (n, K) tables of probabilities, or n codes, from models that were trained on other rows.
            Where labels are numbers, each is n predicted numbers, and the least absolute error wins.
        rows: The rows to choose on, by numbers or by a mask; None for all.
        epsilon: What each label may lose. In a vault of users, what a user pays for all of their rows.
        derived_from: The releases that the models were trained on.
        by: What makes a candidate best: "accuracy", "log-loss", or "auc" (two classes). "auto" is accuracy, and AUC
            where all candidates give at least 95 % of the rows to the same one of two classes: accuracy then tells
            them apart no more.

    Returns:
        The choice. It says which candidate won, and not by how much.

    Raises:
        InputError: The candidates do not fit the labels, or the criterion does not fit them. Nothing is charged.
        BudgetExceeded: The budget does not allow it.

    Privacy:
        Epsilon for each label of `rows`. Rows, candidates and criterion are public, and fixed before the charge.
    """
    if not len(candidates):
        raise InputError("There is nothing to choose from: give at least one candidate.")
    check_criterion(by, vault.space)
    here = chosen_rows(rows, vault.rows)
    mechanism = vault.shared(_comparison(vault, candidates, here, epsilon, by), here)
    choice = vault.release(mechanism, rows=here, derived_from=derived_from)
    if not isinstance(choice, Choice):
        raise TypeError("A noisy maximum gave no choice.")
    return choice


def _comparison(
    vault: Vault, candidates: Sequence[Any], rows: NDArray[np.int64], epsilon: float, by: Criterion
) -> Mechanism:
    """Return the noisy maximum that compares the candidates on `rows`."""
    if vault.space.step is not None:
        # A square can be a thousand times as large as the usual ones, and noise goes with the largest.
        numbers = np.stack([predicted_numbers(c, vault) for c in candidates], axis=1)
        return LeastLoss(numbers, epsilon, "absolute")
    codes = [predicted_codes(c, rows, vault.rows, len(vault.space)) for c in candidates]
    tables = all(np.ndim(each) == 2 for each in candidates)
    if by == "auto":
        by = "auc" if len(vault.space) == 2 and tables and _one_is_rare(codes, rows) else "accuracy"
    if by == "accuracy":
        return BestCandidate(np.stack(codes, axis=1), epsilon)
    if not tables:
        raise InputError(f"To choose by {by}, give the probabilities of each candidate, not its classes.")
    labelled = rows[vault.labelled[rows]]  # which rows have a label is public
    score = log_loss_scores if by == "log-loss" else auc_scores
    scores = np.stack([score(distributions(np.asarray(each), labelled)) for each in candidates])
    return HighestScore(scores, epsilon, by, labelled)


def _one_is_rare(codes: Sequence[NDArray[np.int32]], rows: NDArray[np.int64]) -> bool:
    """Whether all candidates give nearly all rows to the same one of two classes."""
    shares = [np.count_nonzero(each[rows]) / max(1, rows.size) for each in codes]
    return bool(min(shares) >= _ALIKE or max(shares) <= 1 - _ALIKE)
