"""The papers' tables as far as they were made again: a table of all measured cells, and one plot of CIFAR-10.

    python benchmarks/reproductions.py

Reads what `labeldp reproduce` wrote into benchmarks/results/reproductions. Prints the table of docs/reproductions.md,
and draws docs/images/cifar10.png: accuracy against epsilon, ours and the papers'. Trains nothing.
"""

import matplotlib.pyplot as plt
from results import HERE

from labeldp.reproduce.run import table
from labeldp.reproduce.tables import EXPERIMENTS

MEASURED = HERE / "results" / "reproductions"
OURS = ("tang-table-3", "best of the table / auto"), ("tang-table-6", "their best / auto")  # the latter counts
PAPERS = {  # what each line of the plot is called, and where its figures stand
    "best of five papers": (("tang-table-6", "their best / auto"), "#444444"),
    "LP-2ST (Ghazi et al. 2021)": (("ghazi-table-1", "LP-2ST"), "#8c6bb1"),
    "LP-1ST (Ghazi et al. 2021)": (("ghazi-table-1", "LP-1ST"), "#41a0a8"),
    "ALIBI (by Tang et al. 2022)": (("tang-table-6", "ALIBI"), "#c98b2b"),
}
HIGHEST = 4  # the epsilon up to which the plot goes: from there on all lines are close


def lines(name, method=None):
    """The lines of one table, or of one of its rows."""
    found = table(EXPERIMENTS[name], MEASURED / f"{name}.jsonl")
    return [line for line in found if method is None or line["method"] == method]


def print_table():
    print("| table | row | epsilon | paper | ours | minutes |\n|---|---|---:|---:|---:|---:|")
    for name in EXPERIMENTS:
        for line in lines(name):
            if line["seeds"]:
                ours = f"{line['ours']:.2f}" + (f" ± {line['deviation']:.2f}" if line["deviation"] else "")
                print(
                    f"| `{name}` | {line['method']} | {line['epsilon']:g} | {line['paper'] or ''} | {ours} "
                    f"| {line['minutes']:.1f} |"
                )


def draw(path):
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    for title, (place, colour) in PAPERS.items():
        known = [(line["epsilon"], line["paper"]) for line in lines(*place) if line["epsilon"] <= HIGHEST]
        axes.plot(*zip(*known, strict=True), "o-", color=colour, markersize=4, linewidth=1.2, label=title)
    ours = {line["epsilon"]: line["ours"] for place in OURS for line in lines(*place) if line["seeds"]}
    axes.plot(*zip(*sorted(ours.items()), strict=True), "o-", color="#d1345b", linewidth=2.2, label="labeldp, auto")
    axes.set_xlabel("epsilon of each label")
    axes.set_ylabel("test accuracy, %")
    axes.set_ylim(25, 100)
    axes.set_xticks([0.5, 1, 2, 3, 4], ["0.5", "1", "2", "3", "4"])
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    print_table()
    draw(HERE.parent / "docs" / "images" / "cifar10.png")
