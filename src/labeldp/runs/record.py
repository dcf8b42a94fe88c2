"""The files of a run folder: `run.json`, `features.json`, the ledger entries, the card and the model."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from labeldp.core.errors import InputError, MissingExtra
from labeldp.core.version import __version__
from labeldp.data.feature_reader import FeatureReader
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.recipes.result import TrainingResult
from labeldp.report.card import write_card
from labeldp.report.card.origin import describe_model, package_versions
from labeldp.runs.config import TrainConfig


def describe_run(table: SecretTable, vault: Vault, config: TrainConfig, trained: TrainingResult) -> dict[str, Any]:
    """Return the contents of `run.json`."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "packages": package_versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": {"name": table.file.path.name, "rows": vault.n_rows, "label": table.label},
        "space": table.space.to_json(),
        **trained.to_json(),
        "options": dict(config.options),
        "features": config.features,
        "settings": {
            "model": config.model,
            "epochs": config.epochs,
            "public": config.public is not None,
            "choose_by": config.choose_by,
        },
        "users": trained.user_summary and trained.user_summary | {"column": table.user_column},
        "model": describe_model(trained.model),
        "model_unit": trained.model.guarantee.unit if trained.model.guarantee else None,
        "entries": [release.entry for release in trained.releases],
        "epsilon": config.epsilon,
        "delta": config.delta,
        "seed": config.seed,
        "spent": vault.guarantee().to_json(),
    }


def write_run(
    folder: Path, facts: dict[str, Any], reader: FeatureReader, trained: TrainingResult, vault: Vault
) -> None:
    """Write the record, the card and the model of a run into a new folder."""
    folder.mkdir()
    _write_json(folder / "run.json", facts)
    _write_json(folder / "features.json", reader.to_json())
    _write_json(folder / "ledger.json", [entry.to_redacted_json() for entry in vault.ledger.entries()])
    write_card(folder)
    trained.model.save(folder / "model")


def read_record(run: Path) -> dict[str, Any]:
    """Return the contents of `run.json`."""
    try:
        report: dict[str, Any] = json.loads((run / "run.json").read_text())
    except (OSError, ValueError):
        raise InputError(f"{run} is not a run folder: choose the output folder of a training.") from None
    return report


def load_reader(run: Path) -> FeatureReader:
    """Return the feature reader of a run."""
    read_record(run)
    try:
        return FeatureReader.from_json(json.loads((run / "features.json").read_text()))
    except MissingExtra:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{run} is damaged: features.json cannot be read. Train again, or restore a copy.") from None


def _write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2, default=_to_plain) + "\n")


def _to_plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
