"""Small pictures of effects: bars for categories, steps for numbers, and grids for pairs."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from labeldp.report.card.numbers import cut
from labeldp.report.card.svg import line, rect, svg, text

_LETTERS = 22  # of a label beside bars and grids
_LEFT, _MIDDLE, _RIGHT = 46.0, 66.0, 86.0  # of bars, in percent of the width
_BAR = 20  # height of a bar and of its label
_PLOT, _BELOW = 110, 22  # heights of a plot and of the numbers below it
_ROW, _TALL = 18, 220  # most pixels of a row of a grid, and of all its rows
_SHADES = 4


def signed(value: float) -> str:
    """Write an effect with its sign, in at most six characters."""
    size = abs(value)
    if size >= 99_999.5:
        return f"{value:+.0e}"
    digits = 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:+.{digits}f}" if size >= 0.005 else "0.00"


def bars(title: str, labels: Sequence[str], values: NDArray[np.float64]) -> str:
    """Draw a bar to the right or left for each label."""
    most, parts = _most(values), list[str]()
    for place, (label, value) in enumerate(zip(labels, values, strict=True)):
        top, length = _BAR * place, (_RIGHT - _MIDDLE) * abs(value) / most
        parts.append(text("label", 0, top + 14, cut(label, _LETTERS), "start"))
        parts.append(rect("up" if value > 0 else "down", _MIDDLE - length * (value < 0), top + 4, length, _BAR - 8))
        parts.append(text("number", 100, top + 14, signed(value), "end"))
    parts.append(line("tick", _MIDDLE, 0, _BAR * len(labels)))
    return svg("effect", _BAR * len(labels), title, parts)


def steps(title: str, labels: Sequence[str], edges: Sequence[float], values: NDArray[np.float64]) -> str:
    """Draw ordered bins of equal width above and below zero; bins without order stand apart."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    unit = _PLOT / max(high - low, 1e-9)
    left, zero = 14.0, 8 + high * unit
    ordered = len(edges) + 2
    apart = len(values) - ordered
    width = (100 - left) / (ordered + 2 * apart + (apart > 0))
    parts = list[str]()
    for place, value in enumerate(values):
        x = left + width * (place if place < ordered else ordered + 1 + 2 * (place - ordered))
        wide = width if place < ordered else 2 * width
        tall = abs(value) * unit
        parts.append(rect("up" if value > 0 else "down", x, zero - tall * (value > 0), wide, tall))
    parts.append(rect("axis", left, zero - 0.5, 100 - left, 1))
    bottom = 8 + _PLOT
    for value, y in ((high, 14.0), (low, bottom + 2.0)):
        if abs(value) >= 0.005:
            parts.append(text("number", left - 2, y, signed(value), "end"))
    if min(high, -low) * unit > 16 or not (high and low):
        parts.append(text("number", left - 2, zero + 4, "0", "end"))
    parts += _ticks(left, left + width * ordered, edges, bottom, 4)
    if apart:
        parts.append(text("number", 100, bottom + 18, cut(labels[-1], 12), "end"))
    return svg("effect", bottom + _BELOW, title, parts)


def grid(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    edges: Sequence[float],
    values: NDArray[np.float64],
    row_edges: Sequence[float] = (),
) -> str:
    """Draw cells whose shade says how far they are above or below zero.

    Args:
        title: What is shown.
        rows: The labels of the rows.
        columns: The labels of the columns, used where they have no edges.
        edges: The edges of columns that are bins of numbers.
        values: (rows, columns).
        row_edges: The edges of rows that are bins of numbers, of which only some are labelled.

    Returns:
        The picture.
    """
    most = _most(values)
    tall = max(6, min(_ROW, _TALL // len(rows)))
    left = 46.0 if not row_edges else 30.0
    width = (100 - left) / values.shape[1]
    each = math.ceil(14 / tall)
    parts = [rect("track", left, 0, 100 - left, tall * len(rows))]
    for place, label in enumerate(rows):
        if place % each == 0:
            parts.append(text("label", 0, tall * place + max(tall / 2, 6) + 4, cut(label, _LETTERS), "start"))
        for start, end, shade in _runs(np.rint(_SHADES * values[place] / most).astype(int)):
            cell = rect("up" if shade > 0 else "down", left + width * start, tall * place, width * (end - start), tall)
            parts.append(cell.replace("/>", f' fill-opacity="{abs(shade) / _SHADES:g}"/>'))
    bottom = tall * len(rows)
    if edges:
        ordered = len(edges) + 2
        parts += _ticks(left, left + width * ordered, edges, bottom, 3)
    else:
        parts += [
            text("number", left + width * (place + 0.5), bottom + 16, label) for place, label in enumerate(columns)
        ]
    return svg("effect", bottom + _BELOW, title, parts)


def _ticks(left: float, right: float, edges: Sequence[float], bottom: float, most: int) -> list[str]:
    """Write at most so many edges below ordered bins of equal width. The first edge ends the second bin."""
    bins = len(edges) + 2
    chosen = np.unique(np.linspace(0, len(edges) - 1, min(len(edges), most)).round().astype(int))
    parts = []
    for place in chosen:
        x = left + (right - left) * (place + 2) / bins
        side = "end" if x > 94 else "middle"
        parts += [line("tick", x, bottom, bottom + 4), text("number", x, bottom + 18, _short(edges[place]), side)]
    return parts


def _short(value: float) -> str:
    """Write an edge in few letters."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:.4g}"


def _most(values: NDArray[np.float64]) -> float:
    return max(float(np.abs(values).max(initial=0.0)), 1e-9)


def _runs(shades: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Return where equal shades begin and end, without cells near zero."""
    cuts = [0, *(np.flatnonzero(np.diff(shades)) + 1).tolist(), len(shades)]
    return [(a, b, int(shades[a])) for a, b in pairwise(cuts) if shades[a]]
