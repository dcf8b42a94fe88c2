"""Generalised additive models of tables, from noisy counts of public bins by label."""

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.calibration import calibrated_loss
from labeldp.features.tables import Table
from labeldp.learn.additive import BinDesign, Bins, Column, Line, fit_block, fit_sums, prior_of
from labeldp.learn.additive.fit import class_probabilities
from labeldp.learn.additive.model import AdditiveModel, Term, as_table
from labeldp.learn.additive.sums import consistent_sums, level_columns, with_lines
from labeldp.mechanisms import LargestResiduals, LinearQuery
from labeldp.mechanisms.base import in_parts
from labeldp.provenance import Provenance
from labeldp.recipes.base import Ask, Reserve, Steps, recipe
from labeldp.recipes.crosses import read_crosses
from labeldp.recipes.shares import composed_steps, ratio_to_noise, shares_with_crosses, usual_crosses
from labeldp.recipes.task import Task
from labeldp.releases.base import Release
from labeldp.writing import kept_array

_BINS = 0.8  # bins of a column, in roots of the ratio of rows to noise
_PURE_BINS = (
    0.4  # the same where delta is 0: there are no sums along lines then, and few bins tell linear effects better
)
_FEWEST_BINS, _MOST_BINS = 4, 64
_MOST_CATEGORIES = 60
_LINES_FROM = 8  # ordered bins of a column from which a sum along a line has much less noise than one of the bins
_LINE_END = 0.7  # value of a line at the last bin: more would take more noise off the line and add more to the bins
_LINES_BELOW = 12_000.0  # ratio of rows to noise above which bins have little noise
_CELL_BINS, _MOST_CELL_BINS = 0.4, 31  # bins of a column in a cross, likewise
_MOST_COLUMNS = 1_200  # bins of all columns together: the fit inverts matrices of this size
_CROSSABLE = 24  # columns among which crosses are searched

Model = Generator[Ask | Reserve, Any, tuple[AdditiveModel, list[Release]]]


@dataclass(frozen=True)
class Layout:
    """What an additive model asks for, fixed by public facts.

    Attributes:
        bins: The most bins of a numeric column.
        categories: The most bins of a categorical column.
        cell_bins: The most bins of a column in a cross.
        named: Crosses that the user names, by the names of their columns.
        selected: How many crosses are selected privately.
        lines_from: Columns with as many ordered bins are summed along a line, too.
    """

    bins: int
    categories: int
    cell_bins: int
    named: tuple[tuple[str, str], ...]
    selected: int
    lines_from: float


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
    root, columns = ratio**0.5, len(table.columns)
    bins = int(
        np.clip(
            (_BINS if task.delta else _PURE_BINS) * root,
            _FEWEST_BINS,
            min(_MOST_BINS, max(_FEWEST_BINS, _MOST_COLUMNS // columns - 2)),
        )
    )
    return Layout(
        bins,
        min(max(bins, 12), _MOST_CATEGORIES) if bins < _MOST_CATEGORIES / 2 else _MOST_CATEGORIES,
        int(np.clip(_CELL_BINS * root, _FEWEST_BINS, _MOST_CELL_BINS)),
        named,
        min(usual_crosses(ratio) if crosses is None else crosses, most),
        _LINES_FROM if task.delta and ratio < _LINES_BELOW else np.inf,
    )


def rows_to_noise(task: Task, epsilon: float) -> float:
    """Return the rows of an average class, times two, over the noise of a count of one bin.

    Args:
        task: What to learn.
        epsilon: What a label may spend on the counts.

    Returns:
        A ratio: the more, the finer the bins may be.
    """
    task = task.whole
    columns = len(as_table(task.points).columns)
    return ratio_to_noise(int(task.rows.sum()), len(task.space), columns, epsilon, task.delta)


def additive_steps(task: Task, layout: Layout, epsilon: float, delta: float) -> Model:
    """Ask for the counts of single columns, then for those of crosses, and fit the model.

    Args:
        task: What to learn.
        layout: What to ask for.
        epsilon: What all of it may cost together.
        delta: Likewise.

    Returns:
        The model and its releases.
    """
    table = as_table(task.points)
    rounds = len(layout.named) + layout.selected
    task.progress.plan(1 + rounds)
    parts = yield from _reserve(layout, epsilon, delta)
    bins = Bins.learn(table, layout.bins, layout.categories)
    design = BinDesign(
        [bins.codes(table, place) for place in range(len(bins.columns))], [c.width for c in bins.columns]
    )
    ordered = [place for place, column in enumerate(bins.columns) if column.ordered >= layout.lines_from]
    lines = {place: _LINE_END * bins.columns[place].line for place in ordered}
    counts = yield Ask(LinearQuery(design.matrix(lines), *parts[0]))
    releases, active = [counts], counts.active
    model, scores = _main_effects(table, bins, design, lines, counts)
    task.progress.step()
    if not rounds:
        return model, releases
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
        found = yield from _cross(task, table, columns, next(left), scores, active, releases)
        model = model.with_terms([found], Provenance.of(model, *releases))
        scores = scores + found.weights.take(found.cells(table), axis=0)
        task.progress.step()
    return model, releases


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


def _main_effects(
    table: Table, bins: Bins, design: BinDesign, lines: Mapping[int, NDArray[np.float64]], counts: Any
) -> tuple[AdditiveModel, NDArray[np.float64]]:
    """Fit the effects of single columns; return the model, and the scores of all rows."""
    here = design if counts.active is None else design.select(counts.active)
    placed = [Line(slice(*design.starts[place : place + 2]), values) for place, values in lines.items()]
    sums, totals = level_columns(with_lines(consistent_sums(counts), placed), design.starts, len(here))
    prior = prior_of(design.widths, [column.ordered for column in bins.columns])
    found = fit_sums(here, sums.values, totals, sums.noise, prior, lines=placed)
    terms = [
        Term((column,), found.weights[start : start + column.width])
        for column, start in zip(bins.columns, design.starts[:-1], strict=True)
    ]
    model = AdditiveModel(counts.space, Provenance.of(counts), found.intercept, tuple(terms))
    return model, found.intercept + design.dot(found.weights)


def _cross(
    task: Task,
    table: Table,
    columns: tuple[Column, Column],
    part: tuple[float, float],
    scores: NDArray[np.float64],
    active: NDArray[np.bool_] | None,
    releases: list[Release],
) -> Generator[Ask | Reserve, Any, Term]:
    """Ask for the counts of a cross, and fit its effect to what the model so far leaves."""
    width = columns[0].width * columns[1].width
    cells = Term(columns, np.zeros((width, scores.shape[1]))).cells(table)
    design = BinDesign([cells], [width])
    counts = yield Ask(LinearQuery(design.matrix(), *part), derived_from=list(releases))
    releases.append(counts)
    sums = consistent_sums(counts)
    rows = slice(None) if active is None else active
    weights, _ = fit_block(cells[rows], width, sums.values, sums.noise, scores[rows])
    return Term(columns, weights)


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
