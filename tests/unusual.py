"""Unusual but valid tables, each from a seed, with rare types of columns, labels and numbers of rows."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

import labeldp as ldp

LARGEST = 3.4e38  # of float32


@dataclass(frozen=True)
class Unusual:
    """A table with its labels and the requested guarantee."""

    frame: pl.DataFrame
    labels: list[Any]
    space: ldp.LabelSpace
    epsilon: float
    delta: float
    users: np.ndarray | None

    @property
    def numbers(self) -> bool:
        return self.space.step is not None


def _sprinkled(values, generator, replacement, fraction=0.2):
    """Replace a random fraction of the values."""
    is_replaced = generator.random(len(values)) < fraction
    return [replacement if replaced else value for value, replaced in zip(values, is_replaced, strict=True)]


def _plain(n, g):
    return pl.Series(g.normal(size=n))


def _ties_at_the_largest(n, g):
    values = g.normal(size=n)
    cut = np.quantile(values, g.uniform(0.5, 0.999))
    return pl.Series(np.minimum(values, cut))


def _ties_at_quantiles(n, g):
    return pl.Series(np.where(g.random(n) < 0.6, np.round(g.normal(size=n)), g.normal(size=n)))


def _nearly_constant(n, g):
    values = np.full(n, g.choice([0.0, 1.0, -7.5, 1e12]))
    values[g.integers(n)] += g.choice([1.0, 1e-6, 1e30])
    return pl.Series(values)


def _infinities(n, g):
    return pl.Series(_sprinkled(_sprinkled(g.normal(size=n).tolist(), g, np.inf), g, -np.inf), dtype=pl.Float64)


def _many_categories(n, g):
    return pl.Series([f"v{i}" for i in g.permutation(n)])


MAKERS = {
    "plain": _plain,
    "ties at the largest": _ties_at_the_largest,
    "ties at quantiles": _ties_at_quantiles,
    "nearly constant": _nearly_constant,
    "constant": lambda n, g: pl.Series([float(g.normal())] * n),
    "zero": lambda n, g: pl.Series([0] * n),
    "all missing": lambda n, g: pl.Series([None] * n, dtype=g.choice([pl.Float64, pl.String, pl.Null, pl.Boolean])),
    "all NaN": lambda n, g: pl.Series([float("nan")] * n),
    "some missing": lambda n, g: pl.Series(_sprinkled(g.normal(size=n).tolist(), g, None), dtype=pl.Float64),
    "huge": lambda n, g: pl.Series(g.normal(size=n) * 1e300),
    "large": lambda n, g: pl.Series(g.uniform(-1, 1, n) * LARGEST),
    "largest": lambda n, g: pl.Series(g.choice([-LARGEST, LARGEST], n)),
    "one huge": lambda n, g: pl.Series(np.where(np.arange(n) == g.integers(n), 1e38, g.normal(size=n))),
    "tiny": lambda n, g: pl.Series(g.normal(size=n) * 1e-300),
    "small": lambda n, g: pl.Series(g.normal(size=n) * 1e-38),
    "denormal": lambda n, g: pl.Series(g.integers(0, 5, n) * 5e-324),
    "denormal of 32 bits": lambda n, g: pl.Series((g.integers(0, 5, n) * 1.4e-45).astype(np.float32)),
    "far from zero": lambda n, g: pl.Series(1e15 + g.integers(0, 3, n)),
    "infinities": _infinities,
    "whole numbers of 64 bits": lambda n, g: pl.Series(g.integers(-(2**63), 2**63 - 1, n)),
    "unsigned": lambda n, g: pl.Series(g.integers(0, 2**64 - 1, n, dtype=np.uint64)),
    "bytes": lambda n, g: pl.Series(g.integers(-128, 127, n).astype(np.int8)),
    "booleans": lambda n, g: pl.Series(_sprinkled((g.random(n) < 0.5).tolist(), g, None)),
    "dates": lambda n, g: pl.Series([date(1, 1, 1) + timedelta(int(d)) for d in g.integers(0, 3_650_000, n)]),
    "times": lambda n, g: pl.Series(
        [datetime(1970, 1, 1) + timedelta(seconds=int(s)) for s in g.integers(0, 10**9, n)]
    ),
    "durations": lambda n, g: pl.Series([timedelta(microseconds=int(s)) for s in g.integers(0, 10**9, n)]),
    "one category": lambda n, g: pl.Series(["same"] * n),
    "long names": lambda n, g: pl.Series(g.choice(["x" * 5000, "y" * 5000, "é\n\t'\"" * 500], n).tolist()),
    "empty texts": lambda n, g: pl.Series(g.choice(["", " ", "a"], n).tolist()),
    "rare category": lambda n, g: pl.Series(["a"] * (n - 1) + ["b"]),
    "many categories": _many_categories,
    "categorical": lambda n, g: pl.Series(g.choice(["p", "q"], n).tolist(), dtype=pl.Categorical),
}


def _labels(n_rows, g):
    """Return labels and their space: classes, few or many, or numbers; some may be missing."""
    missing = "public" if g.random() < 0.2 else "error"
    if g.random() < 0.4:
        low, high, step = [(0, 1, 1), (-1, 1, 0.1), (0, 1000, 1), (1e6, 1e6 + 10, 0.5), (-1e-3, 1e-3, 1e-4)][
            g.integers(5)
        ]
        space = ldp.LabelSpace.range(low, high, step, missing=missing)
    else:
        space = ldp.LabelSpace([f"class {i}" for i in range(g.choice([2, 2, 2, 3, 5, 40]))], missing=missing)
    count = len(space)
    kind = g.choice(["any", "constant", "rare"])
    codes = {
        "any": g.integers(0, count, n_rows),
        "constant": np.full(n_rows, g.integers(count)),
        "rare": np.where(np.arange(n_rows) == 0, count - 1, 0),
    }[kind]
    labels = [space.classes[code] for code in codes]
    if missing == "public":
        labels = [*labels[:2], *_sprinkled(labels[2:], g, None, g.uniform(0, 0.95))]
    return labels, space


def unusual(seed: int) -> Unusual:
    """Return the table of a seed."""
    g = np.random.default_rng(seed)
    n_rows = int(g.choice([2, 3, 5, 12, 40, 120, 210, 300, 300, 700]))
    column_types = g.choice(list(MAKERS), g.integers(1, 7))
    frame = pl.DataFrame([MAKERS[name](n_rows, g).alias(f"{index} {name}") for index, name in enumerate(column_types)])
    labels, space = _labels(n_rows, g)
    users = g.integers(0, max(2, n_rows // 2), n_rows) if g.random() < 0.15 else None
    epsilon, delta = float(g.choice([0.05, 1.0, 4.0, 30.0])), float(g.choice([0.0, 1e-6]))
    return Unusual(frame, labels, space, epsilon, delta, users)
