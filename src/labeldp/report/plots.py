"""Plots of accuracy and audits, in colors and markers that color-blind readers can distinguish."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# The palette of Okabe and Ito for color-blind readers, and two more colors. Markers distinguish the curves as well.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8C510A")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


class Point(NamedTuple):
    """An accuracy at an epsilon, with the ends of its interval."""

    epsilon: float
    accuracy: float
    low: float
    high: float


def plot_accuracy_by_epsilon(
    curves: Mapping[str, Sequence[Point]], path: Path, title: str, non_private_accuracy: float | None = None
) -> None:
    """Draw a line with intervals for each recipe.

    Args:
        curves: The points of each recipe, by its name.
        path: The file of the plot.
        title: The title of the plot.
        non_private_accuracy: The accuracy without privacy, drawn as a dashed line; None for no line.
    """
    figure, axes = new_figure()
    for index, (name, points) in enumerate(curves.items()):
        points = sorted(points)
        # A small horizontal shift of each line keeps intervals apart.
        shift = 1.012 ** (index - (len(curves) - 1) / 2)
        x, y = [p.epsilon * shift for p in points], [100 * p.accuracy for p in points]
        below, above = ([p.accuracy - p.low for p in points], [p.high - p.accuracy for p in points])
        ends = [[100 * max(0.0, end) for end in errors] for errors in (below, above)]
        style = {"color": COLORS[index % 8], "marker": MARKERS[index % 8], "markersize": 5, "linewidth": 1.5}
        if index >= len(COLORS):  # the second use of a color is dashed, with open markers
            style |= {"linestyle": "--", "markerfacecolor": "white"}
        axes.errorbar(x, y, yerr=ends, label=name, capsize=2, elinewidth=0.8, **style)
    if non_private_accuracy is not None:
        axes.axhline(100 * non_private_accuracy, color="#777777", linestyle="--", linewidth=1)
        text = f"no privacy {non_private_accuracy:.1%}"
        axes.text(0.01, 100 * non_private_accuracy, text, transform=axes.get_yaxis_transform(), va="bottom", fontsize=8)
    ticks = sorted({p.epsilon for points in curves.values() for p in points})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="epsilon (smaller is more private)", ylabel="accuracy, %", title=title)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)


class AuditPoint(NamedTuple):
    """A stated epsilon and the lower bound of an audit."""

    stated: float
    lower: float


def plot_stated_and_audited(
    curves: Mapping[str, Sequence[AuditPoint]], path: Path, title: str = "Stated and audited"
) -> None:
    """Draw lower bounds of audits against stated epsilons. A point above the diagonal refutes its stated epsilon.

    An infinite stated epsilon is drawn at the right edge.
    """
    figure, axes = new_figure()
    finite = [value for points in curves.values() for point in points for value in point if 0 < value < math.inf]
    max_epsilon = 1.6 * max([*finite, 1.0])
    infinite_x = 2.0 * max_epsilon
    has_infinite = any(math.isinf(point.stated) for points in curves.values() for point in points)
    axes.plot(
        [0, max_epsilon], [0, max_epsilon], color="#777777", linestyle="--", linewidth=1, label="audited = stated"
    )
    axes.fill_between(
        [0, max_epsilon], [0, max_epsilon], max_epsilon, color="#D55E00", alpha=0.1, linewidth=0, label="refuted"
    )
    for index, (name, points) in enumerate(curves.items()):
        points = sorted(points)
        style = {"color": COLORS[index % 8], "marker": MARKERS[index % 8], "markersize": 6, "linewidth": 1.2}
        x = [infinite_x if math.isinf(point.stated) else point.stated for point in points]
        axes.plot(x, [min(point.lower, max_epsilon) for point in points], label=name, **style)
    axes.set_xscale("symlog", linthresh=0.1, linscale=0.3)
    axes.set_yscale("symlog", linthresh=0.1, linscale=0.3)
    ticks = [0.0, *(tick for tick in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0) if tick <= max_epsilon)]
    tick_labels = [f"{tick:g}" for tick in ticks]
    axes.set_xticks(
        [*ticks, infinite_x] if has_infinite else ticks, [*tick_labels, "infinite"] if has_infinite else tick_labels
    )
    axes.set_yticks(ticks, tick_labels)
    axes.minorticks_off()
    axes.set(xlim=(0, infinite_x * 1.15 if has_infinite else max_epsilon), ylim=(-0.005, max_epsilon))
    axes.set(xlabel="stated epsilon (at most)", ylabel="audited epsilon (at least)", title=title)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)


def new_figure(n_rows: int = 1) -> tuple[Any, Any]:
    """Return a figure with its axes; several axes are stacked vertically."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2 if n_rows == 1 else 2.4 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, sharex=True)
    for axis in axes if n_rows > 1 else [axes]:
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    return figure, axes


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure with a white background, for print and for dark pages."""
    figure.savefig(path, dpi=150, bbox_inches="tight", facecolor="white")
