"""Seconds and peak memory of `labeldp train --recipe moments` on Parquet tables of many columns, on one core.

    python benchmarks/wide.py [ROWSxCOLUMNS ...]

Each table is read and trained on in a process of its own, whose start is part of the seconds. Writes
benchmarks/results/wide.json.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from results import save, use_one_core

SIZES = ("40x5000", "2000x1000", "2000x10000", "20000x2000")


def make_table(path, rows, columns):
    """Write independent numbers and a label that depends on ten of them."""
    numbers = np.random.default_rng(0).normal(size=(columns, rows)).astype(np.float32)
    labels = np.where(numbers[:10].sum(axis=0) > 0, "yes", "no")
    pl.DataFrame({f"x{place}": column for place, column in enumerate(numbers)} | {"y": labels}).write_parquet(path)


def measure(folder, rows, columns):
    """Return seconds, processor seconds and peak memory in GiB of one training."""
    data, out = folder / f"{rows}x{columns}.parquet", folder / f"run-{rows}x{columns}"
    make_table(data, rows, columns)
    request = f"train {data} --label y --classes no,yes --epsilon 1 --recipe moments --out {out}"
    started = time.perf_counter()
    child = os.posix_spawn(sys.executable, [sys.executable, "-m", "labeldp", *request.split()], os.environ)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"labeldp {request} ended with status {status}")
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=SIZES)
    use_one_core()
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for size in parser.parse_args().sizes:
            rows, columns = map(int, size.split("x"))
            seconds, processor, peak = measure(Path(folder), rows, columns)
            figures.append({"rows": rows, "columns": columns, "s": seconds, "cpu_s": processor, "peak_gib": peak})
    print("rows     columns  seconds  cpu s  peak GiB")
    for one in figures:
        print("{rows:<8,} {columns:<8,} {s:<8.1f} {cpu_s:<6.1f} {peak_gib:.2f}".format(**one))
    save("wide", figures)


if __name__ == "__main__":
    main()
