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

from labeldp.data.table_encoder import Encoder
from labeldp.learn.additive.bins import Column
from labeldp.learn.additive.design import Floats
from labeldp.learn.additive.model import AdditiveModel, Term
from labeldp.learn.boosting import BoostedModel
from labeldp.learn.number_boosting import BoostedNumberModel
from labeldp.learn.predictor import Predictor

MOST_NAMED = 12  # categories of a column whose names are shown
MOST_CLASSES = 6  # of several classes, whose effects are described in JSON
OTHERS, MISSING = "other values", "no value"

Group = tuple[str, list[int]]  # a label, and the bins of the model that it stands for


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
            moved = np.sqrt((values**2).mean(axis=tuple(range(len(self.names)))))
            most = 1 if self.kind == "cross" else MOST_CLASSES
            classes = np.sort(np.argsort(-moved, kind="stable")[:most])
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


def effects_of(model: Predictor, encoder: Encoder) -> tuple[Effect, ...] | None:
    """Describe the effects of a model.

    Args:
        model: An additive model, or boosted trees that start from one. Other models have no effects.
        encoder: The columns of the table that it was trained on, which know the names of categories.

    Returns:
        The effects, strongest first, without those of trees; None for models without effects.

    Privacy:
        Post-processing of the model: free of charge. Names and edges come from public features.
    """
    if isinstance(model, BoostedModel | BoostedNumberModel) and model.start is not None:
        model = model.start
    if not isinstance(model, AdditiveModel):
        return None
    names = {column.name: column.values for column in encoder.categories}
    found = [_effect(term, names) for term in model.terms]
    return tuple(sorted(found, key=lambda effect: -effect.strength))


def _effect(term: Term, names: dict[str, tuple[str, ...]]) -> Effect:
    outputs = term.weights.shape[1]
    weights = term.weights.reshape(*(column.width for column in term.columns), outputs)
    if outputs > 1:  # what all classes have in common changes no probability
        weights = weights - weights.mean(axis=-1, keepdims=True)
    axes = [
        _groups(column, np.moveaxis(weights, place, 0), names.get(column.name, ()))
        for place, column in enumerate(term.columns)
    ]
    present = [[place for _, places in groups for place in places] for groups in axes]
    inner = weights[np.ix_(*present)]
    mean = inner.mean(axis=tuple(range(len(axes))), keepdims=True)
    strength = float(np.sqrt(((inner - mean) ** 2).mean()))
    values = weights - mean
    for place, groups in enumerate(axes):
        values = np.stack([values.take(places, axis=place).mean(axis=place) for _, places in groups], axis=place)
    kinds: tuple[Any, ...] = tuple("category" if column.edges is None else "number" for column in term.columns)
    return Effect(
        tuple(column.name for column in term.columns),
        kinds[0] if len(axes) == 1 else "cross",
        tuple(tuple(label for label, _ in groups) for groups in axes),
        values[..., 0] if outputs == 1 else values,
        strength,
        tuple(() if column.edges is None else tuple(column.edges[1:].tolist()) for column in term.columns),
    )


def _groups(column: Column, weights: Floats, names: Sequence[str]) -> list[Group]:
    """Label the bins of a column. A bin for other or missing values that no row of the training had is left out.

    Such a bin has weights of exactly zero, because the fit gives a bin without rows none.
    """
    groups: list[Group] = []
    if column.edges is not None:
        groups = [(label, [place]) for place, label in enumerate(_ranges(column.edges))]
    elif column.map is not None:
        groups = _categories(column.map, names)
    taken = {place for _, places in groups for place in places}
    held = [place for place in range(column.width - 1) if place not in taken and weights[place].any()]
    groups += [(OTHERS, held)] if held else []
    missing = column.width - 1
    groups += [(MISSING, [missing])] if weights[missing].any() else []
    return groups or [(OTHERS, [missing])]


def _categories(bin_of: NDArray[np.int64], names: Sequence[str]) -> list[Group]:
    """Return the frequent categories that have a bin of their own; codes are in the order of frequency."""
    shared = np.bincount(bin_of) > 1
    shown = zip(names[:MOST_NAMED], bin_of.tolist(), strict=False)
    return [(name, [place]) for name, place in shown if not shared[place]]


def _ranges(edges: NDArray[np.floating]) -> list[str]:
    """Return a label for each ordered bin. The first edge may be the smallest value, so no label shows it."""
    if not edges.size:
        return ["any value"]
    if edges.size == 1:
        return ["lower values", "higher values"]
    words = _written(edges)
    between = [f"{low} to {high}" for low, high in pairwise(words[1:])]
    return [f"below {words[1]}", f"up to {words[1]}", *between, f"above {words[-1]}"]


def _written(edges: NDArray[np.floating]) -> list[str]:
    """Write edges in few digits that tell them apart: whole numbers in full, others with four digits or more."""
    if (edges == np.rint(edges)).all() and np.abs(edges).max() < 1e15:
        return [f"{edge:,.0f}" for edge in edges]
    words = list[str]()
    for digits in range(4, 10):
        words = [np.format_float_positional(edge, digits, fractional=False, trim="-") for edge in edges]
        if len(set(words)) == len(words):
            break
    return words
