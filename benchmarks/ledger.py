"""Seconds of a release, and of opening a ledger, by the number of entries that the ledger has.

    python benchmarks/ledger.py

Each release draws randomized response for 10,000 rows and is stored in a ledger file. "one row set" releases all rows
every time; "100 row sets" takes one of a hundred overlapping row sets in turn. Both are filled in turns in one run. The
seconds are the median of 20 releases. Writes benchmarks/results/ledger.json.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from results import save, show

import labeldp as ldp

ROWS, CLASSES, REPEATS = 10_000, 10, 20
LABELS = np.arange(ROWS) % CLASSES
SPACE = ldp.LabelSpace(list(range(CLASSES)))
SETS = [np.arange(ROWS)[start * 50 : start * 50 + 5000] for start in range(100)]
ROW_SETS = {"one row set": [None], "100 row sets": SETS}


def open_vault(path):
    identity = ldp.Identity("benchmark", "label", ROWS)
    return ldp.Vault(LABELS, SPACE, ldp.Budget(1e6), ledger=path, identity=identity)


def release(vault, kind, number):
    """Release something that was not asked for before."""
    vault.release(ldp.RandomizedResponse(1 + number / 1e6), row_selection=ROW_SETS[kind][number % len(ROW_SETS[kind])])


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(folder, entries):
    vaults = {kind: open_vault(folder / f"{len(ROW_SETS[kind])}.ledger") for kind in ROW_SETS}
    done, rows = dict.fromkeys(ROW_SETS, 0), []
    for target in entries:
        for kind, vault in vaults.items():
            while done[kind] < target - 1:
                release(vault, kind, done[kind])
                done[kind] += 1
        taken = {kind: [] for kind in ROW_SETS}
        for _ in range(REPEATS):
            for kind, vault in vaults.items():
                taken[kind].append(seconds(lambda kind=kind, vault=vault: release(vault, kind, done[kind])))
                done[kind] += 1
        row = {"entries": target}
        for kind, vault in vaults.items():
            opening = [seconds(lambda vault=vault: open_vault(vault.ledger.path).remaining()) for _ in range(5)]
            row |= {f"release, {kind}": statistics.median(taken[kind]), f"open, {kind}": statistics.median(opening)}
        rows.append({name: round(value, 5) for name, value in row.items()})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", default="1,100,1000,10000")
    chosen = [int(word) for word in parser.parse_args().entries.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), chosen)
    for row in rows:
        show(row)
    first, last = rows[min(1, len(rows) - 1)], rows[-1]
    ratios = {kind: round(last[f"release, {kind}"] / first[f"release, {kind}"], 2) for kind in ROW_SETS}
    print(f"A release at {last['entries']:,} entries against one at {first['entries']:,}: {ratios}")
    save("ledger", {"seconds": rows, "ratios": ratios})


if __name__ == "__main__":
    main()
