"""One private training from a table to a run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from labeldp.core.atomic_files import atomic_write
from labeldp.privacy.vault import Vault
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.recipes.progress import Progress
from labeldp.recipes.result import TrainingResult
from labeldp.recipes.training import train as train_recipe
from labeldp.runs.checkpoints import checkpoint_folder
from labeldp.runs.config import TrainConfig
from labeldp.runs.feature_files import data_warnings
from labeldp.runs.record import describe_run, write_run


def train_to_folder(
    table: SecretTable,
    vault: Vault,
    config: TrainConfig,
    out: Path,
    report: Callable[[str], None] = lambda message: None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train with a configuration and write a run folder.

    An interrupted training of networks leaves its checkpoints beside `out`. The same request resumes from them.

    Args:
        table: The table with the private labels.
        vault: The vault of its labels.
        config: The settings of the training.
        out: The new run folder.
        report: Called with status messages and warnings.
        progress: Counts the steps of recipes that plan them.

    Returns:
        The contents of `run.json`.
    """
    row_mask = vault.cap_labels_per_user(config.labels_per_user, config.seed)
    with atomic_write(out) as folder, checkpoint_folder(out) as checkpoints:
        reader, features, public = config.read(table, vault.n_rows)
        task = config.make_task(
            features, table.space, row_mask, checkpoints, public=public, progress=progress or Progress()
        )
        table_warnings = [] if public is not None else data_warnings(table, features)
        for warning in table_warnings:  # before any charge, because a column may have been read in the wrong way
            report(f"Note: {warning}")
        encoder = task.encoder and task.encoder.digest()[:16]

        def write_result(run_folder: Path, trained: TrainingResult, vault: Vault) -> dict[str, Any]:
            facts = describe_run(table, vault, config, trained)
            facts |= {"encoder": encoder, "warnings": [*facts["warnings"], *table_warnings]}
            write_run(run_folder, facts, reader, trained, vault)
            return facts

        def rehearse(trained: TrainingResult, rehearsal_vault: Vault) -> None:
            with TemporaryDirectory() as temporary:
                write_result(Path(temporary) / "run", trained, rehearsal_vault)

        trained = train_recipe(vault, task, config.recipe, config.options, report=report, rehearsal_hook=rehearse)
        return write_result(folder, trained, vault)
