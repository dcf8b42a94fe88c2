"""Does `auto` do as well as the best recipe? Every method on ten problems, and the regret of `auto`.

    python benchmarks/regret.py --data FOLDER [--only adult,...] [--recipes auto,...] [--epsilons 1,4] [--seeds 3]
                                [--jobs 2] [--limit 300] [--again] [--report]

FOLDER holds adult, flights, clinc150 and diamonds, each with train.parquet and test.parquet, and cifar10-simclr. Adult
has the label `income` and flights have `arrival` and `delay`. clinc150 has train-embeddings.npy and test-embeddings.npy
as well. cifar10-simclr has {train,test}-{embeddings,labels}.npy. Digits, breast cancer and diabetes come with
scikit-learn. The labels are public; each training protects them as if they were not, in a vault of its own.

A cell is a problem, a method, an epsilon and a seed. It runs in a process of its own, on one thread, at most --limit
seconds long. Finished cells are appended to benchmarks/results/regret-cells.jsonl, so that the script can be stopped
and started again. --again trains the chosen cells anew; the last one counts. --report trains nothing.

The rule for `auto`: for each seed, the best recipe is the one with the highest mean on the other seeds. `auto` may be
at most 1 point of accuracy and .01 of AUC below it (for numbers, 1 point of explained variance), plus two standard
errors, wherever rows x epsilon / classes is 2,000 or more. It must be at least as good in AUC and log-loss as twenty
lines that a user would write by hand, where these learn anything. The table goes to benchmarks/results/regret.json.
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from grid.methods import CLEAN, methods_for
from grid.problems import PROBLEMS
from grid.process import code_version, run_child
from grid.report import show, summary
from results import HERE, save

# Rules and constants of `auto` may be chosen by the results on these problems.
DEVELOPMENT = ("adult", "flights-late", "clinc150", "digits", "diabetes")
# These only judge the outcome. Nothing may be tuned on them.
JUDGING = ("flights-rare", "cifar10-embeddings", "breast-cancer", "flights-delay", "diamonds")

CELLS = HERE / "results" / "regret-cells.jsonl"


def stored():
    """Return the cells of the file by problem, method, epsilon and seed; of several, the last."""
    lines = CELLS.read_text().splitlines() if CELLS.is_file() else []
    return {key(cell): cell for cell in map(json.loads, lines)}


def key(cell):
    return cell["problem"], cell["method"], cell["epsilon"], cell["seed"]


def wanted(chosen):
    """Yield the keys of the cells that were asked for: seed by seed, so that every method has a first result early."""
    for seed in range(chosen.seeds):
        for problem in chosen.only:
            methods = [each for each in methods_for(problem) if not chosen.recipes or each in chosen.recipes]
            yield from ((problem, each, None, seed) for each in methods if each in CLEAN)
            for epsilon in chosen.epsilons or PROBLEMS[problem].epsilons:
                yield from ((problem, each, epsilon, seed) for each in methods if each not in CLEAN)


def train(cell, chosen, code):
    names = ("name", "method", "epsilon", "seed")
    found = run_child("grid.cell", dict(zip(names, cell, strict=True)) | {"data": str(chosen.data)}, chosen.limit)
    return dict(zip(("problem", *names[1:]), cell, strict=True)) | {"code": code} | found


def fill(cells, chosen):
    """Train cells, and append each to the file when it is done."""
    code = code_version()
    CELLS.parent.mkdir(exist_ok=True)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        futures = [pool.submit(train, cell, chosen, code) for cell in cells]
        try:
            for future in as_completed(futures):
                row = future.result()
                with CELLS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(line(row), flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def line(row):
    epsilon = "" if row["epsilon"] is None else f"{row['epsilon']:g}"
    place = f"{row['problem']:<20}{row['method']:<17}{epsilon:>5}{row['seed']:>3}  "
    if row["status"] != "ok":
        return place + row["status"] + (f": {row['error']}" if "error" in row else "")
    measures = [f"{name} {row[name]:.4f}" for name in ("accuracy", "auc", "log_loss", "r2", "rmse") if row.get(name)]
    return place + "  ".join(measures) + f"  {row['cpu_seconds']:.0f} s  {row['peak_mb']:,} MB"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = {"type": lambda text: text.split(",")}
    parser.add_argument("--data", type=lambda text: Path(text).absolute())
    parser.add_argument("--only", **words, default=[*DEVELOPMENT, *JUDGING], help="problems")
    parser.add_argument("--recipes", **words, help='methods, "randres trees" and "twenty lines" for example')
    parser.add_argument("--epsilons", type=lambda text: [float(word) for word in text.split(",")])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of a cell")
    parser.add_argument("--again", action="store_true", help="train cells that are stored, too")
    parser.add_argument("--report", action="store_true", help="train nothing")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.only if name not in PROBLEMS]
    if unknown:
        parser.error(f"There is no problem {unknown[0]!r}: choose from {', '.join(PROBLEMS)}.")
    methods = {each for name in chosen.only for each in methods_for(name)}
    unknown = [name for name in chosen.recipes or [] if name not in methods]
    if unknown:
        parser.error(f"There is no method {unknown[0]!r} here: choose from {', '.join(sorted(methods))}.")
    if not (chosen.report or chosen.data):
        parser.error("--data names the folder of the data sets; only --report needs none.")
    return chosen


def main():
    chosen = parse()
    cells = list(wanted(chosen))
    if not chosen.report:
        known = {} if chosen.again else stored()
        fill([cell for cell in cells if cell not in known], chosen)
    found = stored()
    show(summary([found[cell] for cell in cells if cell in found], DEVELOPMENT))
    save("regret", summary(list(found.values()), DEVELOPMENT))


if __name__ == "__main__":
    main()
