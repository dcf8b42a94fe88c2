"""Peak memory and rows a second of training on a Parquet table of 10 million rows and 20 columns, on the CPU.

    python benchmarks/large_table.py [ROWS]

One epoch of an MLP on randomized response; the reading and the training run in a process of their own. Writes
benchmarks/results/large_table.json.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from results import save


def make_table(path, rows, batch=1_000_000):
    """Sixteen numbers, four columns of words, and a label that depends on them."""
    generator = np.random.default_rng(0)
    words = pa.array([f"w{i}" for i in range(50)])
    writer = None
    for start in range(0, rows, batch):
        n = min(batch, rows - start)
        numbers = generator.normal(size=(n, 16)).astype(np.float32)
        columns = {f"n{i}": pa.array(numbers[:, i]) for i in range(16)}
        columns |= {f"c{i}": words.take(pa.array(generator.integers(0, 50, n))) for i in range(4)}
        columns["y"] = pa.array(numbers[:, 0] + numbers[:, 1] > 0)
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def train(path):
    import labeldp as ldp
    from labeldp.data import Table
    from labeldp.learn import Supervised, Training
    from labeldp.privacy.vault.labeled_table import SecretTable

    started = time.perf_counter()
    secret = SecretTable.open(Path(path), "y", "false,true")
    release = secret.vault(2.0).release(ldp.RandomizedResponse(2.0))
    features = Table.from_parquet(path, secret.feature_columns)
    read = time.perf_counter() - started
    settings = Training(epochs=1, batch_size=4096, learning_rate=0.05, device="cpu")
    model = Supervised("mlp", settings).fit(features, release)
    total = time.perf_counter() - started
    sample = features.select(np.arange(100_000))
    frame = pq.read_table(path, columns=["y"]).slice(0, 100_000)["y"].to_numpy()
    right = float((model.predict(sample) == frame).mean())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"RESULT {read} {total - read} {peak} {right}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="?", default=10_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.parquet"
        make_table(path, rows)
        code = "import sys; from large_table import train; train(sys.argv[1])"
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=Path(__file__).parent
        )
    if "RESULT" not in done.stdout:
        raise SystemExit(done.stderr)
    read, seconds, peak, right = map(float, done.stdout.split("RESULT")[1].split())
    print(f"{rows:,} rows: read in {read:.0f} s, one epoch in {seconds:.0f} s ({rows / seconds:,.0f} rows/s)")
    print(f"peak memory {peak:.2f} GiB, {right:.1%} right on 100,000 rows with clean labels (the data are made up)")
    save("large_table", {"rows": rows, "read_s": read, "epoch_s": seconds, "peak_gib": peak, "right": right})


if __name__ == "__main__":
    main()
