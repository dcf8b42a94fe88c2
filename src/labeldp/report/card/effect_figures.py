"""Small figures of effects as SVG: bars for categories, steps for numbers, and grids for crosses."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from labeldp.report.card.formatting import truncate
from labeldp.report.card.svg import svg_image, svg_line, svg_rect, svg_text

# The maximum number of characters of a label beside bars and grids.
_MAX_LETTERS = 22
# Positions of bars, in percent of the width.
_BARS_LEFT, _BARS_CENTER, _BARS_RIGHT = 46.0, 66.0, 86.0
# The height of a bar with its label, in pixels.
_BAR_HEIGHT = 20
# The heights of a plot and of the numbers below it, in pixels.
_PLOT_HEIGHT, _AXIS_HEIGHT = 110, 22
# The maximum heights of a row of a grid and of all its rows, in pixels.
_MAX_ROW_HEIGHT, _MAX_GRID_HEIGHT = 18, 220
# The number of shades of each color.
_N_SHADES = 4


def format_signed(value: float) -> str:
    """Format an effect with its sign in at most six characters."""
    size = abs(value)
    if size >= 99_999.5:
        return f"{value:+.0e}"
    digits = 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:+.{digits}f}" if size >= 0.005 else "0.00"


def draw_bars(title: str, labels: Sequence[str], values: NDArray[np.float64]) -> str:
    """Draw a bar for each label: to the right for positive values, to the left for negative ones."""
    max_abs, parts = _max_abs(values), list[str]()
    for index, (label, value) in enumerate(zip(labels, values, strict=True)):
        top, length = _BAR_HEIGHT * index, (_BARS_RIGHT - _BARS_CENTER) * abs(value) / max_abs
        parts.append(svg_text("label", 0, top + 14, truncate(label, _MAX_LETTERS), "start"))
        parts.append(
            svg_rect(
                "up" if value > 0 else "down", _BARS_CENTER - length * (value < 0), top + 4, length, _BAR_HEIGHT - 8
            )
        )
        parts.append(svg_text("number", 100, top + 14, format_signed(value), "end"))
    parts.append(svg_line("tick", _BARS_CENTER, 0, _BAR_HEIGHT * len(labels)))
    return svg_image("effect", _BAR_HEIGHT * len(labels), title, parts)


def draw_steps(title: str, labels: Sequence[str], edges: Sequence[float], values: NDArray[np.float64]) -> str:
    """Draw ordered bins of equal width above and below zero; unordered bins are drawn separately."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    unit = _PLOT_HEIGHT / max(high - low, 1e-9)
    left, zero = 14.0, 8 + high * unit
    n_ordered = len(edges) + 2
    n_unordered = len(values) - n_ordered
    width = (100 - left) / (n_ordered + 2 * n_unordered + (n_unordered > 0))
    parts = list[str]()
    for index, value in enumerate(values):
        x = left + width * (index if index < n_ordered else n_ordered + 1 + 2 * (index - n_ordered))
        bar_width = width if index < n_ordered else 2 * width
        bar_height = abs(value) * unit
        parts.append(svg_rect("up" if value > 0 else "down", x, zero - bar_height * (value > 0), bar_width, bar_height))
    parts.append(svg_rect("axis", left, zero - 0.5, 100 - left, 1))
    bottom = 8 + _PLOT_HEIGHT
    for value, y in ((high, 14.0), (low, bottom + 2.0)):
        if abs(value) >= 0.005:
            parts.append(svg_text("number", left - 2, y, format_signed(value), "end"))
    if min(high, -low) * unit > 16 or not (high and low):
        parts.append(svg_text("number", left - 2, zero + 4, "0", "end"))
    parts += _draw_ticks(left, left + width * n_ordered, edges, bottom, 4)
    if n_unordered:
        parts.append(svg_text("number", 100, bottom + 18, truncate(labels[-1], 12), "end"))
    return svg_image("effect", bottom + _AXIS_HEIGHT, title, parts)


def draw_grid(
    title: str,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    edges: Sequence[float],
    values: NDArray[np.float64],
    row_edges: Sequence[float] = (),
) -> str:
    """Draw cells whose shade represents their distance from zero.

    Args:
        title: The description of the figure.
        row_labels: The labels of the rows.
        column_labels: The labels of the columns, used if they have no edges.
        edges: The edges of columns that are bins of numbers.
        values: The effect of each cell, (rows, columns).
        row_edges: The edges of rows that are bins of numbers, of which only some are labeled.

    Returns:
        The figure as SVG.
    """
    max_abs = _max_abs(values)
    row_height = max(6, min(_MAX_ROW_HEIGHT, _MAX_GRID_HEIGHT // len(row_labels)))
    left = 46.0 if not row_edges else 30.0
    width = (100 - left) / values.shape[1]
    label_step = math.ceil(14 / row_height)
    parts = [svg_rect("track", left, 0, 100 - left, row_height * len(row_labels))]
    for index, label in enumerate(row_labels):
        if index % label_step == 0:
            parts.append(
                svg_text(
                    "label", 0, row_height * index + max(row_height / 2, 6) + 4, truncate(label, _MAX_LETTERS), "start"
                )
            )
        for start, end, shade in _runs(np.rint(_N_SHADES * values[index] / max_abs).astype(int)):
            cell = svg_rect(
                "up" if shade > 0 else "down",
                left + width * start,
                row_height * index,
                width * (end - start),
                row_height,
            )
            parts.append(cell.replace("/>", f' fill-opacity="{abs(shade) / _N_SHADES:g}"/>'))
    bottom = row_height * len(row_labels)
    if edges:
        n_ordered = len(edges) + 2
        parts += _draw_ticks(left, left + width * n_ordered, edges, bottom, 3)
    else:
        parts += [
            svg_text("number", left + width * (index + 0.5), bottom + 16, label)
            for index, label in enumerate(column_labels)
        ]
    return svg_image("effect", bottom + _AXIS_HEIGHT, title, parts)


def _draw_ticks(left: float, right: float, edges: Sequence[float], bottom: float, max_ticks: int) -> list[str]:
    """Write at most `max_ticks` edges below ordered bins of equal width. The first edge ends the second bin."""
    n_bins = len(edges) + 2
    chosen = np.unique(np.linspace(0, len(edges) - 1, min(len(edges), max_ticks)).round().astype(int))
    parts = []
    for index in chosen:
        x = left + (right - left) * (index + 2) / n_bins
        anchor = "end" if x > 94 else "middle"
        parts += [
            svg_line("tick", x, bottom, bottom + 4),
            svg_text("number", x, bottom + 18, _format_edge(edges[index]), anchor),
        ]
    return parts


def _format_edge(value: float) -> str:
    """Format an edge in a few characters."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:.4g}"


def _max_abs(values: NDArray[np.float64]) -> float:
    return max(float(np.abs(values).max(initial=0.0)), 1e-9)


def _runs(shades: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Return start, end and shade of each run of equal shades, without cells near zero."""
    cuts = [0, *(np.flatnonzero(np.diff(shades)) + 1).tolist(), len(shades)]
    return [(a, b, int(shades[a])) for a, b in pairwise(cuts) if shades[a]]
