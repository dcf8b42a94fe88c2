"""Plots of teachers' votes. They show secret votes, so only people who may see the labels may see them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labeldp.report.plots import COLORS, MARKERS, new_figure, save_figure

Counts = NDArray[np.integer]


def plot_agreement(counts: Counts, path: Path, threshold: float | None = None) -> None:
    """Draw a histogram of the votes for the winner of each query, and the threshold."""
    figure, axes = new_figure()
    n_teachers = int(counts[0].sum())
    axes.hist(counts.max(axis=1), bins=np.linspace(0, n_teachers, 51).tolist(), color=COLORS[0])
    if threshold is not None:
        axes.axvline(threshold, color=COLORS[1], linewidth=1.5)
        axes.text(threshold, 0.97, " threshold", transform=axes.get_xaxis_transform(), va="top", color=COLORS[1])
    axes.set(xlabel=f"votes for the winner, of {n_teachers}", ylabel="queries", title="Agreement of teachers")
    save_figure(figure, path)


def plot_leads(votes: Mapping[str, Counts], path: Path) -> None:
    """Draw the fraction of queries whose winner leads by more than n votes, for each n."""
    figure, axes = new_figure()
    for index, (name, counts) in enumerate(votes.items()):
        ranked = np.sort(counts, axis=1)
        lead = np.sort(ranked[:, -1] - ranked[:, -2])
        n = np.arange(int(counts[0].sum()) + 1)
        fractions = 1 - np.searchsorted(lead, n, side="right") / len(lead)
        axes.plot(n, 100 * fractions, color=COLORS[index], linestyle=("-", "--", "-.", ":")[index % 4], label=name)
    axes.set(xlabel="n", ylabel="queries that lead by more than n votes, %", title="Fraction of queries by lead")
    axes.set_xscale("symlog")
    axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def plot_spending(
    n_queries: Sequence[int], n_answers: Sequence[float], epsilons_by_method: Mapping[str, Sequence[float]], path: Path
) -> None:
    """Draw the number of answers and the epsilon of each accounting method against the number of queries."""
    figure, (above, below) = new_figure(n_rows=2)
    above.plot(n_queries, n_answers, color="#444444")
    above.set(ylabel="answers", title="Answers and their cost")
    for index, (name, epsilons) in enumerate(epsilons_by_method.items()):
        style = {"color": COLORS[index], "marker": MARKERS[index], "markevery": 0.15, "markersize": 5}
        below.plot(n_queries, epsilons, label=name, **style)
    below.set(xlabel="queries", ylabel="epsilon")
    below.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def plot_accuracy_by_teachers(curves: Mapping[str, Mapping[int, float]], path: Path) -> None:
    """Draw accuracy against the number of teachers."""
    figure, axes = new_figure()
    for index, (name, points) in enumerate(curves.items()):
        style = {"color": COLORS[index], "marker": MARKERS[index], "markersize": 5, "linewidth": 1.5}
        axes.plot(list(points), [100 * value for value in points.values()], label=name, **style)
    ticks = sorted({n_teachers for points in curves.values() for n_teachers in points})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="teachers", ylabel="accuracy, %", title="Accuracy by the number of teachers")
    axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)
