"""How recipes divide epsilon between their releases, from public facts alone."""

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal
from typing import Literal

import numpy as np

from labeldp.accounting.calibration import analytic_gaussian_ratio, calibrated_loss, largest_epsilon
from labeldp.accounting.losses import compose
from labeldp.core.errors import InputError
from labeldp.core.guarantee import SMALLEST_EPSILON, check_delta, check_epsilon

# Epsilon and delta of each release.
StepBudgets = list[tuple[float, float]]
# Relative epsilon and noise of each release.
StepFractions = list[tuple[float, Literal["gaussian", "pure"]]]

# Signal of sums (`Task.signal_strength`) from which more epsilon is worth more for other releases.
SUFFICIENT_SIGNAL = 500.0
# Signal of sums (`Task.signal_strength`) below which counts of balanced clusters are more informative.
CLUSTER_COUNTS_BELOW = 30.0
# Epsilon of a label from which randomized response adds information to what the networks of `refine` know.
MIN_EPSILON_FOR_RESPONSES = 1.5
# Classes up to which randomized response among all classes is informative, and sums of bins are fast to fit.
FEW_CLASSES = 20
# Signal-to-noise ratio (`bin_count_snr`) below which sums of whole rows are more informative than sums of bins.
MIN_SNR_FOR_BINS = 120.0
# The same at delta 0.
MIN_SNR_FOR_PURE_BINS = 400.0
# Most columns of a table that are cut into bins.
MAX_BINNED_COLUMNS = 200
# Signal-to-noise ratios (`bin_count_snr`) from which some, and more, crosses are worth their cost.
_MIN_SNR_FOR_CROSSES = 3_000.0
_MIN_SNR_FOR_MORE_CROSSES = 10_000.0
# The numbers of crosses from these ratios.
_N_CROSSES = 4
_N_MORE_CROSSES = 8
# Epsilon of all selections of crosses, relative to that of the counts of single columns.
_SELECTION_FRACTION = 0.1
# Epsilon of a label from which noisy labels of single rows add information to sums.
_MIN_EPSILON_FOR_LABELS = 1.5
# Epsilon of a label from which noisy labels are more informative than sums.
_MIN_EPSILON_FOR_CLEAR_LABELS = 3.0
# Fractions of epsilon for the sums, below and above the previous epsilon.
_SUMS_FRACTIONS = (0.5, 0.3)
_TABLE_SUMS_FRACTIONS = (0.25, 0.2)


def split_epsilon(epsilon: float, fraction: float) -> tuple[float, float]:
    """Split epsilon into two decimals whose sum is epsilon, or the next smaller floating-point number."""
    total = Decimal(repr(float(epsilon)))
    first = float(f"{epsilon * fraction:.3g}")
    return first, _float_at_most(total - Decimal(repr(first)))


def split_refine_epsilon(epsilon: float, rows_per_class: float, labels_per_user: int = 1) -> tuple[list[float], float]:
    """Return the epsilon of each of the sums of `refine`, and that of its randomized response.

    Each sum is over embeddings of networks that learned from the earlier sums. Several sums are better than a single
    one with the whole epsilon, if each has a sufficient signal. Where randomized response is informative, sums get the
    epsilon that they need, and randomized response gets the rest.

    Args:
        epsilon: The epsilon of the training.
        rows_per_class: The mean number of rows of a class.
        labels_per_user: The most labels of one user.

    Returns:
        The epsilon of each sum, and that of randomized response, which is 0 if there is none.
    """
    label_epsilon = epsilon / labels_per_user
    sufficient_epsilon = SUFFICIENT_SIGNAL * labels_per_user / max(rows_per_class, 1e-9)
    signal = label_epsilon * rows_per_class / SUFFICIENT_SIGNAL
    with_responses = label_epsilon >= MIN_EPSILON_FOR_RESPONSES
    if with_responses:
        unit = min(sufficient_epsilon, epsilon / 8)
        requested = [unit, unit, 2 * unit]
    else:
        # These are 5 and 3, less the tenth of the rows that may be held out.
        n_early_sums = 2 if signal >= 4.5 else 1 if signal >= 2.7 else 0
        requested = [sufficient_epsilon] * n_early_sums
    sum_epsilons, remaining = [], epsilon
    for request in requested:
        sum_epsilon, remaining = split_epsilon(remaining, request / remaining)
        sum_epsilons.append(sum_epsilon)
    return (sum_epsilons, remaining) if with_responses else ([*sum_epsilons, remaining], 0.0)


def sums_epsilon_fraction(epsilon: float, is_table: bool) -> float:
    """Return the fraction of a label's epsilon for sums of rows; noisy labels of single rows get the rest.

    Args:
        epsilon: The epsilon of a label.
        is_table: Whether the rows are a table. Trees then learn more from noisy labels than a linear model.

    Returns:
        A fraction above 0; 1 where noisy labels would hold too little information.
    """
    if epsilon < _MIN_EPSILON_FOR_LABELS:
        return 1.0
    fractions = _TABLE_SUMS_FRACTIONS if is_table else _SUMS_FRACTIONS
    return fractions[epsilon >= _MIN_EPSILON_FOR_CLEAR_LABELS]


