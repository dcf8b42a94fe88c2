"""A private choice among candidate models.

Protocol: `split_rows` sets two disjoint parts of the rows aside. `choose` picks the best candidate on the first part,
and `measure` scores it on the second. On the first part its score would have a selection bias. The parts are disjoint,
so each label pays for one of them only.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.evaluate.criteria import Criterion, auc_scores, check_criterion, log_loss_scores
from labeldp.evaluate.predictions import as_predicted_codes, as_predicted_targets, as_row_ids, distributions
from labeldp.privacy.mechanisms.base import Mechanism
from labeldp.privacy.mechanisms.numeric_sums import NoisyMinLoss
from labeldp.privacy.mechanisms.selection import BestCandidate, HighestScore
from labeldp.privacy.vault.interface import ReleasingVault
from labeldp.releases.base import Release
from labeldp.releases.scores import Choice

# Fraction of rows that all candidates give to one of two classes, from which accuracy hardly separates candidates.
_SAME_CLASS_FRACTION = 0.95


def choose(
    vault: ReleasingVault,
    candidates: Sequence[Any],
    row_selection: Any,
    epsilon: float,
    derived_from: Sequence[Release] = (),
    *,
    criterion: Criterion = "auto",
) -> Choice:
    """Release which candidate is best on some rows, by a noisy maximum: `best_index` is its index.

    Args:
        vault: The labels.
        candidates: Public (n, K) tables of probabilities, or n codes, from models that were trained on other rows.
            Where labels are numbers, each is n predicted numbers, and the least absolute error wins.
        row_selection: The rows to choose on, by numbers or by a mask; None for all.
        epsilon: The epsilon for each label. In a vault of users, it is for all labels of a user.
        derived_from: The releases that the models were trained on.
        criterion: What makes a candidate best: "accuracy", "log-loss", or "auc" (two classes). "auto" is accuracy, and
            AUC where all candidates give at least 95 % of the rows to the same one of two classes: accuracy then hardly
            separates them.

    Returns:
        The choice. It holds the index of the best candidate, and not by how much it is better.

    Raises:
        InputError: The candidates do not fit the labels, or the criterion does not fit them. Nothing is charged.
        BudgetExceeded: The budget does not allow it.

    Privacy:
        Epsilon for each label of the rows. Rows, candidates and criterion are public, and fixed before the charge.
    """
    if not len(candidates):
        raise InputError("There is nothing to choose from: give at least one candidate.")
    check_criterion(criterion, vault.space)
    row_ids = as_row_ids(row_selection, vault.n_rows)
    mechanism = vault.scaled_to_unit(_selection_mechanism(vault, candidates, row_ids, epsilon, criterion), row_ids)
    choice = vault.release(mechanism, row_selection=row_ids, derived_from=derived_from)
    if not isinstance(choice, Choice):
        raise TypeError("A noisy maximum gave no choice.")
    return choice


def _selection_mechanism(
    vault: ReleasingVault, candidates: Sequence[Any], row_ids: NDArray[np.int64], epsilon: float, criterion: Criterion
) -> Mechanism:
    """Return the noisy maximum that compares the candidates on the given rows."""
    if vault.space.step is not None:
        # A squared error can be a thousand times as large as a usual one, and the noise scales with the largest.
        predictions = np.stack([as_predicted_targets(candidate, vault) for candidate in candidates], axis=1)
        return NoisyMinLoss(predictions, epsilon, "absolute")
    codes = [as_predicted_codes(candidate, row_ids, vault.n_rows, len(vault.space)) for candidate in candidates]
    are_probabilities = all(np.ndim(each) == 2 for each in candidates)
    if criterion == "auto":
        criterion = (
            "auc" if len(vault.space) == 2 and are_probabilities and _is_one_class_rare(codes, row_ids) else "accuracy"
        )
    if criterion == "accuracy":
        return BestCandidate(np.stack(codes, axis=1), epsilon)
    if not are_probabilities:
        raise InputError(f"To choose by {criterion}, give the probabilities of each candidate, not its classes.")
    labeled_ids = row_ids[vault.labeled_mask[row_ids]]  # the rows that have a label, a public fact
    compute_scores = log_loss_scores if criterion == "log-loss" else auc_scores
    scores = np.stack([compute_scores(distributions(np.asarray(each), labeled_ids)) for each in candidates])
    return HighestScore(scores, epsilon, criterion, labeled_ids)


def _is_one_class_rare(codes: Sequence[NDArray[np.int32]], row_ids: NDArray[np.int64]) -> bool:
    """Whether all candidates give nearly all rows to the same one of two classes."""
    fractions = [np.count_nonzero(each[row_ids]) / max(1, row_ids.size) for each in codes]
    return bool(min(fractions) >= _SAME_CLASS_FRACTION or max(fractions) <= 1 - _SAME_CLASS_FRACTION)
