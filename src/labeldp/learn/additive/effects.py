"""The effects of an additive model in words and numbers, for cards and `effects_`.

Everything here is computed from the model and from names of public features: it costs nothing beyond the model. Labels
of bins never name the smallest or largest value of a column, nor a rare category.
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
MAX_CLASSES = 6  # of several classes, whose effects are described in JSON
OTHER_LABEL, MISSING_LABEL = "other values", "no value"

BinGroup = tuple[str, list[int]]  # a label, and the bins of the model that it stands for


@dataclass(frozen=True, eq=False)
class Effect:
    """What one column, or a cross of two columns, adds to the scores of a model.

    Attributes:
        names: The names of the columns: one, or two of a cross.
        kind: What the column holds, or "cross".
        bins: The labels of the bins of each column. Ordered bins of numbers come first, categories by frequency.
        values: (bins,), or (bins, bins) of a cross. Of two classes, log-odds of the second class; of several classes,
            a last axis has a score for each class; of numbers, units of the labels. The mean over the model's bins is
            zero. The value of "other values" is the mean of its bins.
        strength: The standard deviation of the values over the model's bins, each weighted equally.
        edges: For each column, of a number the largest values of its second bin, of its third, and so on, without the
            last; of a category none.
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
        """Describe the effect; of several classes, only those that it moves most, which `classes` lists by place."""
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
        encoder: The columns of the table that it was trained on, which know the names of categories.

    Returns:
        The effects, strongest first, without those of trees; None for models without effects.

    Privacy:
        Post-processing of the model: free of charge. Names and edges come from public features.
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
    if n_outputs > 1:  # what all classes have in common changes no probability
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
    """Label the bins of a column. A bin for other or missing values that no row of the training had is left out.

    Such a bin has weights of exactly zero, because the fit gives a bin without rows none.
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
    """Return the frequent categories that have a bin of their own; codes are in the order of frequency."""
    is_shared = np.bincount(bin_of) > 1
    candidates = zip(names[:MAX_NAMED_CATEGORIES], bin_of.tolist(), strict=False)
    return [(name, [index]) for name, index in candidates if not is_shared[index]]


def _range_labels(edges: NDArray[np.floating]) -> list[str]:
    """Return a label for each ordered bin. The first edge may be the smallest value, so no label shows it."""
    if not edges.size:
        return ["any value"]
    if edges.size == 1:
        return ["lower values", "higher values"]
    values = _format_edges(edges)
    between = [f"{low} to {high}" for low, high in pairwise(values[1:])]
    return [f"below {values[1]}", f"up to {values[1]}", *between, f"above {values[-1]}"]


def _format_edges(edges: NDArray[np.floating]) -> list[str]:
    """Write edges in few digits that tell them apart: whole numbers in full, others with four digits or more."""
    if (edges == np.rint(edges)).all() and np.abs(edges).max() < 1e15:
        return [f"{edge:,.0f}" for edge in edges]
    texts = list[str]()
    for digits in range(4, 10):
        texts = [np.format_float_positional(edge, digits, fractional=False, trim="-") for edge in edges]
        if len(set(texts)) == len(texts):
            break
    return texts
