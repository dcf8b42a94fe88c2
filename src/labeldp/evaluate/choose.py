"""Choosing among candidates without looking at labels.

Protocol: `split_rows` sets two disjoint parts aside. `choose` picks on the first; `measure` scores the winner on the
second. The winner's score on the first part would be partly the luck that made it win; on the second it is not, and
since the parts are disjoint, each label pays for one of them only.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from labeldp.errors import InputError
from labeldp.evaluate.inputs import chosen_rows, predicted_codes
from labeldp.mechanisms.selection import BestCandidate
from labeldp.releases.base import Release
from labeldp.releases.scores import Choice
from labeldp.vault import Vault


def choose(
    vault: Vault, candidates: Sequence[Any], rows: Any, epsilon: float, derived_from: Sequence[Release] = ()
) -> Choice:
    """Release which candidate is right most often on `rows`, by a noisy maximum: `choice.best` is its place.

    A candidate is a public (n, K) table of probabilities, or n codes, from a model that was trained on other rows.
    The releases that the models were trained on are named in `derived_from`. In a vault of users, epsilon is what a
    user pays for all of their rows.
    """
    if not len(candidates):
        raise InputError("There is nothing to choose from: give at least one candidate.")
    here = chosen_rows(rows, vault.rows)
    codes = [predicted_codes(c, here, vault.rows, len(vault.space)) for c in candidates]
    mechanism = vault.shared(BestCandidate(np.stack(codes, axis=1), epsilon), here)
    choice = vault.release(mechanism, rows=here, derived_from=derived_from)
    if not isinstance(choice, Choice):
        raise TypeError("A noisy maximum gave no choice.")
    return choice
