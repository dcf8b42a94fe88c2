"""The effects of an additive model as figures of a card."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.report.card.blocks import Block, Figure, Gallery
from labeldp.report.card.effect_figures import draw_bars, draw_grid, draw_steps, format_signed
from labeldp.report.card.formatting import truncate

# The maximum numbers of characters of the names of columns and classes, and of bins.
_MAX_NAME, _MAX_LABEL = 40, 40
# The smallest strength of an effect with a figure; for numeric labels, as a fraction of their range.
_MIN_STRENGTH = 0.01


def effect_blocks(effects: dict[str, Any] | None, classes: Sequence[Any], is_numeric: bool = False) -> list[Block]:
    """Draw the strongest effects of a model.

    Args:
        effects: The effects in the report of the training: `shown`, `count` and `trees`. None for other models.
        classes: The names of the classes, or the numbers of the range.
        is_numeric: Whether labels are numeric.

    Returns:
        Sentences and small figures; nothing for models without effects.
    """
    if not effects:
        return []
    min_strength = _MIN_STRENGTH * (float(classes[-1]) - float(classes[0])) if is_numeric else _MIN_STRENGTH
    strong_effects = [effect for effect in effects["shown"] if effect["strength"] >= min_strength]
    if not strong_effects:
        return ["No column has a strong effect on the predictions: the effects are weak, or smaller than the noise."]
    figures = [_draw_effect(effect, [str(name) for name in classes]) for effect in strong_effects]
    score_text = (
        f"the log-odds of “{truncate(str(classes[1]), _MAX_NAME)}”" if len(classes) == 2 else "the score of each class"
    )
    target_text = "the predicted number" if is_numeric else score_text
    sentences: list[Block] = [
        f"Each figure shows the effect of a column on {target_text}, with all other columns fixed. Blue is above the "
        "mean of the bins of the column, orange below.",
        "The figures are computed from the model and public features only: they cost no privacy beyond the model. They "
        "contain its noise and are not rates in the data.",
        "The smallest and largest values of numbers and the names of rare categories are not shown.",
        "Each figure has its own scale.",
    ]
    if effects["count"] > len(figures):
        sentences.append(f"{len(figures)} of {effects['count']:,} effects are shown: the strongest.")
    if effects["trees"]:
        sentences.append("Boosted trees add to these effects; the figures do not include them.")
    return [*sentences, Gallery(tuple(figures))]


def _draw_effect(effect: dict[str, Any], classes: Sequence[str]) -> Figure:
    title = " x ".join(truncate(name, _MAX_NAME) for name in effect["names"])
    values, bins, edges = np.array(effect["values"], float), effect["bins"], effect["edges"]
    class_ids = effect["classes"]
    if effect["kind"] == "cross":
        if class_ids is not None:
            title += f", class “{truncate(classes[class_ids[0]], _MAX_NAME)}”"
            values = values[..., 0]
        return _draw_cross(title, effect["names"], bins, edges, values)
    if class_ids is not None:
        return _draw_by_class(
            title, bins[0], edges[0], values, [truncate(classes[index], _MAX_NAME) for index in class_ids]
        )
    drawing = draw_steps(title, bins[0], edges[0], values) if edges[0] else draw_bars(title, bins[0], values)
    return Figure(title, _describe_extremes(bins[0], values), drawing)


def _draw_by_class(
    title: str, labels: Sequence[str], edges: Sequence[float], values: NDArray[np.float64], names: Sequence[str]
) -> Figure:
    """Draw the effects of bins by class."""
    text = " ".join(
        f"“{name}”: {_describe_extremes(labels, values[:, index], with_lowest=False)}"
        for index, name in enumerate(names)
    )
    if edges:
        return Figure(title, text, draw_grid(title, names, labels, edges, values.T))
    legend = "; ".join(f"{index} “{name}”" for index, name in enumerate(names, start=1))
    drawing = draw_grid(title, labels, [str(index + 1) for index in range(len(names))], (), values)
    return Figure(title, f"Columns are classes: {legend}. {text}", drawing)


def _draw_cross(
    title: str,
    names: Sequence[str],
    bins: Sequence[Sequence[str]],
    edges: Sequence[Sequence[float]],
    values: NDArray[np.float64],
) -> Figure:
    """Draw the cells of a cross: numbers horizontally if there are any, categories vertically."""
    if edges[0] and not edges[1]:
        names, bins, edges, values = names[::-1], bins[::-1], edges[::-1], values.T
    down, across = (truncate(name, _MAX_NAME) for name in names)
    high, low = (divmod(int(index), values.shape[1]) for index in (values.argmax(), values.argmin()))
    text = f"{down} down, {across} across. "
    text += ", ".join(
        f"{end} for {truncate(bins[0][i], _MAX_LABEL)} and {truncate(bins[1][j], _MAX_LABEL)} "
        f"({format_signed(values[i, j])})"
        for end, (i, j) in (("Highest", high), ("lowest", low))
    )
    labels = bins[1]
    if not edges[1]:
        text += ". Columns: " + "; ".join(
            f"{index} {truncate(name, _MAX_LABEL)}" for index, name in enumerate(labels, start=1)
        )
        labels = [str(index + 1) for index in range(len(labels))]
    return Figure(title, f"{text}.", draw_grid(title, bins[0], labels, edges[1], values, edges[0]))


def _describe_extremes(labels: Sequence[str], values: NDArray[np.float64], with_lowest: bool = True) -> str:
    ends = [("highest", int(values.argmax()))] + [("lowest", int(values.argmin()))] * with_lowest
    text = ", ".join(
        f"{end} for {truncate(labels[index], _MAX_LABEL)} ({format_signed(values[index])})" for end, index in ends
    )
    return f"{text[0].upper()}{text[1:]}."
