"""How recipes divide epsilon between what they ask, from public facts alone."""

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal
from typing import Literal

import numpy as np

from labeldp.accounting.calibration import analytic_gaussian_ratio, calibrated_loss, largest_epsilon
from labeldp.accounting.losses import compose
from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_delta, check_epsilon

StepBudgets = list[tuple[float, float]]  # the epsilon and delta of each release
StepFractions = list[tuple[float, Literal["gaussian", "pure"]]]  # the share and noise of each release

SUFFICIENT_SIGNAL = 500.0  # what sums should say (`Task.told`): more of epsilon is worth more elsewhere
CLUSTER_COUNTS_BELOW = 30.0  # what sums say, below which counts of kinds of rows say more
MIN_EPSILON_FOR_RESPONSES = (
    1.5  # epsilon from which a row's own noisy label says enough beside what networks know by then
)
FEW_CLASSES = 20  # up to which randomized response among all classes says enough, and bins are quick to fit
MIN_SNR_FOR_BINS = 120.0  # ratio of rows to noise below which sums of whole rows say more than sums of bins
MAX_BINNED_COLUMNS = 200  # of a table whose columns are cut into bins
MIN_SNR_FOR_PURE_BINS = 400.0  # the same where delta is 0
_MIN_SNR_FOR_CROSSES, _MIN_SNR_FOR_MORE_CROSSES = (
    3_000.0,
    10_000.0,
)  # ratios of rows to noise from which crosses are worth their cost
_N_CROSSES, _N_MORE_CROSSES = 4, 8
_SELECTION_FRACTION = 0.1  # of epsilon, for the choice of crosses
_MIN_EPSILON_FOR_LABELS = 1.5  # epsilon of a label from which noisy labels of single rows add to sums
_MIN_EPSILON_FOR_CLEAR_LABELS = 3.0  # from which they say more than sums
_SUMS_FRACTIONS, _TABLE_SUMS_FRACTIONS = (0.5, 0.3), (0.25, 0.2)  # of epsilon, for the sums, below and above


def split_epsilon(epsilon: float, fraction: float) -> tuple[float, float]:
    """Cut epsilon into two decimals that add up to it exactly, or to the last digit below."""
    total = Decimal(repr(float(epsilon)))
    first = float(f"{epsilon * fraction:.3g}")
    return first, _float_at_most(total - Decimal(repr(first)))


def split_refine_epsilon(epsilon: float, rows_per_class: float, labels_per_user: int = 1) -> tuple[list[float], float]:
    """Return what `refine` spends on sums, one after another, and on the rows' own answers.

    Sums over what networks learnt from earlier sums are worth more than one sum with everything, as soon as each says
    enough. Where answers of single rows tell something, sums have little, and answers the rest.
    """
    label_epsilon = epsilon / labels_per_user
    sufficient_epsilon, signal = (
        SUFFICIENT_SIGNAL * labels_per_user / max(rows_per_class, 1e-9),
        label_epsilon * rows_per_class / SUFFICIENT_SIGNAL,
    )
    with_responses = label_epsilon >= MIN_EPSILON_FOR_RESPONSES
    if with_responses:
        unit = min(sufficient_epsilon, epsilon / 8)
        requested = [unit, unit, 2 * unit]
    else:
        requested = [sufficient_epsilon] * (
            2 if signal >= 4.5 else 1 if signal >= 2.7 else 0
        )  # 5 and 3, if a tenth of rows is set aside
    sum_epsilons, remaining = [], epsilon
    for request in requested:
        sum_epsilon, remaining = split_epsilon(remaining, request / remaining)
        sum_epsilons.append(sum_epsilon)
    return (sum_epsilons, remaining) if with_responses else ([*sum_epsilons, remaining], 0.0)


