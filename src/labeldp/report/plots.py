"""Plots in one style: readable in print and in the dark, and told apart without colour vision."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Okabe and Ito's colours, which colour-blind readers can tell apart; markers say the same again.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8C510A")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


class Point(NamedTuple):
    """An accuracy at an epsilon, with the ends of its interval."""

    epsilon: float
    accuracy: float
    low: float
    high: float


def accuracy_by_epsilon(
    curves: Mapping[str, Sequence[Point]], path: Path, title: str, clean: float | None = None
) -> None:
    """Draw a line with intervals for each recipe; `clean` is the accuracy without privacy."""
    figure, axes = new_figure()
    for place, (name, points) in enumerate(curves.items()):
        points = sorted(points)
        # Lines are moved apart a little, so that their intervals can be told apart.
        shift = 1.012 ** (place - (len(curves) - 1) / 2)
        x, y = [p.epsilon * shift for p in points], [100 * p.accuracy for p in points]
        below, above = ([p.accuracy - p.low for p in points], [p.high - p.accuracy for p in points])
        ends = [[100 * max(0.0, end) for end in part] for part in (below, above)]
        style = {"color": COLOURS[place % 8], "marker": MARKERS[place % 8], "markersize": 5, "linewidth": 1.5}
        if place >= len(COLOURS):  # a second round of the same colours is dashed and hollow
            style |= {"linestyle": "--", "markerfacecolor": "white"}
        axes.errorbar(x, y, yerr=ends, label=name, capsize=2, elinewidth=0.8, **style)
    if clean is not None:
        axes.axhline(100 * clean, color="#777777", linestyle="--", linewidth=1)
        words = f"no privacy {clean:.1%}"
        axes.text(0.01, 100 * clean, words, transform=axes.get_yaxis_transform(), va="bottom", fontsize=8)
    ticks = sorted({p.epsilon for points in curves.values() for p in points})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="epsilon (smaller is more private)", ylabel="accuracy, %", title=title)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)


class Audited(NamedTuple):
    """A stated epsilon, and the one that an audit proves at least."""

    stated: float
    lower: float


def stated_and_audited(curves: Mapping[str, Sequence[Audited]], path: Path, title: str = "Stated and audited") -> None:
    """Draw what audits prove against what is stated. Above the diagonal, a statement is refuted.

    An infinite stated epsilon, which promises nothing, stands at the right edge.
    """
    figure, axes = new_figure()
    known = [value for points in curves.values() for point in points for value in point if 0 < value < math.inf]
    top = 1.6 * max([*known, 1.0])
    edge = 2.0 * top
    infinite = any(math.isinf(point.stated) for points in curves.values() for point in points)
    axes.plot([0, top], [0, top], color="#777777", linestyle="--", linewidth=1, label="as much as is stated")
    axes.fill_between([0, top], [0, top], top, color="#D55E00", alpha=0.1, linewidth=0, label="refuted")
    for place, (name, points) in enumerate(curves.items()):
        points = sorted(points)
        style = {"color": COLOURS[place % 8], "marker": MARKERS[place % 8], "markersize": 6, "linewidth": 1.2}
        x = [edge if math.isinf(point.stated) else point.stated for point in points]
        axes.plot(x, [min(point.lower, top) for point in points], label=name, **style)
    axes.set_xscale("symlog", linthresh=0.1, linscale=0.3)
    axes.set_yscale("symlog", linthresh=0.1, linscale=0.3)
    ticks = [0.0, *(tick for tick in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0) if tick <= top)]
    words = [f"{tick:g}" for tick in ticks]
    axes.set_xticks([*ticks, edge] if infinite else ticks, [*words, "infinite"] if infinite else words)
    axes.set_yticks(ticks, words)
    axes.minorticks_off()
    axes.set(xlim=(0, edge * 1.15 if infinite else top), ylim=(-0.005, top))
    axes.set(xlabel="stated epsilon (at most)", ylabel="audited epsilon (at least)", title=title)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)


def new_figure(rows: int = 1) -> tuple[Any, Any]:
    """Return a figure and its axes, one below the other where there are several."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2 if rows == 1 else 2.4 * rows), layout="constrained")
    axes = figure.subplots(rows, sharex=True)
    for each in axes if rows > 1 else [axes]:
        each.grid(axis="y", color="#dddddd", linewidth=0.6)
        each.set_axisbelow(True)
        for side in ("top", "right"):
            each.spines[side].set_visible(False)
    return figure, axes


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure on white, which a dark page can bear and print wants."""
    figure.savefig(path, dpi=150, bbox_inches="tight", facecolor="white")
