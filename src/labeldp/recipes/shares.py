"""How recipes divide epsilon between what they ask, from public facts alone."""

from decimal import Decimal

import numpy as np

ENOUGH = 500.0  # what sums should say (`Task.told`): more of epsilon is worth more elsewhere
KINDS_BELOW = 30.0  # what sums say, below which counts of kinds of rows say more
LOCAL_FROM = 1.5  # epsilon from which a row's own noisy label says enough beside what networks know by then


def split_epsilon(epsilon: float, share: float) -> tuple[float, float]:
    """Cut epsilon into two decimals that add up to it exactly, or to the last digit below."""
    whole = Decimal(repr(float(epsilon)))
    first = float(f"{epsilon * share:.3g}")
    second = float(whole - Decimal(repr(first)))
    while Decimal(repr(first)) + Decimal(repr(second)) > whole:
        second = float(np.nextafter(second, 0.0))
    return first, second


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
