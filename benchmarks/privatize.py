"""Rows a second and peak memory of `labeldp privatize`, beside a plain Polars copy of the same file.

    python benchmarks/privatize.py [ROWS]        # 50 million rows by default, about 1 GB of disk

Each runs in a process of its own. Writes benchmarks/results/privatize.json.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from results import save

COPY = "import sys, polars as pl; pl.scan_parquet(sys.argv[1]).sink_parquet(sys.argv[2], engine='streaming')"
PRIVATIZE = "from labeldp.cli import main; main()"
PEAK = """
import atexit, resource
atexit.register(lambda: print('PEAK', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
"""


def make_table(path, rows, batch=1_000_000):
    """Four features and a binary label, as an advertiser's log has them."""
    generator = np.random.default_rng(0)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("hour", pa.int8()),
            ("price", pa.float32()),
            ("site", pa.int32()),
            ("converted", pa.bool_()),
        ]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, batch):
            n = min(batch, rows - start)
            writer.write_table(
                pa.table(
                    [
                        pa.array(np.arange(start, start + n)),
                        pa.array(generator.integers(0, 24, n, np.int8)),
                        pa.array(generator.random(n, np.float32)),
                        pa.array(generator.integers(0, 5000, n, np.int32)),
                        pa.array(generator.random(n) < 0.02),
                    ],
                    schema=schema,
                )
            )


def timed(code, *arguments):
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", PEAK + code, *map(str, arguments)], capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stderr)
    kib = int(done.stdout.split("PEAK")[1])
    return seconds, kib / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="?", default=50_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "log.parquet"
        make_table(data, rows)
        copy = timed(COPY, data, Path(folder) / "copy.parquet")
        options = ["--label", "converted", "--classes", "false,true", "--epsilon", 1]
        by_features = timed(PRIVATIZE, "privatize", data, *options, "--out", Path(folder) / "a.parquet")
        Path(f"{data}.ledger").unlink()
        by_ids = timed(PRIVATIZE, "privatize", data, *options, "--ids", "id", "--out", Path(folder) / "b.parquet")
    figures = {}
    print(f"{rows:,} rows, {'':<22}{'seconds':>10}{'rows a second':>16}{'peak GiB':>10}")
    for name, (seconds, gib) in {
        "Polars copy": copy,
        "labeldp privatize": by_features,
        "labeldp privatize --ids id": by_ids,
    }.items():
        print(f"{name:<36}{seconds:>10.1f}{rows / seconds:>16,.0f}{gib:>10.2f}")
        figures[name] = {"rows": rows, "seconds": seconds, "rows_per_second": rows / seconds, "peak_gib": gib}
    save("privatize", figures)


if __name__ == "__main__":
    main()