def min_snr_for_bins(delta: float) -> float:
    """Return the signal-to-noise ratio from which sums of bins are more informative than sums of whole rows.

    Args:
        delta: The delta of a label; 0 for pure differential privacy.

    Returns:
        The ratio, to compare with `bin_count_snr`.
    """
    return MIN_SNR_FOR_BINS if delta else MIN_SNR_FOR_PURE_BINS


def bin_count_snr(n_rows: int, n_classes: int, n_columns: int, epsilon: float, delta: float) -> float:
    """Return twice the rows of an average class over the noise of the count of one bin.

    Args:
        n_rows: The number of labeled rows.
        n_classes: The number of classes.
        n_columns: The number of columns of the table. Each row is in one bin of every column.
        epsilon: The epsilon of a label for the counts.
        delta: The delta of a label for the counts.

    Returns:
        The ratio. A larger ratio allows finer bins.
    """
    if delta:
        noise = analytic_gaussian_ratio(epsilon, delta) * (n_columns if n_classes == 2 else 2 * n_columns) ** 0.5
    else:
        noise = 2**0.5 * n_columns * (1 if n_classes == 2 else 2) / epsilon
    return float(2 * n_rows / n_classes / noise)


def default_n_crosses(snr: float) -> int:
    """Return the number of crosses of two columns that are worth their cost at a signal-to-noise ratio."""
    return 0 if snr < _MIN_SNR_FOR_CROSSES else _N_CROSSES if snr < _MIN_SNR_FOR_MORE_CROSSES else _N_MORE_CROSSES


def split_with_crosses(n_named: int, n_selected: int, delta: float) -> StepFractions:
    """Return the fractions of the single columns, then each named cross, then each selection and its cross.

    Args:
        n_named: The number of crosses that the user names.
        n_selected: The number of crosses that are selected privately.
        delta: The delta of all releases together. Above 0, counts have Gaussian noise.

    Returns:
        The relative epsilon and the noise of each release, for `split_composed`.
    """
    noise: Literal["gaussian", "pure"] = "gaussian" if delta else "pure"
    n_crosses = max(n_named + n_selected, 1)
    fraction = 1 / (n_crosses**0.5 if delta else n_crosses)
    crosses: StepFractions = [(_SELECTION_FRACTION / max(n_selected, 1), "pure"), (fraction, noise)]
    return [(1.0, noise)] + [(fraction, noise)] * n_named + crosses * n_selected


def split_composed(
    epsilon: float, delta: float, fractions: Sequence[tuple[float, Literal["gaussian", "pure"]]]
) -> StepBudgets:
    """Divide epsilon between releases that are reserved together, so that their composed cost is at most epsilon.

    A recipe reserves `calibrated_loss(*budget)` for each step, with the same delta (see `request.Reserve`). With delta
    0 every step is pure, and their epsilons add up to the whole. No step gets more than the whole.

    Args:
        epsilon: The composed epsilon of all steps.
        delta: The delta at which the steps are composed.
        fractions: The relative epsilon and the noise of each step. The epsilon of Gaussian noise holds at the whole
            delta.

    Returns:
        The epsilon and delta of the mechanism of each step, equal to the last digit in every run.

    Raises:
        InputError: There is no step, a fraction is not above 0, epsilon or delta is out of range, or delta is so large
            that Gaussian noise of any size composes to more than epsilon.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if not fractions or not all(0 < fraction < float("inf") for fraction, _ in fractions):
        raise InputError("split_composed needs a share above 0 for each step.")
    total, largest = sum(fraction for fraction, _ in fractions), max(fraction for fraction, _ in fractions)
    if not delta:
        epsilons = [_round_down(epsilon * fraction / total) for fraction, _ in fractions[:-1]]
        remaining = Decimal(repr(float(epsilon))) - sum(Decimal(repr(step_epsilon)) for step_epsilon in epsilons)
        return [(step_epsilon, 0.0) for step_epsilon in [*epsilons, _float_at_most(remaining)]]

    def budgets_of(scale: float) -> StepBudgets:
        return [(_round_down(scale * fraction), delta if noise == "gaussian" else 0.0) for fraction, noise in fractions]

    def fits(scale: float) -> bool:
        budgets = budgets_of(scale)
        if min(step_epsilon for step_epsilon, _ in budgets) < SMALLEST_EPSILON:
            raise InputError(
                f"{len(budgets)} releases do not compose to epsilon {epsilon:g} at delta {delta:g}: "
                "use a smaller delta.",
                parameter="delta",
            )
        return compose([calibrated_loss(*budget) for budget in budgets], delta) <= epsilon

    return budgets_of(largest_epsilon(fits, epsilon / total, epsilon / largest))


def _round_down(value: float) -> float:
    """Round down to five digits, so that the result does not depend on versions of libraries."""
    exact = Decimal(repr(float(value)))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 4), ROUND_FLOOR))


def _float_at_most(value: Decimal) -> float:
    rounded = float(value)
    return rounded if Decimal(repr(rounded)) <= value else float(np.nextafter(rounded, 0.0))
