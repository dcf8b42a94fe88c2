"""The papers' tables as far as they were made again: a table of all measured cells, and one plot of CIFAR-10.

    python benchmarks/reproductions.py

Reads what `labeldp reproduce` wrote into benchmarks/results/reproductions. Prints the table of docs/reproductions.md
(mean and deviation over seeds), and draws docs/images/cifar10.png: accuracy against epsilon, ours and the papers'. Bars
are deviations over seeds, where a point has several. Trains nothing.
"""

import matplotlib.pyplot as plt
from results import HERE

from labeldp.reproduce.run import compare_with_paper
from labeldp.reproduce.tables import EXPERIMENTS

MEASURED = HERE / "results" / "reproductions"
OURS = ("tang-section-6", "NoiseCluster / auto"), ("tang-table-6", "their best / auto")
BEST = ("tang-section-6", "NoiseCluster / auto"), ("tang-table-6", "their best / auto")  # that the papers print
PAPERS = {  # what each other line of the plot is called, and where its figures stand
    "LP-2ST (Ghazi et al. 2021)": (("ghazi-table-1", "LP-2ST"), "#8c6bb1"),
    "LP-1ST (Ghazi et al. 2021)": (("ghazi-table-1", "LP-1ST"), "#41a0a8"),
    "ALIBI (by Tang et al. 2022)": (("tang-table-6", "ALIBI"), "#c98b2b"),
}
TICKS = (0.003, 0.01, 0.03, 0.1, 0.5, 1, 2, 4, 8)


def lines(name, method=None):
    """The lines of one table, or of one of its rows."""
    found = compare_with_paper(EXPERIMENTS[name], MEASURED / f"{name}.jsonl")
    return [line for line in found if method is None or line["method"] == method]


def print_table():
    print("| table | row | epsilon | paper | ours | seeds | minutes |\n|---|---|---:|---:|---:|---:|---:|")
    for name in EXPERIMENTS:
        for line in lines(name):
            if line["seeds"]:
                ours = f"{line['ours']:.2f}" + (f" ± {line['deviation']:.2f}" if line["seeds"] > 1 else "")
                print(
                    f"| `{name}` | {line['method']} | {line['epsilon']:g} | {line['paper'] or ''} | {ours} "
                    f"| {line['seeds']} | {line['minutes']:.1f} |"
                )


def points(places, figure):
    """Epsilons and what is known there, from several rows; a line breaks where nothing is."""
    known = {line["epsilon"]: line.get(figure) or float("nan") for place in places for line in lines(*place)}
    return tuple(zip(*sorted(known.items()), strict=True))


def draw(path):
    figure, (whole, near) = plt.subplots(
        1, 2, figsize=(9.6, 4.2), layout="constrained", gridspec_kw={"width_ratios": (3, 2)}
    )
    for axes in (whole, near):
        axes.plot(*points(BEST, "paper"), "o-", color="#444444", markersize=4, linewidth=1.2, label="the papers' best")
        axes.plot(*points(OURS, "ours"), "o-", color="#d1345b", linewidth=2.2, label="labeldp, auto")
        axes.errorbar(*points(OURS, "ours"), points(OURS, "deviation")[1], fmt="none", color="#d1345b", capsize=3)
        axes.set_xlabel("epsilon of each label")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for title, (place, colour) in PAPERS.items():
        whole.plot(*points([place], "paper"), "o-", color=colour, markersize=4, linewidth=1.2, label=title)
    whole.set_ylabel("test accuracy, %")
    whole.set_ylim(25, 100)
    whole.set_xscale("log")
    whole.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    whole.minorticks_off()
    whole.legend(loc="lower left", frameon=False)
    near.set_title("the highest, closer", fontsize=10)
    near.set_xlim(0.3, 4.2)
    near.set_xticks([0.5, 1, 2, 3, 4], ["0.5", "1", "2", "3", "4"])
    near.set_ylim(94, 97.5)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    print_table()
    draw(HERE.parent / "docs" / "images" / "cifar10.png")