def sums_epsilon_fraction(epsilon: float, is_table: bool) -> float:
    """Return the share of a label's epsilon for sums of rows; noisy labels of single rows get the rest.

    Args:
        epsilon: What a label may spend.
        table: Whether the rows are a table, of which trees learn more from noisy labels than a linear model would.

    Returns:
        A share above 0; 1 where noisy labels would say too little.
    """
    if epsilon < _MIN_EPSILON_FOR_LABELS:
        return 1.0
    fractions = _TABLE_SUMS_FRACTIONS if is_table else _SUMS_FRACTIONS
    return fractions[epsilon >= _MIN_EPSILON_FOR_CLEAR_LABELS]


def min_snr_for_bins(delta: float) -> float:
    """Return the ratio of rows to noise from which sums of bins say more than sums of whole rows.

    Args:
        delta: What a label may spend; 0 for pure privacy.
    """
    return MIN_SNR_FOR_BINS if delta else MIN_SNR_FOR_PURE_BINS


def bin_count_snr(n_rows: int, n_classes: int, n_columns: int, epsilon: float, delta: float) -> float:
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
        noise = analytic_gaussian_ratio(epsilon, delta) * (n_columns if n_classes == 2 else 2 * n_columns) ** 0.5
    else:
        noise = 2**0.5 * n_columns * (1 if n_classes == 2 else 2) / epsilon
    return float(2 * n_rows / n_classes / noise)


def default_n_crosses(snr: float) -> int:
    """Return how many crosses of two columns are worth their cost at this ratio of rows to noise."""
    return 0 if snr < _MIN_SNR_FOR_CROSSES else _N_CROSSES if snr < _MIN_SNR_FOR_MORE_CROSSES else _N_MORE_CROSSES


def split_with_crosses(n_named: int, n_selected: int, delta: float) -> StepFractions:
    """Return what counts of single columns get, then each named cross, then each selection and its cross.

    Args:
        named: How many crosses the user names.
        selected: How many are selected privately.
        delta: What all of it may spend together: above 0, counts have Gaussian noise.

    Returns:
        The share in epsilon and the noise of each request, for `composed_steps`.
    """
    noise: Literal["gaussian", "pure"] = "gaussian" if delta else "pure"
    n_crosses = max(n_named + n_selected, 1)
    fraction = 1 / (n_crosses**0.5 if delta else n_crosses)
    crosses: StepFractions = [(_SELECTION_FRACTION / max(n_selected, 1), "pure"), (fraction, noise)]
    return [(1.0, noise)] + [(fraction, noise)] * n_named + crosses * n_selected


def split_composed(
    epsilon: float, delta: float, fractions: Sequence[tuple[float, Literal["gaussian", "pure"]]]
) -> StepBudgets:
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
    if not fractions or not all(0 < fraction < float("inf") for fraction, _ in fractions):
        raise InputError("composed_steps needs a share above 0 for each step.")
    total, largest = sum(fraction for fraction, _ in fractions), max(fraction for fraction, _ in fractions)
    if not delta:
        epsilons = [_round_down(epsilon * fraction / total) for fraction, _ in fractions[:-1]]
        remaining = Decimal(repr(float(epsilon))) - sum(Decimal(repr(step_epsilon)) for step_epsilon in epsilons)
        return [(step_epsilon, 0.0) for step_epsilon in [*epsilons, _float_at_most(remaining)]]

    def budgets_of(scale: float) -> StepBudgets:
        return [(_round_down(scale * fraction), delta if noise == "gaussian" else 0.0) for fraction, noise in fractions]

    def fits(scale: float) -> bool:
        return compose([calibrated_loss(*budget) for budget in budgets_of(scale)], delta) <= epsilon

    return budgets_of(largest_epsilon(fits, epsilon / total, epsilon / largest))


def _round_down(value: float) -> float:
    """Round down to five digits, so that another version of a library computes the same."""
    exact = Decimal(repr(float(value)))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 4), ROUND_FLOOR))


def _float_at_most(value: Decimal) -> float:
    rounded = float(value)
    return rounded if Decimal(repr(rounded)) <= value else float(np.nextafter(rounded, 0.0))
