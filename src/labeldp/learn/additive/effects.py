"""Descriptions of the effects of an additive model, for model cards and `effects_`.

They are post-processing of the model and of names of public features. Labels of bins never contain the smallest or the
largest value of a column, nor a rare category.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labeldp.data.table_encoder import TableEncoder
from labeldp.learn.additive.bins import BinnedColumn
from labeldp.learn.additive.design import Floats
from labeldp.learn.additive.model import AdditiveModel, Term
from labeldp.learn.boosting import BoostedModel
from labeldp.learn.predictor import Predictor
from labeldp.learn.regression_boosting import BoostedRegressionModel

MAX_NAMED_CATEGORIES = 12  # categories of a column whose names are shown
MAX_CLASSES = 6  # classes with the largest effects, which are described in JSON
OTHER_LABEL, MISSING_LABEL = "other values", "no value"

BinGroup = tuple[str, list[int]]  # a label, and the bins of the model that it denotes


@dataclass(frozen=True, eq=False)
class Effect:
    """The contribution of one column, or of a cross of two columns, to the scores of a model.

    Attributes:
        names: The names of the columns: one, or two for a cross.
        kind: The type of the column, or "cross".
        bins: The labels of the bins of each column: numeric bins in ascending order, categories by frequency.
        values: (bins,), or (bins, bins) for a cross. For two classes they are log-odds of the second class. For several
            classes, a last axis has a score for each class. For numbers, they are in units of the labels. The mean over
            the model's bins is zero. The value of "other values" is the mean of its bins.
        strength: The standard deviation of the values over the model's bins, with equal weights.
        edges: For each numeric column, the largest value of each bin from the second one, without the last bin; for a
            categorical column, none.
    """

    names: tuple[str, ...]
    kind: Literal["number", "category", "cross"]
    bins: tuple[tuple[str, ...], ...]
    values: NDArray[np.float64]
    strength: float
    edges: tuple[tuple[float, ...], ...]

    @property
    def name(self) -> str:
        """The names of the columns in one text."""
        return " x ".join(self.names)

    def to_json(self) -> dict[str, Any]:
        """Describe the effect; for several classes, only those with the largest effects, by index in `classes`."""
        values, classes = self.values, None
        if values.ndim > len(self.names):
            magnitudes = np.sqrt((values**2).mean(axis=tuple(range(len(self.names)))))
            max_classes = 1 if self.kind == "cross" else MAX_CLASSES
            classes = np.sort(np.argsort(-magnitudes, kind="stable")[:max_classes])
            values, classes = values[..., classes], classes.tolist()
        return {
            "names": list(self.names),
            "kind": self.kind,
            "bins": [list(labels) for labels in self.bins],
            "values": values.round(4).tolist(),
            "strength": round(self.strength, 4),
            "edges": [list(edges) for edges in self.edges],
            "classes": classes,
        }


def describe_effects(model: Predictor, encoder: TableEncoder) -> tuple[Effect, ...] | None:
    """Describe the effects of a model.

    Args:
        model: An additive model, or boosted trees that start from one. Other models have no effects.
        encoder: The columns of the table of the training, with the names of categories.

    Returns:
        The effects in descending order of strength, without those of trees; None for models without effects.

    Privacy:
        Post-processing of the model, without additional cost. Names and edges come from public features.
    """
    if isinstance(model, BoostedModel | BoostedRegressionModel) and model.start is not None:
        model = model.start
    if not isinstance(model, AdditiveModel):
        return None
    category_names = {column.name: column.values for column in encoder.categorical}
    effects = [_describe_term(term, category_names) for term in model.terms]
    return tuple(sorted(effects, key=lambda effect: -effect.strength))


def _describe_term(term: Term, category_names: dict[str, tuple[str, ...]]) -> Effect:
    n_outputs = term.weights.shape[1]
    weights = term.weights.reshape(*(column.width for column in term.columns), n_outputs)
    if n_outputs > 1:  # the mean over classes does not change probabilities
        weights = weights - weights.mean(axis=-1, keepdims=True)
    axes = [
        _group_bins(column, np.moveaxis(weights, axis, 0), category_names.get(column.name, ()))
        for axis, column in enumerate(term.columns)
    ]
    bins = [[axis for _, group in groups for axis in group] for groups in axes]
    inner = weights[np.ix_(*bins)]
    mean = inner.mean(axis=tuple(range(len(axes))), keepdims=True)
    strength = float(np.sqrt(((inner - mean) ** 2).mean()))
    values = weights - mean
    for axis, groups in enumerate(axes):
        values = np.stack([values.take(group, axis=axis).mean(axis=axis) for _, group in groups], axis=axis)
    column_types: tuple[Any, ...] = tuple("category" if column.edges is None else "number" for column in term.columns)
    return Effect(
        tuple(column.name for column in term.columns),
        column_types[0] if len(axes) == 1 else "cross",
        tuple(tuple(label for label, _ in groups) for groups in axes),
        values[..., 0] if n_outputs == 1 else values,
        strength,
        tuple(() if column.edges is None else tuple(column.edges[1:].tolist()) for column in term.columns),
    )


def _group_bins(column: BinnedColumn, weights: Floats, names: Sequence[str]) -> list[BinGroup]:
    """Label the bins of a column, without bins for other or missing values that have no training row.

    Such a bin has weights of exactly zero.
    """
    groups: list[BinGroup] = []
    if column.edges is not None:
        groups = [(label, [index]) for index, label in enumerate(_range_labels(column.edges))]
    elif column.bin_of_code is not None:
        groups = _group_categories(column.bin_of_code, names)
    labeled = {index for _, group in groups for index in group}
    other = [index for index in range(column.width - 1) if index not in labeled and weights[index].any()]
    groups += [(OTHER_LABEL, other)] if other else []
    missing = column.width - 1
    groups += [(MISSING_LABEL, [missing])] if weights[missing].any() else []
    return groups or [(OTHER_LABEL, [missing])]


def _group_categories(bin_of: NDArray[np.int64], names: Sequence[str]) -> list[BinGroup]:
    """Return the frequent categories with their own bin; codes are in descending order of frequency."""
    is_shared = np.bincount(bin_of) > 1
    candidates = zip(names[:MAX_NAMED_CATEGORIES], bin_of.tolist(), strict=False)
    return [(name, [index]) for name, index in candidates if not is_shared[index]]


def _range_labels(edges: NDArray[np.floating]) -> list[str]:
    """Return a label for each ordered bin. The first edge may be the smallest value, so no label contains it."""
    if not edges.size:
        return ["any value"]
    if edges.size == 1:
        return ["lower values", "higher values"]
    values = _format_edges(edges)
    between = [f"{low} to {high}" for low, high in pairwise(values[1:])]
    return [f"below {values[1]}", f"up to {values[1]}", *between, f"above {values[-1]}"]


def _format_edges(edges: NDArray[np.floating]) -> list[str]:
    """Format edges with as few digits as distinguish them: integers in full, others with at least four digits."""
    if (edges == np.rint(edges)).all() and np.abs(edges).max() < 1e15:
        return [f"{edge:,.0f}" for edge in edges]
    texts = list[str]()
    for digits in range(4, 10):
        texts = [np.format_float_positional(edge, digits, fractional=False, trim="-") for edge in edges]
        if len(set(texts)) == len(texts):
            break
    return texts
