"""How recipes divide epsilon between what they ask, from public facts alone."""

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal
from typing import Literal

import numpy as np

from labeldp.accounting.calibration import analytic_gaussian_ratio, calibrated_loss, largest_epsilon
from labeldp.accounting.losses import compose
from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_delta, check_epsilon

Parts = list[tuple[float, float]]  # the epsilon and delta of each release
Shares = list[tuple[float, Literal["gaussian", "pure"]]]  # the share and noise of each release

ENOUGH = 500.0  # what sums should say (`Task.told`): more of epsilon is worth more elsewhere
KINDS_BELOW = 30.0  # what sums say, below which counts of kinds of rows say more
LOCAL_FROM = 1.5  # epsilon from which a row's own noisy label says enough beside what networks know by then
FEW_CLASSES = 20  # up to which randomized response among all classes says enough, and bins are quick to fit
LEAST_FOR_BINS = 120.0  # ratio of rows to noise below which sums of whole rows say more than sums of bins
MOST_COLUMNS = 200  # of a table whose columns are cut into bins
LEAST_FOR_PURE_BINS = 400.0  # the same where delta is 0
_CROSSES_FROM, _MORE_CROSSES_FROM = 3_000.0, 10_000.0  # ratios of rows to noise from which crosses are worth their cost
_FEW_CROSSES, _MORE_CROSSES = 4, 8
_SELECTION = 0.1  # of epsilon, for the choice of crosses
_LABELS_FROM = 1.5  # epsilon of a label from which noisy labels of single rows add to sums
_CLEAR_LABELS_FROM = 3.0  # from which they say more than sums
_SHARES, _TABLE_SHARES = (0.5, 0.3), (0.25, 0.2)  # of epsilon, for the sums, below and above


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


def share_of_sums(epsilon: float, table: bool) -> float:
    """Return the share of a label's epsilon for sums of rows; noisy labels of single rows get the rest.

    Args:
        epsilon: What a label may spend.
        table: Whether the rows are a table, of which trees learn more from noisy labels than a linear model would.

    Returns:
        A share above 0; 1 where noisy labels would say too little.
    """
    if epsilon < _LABELS_FROM:
        return 1.0
    shares = _TABLE_SHARES if table else _SHARES
    return shares[epsilon >= _CLEAR_LABELS_FROM]


def least_for_bins(delta: float) -> float:
    """Return the ratio of rows to noise from which sums of bins say more than sums of whole rows.

    Args:
        delta: What a label may spend; 0 for pure privacy.
    """
    return LEAST_FOR_BINS if delta else LEAST_FOR_PURE_BINS


def ratio_to_noise(rows: int, classes: int, columns: int, epsilon: float, delta: float) -> float:
    """Return the rows of an average class, times two, over the noise of a count of one bin.

    Args:
        rows: How many rows have a label.
        classes: How many classes there are.
        columns: How many columns the table has: each row is in one bin of every column.
        epsilon: What a label may spend on the counts.
        delta: Likewise.

    Returns:
        A ratio: the more, the finer the bins may be.
    """
    if delta:
        noise = analytic_gaussian_ratio(epsilon, delta) * (columns if classes == 2 else 2 * columns) ** 0.5
    else:
        noise = 2**0.5 * columns * (1 if classes == 2 else 2) / epsilon
    return float(2 * rows / classes / noise)


def usual_crosses(ratio: float) -> int:
    """Return how many crosses of two columns are worth their cost at this ratio of rows to noise."""
    return 0 if ratio < _CROSSES_FROM else _FEW_CROSSES if ratio < _MORE_CROSSES_FROM else _MORE_CROSSES


def shares_with_crosses(named: int, selected: int, delta: float) -> Shares:
    """Return what counts of single columns get, then each named cross, then each selection and its cross.

    Args:
        named: How many crosses the user names.
        selected: How many are selected privately.
        delta: What all of it may spend together: above 0, counts have Gaussian noise.

    Returns:
        The share in epsilon and the noise of each request, for `composed_steps`.
    """
    noise: Literal["gaussian", "pure"] = "gaussian" if delta else "pure"
    rounds = max(named + selected, 1)
    share = 1 / (rounds**0.5 if delta else rounds)
    crosses: Shares = [(_SELECTION / max(selected, 1), "pure"), (share, noise)]
    return [(1.0, noise)] + [(share, noise)] * named + crosses * selected


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
