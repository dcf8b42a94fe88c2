"""Generalised additive models of tables, from noisy sums of functions of public bins by label."""

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
from labeldp.core.atomic_files import kept_array
from labeldp.data.tables import Table
from labeldp.learn.additive import AdditiveSums, BinDesign, Bins, Column, CrossSums, Functions
from labeldp.learn.additive.fit import class_probabilities
from labeldp.learn.additive.model import AdditiveModel, Term, as_table
from labeldp.privacy.mechanisms import LargestResiduals, LinearQuery
from labeldp.privacy.mechanisms.base import in_parts
from labeldp.recipes.base import Ask, Reserve, Steps, recipe
from labeldp.recipes.budget_split import composed_steps, ratio_to_noise, shares_with_crosses, usual_crosses
from labeldp.recipes.crosses import read_crosses
from labeldp.recipes.task import Task
from labeldp.releases.base import Release

_BINS = 1.6  # bins of a column, in roots of the ratio of rows to noise
_FEWEST_BINS, _MOST_BINS = 16, 64
_CATEGORIES, _FEWEST_CATEGORIES, _MOST_CATEGORIES = 1.6, 12, 60  # bins of a categorical column, likewise
_COSINES, _PURE_COSINES = 0.35, 0.2  # cosines of a column, likewise; with delta 0, each adds more noise to all sums
_FEWEST_COSINES = 2
_SLOW, _PURE_SLOW = 0.75, 1.0  # the power of 1/j by which the j-th cosine is multiplied
_DETAIL, _DETAIL_FROM = 0.6, 500.0  # the share of counts of bins beside cosines, and the ratio from which there are any
_COUNTS_FROM = 3_000.0  # ratio of rows to noise from which counts of bins have little noise, and take less memory
_MOST_ENTRIES = 40_000_000  # of a sparse matrix; more would take too much memory
_FEWEST_CELL_BINS = 4
_CELL_BINS, _MOST_CELL_BINS = 0.4, 31  # bins of a column in a cross, likewise
_MOST_COLUMNS = 1_200  # bins of all columns together: the fit inverts matrices of this size
_MOST_SUMS = 1_500  # of bins and cosines of all columns together, likewise
_CROSSABLE = 24  # columns among which crosses are searched

Model = Generator[Ask | Reserve, Any, tuple[AdditiveModel, AdditiveSums]]


@dataclass(frozen=True)
class Layout:
    """What an additive model asks for, fixed by public facts.

    Attributes:
        bins: The most bins of a numeric column.
        categories: The most bins of a categorical column.
        cell_bins: The most bins of a column in a cross.
        named: Crosses that the user names, by the names of their columns.
        selected: How many crosses are selected privately.
        functions: What is summed of numeric columns; None for the counts of their bins.
    """

    bins: int
    categories: int
    cell_bins: int
    named: tuple[tuple[str, str], ...]
    selected: int
    functions: Functions | None


@recipe(
    "additive",
    "noisy counts of public bins by label, then an additive logistic model with the strongest crosses of columns",
    takes_model=False,
)
def additive(task: Task, crosses: int | None = None, cross: str | None = None) -> Steps:
    """Fit effects of single columns first, then crosses of two columns, one after another.

    A label moves one count in each column, however many bins the columns have.

    Args:
        task: What to learn. The features are a table.
        crosses: How many crosses to select; by default what rows and noise allow.
        cross: Crosses to include without a selection: "month,day" or "month,day;origin,dest".

    Returns:
        An additive model.

    Raises:
        InputError: The features are no table, or a named cross does not exist.
    """
    layout = layout_of(task, task.whole.label_epsilon, crosses, cross)
    model, _ = yield from additive_steps(task, layout, task.epsilon, task.delta)
    return model


