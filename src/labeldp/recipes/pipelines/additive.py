"""Generalized additive models of tables, from noisy sums of functions of public bins by label."""

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from labeldp.accounting.calibration import calibrated_loss
from labeldp.accounting.lineage import Provenance
from labeldp.core.atomic_files import cached_array
from labeldp.data.tables import Table
from labeldp.learn.additive import AdditiveSums, BasisFunctions, BinDesign, BinnedColumn, Bins, CrossSums
from labeldp.learn.additive.fit import class_probabilities
from labeldp.learn.additive.model import AdditiveModel, Term, as_table
from labeldp.privacy.mechanisms import LargestResiduals, LinearQuery
from labeldp.privacy.mechanisms.base import divide_epsilon
from labeldp.recipes.budget_split import bin_count_snr, default_n_crosses, split_composed, split_with_crosses
from labeldp.recipes.feature_crosses import parse_crosses
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Reserve, Steps
from labeldp.recipes.task import Task
from labeldp.releases.base import Release

# Most bins of a numeric column: this factor times the square root of the signal-to-noise ratio (`task_snr`).
_BINS_FACTOR = 1.6
_MIN_BINS, _MAX_BINS = 16, 64
# Most bins of a categorical column, likewise.
_CATEGORIES_FACTOR = 1.6
_MIN_CATEGORIES, _MAX_CATEGORIES = 12, 60
# Cosines of a column, likewise, for Gaussian and pure noise. With pure noise, each cosine adds noise to all sums.
_COSINES_FACTOR = 0.35
_PURE_COSINES_FACTOR = 0.2
_MIN_COSINES = 2
# The j-th cosine is multiplied by this power of 1/j, for Gaussian and pure noise.
_COSINE_DECAY = 0.75
_PURE_COSINE_DECAY = 1.0
# Share of the counts of bins beside cosines, and the signal-to-noise ratio from which there are such counts.
_DETAIL_WEIGHT = 0.6
_MIN_SNR_FOR_DETAIL = 500.0
# Signal-to-noise ratio from which counts of bins have little noise. They take less memory than cosines.
_MIN_SNR_FOR_COUNTS = 3_000.0
# Most entries of a sparse matrix, which limit its memory.
_MAX_ENTRIES = 40_000_000
# Bins of a column in a cross, likewise.
_CROSS_BINS_FACTOR = 0.4
_MIN_CROSS_BINS, _MAX_CROSS_BINS = 4, 31
# Most bins of all columns together, because the fit inverts matrices of this size.
_MAX_TOTAL_BINS = 1_200
# Most bins and cosines of all columns together, for the same reason.
_MAX_SUMS = 1_500
# Columns among which crosses are selected.
_MAX_CROSSED_COLUMNS = 24

AdditiveSteps = Generator[Request | Reserve, Any, tuple[AdditiveModel, AdditiveSums]]


@dataclass(frozen=True)
class Layout:
    """The sums that an additive model requests, fixed by public facts.

    Attributes:
        max_bins: The most bins of a numeric column.
        max_categories: The most bins of a categorical column.
        max_cross_bins: The most bins of a column in a cross.
        named_crosses: The crosses that the user names, by the names of their columns.
        n_selected: The number of crosses that are selected privately.
        functions: The functions of numeric columns that are summed; None for the counts of their bins.
    """

    max_bins: int
    max_categories: int
    max_cross_bins: int
    named_crosses: tuple[tuple[str, str], ...]
    n_selected: int
    functions: BasisFunctions | None


@recipe(
    "additive",
    "noisy counts of public bins by label, then an additive logistic model with the strongest crosses of columns",
    takes_model=False,
)
def additive(task: Task, crosses: int | None = None, cross: str | None = None) -> Steps:
    """Fit the effects of single columns first, then crosses of two columns, one after another.

    A label changes one count in each column, independently of the number of bins.

    Args:
        task: The task. The features are a table.
        crosses: The number of crosses to select privately; None for a number that suits rows and noise.
        cross: Crosses to include without selection: "month,day" or "month,day;origin,dest".

    Returns:
        An additive model.

    Raises:
        InputError: The features are no table, or a named cross does not exist.
    """
    layout = choose_layout(task, task.full_task.label_epsilon, crosses, cross)
    model, _ = yield from additive_steps(task, layout, task.epsilon, task.delta)
    return model


