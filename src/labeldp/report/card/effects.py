"""What an additive model has learnt, as a card shows it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.report.card.blocks import Block, Gallery, Picture
from labeldp.report.card.effect_pictures import bars, grid, signed, steps
from labeldp.report.card.numbers import cut

_NAME, _LABEL = 40, 40  # letters of the names of columns and classes, and of bins
_LEAST = 0.01  # strength of an effect that is worth a picture; of numbers, as a share of their range


def effect_blocks(effects: dict[str, Any] | None, classes: Sequence[Any], numbers: bool = False) -> list[Block]:
    """Draw the strongest effects of a model; nothing for models without effects.

    Args:
        effects: What a report says of them: `shown`, `count` and `trees`.
        classes: The names of the classes, or the numbers of the range.
        numbers: Whether labels are numbers.

    Returns:
        Sentences and small pictures.
    """
    if not effects:
        return []
    least = _LEAST * (float(classes[-1]) - float(classes[0])) if numbers else _LEAST
    strong = [effect for effect in effects["shown"] if effect["strength"] >= least]
    if not strong:
        return ["No column moves the predictions by much: noise hid what the columns say, or they say little."]
    shown = [_picture(effect, [str(name) for name in classes]) for effect in strong]
    two = f"the log-odds of “{cut(str(classes[1]), _NAME)}”" if len(classes) == 2 else "the score of each class"
    what = "the predicted number" if numbers else two
    said: list[Block] = [
        f"Each picture shows how a column moves {what}. Blue is above the mean of the column's bins, and orange below. "
        "All other columns stay the same.",
        "The pictures are computed from the model and from public features alone: they cost no privacy beyond the "
        "model. They contain its noise, and they are no rates in the data.",
        "The smallest and largest values of numbers and the names of rare categories are not shown.",
        "Each picture has a scale of its own.",
    ]
    if effects["count"] > len(shown):
        said.append(f"{len(shown)} of {effects['count']:,} effects are shown: the strongest.")
    if effects["trees"]:
        said.append("Boosted trees add to these effects; no picture shows what they add.")
    return [*said, Gallery(tuple(shown))]


def _picture(effect: dict[str, Any], classes: Sequence[str]) -> Picture:
    title = " x ".join(cut(name, _NAME) for name in effect["names"])
    values, bins, edges = np.array(effect["values"], float), effect["bins"], effect["edges"]
    chosen = effect["classes"]
    if effect["kind"] == "cross":
        if chosen is not None:
            title += f", class “{cut(classes[chosen[0]], _NAME)}”"
            values = values[..., 0]
        return _cross(title, effect["names"], bins, edges, values)
    if chosen is not None:
        return _by_class(title, bins[0], edges[0], values, [cut(classes[place], _NAME) for place in chosen])
    drawn = steps(title, bins[0], edges[0], values) if edges[0] else bars(title, bins[0], values)
    return Picture(title, _ends(bins[0], values), drawn)


def _by_class(
    title: str, labels: Sequence[str], edges: Sequence[float], values: NDArray[np.float64], names: Sequence[str]
) -> Picture:
    """Show bins by classes."""
    words = " ".join(f"“{name}”: {_ends(labels, values[:, place], low=False)}" for place, name in enumerate(names))
    if edges:
        return Picture(title, words, grid(title, names, labels, edges, values.T))
    key = "; ".join(f"{place} “{name}”" for place, name in enumerate(names, start=1))
    svg = grid(title, labels, [str(place + 1) for place in range(len(names))], (), values)
    return Picture(title, f"Columns are classes: {key}. {words}", svg)


def _cross(
    title: str,
    names: Sequence[str],
    bins: Sequence[Sequence[str]],
    edges: Sequence[Sequence[float]],
    values: NDArray[np.float64],
) -> Picture:
    """Show the cells of a cross: numbers across where there are any, categories down."""
    if edges[0] and not edges[1]:
        names, bins, edges, values = names[::-1], bins[::-1], edges[::-1], values.T
    down, across = (cut(name, _NAME) for name in names)
    high, low = (divmod(int(place), values.shape[1]) for place in (values.argmax(), values.argmin()))
    words = f"{down} down, {across} across. "
    words += ", ".join(
        f"{end} for {cut(bins[0][i], _LABEL)} and {cut(bins[1][j], _LABEL)} ({signed(values[i, j])})"
        for end, (i, j) in (("Highest", high), ("lowest", low))
    )
    labels = bins[1]
    if not edges[1]:
        words += ". Columns: " + "; ".join(f"{place} {cut(name, _LABEL)}" for place, name in enumerate(labels, start=1))
        labels = [str(place + 1) for place in range(len(labels))]
    return Picture(title, f"{words}.", grid(title, bins[0], labels, edges[1], values, edges[0]))


def _ends(labels: Sequence[str], values: NDArray[np.float64], low: bool = True) -> str:
    ends = [("highest", int(values.argmax()))] + [("lowest", int(values.argmin()))] * low
    said = ", ".join(f"{end} for {cut(labels[place], _LABEL)} ({signed(values[place])})" for end, place in ends)
    return f"{said[0].upper()}{said[1:]}."