def layout_of(task: Task, epsilon: float, crosses: int | None = None, cross: str | None = None) -> Layout:
    """Decide on bins and crosses by public facts.

    Args:
        task: What to learn.
        epsilon: What a label may spend on the sums.
        crosses: How many crosses to select; None for a number that suits rows and noise.
        cross: The crosses that the user names.

    Returns:
        The layout.

    Raises:
        InputError: The features are no table, or a named cross does not exist.
    """
    table = as_table(task.whole.points)
    ratio = rows_to_noise(task, epsilon)
    named = read_crosses(cross or "", table.columns)
    most = max(0, len(_pairs(len(table.columns))) - len(named))
    root, room = ratio**0.5, max(_FEWEST_CELL_BINS, _MOST_COLUMNS // len(table.columns) - 2)
    bins = int(np.clip(_BINS * root, min(_FEWEST_BINS, room), min(_MOST_BINS, room)))
    return Layout(
        bins,
        int(np.clip(_CATEGORIES * root, _FEWEST_CATEGORIES, _MOST_CATEGORIES)),
        int(np.clip(_CELL_BINS * root, _FEWEST_CELL_BINS, _MOST_CELL_BINS)),
        named,
        min(usual_crosses(ratio) if crosses is None else crosses, most),
        _functions(ratio, bins, table, bool(task.delta)),
    )


def _functions(ratio: float, bins: int, table: Table, gaussian: bool) -> Functions | None:
    """Return what to sum of numeric columns with so many bins, at this ratio of rows to noise; None for counts."""
    columns = max(1, len(table.columns))
    room = _MOST_ENTRIES // (len(table) * columns) - 2  # beside one entry of detail
    if ratio >= _COUNTS_FROM or room < _FEWEST_COSINES:
        return None
    cosines, power = (_COSINES, _SLOW) if gaussian else (_PURE_COSINES, _PURE_SLOW)
    count = int(np.clip(cosines * ratio**0.5, _FEWEST_COSINES, min(room, bins)))
    detailed = gaussian and ratio >= _DETAIL_FROM and (bins + count) * columns <= _MOST_SUMS
    return Functions(count, power, _DETAIL if detailed else 0.0, 2 if gaussian else 1)


def rows_to_noise(task: Task, epsilon: float) -> float:
    """Return the rows of an average class, times two, over the noise of a count of one bin.

    Numbers of a range count as two classes: both move a sum by one range at most.

    Args:
        task: What to learn.
        epsilon: What a label may spend on the counts.

    Returns:
        A ratio: the more, the finer the bins may be.
    """
    task = task.whole
    columns = len(as_table(task.points).columns)
    classes = 2 if task.space.step else len(task.space)
    return ratio_to_noise(int(task.rows.sum()), classes, columns, epsilon, task.delta)


def additive_steps(task: Task, layout: Layout, epsilon: float, delta: float) -> Model:
    """Ask for the counts of single columns, then for those of crosses, and fit the model.

    Args:
        task: What to learn.
        layout: What to ask for.
        epsilon: What all of it may cost together.
        delta: Likewise.

    Returns:
        The model, and the sums that it was fitted to.
    """
    rounds = len(layout.named) + layout.selected
    task.progress.plan(1 + rounds)
    parts = yield from _reserve(layout, epsilon, delta)
    table, single, design, functions = binned_columns(task, layout)
    counts = yield Ask(LinearQuery(with_constant(design.matrix(functions)), *parts[0]))
    sums, releases = AdditiveSums(table, single, design, functions, counts), [counts]
    model, scores = sums.main_effects()
    task.progress.step()
    if not rounds:
        return model, sums
    cells = Bins.learn(table, layout.cell_bins, layout.cell_bins)
    codes = np.stack([cells.codes(table, place) for place in range(len(cells.columns))], axis=1)
    places = {column.name: place for place, column in enumerate(cells.columns)}
    waiting = _crossable(model, layout)
    left = iter(parts[1:])
    for turn in range(rounds):
        if turn < len(layout.named):
            first, second = layout.named[turn]
            pair = places[first], places[second]
        else:
            expected = _expected(task, scores, releases)
            choice = yield Ask(
                LargestResiduals(codes, np.array(waiting), expected, 1, next(left)[0]), derived_from=list(releases)
            )
            releases.append(choice)
            pair = waiting.pop(choice.picked[0])
        columns = cells.columns[pair[0]], cells.columns[pair[1]]
        cross = yield from _cross(table, columns, next(left), releases)
        sums.crosses.append(cross)
        term, scores = sums.cross_effect(cross, scores)
        model = model.with_terms([term], Provenance.of(model, *releases))
        task.progress.step()
    return model, sums


def _reserve(layout: Layout, epsilon: float, delta: float) -> Generator[Ask | Reserve, Any, list[tuple[float, float]]]:
    """Return epsilon and delta of each request, reserved together where that costs less."""
    rounds = len(layout.named) + layout.selected
    if not rounds:
        return [(epsilon, delta)]
    shares = shares_with_crosses(len(layout.named), layout.selected, delta)
    parts = composed_steps(epsilon, delta, shares)
    reserved = yield Reserve([calibrated_loss(*part) for part in parts], delta)
    if reserved:
        return parts
    alone = composed_steps(epsilon, 0.0, shares)
    each = in_parts(delta, rounds + 1) if delta else 0.0
    return [(part, each if kind == "gaussian" else 0.0) for (part, _), (_, kind) in zip(alone, shares, strict=True)]


def binned_columns(
    task: Task, layout: Layout
) -> tuple[Table, tuple[Column, ...], BinDesign, list[NDArray[np.float64] | None]]:
    """Cut the columns of a task's table into bins.

    Args:
        task: What to learn. The features are a table.
        layout: The number of bins, and what is summed of numeric columns.

    Returns:
        The table, the bins of its columns, the rows in bins, and the functions of each column that are summed.
    """
    table = as_table(task.points)
    bins = Bins.learn(table, layout.bins, layout.categories)
    codes = [bins.codes(table, place) for place in range(len(bins.columns))]
    functions = [
        None if layout.functions is None else layout.functions.of(column, bool((own == column.width - 1).any()))
        for column, own in zip(bins.columns, codes, strict=True)
    ]
    return table, bins.columns, BinDesign(codes, [column.width for column in bins.columns]), functions


def with_constant(matrix: csr_array) -> csr_array:
    """Add a column of ones, whose sum is the number of rows of each class, or the sum of all numbers."""
    return csr_array(hstack([matrix, csr_array(np.ones((matrix.shape[0], 1), matrix.dtype))]))


def _cross(
    table: Table, columns: tuple[Column, Column], part: tuple[float, float], releases: list[Release]
) -> Generator[Ask | Reserve, Any, CrossSums]:
    """Ask for the counts of a cross."""
    width = columns[0].width * columns[1].width
    cells = Term(columns, np.zeros((width, 1))).cells(table)
    counts = yield Ask(LinearQuery(BinDesign([cells], [width]).matrix(), *part), derived_from=list(releases))
    releases.append(counts)
    return CrossSums(columns, cells, counts)


def _expected(task: Task, scores: NDArray[np.float64], releases: Sequence[Release]) -> NDArray[np.float32]:
    """Return the probabilities of the classes, as a request for crosses holds them.

    A run that was interrupted must repeat its requests byte for byte, and another number of threads can change the last
    bits of a sum. So the probabilities are rounded, and read again where the task has a folder for its progress.
    """

    def made() -> NDArray[np.float32]:
        found = class_probabilities(scores).round(6)
        return (found / found.sum(axis=1, keepdims=True)).astype(np.float32)

    folder = task.folder or (task.training.checkpoint if task.training is not None else None)
    after = hashlib.sha256(" ".join(release.entry or "" for release in releases).encode()).hexdigest()[:16]
    return kept_array(None if folder is None else folder / f"expected-{after}.npy", made)


def _crossable(model: AdditiveModel, layout: Layout) -> list[tuple[int, int]]:
    """Return the crosses to select from: of all columns, or of those with the largest effects."""
    strength = np.array([float(np.var(term.weights)) for term in model.terms])
    chosen = np.sort(np.argsort(-strength, kind="stable")[:_CROSSABLE])
    names = [term.name for term in model.terms]
    taken = {frozenset(pair) for pair in layout.named}
    return [
        (int(chosen[i]), int(chosen[j]))
        for i, j in _pairs(len(chosen))
        if frozenset((names[chosen[i]], names[chosen[j]])) not in taken
    ]


def _pairs(count: int) -> list[tuple[int, int]]:
    return list(combinations(range(min(count, _CROSSABLE)), 2))
