"""How recipes divide epsilon between what they ask, from public facts alone."""

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal
from typing import Literal

import numpy as np

from labeldp.calibration import calibrated_loss, largest_epsilon
from labeldp.errors import InputError
from labeldp.guarantees import check_delta, check_epsilon
from labeldp.losses import compose

Parts = list[tuple[float, float]]  # the epsilon and delta of each release

ENOUGH = 500.0  # what sums should say (`Task.told`): more of epsilon is worth more elsewhere
KINDS_BELOW = 30.0  # what sums say, below which counts of kinds of rows say more
LOCAL_FROM = 1.5  # epsilon from which a row's own noisy label says enough beside what networks know by then


def split_epsilon(epsilon: float, share: float) -> tuple[float, float]:
    """Cut epsilon into two decimals that add up to it exactly, or to the last digit below."""
    whole = Decimal(repr(float(epsilon)))
    first = float(f"{epsilon * share:.3g}")
    return first, _at_most(whole - Decimal(repr(first)))


def refine_shares(epsilon: float, rows_a_class: float, labels_per_user: int = 1) -> tuple[list[float], float]:
    """Return what `refine` spends on sums, one after another, and on the rows' own answers.

    Sums over what networks learnt from earlier sums are worth more than one sum with everything, as soon as each says
    enough. Where answers of single rows tell something, sums have little, and answers the rest.
    """
    own = epsilon / labels_per_user
    enough, told = ENOUGH * labels_per_user / max(rows_a_class, 1e-9), own * rows_a_class / ENOUGH
    local = own >= LOCAL_FROM
    if local:
        unit = min(enough, epsilon / 8)
        shares = [unit, unit, 2 * unit]
    else:
        shares = [enough] * (2 if told >= 4.5 else 1 if told >= 2.7 else 0)  # 5 and 3, if a tenth of rows is set aside
    sums, rest = [], epsilon
    for share in shares:
        part, rest = split_epsilon(rest, share / rest)
        sums.append(part)
    return (sums, rest) if local else ([*sums, rest], 0.0)


def composed_steps(epsilon: float, delta: float, shares: Sequence[tuple[float, Literal["gaussian", "pure"]]]) -> Parts:
    """Divide epsilon between releases that are reserved together, so that their composed cost is no more.

    A recipe reserves `calibrated_loss(*part)` for each part, with the same delta (see `base.Reserve`). With delta 0
    every step is pure, and the epsilons add up to the whole. No step gets more than the whole.

    Args:
        epsilon: What all steps may cost together.
        delta: The delta at which they are composed.
        shares: For each step its share in epsilon, in relation to the others, and its noise. The epsilon of Gaussian
            noise is counted at the whole delta.

    Returns:
        For each step the epsilon and delta of its mechanism. They stay the same in the last digit from run to run.

    Raises:
        InputError: There is no step, a share is not above 0, or epsilon or delta is out of range.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if not shares or not all(0 < share < float("inf") for share, _ in shares):
        raise InputError("composed_steps needs a share above 0 for each step.")
    total, largest = sum(share for share, _ in shares), max(share for share, _ in shares)
    if not delta:
        parts = [_rounded_down(epsilon * share / total) for share, _ in shares[:-1]]
        rest = Decimal(repr(float(epsilon))) - sum(Decimal(repr(part)) for part in parts)
        return [(part, 0.0) for part in [*parts, _at_most(rest)]]

    def parts_of(whole: float) -> Parts:
        return [(_rounded_down(whole * share), delta if noise == "gaussian" else 0.0) for share, noise in shares]

    def fits(whole: float) -> bool:
        return compose([calibrated_loss(*part) for part in parts_of(whole)], delta) <= epsilon

    return parts_of(largest_epsilon(fits, epsilon / total, epsilon / largest))


def _rounded_down(value: float) -> float:
    """Round down to five digits, so that another version of a library computes the same."""
    exact = Decimal(repr(float(value)))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 4), ROUND_FLOOR))


def _at_most(value: Decimal) -> float:
    rounded = float(value)
    return rounded if Decimal(repr(rounded)) <= value else float(np.nextafter(rounded, 0.0))