def choose_layout(task: Task, epsilon: float, n_crosses: int | None = None, cross: str | None = None) -> Layout:
    """Choose bins and crosses by public facts.

    Args:
        task: The task.
        epsilon: The epsilon of a label for the sums.
        n_crosses: The number of crosses to select privately; None for a number that suits rows and noise.
        cross: The crosses that the user names.

    Returns:
        The layout.

    Raises:
        InputError: The features are no table, or a named cross does not exist.
    """
    table = as_table(task.full_task.encoded_features)
    snr = task_snr(task, epsilon)
    named_crosses = parse_crosses(cross or "", table.columns)
    max_selected = max(0, len(_column_pairs(len(table.columns))) - len(named_crosses))
    root_snr, bin_limit = snr**0.5, max(_MIN_CROSS_BINS, _MAX_TOTAL_BINS // len(table.columns) - 2)
    max_bins = int(np.clip(_BINS_FACTOR * root_snr, min(_MIN_BINS, bin_limit), min(_MAX_BINS, bin_limit)))
    return Layout(
        max_bins,
        int(np.clip(_CATEGORIES_FACTOR * root_snr, _MIN_CATEGORIES, _MAX_CATEGORIES)),
        int(np.clip(_CROSS_BINS_FACTOR * root_snr, _MIN_CROSS_BINS, _MAX_CROSS_BINS)),
        named_crosses,
        min(default_n_crosses(snr) if n_crosses is None else n_crosses, max_selected),
        _choose_functions(snr, max_bins, table, bool(task.delta)),
    )


def _choose_functions(snr: float, max_bins: int, table: Table, is_gaussian: bool) -> BasisFunctions | None:
    """Return the functions of numeric columns to sum at a signal-to-noise ratio; None for counts of bins."""
    n_columns = max(1, len(table.columns))
    max_functions = _MAX_ENTRIES // (len(table) * n_columns) - 2  # the count of a bin has an entry, too
    if snr >= _MIN_SNR_FOR_COUNTS or max_functions < _MIN_COSINES:
        return None
    factor, decay = (_COSINES_FACTOR, _COSINE_DECAY) if is_gaussian else (_PURE_COSINES_FACTOR, _PURE_COSINE_DECAY)
    n_cosines = int(np.clip(factor * snr**0.5, _MIN_COSINES, min(max_functions, max_bins)))
    detailed = is_gaussian and snr >= _MIN_SNR_FOR_DETAIL and (max_bins + n_cosines) * n_columns <= _MAX_SUMS
    return BasisFunctions(n_cosines, decay, _DETAIL_WEIGHT if detailed else 0.0, 2 if is_gaussian else 1)


def task_snr(task: Task, epsilon: float) -> float:
    """Return twice the rows of an average class over the noise of the count of one bin.

    Numbers of a range count as two classes, because both change a sum by at most one range.

    Args:
        task: The task.
        epsilon: The epsilon of a label for the counts.

    Returns:
        The signal-to-noise ratio. A larger ratio allows finer bins.
    """
    task = task.full_task
    n_columns = len(as_table(task.encoded_features).columns)
    n_classes = 2 if task.space.step else len(task.space)
    return bin_count_snr(int(task.row_mask.sum()), n_classes, n_columns, epsilon, task.delta)


def additive_steps(task: Task, layout: Layout, epsilon: float, delta: float) -> AdditiveSteps:
    """Request the sums of single columns, then those of crosses, and fit the model.

    Args:
        task: The task.
        layout: The sums to request.
        epsilon: The epsilon of all releases together.
        delta: The delta of all releases together.

    Returns:
        The model, and the sums to which it was fitted.
    """
    n_crosses = len(layout.named_crosses) + layout.n_selected
    task.progress.add_steps(1 + n_crosses)
    budgets = yield from _reserve_budgets(layout, epsilon, delta)
    table, column_bins, design, functions = bin_columns(task, layout)
    counts = yield Request(LinearQuery(add_constant_column(design.to_sparse(functions)), *budgets[0]))
    sums, releases = AdditiveSums(table, column_bins, design, functions, counts), [counts]
    model, scores = sums.fit_main_effects()
    task.progress.step()
    if not n_crosses:
        return model, sums
    cells = Bins.fit(table, layout.max_cross_bins, layout.max_cross_bins)
    codes = np.stack([cells.encode(table, index) for index in range(len(cells.columns))], axis=1)
    index_of = {column.name: index for index, column in enumerate(cells.columns)}
    candidates = _candidate_crosses(model, layout)
    remaining_budgets = iter(budgets[1:])
    for round_index in range(n_crosses):
        if round_index < len(layout.named_crosses):
            first, second = layout.named_crosses[round_index]
            pair = index_of[first], index_of[second]
        else:
            expected = _expected_probabilities(task, scores, releases)
            choice = yield Request(
                LargestResiduals(codes, np.array(candidates), expected, 1, next(remaining_budgets)[0]),
                derived_from=list(releases),
            )
            releases.append(choice)
            pair = candidates.pop(choice.picks[0])
        crossed_columns = cells.columns[pair[0]], cells.columns[pair[1]]
        cross = yield from _query_cross(table, crossed_columns, next(remaining_budgets), releases)
        sums.crosses.append(cross)
        term, scores = sums.fit_cross_effect(cross, scores)
        model = model.with_terms([term], Provenance.of(model, *releases))
        task.progress.step()
    return model, sums


def _reserve_budgets(
    layout: Layout, epsilon: float, delta: float
) -> Generator[Request | Reserve, Any, list[tuple[float, float]]]:
    """Return epsilon and delta of each request, after a joint reservation where that is possible."""
    n_crosses = len(layout.named_crosses) + layout.n_selected
    if not n_crosses:
        return [(epsilon, delta)]
    fractions = split_with_crosses(len(layout.named_crosses), layout.n_selected, delta)
    budgets = split_composed(epsilon, delta, fractions)
    is_reserved = yield Reserve([calibrated_loss(*budget) for budget in budgets], delta)
    if is_reserved:
        return budgets
    pure_budgets = split_composed(epsilon, 0.0, fractions)
    delta_each = divide_epsilon(delta, n_crosses + 1) if delta else 0.0
    return [
        (budget, delta_each if noise == "gaussian" else 0.0)
        for (budget, _), (_, noise) in zip(pure_budgets, fractions, strict=True)
    ]


def bin_columns(
    task: Task, layout: Layout
) -> tuple[Table, tuple[BinnedColumn, ...], BinDesign, list[NDArray[np.float64] | None]]:
    """Cut the columns of a task's table into bins.

    Args:
        task: The task. The features are a table.
        layout: The number of bins, and the functions of numeric columns.

    Returns:
        The table, the bins of its columns, the bin of each row and column, and the functions of each column.
    """
    table = as_table(task.encoded_features)
    bins = Bins.fit(table, layout.max_bins, layout.max_categories)
    codes = [bins.encode(table, index) for index in range(len(bins.columns))]
    functions = [
        None
        if layout.functions is None
        else layout.functions.evaluate(column, bool((column_codes == column.width - 1).any()))
        for column, column_codes in zip(bins.columns, codes, strict=True)
    ]
    return table, bins.columns, BinDesign(codes, [column.width for column in bins.columns]), functions


def add_constant_column(matrix: csr_array) -> csr_array:
    """Append a column of ones, whose sum is the number of rows of each class, or the sum of all numbers."""
    return csr_array(hstack([matrix, csr_array(np.ones((matrix.shape[0], 1), matrix.dtype))]))


def _query_cross(
    table: Table, columns: tuple[BinnedColumn, BinnedColumn], budget: tuple[float, float], releases: list[Release]
) -> Generator[Request | Reserve, Any, CrossSums]:
    """Request the counts of a cross."""
    width = columns[0].width * columns[1].width
    cells = Term(columns, np.zeros((width, 1))).cells(table)
    counts = yield Request(LinearQuery(BinDesign([cells], [width]).to_sparse(), *budget), derived_from=list(releases))
    releases.append(counts)
    return CrossSums(columns, cells, counts)


def _expected_probabilities(
    task: Task, scores: NDArray[np.float64], releases: Sequence[Release]
) -> NDArray[np.float32]:
    """Return the expected class probabilities of a request for crosses.

    An interrupted run that continues must repeat its requests byte for byte, and another number of threads can change
    the last bits of a sum. So the probabilities are rounded, and cached if the task or its checkpoints have a folder.
    """

    def compute() -> NDArray[np.float32]:
        probabilities = class_probabilities(scores).round(6)
        return (probabilities / probabilities.sum(axis=1, keepdims=True)).astype(np.float32)

    folder = task.folder or (task.training.checkpoint if task.training is not None else None)
    release_hash = hashlib.sha256(" ".join(release.entry or "" for release in releases).encode()).hexdigest()[:16]
    return cached_array(None if folder is None else folder / f"expected-{release_hash}.npy", compute)


def _candidate_crosses(model: AdditiveModel, layout: Layout) -> list[tuple[int, int]]:
    """Return the crosses to select from: those of all columns, or of the columns with the largest effects."""
    strength = np.array([float(np.var(term.weights)) for term in model.terms])
    selected = np.sort(np.argsort(-strength, kind="stable")[:_MAX_CROSSED_COLUMNS])
    names = [term.name for term in model.terms]
    named = {frozenset(pair) for pair in layout.named_crosses}
    return [
        (int(selected[i]), int(selected[j]))
        for i, j in _column_pairs(len(selected))
        if frozenset((names[selected[i]], names[selected[j]])) not in named
    ]


def _column_pairs(n_columns: int) -> list[tuple[int, int]]:
    return list(combinations(range(min(n_columns, _MAX_CROSSED_COLUMNS)), 2))
