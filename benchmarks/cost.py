"""What `auto` costs beside LightGBM: CPU seconds and peak memory of one training, side by side.

    python benchmarks/cost.py --data FOLDER [--only adult,flights,generated] [--epsilon 1] [--limit 1800]

FOLDER holds adult and flights as for regret.py. The generated table has 800,000 rows and 20 columns, and its two
classes depend on them in ways that are not linear. `auto` trains under label privacy at delta 1e-6, with its rehearsal,
its choice among models and its private score. LightGBM trains its default 100 trees on clean labels of the same rows.
Each has a process of its own and one thread. CPU seconds are user and system, and include the encoding of columns but
neither imports nor reading. The peak is that of the process, imports and reading included.

`auto` may take ten times the CPU seconds of LightGBM, or 20 where that is more, and 3 GB. Writes
benchmarks/results/cost.json.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from grid.process import Meter, answer, code_version, request, run_child
from results import save

RATIO, SECONDS, MEGABYTES = 10, 20.0, 3_000
ROWS, COLUMNS = 800_000, 20
TABLES = {"adult": "adult", "flights": "flights-late", "generated": None}
DELTA = 1e-6


def generate(path, rows=ROWS):
    """Write a table of numbers whose two classes depend on waves, products and thresholds of some columns."""
    import numpy as np
    import polars as pl

    random = np.random.default_rng(0)
    x = random.normal(size=(rows, COLUMNS)).astype(np.float32)
    logit = 2 * np.sin(3 * x[:, 0]) + 1.5 * x[:, 1] * x[:, 2] + 2 * ((x[:, 3] > 0.5) & (x[:, 4] < 0.3))
    logit += np.where(x[:, 5] > 1, x[:, 6], -x[:, 7]) + 0.5 * x[:, 8] ** 2 - 1.5
    labels = random.random(rows) < 1 / (1 + np.exp(-logit))
    pl.DataFrame(x).with_columns(pl.Series("label", labels.astype(np.int64))).write_parquet(path)


def problem_of(table, place):
    """Return a table as a problem of the grid; of the generated one, a tenth of the rows tests."""
    import polars as pl
    from grid.problems import PROBLEMS, Problem

    import labeldp as ldp

    if TABLES[table] is not None:
        return PROBLEMS[TABLES[table]].read(Path(place))
    frame = pl.read_parquet(place)
    cut = frame.height // 10
    test, train = frame.head(cut), frame.slice(cut)
    labels, truth = (part["label"].to_numpy() for part in (train, test))
    return Problem(train.drop("label"), labels, test.drop("label"), truth, ldp.LabelSpace([0, 1]))


def measure(table, place, method, epsilon):
    """Train once, and return what it took and how good the model is on the test rows."""
    import lightgbm  # noqa: F401  # imports are not counted
    import numpy as np
    from grid import cell, measures, references

    problem = problem_of(table, place)
    meter = Meter()
    if method == "auto":
        predict, _ = cell.train_private(problem, "auto", epsilon, DELTA, seed=0)
    else:
        predict = references.clean_trees(problem, seed=0)
    costs = meter.stop()
    found = measures.of_classes(np.asarray(predict(), np.float64), problem.truth)
    return {"rows": len(problem.labels)} | costs | found


def compare(table, place, epsilon, limit):
    """Return the figures of both, their ratio, and whether `auto` is within its limits."""
    asked = {"table": table, "place": str(place), "epsilon": epsilon}
    found = {m: run_child("cost", asked | {"method": m}, limit) for m in ("auto", "LightGBM")}
    if any(each["status"] != "ok" for each in found.values()):
        return found | {"within the limits": False}
    auto, trees = found["auto"], found["LightGBM"]
    allowed = max(RATIO * trees["cpu_seconds"], SECONDS)
    within = auto["cpu_seconds"] <= allowed and auto["peak_mb"] <= MEGABYTES
    ratio = round(auto["cpu_seconds"] / max(trees["cpu_seconds"], 0.01), 2)
    return found | {"ratio": ratio, "allowed CPU seconds": round(allowed, 1), "within the limits": within}


def show(table, figures):
    for method in ("auto", "LightGBM"):
        each = figures[method]
        if each["status"] != "ok":
            print(f"{table:<10} {method:<9} {each['status']} {each.get('error', '')}", flush=True)
            continue
        print(
            f"{table:<10} {method:<9} {each['rows']:>8,} rows {each['cpu_seconds']:>8.1f} CPU s "
            f"{each['wall_seconds']:>7.1f} s {each['peak_mb']:>6,} MB  accuracy {each['accuracy']:.4f}"
            f"  AUC {each['auc']:.4f}",
            flush=True,
        )
    verdict = "within the limits" if figures["within the limits"] else "OVER THE LIMITS"
    if "ratio" in figures:
        limits = f"at most {figures['allowed CPU seconds']} CPU s and {MEGABYTES:,} MB"
        verdict = f"{figures['ratio']} times the CPU seconds of LightGBM; {limits}: {verdict}"
    print(f"{table:<10} {verdict}\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=lambda text: Path(text).absolute())
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(TABLES))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--limit", type=float, default=1_800.0, help="seconds of a training")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.only if name not in TABLES]
    if unknown:
        parser.error(f"There is no table {unknown[0]!r}: choose from {', '.join(TABLES)}.")
    if chosen.data is None and chosen.only != ["generated"]:
        parser.error("--data names the folder of the data sets; only the generated table needs none.")
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for table in chosen.only:
            place = chosen.data
            if table == "generated":
                place = Path(folder) / "generated.parquet"
                made = run_child("cost", {"generate": str(place)}, chosen.limit)
                if made["status"] != "ok":
                    raise SystemExit(f"The generated table could not be written: {made}")
            figures[table] = compare(table, place, chosen.epsilon, chosen.limit)
            show(table, figures[table])
    save("cost", {"epsilon": chosen.epsilon, "delta": DELTA, "code": code_version(), "tables": figures})


def work(asked):
    """Do what this process was started for, by another one of this script."""
    if "generate" in asked:
        generate(asked["generate"])
        return {}
    return measure(**asked)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("{"):
        answer(work(request()))
    else:
        main()
