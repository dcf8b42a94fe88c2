"""Choosing among candidates without looking at labels.

Protocol: `split_rows` sets two disjoint parts aside. `choose` picks on the first; `measure` scores the winner on the
second. The winner's score on the first part would be partly the luck that made it win; on the second it is not, and
since the parts are disjoint, each label pays for one of them only.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InputError
from labeldp.evaluate.inputs import chosen_rows, predicted_codes, predicted_numbers
from labeldp.mechanisms.base import Mechanism
from labeldp.mechanisms.selection import BestCandidate
from labeldp.mechanisms.sums import LeastLoss
from labeldp.releases.base import Release
from labeldp.releases.scores import Choice
from labeldp.vault import Vault

_ALIKE, _NAMED = 0.95, 0.1


def choose(
    vault: Vault, candidates: Sequence[Any], rows: Any, epsilon: float, derived_from: Sequence[Release] = ()
) -> Choice:
    """Release which candidate is right most often on `rows`, by a noisy maximum: `choice.best` is its place.

    A candidate is a public (n, K) table of probabilities, or n codes, from a model that was trained on other rows.
    Where labels are numbers, it is n predicted numbers, and the least absolute error wins. The releases that the models
    were trained on are named in `derived_from`. In a vault of users, epsilon is what a user pays for all of their rows.

    Where one of two classes is rare, every candidate is nearly always right by naming the other, and noise would
    choose. So if all of them give at least 95 % of the rows to the same class, each names the tenth of the rows that it
    finds likeliest to be of the rare one: whoever has more of the rare rows in its tenth is right more often.
    """
    if not len(candidates):
        raise InputError("There is nothing to choose from: give at least one candidate.")
    here = chosen_rows(rows, vault.rows)
    asked: Mechanism
    if vault.space.step is not None:
        # A square can be a thousand times as large as the usual ones, and noise goes with the largest.
        numbers = np.stack([predicted_numbers(c, vault) for c in candidates], axis=1)
        asked = LeastLoss(numbers, epsilon, "absolute")
    else:
        codes = [predicted_codes(c, here, vault.rows, len(vault.space)) for c in candidates]
        codes = _ranked(candidates, codes, here) if len(vault.space) == 2 else codes
        asked = BestCandidate(np.stack(codes, axis=1), epsilon)
    mechanism = vault.shared(asked, here)
    choice = vault.release(mechanism, rows=here, derived_from=derived_from)
    if not isinstance(choice, Choice):
        raise TypeError("A noisy maximum gave no choice.")
    return choice


def _ranked(
    candidates: Sequence[Any], codes: list[NDArray[np.int32]], rows: NDArray[np.int64]
) -> list[NDArray[np.int32]]:
    """Return the candidates' surest rows of the rare class as their predictions, if all find one class rare."""
    shares = [np.count_nonzero(each[rows]) / max(1, rows.size) for each in codes]
    common = int(min(shares) >= _ALIKE)
    if (max(shares) > 1 - _ALIKE and not common) or any(np.ndim(each) != 2 for each in candidates):
        return codes
    named = []
    for each in candidates:
        surest = rows[np.argsort(np.asarray(each)[rows, common], kind="stable")[: math.ceil(_NAMED * rows.size)]]
        guess = np.full(len(each), common, np.int32)
        guess[surest] = 1 - common
        named.append(guess)
    return named
