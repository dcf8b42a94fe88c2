"""A run: one private training, kept in a folder that another person can read."""

import json
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from labeldp import __version__
from labeldp.datasets import SecretTable
from labeldp.errors import InputError
from labeldp.files import TableFile, written_whole
from labeldp.labels import LabelSpace
from labeldp.learn.weighted import Weighted
from labeldp.mechanisms import GroupHistogram, RandomizedResponse
from labeldp.releases import NoisyCounts
from labeldp.vault import Vault

_HELD_OUT = 5  # one row in five scores the model


@dataclass(frozen=True)
class Estimate:
    """An accuracy that was measured privately, on rows that the model has not seen."""

    accuracy: float
    low: float
    high: float
    rows: int
    method: str = "noisy counts of predictions by label on held-out rows; 95 % normal interval"


def train(table: SecretTable, vault: Vault, epsilon: float, out: Path, *, seed: int = 0) -> dict[str, Any]:
    """Train by randomized response and write the run folder `out`; return what it says."""
    with written_whole(out) as folder:
        frame = _read(table.file, table.features)
        if frame.height != vault.rows:
            raise InputError(f"{table.file.path} has lines that are no rows: remove blank lines.")
        held_out = _held_out(vault.rows, seed)
        release = vault.release(RandomizedResponse(epsilon), rows=np.flatnonzero(~held_out))
        model = _pipeline(frame)
        features = model[:-1].fit_transform(frame)
        model.steps[-1] = ("classifier", Weighted(model[-1]).fit(features, release))
        predicted = model[-1].predict(features)
        # The held-out rows are other rows, so scoring them at the same epsilon leaves every label's loss at epsilon.
        counts = vault.release(
            GroupHistogram(predicted, epsilon), rows=np.flatnonzero(held_out), derived_from=[release]
        )
        if not isinstance(counts, NoisyCounts):
            raise TypeError("A histogram gave no counts.")
        report = {
            "version": __version__,
            "python": platform.python_version(),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "data": {"name": table.file.path.name, "rows": vault.rows, "label": table.label},
            "features": table.features,
            "space": table.space.to_json(),
            "recipe": "randres",
            "epsilon": epsilon,
            "seed": seed,
            "guarantee": vault.guarantee().to_json(),
            "estimate": asdict(estimate_accuracy(counts)),
        }
        folder.mkdir()
        _dump(folder / "run.json", report)
        _dump(folder / "ledger.json", [entry.redacted() for entry in vault.ledger.entries()])
        _save_model(model, folder / "model.skops")
    return report


def predict(run: Path, data: Path) -> pl.DataFrame:
    """Return the predicted label of each row of `data`, and the probability of each class."""
    report = read_report(run)
    space, names = LabelSpace.from_json(report["space"]), report["features"]
    file = TableFile(data)
    absent = [name for name in names if name not in file.schema.names]
    if absent:
        raise InputError(f"{data} lacks the column {absent[0]!r}, which the model was trained on.")
    frame = _read(file, names)
    model = _load_model(run / "model.skops")
    try:
        known = model.predict_proba(frame)
    except (ValueError, TypeError):
        raise InputError(f"The columns of {data} have other types than those that the model was trained on.") from None
    proba = np.zeros((frame.height, len(space)))
    proba[:, model[-1].classes_] = known
    labels = pl.Series("prediction", space.decode(proba.argmax(axis=1)).tolist())
    return pl.DataFrame([labels, *(pl.Series(f"p({c})", proba[:, i]) for i, c in enumerate(space))])


def read_report(run: Path) -> dict[str, Any]:
    """Return what a run folder says about itself."""
    try:
        report: dict[str, Any] = json.loads((run / "run.json").read_text())
    except (OSError, ValueError):
        raise InputError(f"{run} is not a run folder: `labeldp train --out` makes one.") from None
    return report


def estimate_accuracy(counts: NoisyCounts) -> Estimate:
    """Estimate accuracy from a noisy confusion matrix: its diagonal over the public number of rows.

    The interval adds the variance of the noise to that of the sample (Agresti and Coull's, which does not vanish
    at 0 and 1).
    """
    rows = int(counts.sizes.sum())
    right = int(np.trace(counts.counts[:, : len(counts.counts)]))
    q = np.exp(-1 / counts.scale)
    noise = 2 * q / (1 - q) ** 2 * min(counts.counts.shape)
    centre = min(max((right + 2) / (rows + 4), 0.0), 1.0)
    spread = 1.96 * np.sqrt(centre * (1 - centre) / (rows + 4) + noise / rows**2)
    low, high = np.clip([centre - spread, centre + spread], 0.0, 1.0)
    return Estimate(min(max(right / rows, 0.0), 1.0), float(low), float(high), rows)


def _held_out(rows: int, seed: int) -> NDArray[np.bool_]:
    """Choose the rows that score the model, without a look at any label."""
    order = np.random.default_rng(seed).permutation(rows)
    return order % _HELD_OUT == 0


def _read(file: TableFile, columns: list[str]) -> pl.DataFrame:
    """Read features, and never the label: Polars' message could quote it. Numbers in a CSV become numbers."""
    try:
        read = pl.read_parquet if file.path.suffix == ".parquet" else pl.read_csv
        return read(file.path, columns=columns).select(columns)
    except (pl.exceptions.PolarsError, OSError) as problem:
        kind = type(problem).__name__
    raise InputError(f"{file.path} cannot be read ({kind}).")


def _pipeline(features: pl.DataFrame) -> Any:
    import polars.selectors as cs
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = features.select(cs.numeric()).columns
    words = features.select(~cs.numeric()).columns
    encode = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
            ("words", OneHotEncoder(handle_unknown="ignore", max_categories=100, sparse_output=False), words),
        ]
    )
    return make_pipeline(encode, LogisticRegression(C=0.1, max_iter=300))


def _save_model(model: Any, path: Path) -> None:
    import skops.io

    skops.io.dump(model, path)


def _load_model(path: Path) -> Any:
    """Load a model, of scikit-learn's own types only: no pickle, nothing that a file could make run."""
    import skops.io

    try:
        return skops.io.load(path, trusted=["numpy.dtype"])
    except Exception:
        raise InputError(f"{path} is not a model that labeldp wrote, or it is damaged.") from None


def _dump(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n")
